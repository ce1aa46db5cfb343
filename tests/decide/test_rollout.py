"""Rollouts as values: who should be there, who may leave, who gets traffic. Tables, and properties over random worlds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.decide import rollout as rollout_module
from fairlead.decide.rollout import leaving, progress, serving_steps, traffic, wanted
from fairlead.decide.slots import Slot, Slots
from fairlead.model.kinds.intent import RolloutRule
from fairlead.model.kinds.work import AssignmentSpec, Endpoints, EndpointsStatus, SlotRange
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Metadata

_S = SlotState
SPARE = 10_000


def order(count: int = 3, generation: int = 1, *, surge: int = 1, unavailable: int = 0, **fields: object) -> AssignmentSpec:
    rule = RolloutRule(max_surge=surge, max_unavailable=unavailable, paused=bool(fields.pop("paused", False)))
    return AssignmentSpec(
        workload="api", workload_uid="u", generation=generation, region="local", rollout=rule,
        slots=(SlotRange(first=0, last=count - 1),) if count else (),
        spare=SlotRange(first=SPARE, last=SPARE + max(surge, 1) - 1), **fields,  # type: ignore[arg-type]
    )  # fmt: skip


def slot(index: int, state: SlotState = _S.SERVING, generation: int = 1, **fields: object) -> Slot:
    ready = state in (_S.READY, _S.SERVING)
    return Slot(index, state, generation, 1, **{"ready": ready, "in_traffic": state is _S.SERVING, **fields})  # type: ignore[arg-type]


def slots(*each: Slot) -> dict[int, Slot]:
    return {one.index: one for one in each}


def evicted(o: AssignmentSpec, s: Slots) -> list[int]:
    return [index for index, _ in leaving(o, s, wanted(o, s)).evict]


def test_those_that_have_not_served_for_long_let_nobody_go() -> None:
    world = slots(slot(0, generation=2), slot(1), slot(2), slot(SPARE, generation=2))
    o = order(3, 2)
    assert [i for i, _ in leaving(o, world, wanted(o, world)).evict] == [1]
    assert leaving(o, world, wanted(o, world), 1).evict == []
    gone = order(0, 2)
    assert len(leaving(gone, world, wanted(gone, world), 2).evict) == 4, "where none are wanted nobody is waited for"


# --- what runs once


ONCE = {"surge": 0, "unavailable": 1, "execution": "Exclusive"}


def test_what_runs_once_leaves_before_its_next_life_begins() -> None:
    o, world = order(1, 2, **ONCE), slots(slot(0))  # type: ignore[arg-type]
    assert wanted(o, world) == {0: 2}
    assert evicted(o, world) == [0]
    assert wanted(o, slots(slot(0, leaving=True, held=True))) == {0: 2}, "a drain that finds nobody to spare gets nobody more"


@pytest.mark.parametrize("state", [_S.STARTING, _S.SERVING])
@pytest.mark.parametrize("paused", [False, True])
def test_a_spare_slot_of_what_runs_once_is_wanted_by_nobody(state: SlotState, paused: bool) -> None:
    """A rollout was under way in the version before."""
    world = slots(slot(0, _S.FAILED), slot(SPARE, state, 2))
    for of in (1, 2):
        assert SPARE not in wanted(order(1, of, paused=paused, **ONCE), world)  # type: ignore[arg-type]


def test_of_several_that_run_once_the_rule_says_how_many_are_missing_at_once() -> None:
    world = slots(*(slot(index) for index in range(5)))
    assert evicted(order(5, 2, **ONCE), world) == [0]  # type: ignore[arg-type]
    assert evicted(order(5, 2, **(ONCE | {"unavailable": 3})), world) == [0, 1, 2]  # type: ignore[arg-type]


# --- who should be there


def test_a_first_start_needs_no_surge() -> None:
    assert wanted(order(3), {}) == {0: 1, 1: 1, 2: 1}


def test_a_rollout_wants_spare_slots_up_to_its_surge_and_no_more_than_are_left_to_replace() -> None:
    old = slots(slot(0), slot(1), slot(2))
    assert wanted(order(3, 2, surge=2), old) == {0: 2, 1: 2, 2: 2, SPARE: 2, SPARE + 1: 2}
    nearly = slots(slot(0, generation=2), slot(1, generation=2), slot(2))
    assert sorted(wanted(order(3, 2, surge=2), nearly)) == [0, 1, 2, SPARE]


def test_the_spare_slot_stays_until_all_of_the_regions_own_serve() -> None:
    last = slots(slot(0, generation=2), slot(1, _S.STARTING, 2), slot(SPARE, generation=2))
    assert SPARE in wanted(order(2, 2), last)
    done = slots(slot(0, generation=2), slot(1, generation=2), slot(SPARE, generation=2))
    assert SPARE not in wanted(order(2, 2), done)


def test_a_failure_long_after_a_rollout_brings_no_surge() -> None:
    assert sorted(wanted(order(2, 2), slots(slot(0, generation=2), slot(1, _S.UNKNOWN, 2)))) == [0, 1]


def test_one_that_may_not_leave_before_another_serves_brings_a_spare_slot_up_to_the_surge() -> None:
    held = [slot(index, leaving=True, held=True) for index in (0, 1)]
    assert sorted(wanted(order(3, surge=1), slots(*held, slot(2)))) == [0, 1, 2, SPARE]
    assert sorted(wanted(order(3, surge=5), slots(*held, slot(2)))) == [0, 1, 2, SPARE, SPARE + 1]
    assert sorted(wanted(order(3, surge=0), slots(*held, slot(2)))) == [0, 1, 2]
    asked = slots(slot(0, leaving=True), slot(1), slot(2))
    assert sorted(wanted(order(3), asked)) == [0, 1, 2], "it has not been refused: perhaps nobody is needed"
    elsewhere = slots(slot(0), slot(1), slot(2), slot(7, leaving=True, held=True))
    assert sorted(wanted(order(3), elsewhere)) == [0, 1, 2], "what is not wanted need not be replaced"


def test_the_spare_slot_of_one_that_leaves_stays_until_it_serves_again() -> None:
    goes = slots(slot(0, leaving=True, approved=True), slot(1), slot(SPARE))
    assert SPARE in wanted(order(2), goes)
    comes = slots(slot(0, _S.STARTING), slot(1), slot(SPARE))
    assert SPARE in wanted(order(2), comes)
    assert SPARE not in wanted(order(2), slots(slot(0), slot(1), slot(SPARE)))
    waits = slots(slot(0, leaving=True, approved=True), slot(1), slot(SPARE, _S.PENDING))
    assert SPARE not in wanted(order(2), waits), "it was let go without it"


def test_a_paused_rollout_keeps_generations_as_they_are() -> None:
    assert wanted(order(2, 2, paused=True), slots(slot(0), slot(1, _S.RELEASED))) == {0: 1, 1: 1}


def test_suspended_means_none() -> None:
    assert wanted(order(2, suspend=True), slots(slot(0))) == {}
    assert evicted(order(2, suspend=True), slots(slot(0), slot(1))) == [0, 1]


# --- who may leave


def test_nobody_leaves_before_the_surge_serves() -> None:
    assert evicted(order(2, 2), slots(slot(0), slot(1), slot(SPARE, _S.READY, 2))) == []
    assert evicted(order(2, 2), slots(slot(0), slot(1), slot(SPARE, generation=2))) == [0]


def test_with_surge_the_last_copy_never_leaves_first_even_if_one_may_be_missing() -> None:
    assert evicted(order(1, 2, surge=1, unavailable=1), slots(slot(0))) == []
    assert evicted(order(1, 2, surge=0, unavailable=1), slots(slot(0))) == [0]


def test_what_does_not_serve_leaves_at_once() -> None:
    world = slots(slot(0), slot(1), slot(SPARE, _S.STARTING, 2))
    assert evicted(order(2, 3), world) == [SPARE], "a generation that is already superseded"


def test_those_already_leaving_count_as_gone() -> None:
    world = slots(slot(0, leaving=True, ours=True), slot(1), slot(2), slot(SPARE, generation=2))
    assert evicted(order(3, 2), world) == []


def test_an_undo_takes_back_what_it_asked_for_and_spares_what_still_runs() -> None:
    world = slots(slot(0, leaving=True, ours=True), slot(1), slot(SPARE, generation=2))
    found = leaving(order(2, 1), world, wanted(order(2, 1), world))
    assert (found.cancel, found.evict) == ([0], []), "the spare one stays until it is sure that the other does"
    world[0] = slot(0)
    assert evicted(order(2, 1), world) == [SPARE]


def test_a_request_that_was_approved_is_not_taken_back() -> None:
    world = slots(slot(0, leaving=True, ours=True, approved=True), slot(1))
    assert leaving(order(2, 1), world, wanted(order(2, 1), world)).cancel == []


def test_scaling_down_waits_until_those_that_stay_serve() -> None:
    assert evicted(order(2), slots(slot(0), slot(1, _S.STARTING), slot(2), slot(3))) == [2]


# --- traffic


def test_traffic_goes_to_the_ready_that_are_not_leaving() -> None:
    world = slots(slot(0), slot(1, _S.READY), slot(2, approved=True), slot(3, ready=False), slot(4, _S.STARTING))
    assert traffic(world) == {0, 1}


def test_a_lost_one_keeps_traffic_only_while_nobody_else_serves_and_its_node_may_live() -> None:
    unknown = slot(0, _S.UNKNOWN, in_traffic=True)
    assert traffic(slots(unknown)) == {0}
    assert traffic(slots(unknown, slot(1))) == {1}
    assert traffic(slots(replace(unknown, lost=True))) == set()


def test_serving_follows_the_endpoints_never_leads_them() -> None:
    world = slots(
        slot(0, _S.READY, in_traffic=True), slot(1, _S.READY), slot(2, approved=True), slot(3, approved=True, in_traffic=False)
    )
    assert [(s.index, to) for s, to in serving_steps(world)] == [(0, _S.SERVING), (3, _S.READY)]
    with_them = [(s.index, to) for s, to in serving_steps(world, naming={1})]
    assert with_them == [(0, _S.SERVING), (1, _S.SERVING), (3, _S.READY)], "who is named by what is written before"


# --- progress


def told(generation: int, updated: int, remaining: int) -> Endpoints:
    status = EndpointsStatus(generation=generation, updated=updated, remaining=remaining)
    return Endpoints(metadata=Metadata(name="api", namespace="t"), status=status)


def test_what_was_done_and_has_to_be_done_again_has_its_whole_time() -> None:
    """A node dies, or a lost region's slots are wanted here, long after the rollout was through."""
    again = progress(order(2), slots(slot(0)), told(1, 2, 0), 2000, 900_000)
    assert (again.condition.reason, again.since_ms, again.deadline_ms) == ("RollingOut", 900_000, 1_200_000)
    late = progress(order(2), slots(slot(0)), told(1, 1, 1), again.since_ms, 1_200_000)
    assert late.condition.reason == "ProgressDeadlineExceeded"
    done = progress(order(1), slots(slot(0)), told(1, 1, 0), 2000, 900_000)
    assert done.since_ms == 2000, "looked at again, it is written no other time"


