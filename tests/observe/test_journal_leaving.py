"""S19 of those who are asked to leave: budgets hold against the disruption controller too, asked of forged journals."""

from __future__ import annotations

from msgspec.structs import replace

from fairlead.model.commands import Delete
from fairlead.model.kinds.slot import SlotRef
from fairlead.model.kinds.work import (
    Assignment,
    AssignmentSpec,
    EvictionRequest,
    EvictionRequestSpec,
    EvictionRequestStatus,
    SlotRange,
)
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Condition
from tests.observe.forging import BASE, Effect, Forged, binding, by, gone, named, to

DISRUPTION, ROLLOUT = by(Role.DISRUPTION), by(Role.ROLLOUT)
RULED = Delete("EvictionRequest", "risk", "x")  # what was asked is not looked at here


def order(least: int, slots: int = 3) -> Effect:
    spec = AssignmentSpec(
        workload="api", workload_uid="u", generation=1, region="r", slots=(SlotRange(0, slots - 1),), min_serving=least
    )
    return "assignments/risk/api.r", Assignment(named("api.r", "risk"), spec)


def slot(index: int, state: SlotState = SlotState.SERVING) -> Effect:
    return binding(index, cpu=100, state=state)


def let_go(index: int, said: str = "Approved") -> Effect:
    conditions = (Condition(type=said, status="True", reason="x", observed_generation=1),)
    spec = EvictionRequestSpec(slot=SlotRef("api", "u", index), reason="x", epoch=1)
    meta = replace(named(f"api-{index}", "risk"), generation=1)
    return f"evictionrequests/risk/api-{index}", EvictionRequest(meta, spec, EvictionRequestStatus(conditions=conditions))


def serving(least: int, slots: int = 3) -> Forged:
    """For two minutes."""
    return Forged(*BASE, order(least, slots), *(slot(index) for index in range(slots))).passes(1, 120)


def test_who_is_let_go_within_the_budget_breaks_nothing() -> None:
    forged = serving(2).entry(DISRUPTION, RULED, let_go(0), at_s=120)
    forged.entry(ROLLOUT, to(SlotState.READY), slot(0, SlotState.READY), at_s=121)
    forged.entry(DISRUPTION, to(SlotState.DRAINING), slot(0, SlotState.DRAINING), at_s=122)
    assert forged.found == [], forged.details


def test_who_is_let_go_beyond_the_budget_is_found() -> None:
    assert serving(3).entry(DISRUPTION, RULED, let_go(0), at_s=120).found == ["S19"]
    two = serving(2).entry(DISRUPTION, RULED, let_go(0), at_s=120).entry(DISRUPTION, RULED, let_go(1), at_s=121)
    assert two.found == ["S19"], two.details


def test_one_that_was_let_go_and_serves_no_longer_makes_up_for_nobody() -> None:
    forged = serving(2).entry(DISRUPTION, RULED, let_go(0), at_s=120)
    forged.entry(ROLLOUT, to(SlotState.READY), slot(0, SlotState.READY), at_s=121)
    forged.entry(DISRUPTION, RULED, let_go(0, "Done"), at_s=122)
    assert forged.entry(DISRUPTION, RULED, let_go(1), at_s=123).found == ["S19"]


def test_who_failed_a_moment_ago_is_not_counted_on() -> None:
    forged = serving(2).entry(ROLLOUT, to(SlotState.READY, 2), slot(2, SlotState.READY), at_s=120)
    assert forged.entry(DISRUPTION, RULED, let_go(0), at_s=121).found == ["S19"]


def test_a_budget_counts_from_the_moment_it_is_raised() -> None:
    forged = serving(2).entry(by(Role.ASSIGNMENT), RULED, order(3), at_s=120)
    assert forged.entry(DISRUPTION, RULED, let_go(0), at_s=121).found == ["S19"]


def test_who_was_let_go_in_another_life_is_counted_on() -> None:
    path, asked = let_go(0)
    before = (path, replace(asked, spec=replace(asked.spec, epoch=7)))
    forged = serving(2).entry(DISRUPTION, RULED, before, at_s=120)
    assert forged.entry(DISRUPTION, RULED, let_go(1), at_s=121).found == [], forged.details


def test_who_does_not_serve_may_go_and_so_may_all_of_a_workload_that_goes() -> None:
    ready = Forged(*BASE, order(3), slot(0, SlotState.READY), slot(1), slot(2)).passes(1, 120)
    assert ready.entry(DISRUPTION, RULED, let_go(0), at_s=120).found == []
    _, wanted = order(3)
    suspended = (order(3)[0], replace(wanted, spec=replace(wanted.spec, suspend=True)))
    leaves = Forged(*BASE, suspended, slot(0)).passes(1, 120)
    assert leaves.entry(DISRUPTION, RULED, let_go(0), at_s=120).found == []


def test_a_drain_of_one_whom_nobody_let_go_is_found_where_too_few_are_left() -> None:
    drain, drained = to(SlotState.DRAINING), slot(0, SlotState.DRAINING)
    assert serving(3).entry(DISRUPTION, drain, drained, at_s=120).found == ["S19"]
    assert serving(2).entry(DISRUPTION, drain, drained, at_s=120).found == []
    raised = serving(2).entry(DISRUPTION, RULED, let_go(0), at_s=120).entry(by(Role.ASSIGNMENT), RULED, order(3), at_s=121)
    assert raised.entry(DISRUPTION, drain, drained, at_s=122).found == [], "it was let go when that was within the budget"
    back = serving(3).entry(by(Role.ROLLOUT), RULED, gone(let_go(0)), at_s=121)
    assert back.entry(DISRUPTION, drain, drained, at_s=122).found == ["S19"]


def test_nothing_is_asked_of_what_was_so_before_the_history_begins() -> None:
    begun = Forged(*BASE, order(2, 2), slot(0), slot(1), let_go(0), let_go(1))
    assert begun.entry(DISRUPTION, to(SlotState.DRAINING), slot(0, SlotState.DRAINING), at_s=5).found == []
