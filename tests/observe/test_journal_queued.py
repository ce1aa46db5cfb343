"""What comes before a binding, in journals nobody may write: a slot that is queued, reserved or put back by another than the
owner of that step, or that is bound as something else than Bound (S7)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from fairlead.model.commands import Bind, Body, Caller, Enqueue, Put, ReleaseReservation, Reserve
from fairlead.model.kinds.capacity import BudgetShape, Holding, HoldingSpec
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.resources import Resources
from tests.observe.forging import BASE, T0, TOKEN, Effect, Forged, binding, by, gone, lease, named, node, request, reservation

SCHEDULER, ASSIGNMENT, REPAIR = by(Role.SCHEDULER), by(Role.ASSIGNMENT), by(Role.REPAIR)
AUTHORITY = Caller("authority", Role.AUTHORITY)
OTHERS = (Role.REPAIR, Role.RECOVERY, Role.ROLLOUT)
HELD = reservation(expiry_time=T0 + timedelta(seconds=30))
ENQUEUE, RESERVE = Enqueue(request()[1]), Reserve("risk", "api-0", 1, 1, "n1", 0, 1)
RELEASE, BIND = ReleaseReservation("risk", "api-0", TOKEN), Bind("risk", "api-0", 1, 1, "n1", 0, 1)


def waits(state: SlotState = SlotState.PENDING, *, epoch: int = 1, standing: bool = False, uid: str = "q0") -> Effect:
    key, made = request(epoch=epoch, standing=standing)
    metadata = replace(made.metadata, uid=uid)
    return key, replace(made, metadata=metadata, status=replace(made.status, state=state))


RESERVED = waits(SlotState.RESERVED)


def forged(*rows: Effect) -> Forged:
    return Forged(*BASE, *map(lease, OTHERS), *rows)


@pytest.mark.parametrize("role", OTHERS)
def test_only_its_assignment_queues_a_slot(role: Role) -> None:
    assert forged().entry(ASSIGNMENT, ENQUEUE, waits()).found == []
    assert forged().entry(by(role), ENQUEUE, waits()).found == ["S7"]


def test_a_budgets_room_is_recoverys_to_ask_for() -> None:
    room = waits(standing=True)
    assert forged().entry(by(Role.RECOVERY), ENQUEUE, room).found == []
    assert forged().entry(ASSIGNMENT, ENQUEUE, room).found == ["S7"]


def test_a_slot_begins_by_waiting() -> None:
    assert forged().entry(ASSIGNMENT, ENQUEUE, waits(SlotState.BOUND)).found == ["S7"]
    assert set(forged().entry(ASSIGNMENT, ENQUEUE, RESERVED).found) == {"S7"}


def test_only_repair_queues_the_next_life_of_a_slot_that_was_released() -> None:
    over, again = binding(state=SlotState.RELEASED), waits(epoch=2)
    body = Put("SchedulingRequest", again[1])
    assert forged(over).entry(REPAIR, body, again, gone(over)).found == []
    assert forged(over).entry(ASSIGNMENT, body, again, gone(over)).found == ["S7"]


def test_a_slot_that_runs_is_not_queued() -> None:
    assert "S7" in forged(binding()).entry(REPAIR, ENQUEUE, waits(epoch=2)).found


def test_only_a_scheduler_reserves() -> None:
    assert forged(waits()).entry(SCHEDULER, RESERVE, RESERVED, HELD).found == []
    assert set(forged(waits()).entry(by(Role.ROLLOUT), RESERVE, RESERVED, HELD).found) == {"S7"}
    assert forged(waits()).entry(by(Role.ROLLOUT), RESERVE, RESERVED).found == ["S7", "S7"], "also where nothing is held"


def test_what_is_reserved_has_a_reservation_and_nothing_else_has() -> None:
    assert forged(waits()).entry(SCHEDULER, RESERVE, RESERVED).found == ["S7"]
    assert forged(waits()).entry(SCHEDULER, RESERVE, HELD).found == ["S7"]
    assert forged(RESERVED, HELD).entry(SCHEDULER, RELEASE, gone(HELD)).found == ["S7"]
    assert forged(RESERVED, HELD).entry(SCHEDULER, RELEASE, waits()).found == ["S7"]
    assert forged(RESERVED, HELD).entry(ASSIGNMENT, RELEASE, gone(RESERVED), gone(HELD)).found == [], "it is withdrawn"


@pytest.mark.parametrize(("caller", "found"), [(SCHEDULER, []), (AUTHORITY, []), (REPAIR, []), (ASSIGNMENT, ["S7"])])
def test_what_was_reserved_is_put_back_by_whoever_reserves_by_the_authority_or_by_repair(
    caller: Caller, found: list[str]
) -> None:
    assert forged(RESERVED, HELD).entry(caller, RELEASE, gone(HELD), waits(), at_s=40).found == found


def test_a_budgets_room_is_held_by_a_scheduler_or_given_back_by_its_claimer() -> None:
    room, runs = reservation(7, budget="eu"), binding(state=SlotState.DRAINING, claimed="api-7")
    over = binding(state=SlotState.RELEASED, claimed="api-7")
    agent = Caller("n1", Role.AGENT, node="n1")

    def by_whom(caller: Caller, body: Body, *effects: Effect) -> list[str]:
        return [one for one in forged(runs, request(7, standing=True)).entry(caller, body, *effects).found if one == "S7"]

    assert by_whom(SCHEDULER, BIND, room) == []
    assert by_whom(agent, RELEASE, over, room) == []
    assert by_whom(agent, RELEASE, room) == ["S7"]


def test_a_budgets_room_is_held_again_in_the_entry_that_releases_its_claimer() -> None:
    name, agent = "standing.eu-0", Caller("n1", Role.AGENT, node="n1")
    shapes = (BudgetShape(Resources(100, 1 << 20)),)
    key = "holdings/risk/eu.r"
    holding = Holding(named("eu.r", "risk"), HoldingSpec(budget="eu", budget_uid="b", region="r", shapes=shapes))
    room = (f"reservations/risk/{name}", reservation(0, budget="eu")[1])

    def found(*effects: Effect, wanted: Holding | None = holding, changed: Effect | None = None) -> bool:
        there = [
            binding(state=SlotState.DRAINING, cpu=100, claimed=name),
            *([(key, wanted)] if wanted else []),
            *([changed] if changed else []),
        ]
        over = binding(state=SlotState.RELEASED, cpu=100, claimed=name)
        return "S8" in forged(*there).entry(agent, RELEASE, over, *effects).found

    assert found()
    assert not found(room)
    assert not found(wanted=None), "its budget is gone"
    assert not found(wanted=replace(holding, spec=replace(holding.spec, shapes=()))), "it asks for none any more"
    assert not found(wanted=replace(holding, spec=replace(holding.spec, expiry_time=T0))), "it is over"
    open_ = node("n1")[1]
    assert not found(changed=("nodes//n1", replace(open_, spec=replace(open_.spec, unschedulable=True))))
    assert not found(changed=("nodes//n1", replace(open_, status=replace(open_.status, health="Lost"))))


@pytest.mark.parametrize("state", [SlotState.STARTING, SlotState.SERVING, SlotState.RELEASED])
def test_a_slot_is_bound_as_bound(state: SlotState) -> None:
    effects = (gone(request()), binding(cpu=100, state=state))
    assert "S7" in forged(request()).entry(SCHEDULER, BIND, *effects).found


def test_a_request_that_becomes_another_one_is_found() -> None:
    assert forged(waits()).entry(ASSIGNMENT, ENQUEUE, waits(uid="q9")).found == ["S7"]


def test_a_request_that_says_why_it_waits_is_no_step() -> None:
    key, made = waits()
    said = key, replace(made, status=replace(made.status, reason="NoFit"))
    assert forged(waits()).entry(SCHEDULER, ENQUEUE, said).found == []