def test_progress_moves_its_deadline_and_standing_still_misses_it() -> None:
    world = slots(slot(0, generation=2), slot(1))
    first = progress(order(2, 2), world, told(2, 0, 4), 1000, 2000)
    assert (first.since_ms, first.condition.reason, first.deadline_ms) == (2000, "RollingOut", 302_000)
    still = progress(order(2, 2), world, told(2, 1, 2), 2000, 301_999)
    assert (still.since_ms, still.condition.reason) == (2000, "RollingOut")
    late = progress(order(2, 2), world, told(2, 1, 2), 2000, 302_000)
    assert (late.condition.status, late.condition.reason) == ("False", "ProgressDeadlineExceeded")
    again = progress(order(2, 3), world, told(2, 1, 2), 2000, 400_000)
    assert again.condition.reason == "RollingOut", "another generation has a deadline of its own"


def test_complete_is_said_only_when_nothing_else_is_there() -> None:
    assert progress(order(1), slots(slot(0), slot(SPARE)), None, 0, 0).condition.reason == "RollingOut"
    assert progress(order(1), slots(slot(0)), None, 0, 0).condition.reason == "Complete"


def test_a_rollout_is_not_complete_while_some_have_not_served_for_long() -> None:
    o = order(2, 2)
    world = slots(slot(0, generation=2), slot(1, generation=2))
    found = progress(o, world, None, 0, 0, 1)
    assert (found.updated, found.remaining, found.condition.reason) == (1, 1, "Proving")
    older = slots(slot(0, generation=2), slot(1, generation=2), slot(SPARE))
    assert progress(o, older, None, 0, 0, 1).condition.reason == "RollingOut", "more than time is missing"
    assert "1 have served for less than" in found.condition.message
    assert progress(o, world, None, 0, 0).condition.reason == "Complete"


