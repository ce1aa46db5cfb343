"""Who is left over: each kind told from what is not, as values."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from fairlead.decide.leftovers import (
    ALLOWED_S,
    BARE_MS,
    LATE_MS,
    OVER_S,
    Slots,
    leaked_reservations,
    over_grants,
    over_quotas,
    stale_finalizers,
    told_of_slots,
    why_orphaned,
)
from fairlead.decide.slots import instant
from fairlead.model.commands import Delete, Put, ReleaseReservation
from fairlead.model.ids import Uid
from fairlead.model.kinds.capacity import Grant, GrantSpec, GrantStatus, Reservation, ReservationSpec
from fairlead.model.kinds.intent import Quota, QuotaSpec, QuotaStatus, Workload, WorkloadSpec
from fairlead.model.kinds.policy import Override, OverrideScope, OverrideSpec
from fairlead.model.kinds.slot import SlotRef, Token
from fairlead.model.kinds.work import Assignment, AssignmentSpec
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Condition, Metadata
from fairlead.model.resources import Resources

NOW = 10_000_000
TOKEN = Token(incarnation=1, epoch=1, attempt=1)
_S = SlotState


def reserved(ends_ms: int, budget: str = "") -> Reservation:
    spec = ReservationSpec(node="n1", requests=Resources(1000, 0), slot=SlotRef("api", "u", 0), token=TOKEN,
                           expiry_time=instant(ends_ms), budget=budget)  # fmt: skip
    return Reservation(metadata=Metadata(name="api-0", namespace="risk"), spec=spec)


def test_a_reservation_leaks_when_the_authority_has_not_ended_it_a_while_after_its_end() -> None:
    assert leaked_reservations([reserved(NOW - LATE_MS + 1)], (), NOW) == []
    (found,) = leaked_reservations([reserved(NOW - LATE_MS)], (), NOW)
    assert (found.problem, found.owner, found.workload) == ("LeakedReservation", Role.REPAIR, "api")
    assert found.fix == ReleaseReservation("risk", "api-0", TOKEN)


def test_a_room_leaks_when_its_budget_is_gone_and_never_by_time() -> None:
    room = reserved(NOW - 10 * LATE_MS, budget="critical")
    assert leaked_reservations([room], {("risk", "critical")}, NOW) == []
    (found,) = leaked_reservations([room], {("other", "critical")}, NOW)
    assert "budget critical" in found.evidence


def going(since_ms: int) -> Workload:
    meta = Metadata(name="api", namespace="risk", uid=Uid("u"), deletion_time=instant(since_ms),
                    finalizers=("fairlead.dev/slots-released", "example.com/mine"))  # fmt: skip
    return Workload(metadata=meta, spec=WorkloadSpec())


def test_a_finalizer_whose_work_is_done_is_taken_off_after_its_owner_had_its_time() -> None:
    assert stale_finalizers("workloads", [going(NOW - BARE_MS + 1)], (), NOW) == []
    (found,) = stale_finalizers("workloads", [going(NOW - BARE_MS)], (), NOW)
    assert isinstance(found.fix, Put)
    assert found.fix.object.metadata.finalizers == ("example.com/mine",), "others' are not ours to take off"
    assert (found.owner, found.allowed_s) == (Role.WORKLOAD, ALLOWED_S)


def test_a_finalizer_that_still_waits_for_a_region_is_told_when_it_is_late_and_left_where_it_is() -> None:
    assert stale_finalizers("workloads", [going(NOW - 899_000)], {"u"}, NOW) == []
    (found,) = stale_finalizers("workloads", [going(NOW - 900_000)], {"u"}, NOW)
    assert found.fix is None
    assert found.allowed_s == 0.0, "it is overdue already"
    kept = Assignment(
        metadata=Metadata(name="api.east", namespace="risk", deletion_time=instant(NOW - 9_000_000),
                          finalizers=("fairlead.dev/region-released",)),
        spec=AssignmentSpec(workload="api", workload_uid="u", generation=1, region="east"),
    )  # fmt: skip
    (late,) = stale_finalizers("assignments", [kept], (), NOW)
    assert late.fix is None, "nobody but its region knows that nothing of it runs"


def test_what_is_not_going_keeps_its_finalizers_and_an_ended_override_loses_its_own() -> None:
    alive = Workload(
        metadata=Metadata(name="api", namespace="risk", finalizers=("fairlead.dev/slots-released",)), spec=WorkloadSpec()
    )
    assert stale_finalizers("workloads", [alive], (), NOW) == []
    meta = Metadata(
        name="x", namespace="risk", creation_time=instant(NOW - 700_000), finalizers=("fairlead.dev/override-undone",)
    )
    spec = OverrideSpec(kind="hold", reason="r", ttl_seconds=600, scope=OverrideScope(workloads=("api",)))
    (found,) = stale_finalizers("overrides", [Override(metadata=meta, spec=spec)], (), NOW)
    assert found.problem == "ExpiredOverride"
    assert isinstance(found.fix, Put)
    assert stale_finalizers("overrides", [Override(metadata=meta, spec=spec)], (), NOW - 100_000 + BARE_MS - 1) == []


class Hot(NamedTuple):
    state: SlotState
    node: str = "n1"


class Row(NamedTuple):
    hot: Any
    tenant: str = "risk"
    name: str = "risk-api-3"


HERE = ({("risk", "risk-api")}, {"n1": "Ready", "n2": "Lost"})


@pytest.mark.parametrize(
    ("hot", "orphaned", "stuck"),
    [
        (Hot(_S.SERVING), "", ""),
        (Hot(_S.RELEASED, "n9"), "", ""),
        (Hot(_S.SERVING, "n9"), "node n9 is gone", ""),
        (Hot(_S.FAILED), "", "Failed, and not let go"),
        (Hot(_S.UNKNOWN), "", ""),
        (Hot(_S.UNKNOWN, "n2"), "", "Unknown on a lost node, and not let go"),
    ],
)
def test_a_slot_is_orphaned_without_a_node_or_stuck_when_repair_should_have_let_it_go(
    hot: Hot, orphaned: str, stuck: str
) -> None:
    assert why_orphaned(Row(hot), *HERE) == (orphaned, stuck)


def test_a_slot_that_no_assignment_wants_is_orphaned() -> None:
    assert why_orphaned(Row(Hot(_S.SERVING)), (), HERE[1])[0] == "no Assignment wants them"


def test_slots_are_told_of_only_when_two_looks_in_a_row_found_them() -> None:
    now = Slots({("risk", "api", "node n9 is gone"): 2}, {("risk", "db", "Failed, and not let go"): 1}, [("risk", "api-7")])
    assert told_of_slots(now, None) == []
    assert told_of_slots(now, Slots({}, {}, [])) == []
    found = told_of_slots(now, now)
    assert [each.problem for each in found] == ["OrphanedBinding", "StuckSlot", "OrphanedInstance"]
    assert [each.fix for each in found] == [None, None, Delete("Instance", "risk", "api-7")], (
        "nothing that may run is let go here"
    )


def grant(used_cpu: int, end_ms: int | None = None) -> Grant:
    spec = GrantSpec(region="east", version=3, during=Resources(8000, 0), after=Resources(2000, 0),
                     lease_end_time=instant(end_ms) if end_ms is not None else None)  # fmt: skip
    return Grant(metadata=Metadata(name="east", namespace="risk"), spec=spec, status=GrantStatus(used=Resources(used_cpu, 0)))


def test_use_above_what_the_global_plane_allows_has_an_owner_and_a_deadline() -> None:
    assert over_grants([grant(8000)], None, 1, NOW) == []
    (over,) = over_grants([grant(8001)], None, 1, NOW)
    assert (over.problem, over.owner, over.allowed_s, over.fix) == ("OverGrant", Role.OPERATOR, OVER_S, None)
    assert "cpu 8001 of 8000" in over.evidence
    (expired,) = over_grants([grant(8000, NOW)], None, 1, NOW)
    assert expired.problem == "ExpiredGrant"
    assert over_grants([grant(8000, NOW + 1)], None, 1, NOW) == []


def test_what_runs_on_where_a_region_has_lost_what_it_stood_on_is_nobody_s_to_mend() -> None:
    made = grant(3000)
    status = replace(made.status, accepted_version=3, during=made.spec.during, after=made.spec.after, incarnation=1)
    leased = replace(made, spec=replace(made.spec, lease_seconds=600), status=status)
    assert [each.problem for each in over_grants([leased], None, 1, NOW)] == ["ExpiredGrant"]
    assert over_grants([leased], None, 2, NOW) == []


def test_a_quota_that_is_exceeded_is_overdue_after_the_time_it_may_be() -> None:
    said = Condition("OverQuota", "True", 1, instant(NOW - 100_000), "LimitsWereLowered", "cpu")
    quota = Quota(metadata=Metadata(name="default", namespace="risk"), spec=QuotaSpec(), status=QuotaStatus(conditions=(said,)))
    (found,) = over_quotas([quota], NOW)
    assert found.allowed_s == OVER_S - 100
    assert over_quotas([Quota(metadata=quota.metadata, spec=quota.spec)], NOW) == []
