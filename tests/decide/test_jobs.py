"""Jobs as values: what runs next, what counts, and when it is over."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.decide.jobs import count, counted, verdict, wanted
from fairlead.decide.slots import Slot, instant
from fairlead.decide.spans import indices
from fairlead.model.kinds.intent import JobRule
from fairlead.model.kinds.work import AssignmentSpec, AssignmentStatus, SlotRange
from fairlead.model.lifecycle import SlotState

_S = SlotState


def order(completions: int, parallelism: int, retries: int = 3, **fields: object) -> AssignmentSpec:
    job = JobRule(completions=completions, parallelism=parallelism, retries=retries)
    slots = (SlotRange(first=0, last=completions - 1),)
    return AssignmentSpec(workload="j", workload_uid="u", generation=1, region="r", slots=slots, job=job, **fields)  # type: ignore[arg-type]


def world(**states: SlotState) -> dict[int, Slot]:
    return {int(name[1:]): Slot(int(name[1:]), state, 1, 1) for name, state in states.items()}


def test_the_lowest_that_are_missing_run_up_to_the_parallelism() -> None:
    assert wanted(order(5, 2), AssignmentStatus(), {}, 0) == {0: 1, 1: 1}
    some = world(s0=_S.SUCCEEDED, s1=_S.READY)
    assert sorted(wanted(order(5, 2), AssignmentStatus(), some, 0)) == [1, 2]


def test_what_was_counted_and_cleared_away_does_not_run_again() -> None:
    done = AssignmentStatus(completed=(SlotRange(first=0, last=2),))
    assert sorted(wanted(order(5, 2), done, {}, 0)) == [3, 4]


def test_one_that_failed_or_was_lost_keeps_its_turn() -> None:
    some = world(s0=_S.FAILED, s1=_S.RELEASED)
    assert sorted(wanted(order(5, 2), AssignmentStatus(), some, 0)) == [0, 1]


def test_a_failed_life_counts_once_and_the_next_one_again() -> None:
    first = count(AssignmentStatus(), world(s0=_S.FAILED))
    status = AssignmentStatus(failed=first.failed, failures=first.failures)
    assert (first.failures, counted(status, 0, 1), counted(status, 0, 2)) == (1, True, False)
    assert count(status, world(s0=_S.FAILED)).failures == 1
    again = {0: Slot(0, _S.FAILED, 1, 2)}
    assert count(status, again).failures == 2


def test_a_job_ends_by_completions_retries_or_deadline() -> None:
    job = JobRule(completions=2, parallelism=1, retries=1, deadline_time=instant(1000))
    two = (SlotRange(first=0, last=1),)
    assert verdict(job, count(AssignmentStatus(completed=two), {}), 5000) == "Complete", "done in time or not, it is done"
    assert verdict(job, count(AssignmentStatus(failures=2), {}), 0) == "RetriesSpent"
    assert verdict(job, count(AssignmentStatus(failures=1), {}), 999) == ""
    assert verdict(job, count(AssignmentStatus(), {}), 1000) == "DeadlinePassed"


def test_over_suspended_or_deleted_means_none() -> None:
    running = world(s0=_S.READY)
    assert wanted(order(2, 1, suspend=True), AssignmentStatus(), running, 0) == {}
    assert wanted(order(2, 1), AssignmentStatus(), running, 0, deleting=True) == {}
    assert wanted(order(2, 1, retries=0), AssignmentStatus(failures=1), running, 0) == {}


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 12), st.integers(1, 4), st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=80))
def test_any_order_of_ends_completes_each_index_once_and_keeps_the_parallelism(
    completions: int, parallelism: int, ends: list[tuple[int, bool]]
) -> None:
    o, status, slots = order(completions, parallelism, retries=1000), AssignmentStatus(), dict[int, Slot]()
    runs: list[int] = []
    for pick, fails in [*ends, *((0, False) for _ in range(4 * completions + 4))]:
        so_far = count(status, slots)
        status = AssignmentStatus(completed=so_far.completed, failed=so_far.failed, failures=so_far.failures)
        slots = {i: s for i, s in slots.items() if s.state is not _S.SUCCEEDED}
        for index in wanted(o, status, slots, 0):
            old = slots.get(index)
            if old is None or old.state is _S.FAILED:
                slots[index] = Slot(index, _S.READY, 1, old.epoch + 1 if old is not None else 1)
        running = [s for s in slots.values() if s.state is _S.READY]
        assert len(running) <= parallelism
        if running:
            one = running[pick % len(running)]
            slots[one.index] = Slot(one.index, _S.FAILED if fails else _S.SUCCEEDED, 1, one.epoch)
            runs += [] if fails else [one.index]
    assert sorted(runs) == list(range(completions))
    assert set(indices(count(status, slots).completed)) == set(range(completions))
