"""What should have gone by itself, asked of forged journals (S10), and gangs that are bound in part (S20)."""

from __future__ import annotations

from datetime import timedelta

from fairlead.model.kinds.work import Assignment, AssignmentSpec, SlotRange
from fairlead.model.lifecycle import SlotState
from tests.observe.forging import BASE, T0, Forged, binding, named, request, reservation

SPEC = AssignmentSpec(workload="api", workload_uid="u", generation=1, region="r", slots=(SlotRange(0, 2),), gang=True)
ORDER = ("assignments/risk/api.r", Assignment(named("api.r", "risk"), SPEC))


def test_a_reservation_of_a_slot_that_never_ends_is_found() -> None:
    assert Forged(*BASE, reservation()).passes(1, 90).found == []
    forged = Forged(*BASE, reservation()).passes(1, 120)
    assert forged.found == ["S10"], forged.details


def test_a_reservation_for_longer_than_anybody_may_reserve_is_found() -> None:
    assert Forged(*BASE, reservation(expiry_time=T0 + timedelta(days=365))).passes(1, 120).found == ["S10"]
    assert Forged(*BASE, reservation(expiry_time=T0 + timedelta(seconds=290))).passes(1, 370).found == []


def test_a_room_that_is_held_for_a_budget_has_no_end() -> None:
    assert Forged(*BASE, reservation(budget="b")).passes(1, 420).found == []


def test_a_gang_that_is_bound_in_part_for_a_minute_is_found() -> None:
    waits = request(1, gang="api", gang_size=3)
    forged = Forged(*BASE, ORDER, binding(), waits).passes(1, 90)
    assert forged.found == ["S20"], forged.details
    assert Forged(*BASE, ORDER, binding(), waits).passes(1, 55).found == []
    assert Forged(*BASE, ORDER, binding(), request(1)).passes(1, 90).found == [], "it goes by itself, since its fellow began"
    assert Forged(*BASE, ORDER, binding(state=SlotState.DRAINING), waits).passes(1, 90).found == []
    assert Forged(*BASE, ORDER, binding(7), waits).passes(1, 90).found == [], "one that is not wanted any more"