# --- properties: a world that answers in any order


class World:
    """Slots moved on one at a time, in the order a test draws; evictions leave through traffic, drain and release."""

    def __init__(self, o: AssignmentSpec) -> None:
        self.order = o
        self.slots: dict[int, Slot] = {}
        self.restarts: list[tuple[int, int]] = []

    def step(self, choice: int) -> bool:
        """One move of somebody. False: nobody has anything to do."""
        moves = self._moves()
        if not moves:
            return False
        index, after = moves[choice % len(moves)]
        if after is None:
            del self.slots[index]
            return True
        if index not in self.slots or self.slots[index].state is _S.RELEASED:
            self.restarts.append((index, after.generation))
        self.slots[index] = after
        return True

    def _moves(self) -> list[tuple[int, Slot | None]]:
        want = wanted(self.order, self.slots)
        plan = leaving(self.order, self.slots, want)
        out: list[tuple[int, Slot | None]] = [(i, slot(i, _S.PENDING, g)) for i, g in want.items() if i not in self.slots]
        out += [(i, replace(self.slots[i], leaving=True, ours=True)) for i, _ in plan.evict]
        out += [(i, replace(self.slots[i], leaving=False, ours=False)) for i in plan.cancel]
        onward = {_S.PENDING: _S.STARTING, _S.STARTING: _S.SERVING, _S.DRAINING: _S.RELEASED}
        for index, one in self.slots.items():
            if one.state is _S.PENDING and (index not in want or want[index] != one.generation):
                out.append((index, None))
            elif one.state is _S.RELEASED:
                out.append((index, slot(index, _S.PENDING, want[index]) if index in want else None))
            elif one.leaving:
                after = replace(one, approved=True) if not one.approved else slot(index, _S.DRAINING, one.generation)
                out.append((index, after))
            elif one.state in onward:
                out.append((index, slot(index, onward[one.state], one.generation)))
        return out

    @property
    def serving(self) -> int:
        return sum(one.state is _S.SERVING for one in self.slots.values())

    @property
    def there(self) -> int:
        return sum(one.state is not _S.RELEASED for one in self.slots.values())

    def settle(self, choices: list[int]) -> None:
        for choice in choices:
            if not self.step(choice):
                return
        for _ in range(2000):
            if not self.step(0):
                return
        raise AssertionError(f"never comes to rest: {self._moves()}")


