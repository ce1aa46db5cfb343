"""The checker of S11 finds an override that is not kept while it holds, and one that holds after its end."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.model.kinds.capacity import Node, NodeSpec
from fairlead.model.kinds.policy import Override, OverrideScope, OverrideSpec, PolicyChannel, PolicyChannelSpec
from fairlead.model.kinds.quota import GrantTerm, GrantTermSpec, GrantTermStatus
from fairlead.model.kinds.slot import SlotRef, Token
from fairlead.model.kinds.work import (
    Assignment,
    AssignmentSpec,
    Binding,
    BindingSpec,
    BindingStatus,
    SchedulingRequest,
    SchedulingRequestSpec,
    SchedulingRequestStatus,
    SlotRange,
)
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from fairlead.observe.leased import LeaseChecker
from fairlead.observe.overrides import SAID_LATE_MS, OverrideChecker

BORN_MS = 1_700_000_000_000
END_MS = BORN_MS + 60_000
GONE = datetime.fromtimestamp(BORN_MS / 1000, tz=UTC)
SLOT = SlotRef(workload="api", uid="u", index=0)
ORDER = AssignmentSpec("api", "u", 1, "r", slots=(SlotRange(first=0, last=1),))


def override(kind: Any = "hold", **changes: Any) -> Override:
    scope = changes.pop("scope", OverrideScope(workloads=("api",)))
    meta = changes.pop("meta", {})
    born = datetime.fromtimestamp(BORN_MS / 1000, tz=UTC)
    spec = OverrideSpec(kind=kind, reason="x", requester="ada", scope=scope, **{"ttl_seconds": 60, **changes})
    return Override(metadata=Metadata(name="o", namespace="risk", creation_time=born, **meta), spec=spec)


def binding() -> Binding:
    spec = BindingSpec(slot=SLOT, node="n", token=Token(incarnation=1, epoch=1, attempt=1))
    return Binding(metadata=Metadata(name="api-0", namespace="risk"), spec=spec)


def waiting(reason: str) -> SchedulingRequest:
    status = SchedulingRequestStatus(reason=reason)
    return SchedulingRequest(Metadata(name="api-0", namespace="risk"), SchedulingRequestSpec(slot=SLOT), status)


def found(plural: str, old: Any, new: Any, now_ms: int, *there: Override, role: Role = Role.SCHEDULER) -> list[str]:
    node = Node(metadata=Metadata(name="n"), spec=NodeSpec(region="r", zone="a"))
    objects: dict[str, dict[tuple[str, str], Any]] = {
        "overrides": {("risk", str(at)): each for at, each in enumerate(there)},
        "nodes": {("", "n"): node},
        "assignments": {("risk", "api.r"): Assignment(Metadata(name="api.r", namespace="risk"), ORDER)},
    }
    out: list[str] = []
    OverrideChecker(objects, lambda invariant, detail: out.append(f"{invariant} {detail}")).changed(
        plural, old, new, now_ms, role
    )
    return out


@pytest.mark.parametrize(
    ("there", "now_ms", "wrong"),
    [
        (override(), END_MS - 1, True),
        (override(), END_MS, False),
        (override(meta={"annotations": {"fairlead.dev/mirrored-age-ms": "50000"}}), BORN_MS + 10_000, False),
        (override(meta={"deletion_time": GONE}), BORN_MS, False),
        (override(scope=OverrideScope(workloads=("web",))), BORN_MS, False),
        (override(scope=OverrideScope(tenants=("*",), regions=("r",))), BORN_MS, True),
        (override("zone-avoidance", scope=OverrideScope(zones=("a",))), BORN_MS, True),
        (override("zone-avoidance", scope=OverrideScope(zones=("b",))), BORN_MS, False),
        (override("freeze"), BORN_MS, False),
    ],
)
def test_what_is_bound_under_a_hold_or_in_an_avoided_zone_is_found(there: Override, now_ms: int, wrong: bool) -> None:
    assert bool(found("bindings", None, binding(), now_ms, there)) is wrong
    assert not found("bindings", None, binding(), now_ms, there, role=Role.AGENT)
    assert not found("bindings", binding(), binding(), now_ms, there), "the same life, one step on"


def test_a_slot_that_is_said_to_be_held_after_the_last_hold_ended_is_found() -> None:
    assert not found("schedulingrequests", None, waiting("OnHold"), END_MS + SAID_LATE_MS - 1, override())
    assert found("schedulingrequests", None, waiting("OnHold"), END_MS + SAID_LATE_MS, override())
    assert found("schedulingrequests", None, waiting("OnHold"), BORN_MS)
    assert not found("schedulingrequests", None, waiting("WaitingForCapacity"), END_MS + SAID_LATE_MS, override())


def test_an_override_without_a_bound_or_approved_by_who_asked_or_prolonged_after_its_end_is_found() -> None:
    assert found("overrides", None, override(ttl_seconds=14_401), BORN_MS)
    assert found("overrides", override(), override(approver="ada"), BORN_MS)
    longer = override(ttl_seconds=600)
    assert not found("overrides", override(), longer, END_MS - 1)
    assert found("overrides", override(), longer, END_MS)
    copy = {"annotations": {"fairlead.dev/mirrored-age-ms": "0"}}
    assert not found("overrides", override(meta=copy), override(ttl_seconds=600, meta=copy), END_MS)


def test_a_hold_that_was_taken_away_is_remembered_for_those_who_speak_of_it_late() -> None:
    out: list[str] = []
    checker = OverrideChecker({"overrides": {}, "nodes": {}}, lambda invariant, detail: out.append(detail))
    revoked = override(meta={"deletion_time": GONE})
    checker.changed("overrides", override(), revoked, BORN_MS + 1000, Role.OVERRIDE)
    checker.changed("schedulingrequests", None, waiting("OnHold"), BORN_MS + 2000, Role.SCHEDULER)
    assert out == []
    checker.changed("schedulingrequests", None, replace(waiting("OnHold")), BORN_MS + 1000 + SAID_LATE_MS, Role.SCHEDULER)
    assert out


def test_what_is_drained_under_a_freeze_is_found_where_it_was_wanted_and_the_freeze_held() -> None:
    draining = replace(binding(), status=BindingStatus(state=SlotState.DRAINING))
    extra = replace(draining, spec=replace(draining.spec, slot=replace(SLOT, index=2)))

    def drained(new: Binding, now_ms: int, freeze: Override) -> list[str]:
        return found("bindings", binding(), new, now_ms, freeze, role=Role.DISRUPTION)

    assert drained(draining, END_MS - 1, override("freeze"))
    assert not drained(draining, END_MS, override("freeze"))
    assert not drained(extra, END_MS - 1, override("freeze")), "nobody wants it any more"
    assert not drained(draining, END_MS - 1, override("freeze", scope=OverrideScope(regions=("elsewhere",))))
    assert not drained(draining, END_MS - 1, override("freeze", scope=OverrideScope(workloads=("web",))))
    by_lease = found("bindings", binding(), draining, END_MS - 1, override("freeze"), role=Role.AUTHORITY)
    assert not by_lease, "what a lease that ends leaves no room for was given to others"


def test_who_begins_in_the_middle_of_a_history_does_not_know_the_last_holds() -> None:
    out: list[str] = []
    checker = OverrideChecker({"overrides": {}}, lambda invariant, detail: out.append(detail))
    checker.begun(BORN_MS)
    for now_ms, accused in ((BORN_MS + SAID_LATE_MS - 1, 0), (BORN_MS + SAID_LATE_MS, 1)):
        checker.changed("schedulingrequests", None, waiting("OnHold"), now_ms, Role.SCHEDULER)
        assert len(out) == accused


def test_who_begins_in_the_middle_of_a_history_does_not_know_the_last_leases() -> None:
    """The newest lease is for a policy that is not installed yet; until it ends, one from before may hold for what is."""
    asked = datetime.fromtimestamp(BORN_MS / 1000, tz=UTC)
    status = GrantTermStatus(incarnation=1, asked_time=asked, taken=3)
    term = GrantTerm(Metadata(name="r"), GrantTermSpec("r", lease_seconds=100, policy=5), status)
    have = PolicyChannel(
        Metadata(name="default", annotations={"fairlead.dev/mirrored-version": "4"}), PolicyChannelSpec(current=1)
    )
    objects: dict[str, dict[tuple[str, str], Any]] = {
        "grantterms": {("", "r"): term},
        "policychannels": {("", "default"): have},
        "regions": {},
    }
    checker = LeaseChecker(objects, lambda invariant, detail: None)
    checker.changed("grantterms", None, term, BORN_MS, 1, False)
    assert checker.installed() == (4, 0)
    assert not checker.may_judge(BORN_MS + 1, 1), "as far as this lease goes"
    checker.begun()
    assert checker.may_judge(BORN_MS + 98_000, 1)
    assert not checker.may_judge(BORN_MS + 99_000, 1)
