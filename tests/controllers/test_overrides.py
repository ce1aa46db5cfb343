"""What the controllers make of overrides and of the policy channel, looked at as values: a picture in, commands out."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.controllers.contract import View
from fairlead.controllers.disruption import DisruptionController
from fairlead.controllers.mirror import UID, MirrorDown
from fairlead.controllers.override import FINALIZER, OverrideController
from fairlead.controllers.policy import PolicyController
from fairlead.controllers.repair import RepairController
from fairlead.decide.overrides import AGE_MS, ends_ms
from fairlead.decide.regional import KEPT_MS
from fairlead.model import codec
from fairlead.model.commands import Delete, Move, Put, PutStatus
from fairlead.model.hot import hot_from
from fairlead.model.ids import Uid
from fairlead.model.kinds.intent import Region
from fairlead.model.kinds.policy import (
    Canary,
    Override,
    OverrideScope,
    OverrideSpec,
    PolicyChannel,
    PolicyChannelSpec,
)
from fairlead.model.kinds.slot import SlotRef
from fairlead.model.kinds.work import Assignment, AssignmentSpec, EvictionRequest, EvictionRequestSpec
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Metadata
from tests.controllers.test_repair import Row, bound, node, order

_S = SlotState
BORN_MS = 1_700_000_000_000
TTL_MS = 600_000


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, tz=UTC)


def fill(view: View, *objects: tuple[str, Any], other: bool = False) -> View:
    cache = view.other if other else view.cache
    for position, (plural, value) in enumerate(objects, 1):
        meta = value.metadata
        cache.apply(Row(plural, meta.namespace, meta.name, position, codec.encode(value), hot_from(plural, value)))
    return view


def override(kind: Any = "hold", meta: Any = None, **spec: Any) -> Override:
    made = {"creation_time": at(BORN_MS), "finalizers": (FINALIZER,), "uid": "u-1", "generation": 1, **(meta or {})}
    scope = OverrideScope(workloads=("api",))
    body = OverrideSpec(kind=kind, reason="flood", ttl_seconds=TTL_MS // 1000, requester="ada", scope=scope, **spec)
    return Override(metadata=Metadata(name="o", namespace="t", **made), spec=body)


# --- the override controller


def looked_at(found: Override, now_ms: int) -> tuple[list[Any], int | None]:
    result = OverrideController().reconcile(("t", "o"), fill(View({}, {}), ("overrides", found)), now_ms)
    return list(result.bodies), result.wake_ms


def said(bodies: list[Any]) -> dict[str, tuple[str, str]]:
    status = next(body.status for body in bodies if isinstance(body, PutStatus))
    return {condition.type: (condition.status, condition.reason) for condition in status.conditions}


@pytest.mark.parametrize(
    ("kind", "late_ms", "active", "expired", "wake_ms"),
    [
        ("hold", 0, ("True", "InForce"), "False", BORN_MS + 480_000),
        ("hold", 480_000, ("True", "EndsSoon"), "False", BORN_MS + TTL_MS),
        ("hold", TTL_MS, ("False", "Expired"), "True", BORN_MS + TTL_MS + KEPT_MS),
        ("emergency-quota", 0, ("False", "AwaitingApproval"), "False", BORN_MS + 480_000),
    ],
)
def test_an_override_says_whether_it_holds_and_until_when(
    kind: str, late_ms: int, active: tuple[str, str], expired: str, wake_ms: int
) -> None:
    bodies, wakes = looked_at(override(kind), BORN_MS + late_ms)
    told = said(bodies)
    assert (told["Active"], told["Expired"][0], wakes) == (active, expired, wake_ms)
    assert bodies[0].status.expiry_time == at(BORN_MS + TTL_MS)


def test_what_was_said_already_is_not_said_again() -> None:
    once = looked_at(override(), BORN_MS)[0][0].status
    assert looked_at(replace(override(), status=once), BORN_MS + 5)[0] == []


def test_the_finalizer_goes_when_it_is_revoked_or_over_and_not_before() -> None:
    assert not [b for b in looked_at(override(), BORN_MS)[0] if isinstance(b, Put)]
    revoked = override(meta={"deletion_time": at(BORN_MS + 1)})
    bodies = looked_at(revoked, BORN_MS + 1)[0]
    assert said(bodies)["Active"] == ("False", "Revoked")
    assert [b.object.metadata.finalizers for b in bodies if isinstance(b, Put)] == [()]
    assert [b.object.metadata.finalizers for b in looked_at(override(), BORN_MS + TTL_MS)[0] if isinstance(b, Put)] == [()]


def test_it_is_kept_a_day_after_its_end_and_a_copy_as_long_as_its_original() -> None:
    end_ms = BORN_MS + TTL_MS
    bare = {"finalizers": ()}
    assert not [b for b in looked_at(override(meta=bare), end_ms + KEPT_MS - 1)[0] if isinstance(b, Delete)]
    assert [b.name for b in looked_at(override(meta=bare), end_ms + KEPT_MS)[0] if isinstance(b, Delete)] == ["o"]
    copy = override(meta={**bare, "annotations": {UID: "u-0"}})
    assert not [b for b in looked_at(copy, end_ms + KEPT_MS)[0] if isinstance(b, Delete)]


# --- the mirror


def mirrored(source: Override, copy: Override | None, other_ms: int, now_ms: int = 42) -> list[Any]:
    mirror = MirrorDown("r")
    view = View(mirror.indexes, mirror.indexes_other)
    fill(view, ("overrides", source), ("regions", Region(metadata=Metadata(name="r"))), other=True)
    if copy is not None:
        fill(view, ("overrides", copy))
    view.other_ms = other_ms
    return list(mirror.reconcile(("overrides/t", "o"), view, now_ms).bodies)


def test_a_region_that_learns_of_an_override_late_counts_on_from_there_by_its_own_clock() -> None:
    (put,) = mirrored(override(), None, BORN_MS + 590_000)
    copy = put.object
    assert copy.metadata.annotations[AGE_MS] == "590000"
    here = replace(copy, metadata=replace(copy.metadata, creation_time=at(5_000_000)))
    assert ends_ms(here) == 5_000_000 + 10_000, "ten seconds are left, whatever the region's clock says"
    later = (BORN_MS + 595_000, 5_005_000)
    assert mirrored(override(), here, *later) == [], "its age is that of the day it came"
    (longer,) = mirrored(override(meta={"generation": 2}, parameters={"x": "y"}), here, *later)
    assert longer.object.metadata.annotations[AGE_MS] == "590000"


def test_a_region_whose_clock_has_fallen_behind_is_told_how_old_an_override_is() -> None:
    (put,) = mirrored(override(), None, BORN_MS)
    here = replace(put.object, metadata=replace(put.object.metadata, creation_time=at(5_000_000)))
    assert mirrored(override(), here, BORN_MS + 110_000, 5_100_000) == [], "ten seconds of drift are nothing to write about"
    (told,) = mirrored(override(), here, BORN_MS + 310_000, 5_100_000)
    older = replace(here, metadata=replace(here.metadata, annotations=told.object.metadata.annotations))
    assert ends_ms(here) - ends_ms(older) == 210_000
    assert mirrored(override(), older, BORN_MS + 310_000, 5_100_000) == []
    assert mirrored(override(), here, BORN_MS + 50_000, 5_100_000) == [], "a clock that is ahead ends it early, and is left alone"


def test_a_clock_that_runs_behind_makes_no_override_older_than_it_is() -> None:
    (put,) = mirrored(override(), None, BORN_MS - 1000)
    assert put.object.metadata.annotations[AGE_MS] == "0"


def test_what_another_region_is_given_is_nothing_to_look_at_here() -> None:
    mirror = MirrorDown("r")
    view = View(mirror.indexes, mirror.indexes_other)
    for region in ("r", "other"):
        spec = AssignmentSpec(workload="api", workload_uid="u", generation=1, region=region)
        fill(view, ("assignments", Assignment(Metadata(name=f"api.{region}", namespace="t", uid=Uid(region)), spec)), other=True)
    looked = {item.name: list(mirror.keys(view, item, True)) for item in view.other.all("assignments")}
    assert looked == {"api.r": [("assignments/t", "api.r")], "api.other": []}


# --- freeze


def ruled(*objects: tuple[str, Any], now_ms: int = BORN_MS) -> tuple[list[str], int | None]:
    spec = EvictionRequestSpec(slot=SlotRef(workload="api", uid="u", index=0), reason="rollout", epoch=2)
    asked = EvictionRequest(metadata=Metadata(name="api-0", namespace="t", generation=1), spec=spec)
    view = fill(View(DisruptionController.indexes, {}), ("evictionrequests", asked), bound(_S.READY), node("Ready"), *objects)
    result = DisruptionController().reconcile(("t", "api"), view, now_ms)
    return [body.status.conditions[0].reason for body in result.bodies if isinstance(body, PutStatus)], result.wake_ms


def test_under_a_freeze_what_is_wanted_stays_and_is_looked_at_again_when_it_ends() -> None:
    assert ruled(order())[0] == ["WithinBudget"]
    frozen = ("overrides", override("freeze"))
    assert ruled(order(), frozen) == (["Blocked"], BORN_MS + TTL_MS)
    assert ruled(order(), frozen, now_ms=BORN_MS + TTL_MS)[0] == ["WithinBudget"]


def test_a_freeze_keeps_nobody_who_is_not_wanted_any_more() -> None:
    plural, assignment = order()
    gone = replace(assignment, metadata=replace(assignment.metadata, deletion_time=at(BORN_MS)))
    assert ruled((plural, gone), ("overrides", override("freeze")))[0] == ["WithinBudget"]


# --- repair


def test_repair_waits_for_approval_until_the_override_ends_or_somebody_else_approves() -> None:
    def moved(found: Override, now_ms: int = BORN_MS) -> tuple[bool, int | None]:
        view = fill(View(RepairController.indexes, {}), order(), bound(_S.UNKNOWN), node("Lost"), ("overrides", found))
        result = RepairController("r").reconcile(("t", "api"), view, now_ms)
        return any(isinstance(body, Move) for body in result.bodies), result.wake_ms

    assert moved(override("freeze"))[0]
    assert moved(override("repair-approval")) == (False, BORN_MS + TTL_MS)
    assert moved(override("repair-approval", approver="bob"))[0]
    assert moved(override("repair-approval"), BORN_MS + TTL_MS)[0]


@pytest.mark.parametrize(("region", "waits"), [("r", True), ("other", False)])
def test_repair_waits_for_approval_in_the_regions_named_also_where_no_assignment_is_left(region: str, waits: bool) -> None:
    made = override("repair-approval")
    named = replace(made, spec=replace(made.spec, scope=OverrideScope(regions=(region,))))
    for assigned in ((order(),), ()):
        view = fill(View(RepairController.indexes, {}), *assigned, bound(_S.UNKNOWN), node("Lost"), ("overrides", named))
        result = RepairController("r").reconcile(("t", "api"), view, BORN_MS)
        assert any(isinstance(body, Move) for body in result.bodies) is not waits


# --- the policy channel


def channel(canary: Canary | None, status: Any = None, current: int = 1) -> PolicyChannel:
    made = PolicyChannel(
        metadata=Metadata(name="default", uid=Uid("u"), generation=1), spec=PolicyChannelSpec(current, canary, ())
    )
    return replace(made, status=status) if status is not None else made


def controlled(found: PolicyChannel, now_ms: int) -> tuple[list[Any], int | None]:
    view = fill(View({}, {}), ("policychannels", found))
    result = PolicyController().reconcile(("", "default"), view, now_ms)
    return list(result.bodies), result.wake_ms


def test_a_canary_is_rolled_back_at_its_deadline_by_the_policy_controller() -> None:
    trial = Canary(revision=2, share_percent=10, ttl_seconds=60)
    (told,), wake_ms = controlled(channel(trial), BORN_MS)
    assert wake_ms == BORN_MS + 60_000
    assert (told.status.canary_revision, told.status.canary_end_time) == (2, at(BORN_MS + 60_000))
    assert controlled(channel(trial, told.status), BORN_MS + 59_999) == ([], BORN_MS + 60_000)
    (back,), _ = controlled(channel(trial, told.status), BORN_MS + 60_000)
    assert back.object.spec == PolicyChannelSpec(current=1)
    assert back.expected_revision, "not over somebody's promotion that came at the same moment"
    (ended,), _ = controlled(channel(None, told.status), BORN_MS + 60_001)
    assert (ended.status.canary_revision, ended.status.conditions[0].reason) == (0, "DeadlinePassed")
    (kept,), _ = controlled(channel(None, told.status, current=2), BORN_MS + 60_001)
    assert kept.status.conditions[0].reason == "Promoted"


def test_a_canary_that_is_ordered_otherwise_ends_as_its_order_says_and_no_later_than_any_may() -> None:
    status: Any = None
    hour_ms = 3_600_000
    orders = (  # after so many minutes, for so many, and when it ends
        (1, 0, 60, 60),
        (50, 50, 60, 110),
        (50, 55, 60, 110),  # the same again
        (50, 60, 30, 90),
        (60, 80, 240, 240),  # four hours from its first order
        (50, 235, 240, 240),
    )
    for share, minute, minutes, ends in orders:
        trial = Canary(revision=2, share_percent=share, ttl_seconds=minutes * 60)
        now_ms = BORN_MS + minute * 60_000
        bodies, wake_ms = controlled(channel(trial, status), now_ms)
        status = bodies[0].status if bodies else status
        assert status is not None
        assert status.canary_start_time == at(BORN_MS)
        assert status.canary_end_time == at(BORN_MS + ends * 60_000), (minute, minutes)
        assert f"until {status.canary_end_time:%Y-%m-%dT%H:%M:%SZ}" in status.conditions[0].message
        assert wake_ms == BORN_MS + ends * 60_000
    (other,), _ = controlled(channel(Canary(revision=3, share_percent=1, ttl_seconds=3600), status), BORN_MS + 4 * hour_ms)
    assert other.status.canary_end_time == at(BORN_MS + 5 * hour_ms), "another revision has its own time"
    before = replace(status, canary=None)  # as a server said it that does not remember orders
    (told,), _ = controlled(channel(Canary(revision=2, share_percent=1, ttl_seconds=7200), before), BORN_MS + hour_ms)
    assert told.status.canary_end_time == at(BORN_MS + 2 * hour_ms)