choices_of = st.lists(st.integers(0, 60), max_size=120)


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 6), st.integers(0, 3), st.integers(0, 3), choices_of, choices_of, st.integers(0, 60))
def test_any_order_of_events_keeps_the_bounds_and_converges(
    count: int, surge: int, unavailable: int, first: list[int], second: list[int], undo_at: int
) -> None:
    if surge == 0 and unavailable == 0:
        surge = 1
    world = World(order(count, 1, surge=surge, unavailable=unavailable))
    world.settle([])
    assert world.serving == count
    least, most = max(count - unavailable, 0), count + surge
    for generation, choices in ((2, first), (1, second)):
        world.order = order(count, generation, surge=surge, unavailable=unavailable)
        for at, choice in enumerate(choices):
            if generation == 2 and at == undo_at:
                break  # undone in the middle
            world.step(choice)
            assert world.serving >= least
            assert world.there <= most
    world.settle([])
    assert sorted(world.slots) == list(range(count))
    assert {one.generation for one in world.slots.values()} == {1}
    assert world.serving == count


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 6), st.integers(1, 3), choices_of, choices_of)
def test_an_undo_restarts_nothing_that_was_not_leaving(count: int, surge: int, first: list[int], second: list[int]) -> None:
    world = World(order(count, 1, surge=surge))
    world.settle([])
    world.order = order(count, 2, surge=surge)
    for choice in first:
        world.step(choice)
    kept = {
        i for i, one in world.slots.items() if one.generation == 1 and one.state is _S.SERVING and not one.leaving and i < SPARE
    }
    world.order = order(count, 1, surge=surge)
    world.restarts.clear()
    world.settle(second)
    assert not kept & {index for index, _ in world.restarts}


def test_who_may_go_is_put_together_once_however_many_are_leaving(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for each that leaves cost ten thousand times ten thousand, in the deletion of a large workload."""
    joined: list[int] = []

    class Counting(set[int]):
        def __or__(self, other: Any) -> Any:
            joined.append(len(self))
            return super().__or__(other)

    found = rollout_module._candidates

    def candidates(*given: Any) -> tuple[set[int], set[int]]:
        idle, serving = found(*given)
        return Counting(idle), Counting(serving)

    monkeypatch.setattr(rollout_module, "_candidates", candidates)
    world = slots(*(slot(index, leaving=True, ours=True) for index in range(30)), slot(30, generation=2, leaving=True, ours=True))
    assert leaving(order(31, 2), world, wanted(order(31, 2), world)).cancel == [30]
    assert joined == [0]
