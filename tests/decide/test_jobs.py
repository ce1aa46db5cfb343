"""Jobs as values: what runs next, what counts, and when it is over."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.decide.admission import OBJECT_BYTES_MAX
from fairlead.decide.jobs import Count, count, counted, done, is_done, verdict, wanted
from fairlead.decide.slots import Slot, Table, instant
from fairlead.decide.spans import among, covers, holds, indices, missing, spans_of
from fairlead.model import codec
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


def test_less_parallelism_cuts_what_waits_and_keeps_what_runs() -> None:
    queued = Table(Slot(index, _S.PENDING, 1, 1) for index in range(100))
    assert sorted(wanted(order(100, 1), AssignmentStatus(), queued, 0)) == [0]
    mixed = world(s0=_S.PENDING, s1=_S.READY, s2=_S.RELEASED, s3=_S.FAILED, s4=_S.RESERVED, s5=_S.UNKNOWN, s6=_S.DRAINING)
    assert sorted(wanted(order(100, 2), AssignmentStatus(), mixed, 0)) == [1, 4, 5, 6]
    assert sorted(wanted(order(100, 6), AssignmentStatus(), mixed, 0)) == [0, 1, 2, 4, 5, 6]
    assert sorted(wanted(order(100, 8), AssignmentStatus(), mixed, 0)) == [0, 1, 2, 3, 4, 5, 6, 7]


def test_less_completions_leave_out_those_beyond_and_start_no_others_before_they_have_gone() -> None:
    running = Table(Slot(index, _S.READY, 1, 1) for index in range(5, 15))
    assert sorted(wanted(order(10, 10), AssignmentStatus(), running, 0)) == [5, 6, 7, 8, 9]
    assert sorted(wanted(order(10, 2), AssignmentStatus(), Table([Slot(12, _S.PENDING, 1, 1)]), 0)) == [0, 1]


def test_a_completion_beyond_what_the_job_asks_for_stands_in_for_no_other() -> None:
    beyond = count(AssignmentStatus(completed=(SlotRange(first=0, last=0), SlotRange(first=2, last=5))), {})
    assert done(JobRule(completions=4, parallelism=1), beyond) == 3
    assert verdict(JobRule(completions=4, parallelism=1), beyond, 0) == ""
    assert verdict(JobRule(completions=1, parallelism=1), beyond, 0) == "Complete"


def test_a_failure_is_forgotten_when_its_index_has_succeeded_since() -> None:
    before = AssignmentStatus(failed=tuple(SlotRange(first=i, last=i, epoch=2) for i in (1, 3)), failures=2)
    after = count(before, {3: Slot(3, _S.SUCCEEDED, 1, 3)})
    assert after == Count((SlotRange(first=3, last=3),), (SlotRange(first=1, last=1, epoch=2),), 2)


def test_a_failed_life_is_booked_and_may_go_even_where_its_index_has_succeeded() -> None:
    before = AssignmentStatus(completed=(SlotRange(first=0, last=0),))
    first = count(before, world(s0=_S.FAILED))
    status = AssignmentStatus(completed=first.completed, failed=first.failed, failures=first.failures)
    assert counted(status, 0, 1)
    assert count(status, world(s0=_S.FAILED)).failures == 1


def test_ten_thousand_that_fail_together_are_all_counted_once_and_the_object_stays_within_its_size() -> None:
    """Every second index has succeeded, so that what has completed takes as much room as it ever can."""
    big, ms = 990_000, 1_700_000_000_000  # of indices and epochs
    status = AssignmentStatus(completed=tuple(SlotRange(first=big + i, last=big + i) for i in range(0, 20_000, 2)))
    slots = Table(Slot(big + i, _S.FAILED, 1, ms) for i in range(1, 20_000, 2))
    rounds = 0
    while slots.count(_S.FAILED):
        rounds += 1
        so_far = count(status, slots)
        status = AssignmentStatus(completed=so_far.completed, failed=so_far.failed, failures=so_far.failures)
        assert len(codec.encode(status)) < OBJECT_BYTES_MAX - 16 * 1024
        assert so_far.uncounted == 10_000 - so_far.failures
        for slot in [slot for slot in slots.values() if counted(status, slot.index, ms)]:
            slots.put(Slot(slot.index, _S.RELEASED, 1, ms))
    assert status.failures == 10_000
    assert 1 < rounds < 30


def test_what_is_remembered_of_lives_that_have_gone_makes_room_for_those_that_are_there() -> None:
    gone = AssignmentStatus(failed=tuple(SlotRange(first=i, last=i, epoch=7) for i in range(9_000)), failures=9_000)
    after = count(gone, Table([Slot(8_999, _S.FAILED, 1, 7), Slot(20_000, _S.FAILED, 1, 1)]))
    assert len(after.failed) < 7_000
    assert after.failures == 9_001
    status = AssignmentStatus(failed=after.failed)
    assert counted(status, 8_999, 7), "it is still there, and would be counted again"
    assert counted(status, 20_000, 1)


class Counted:
    """A range that says how often it is read."""

    reads = 0

    def __init__(self, first: int, last: int) -> None:
        self._first, self.last = first, last

    @property
    def first(self) -> int:
        Counted.reads += 1
        return self._first


def test_a_look_at_thousands_of_slots_reads_thousands_of_ranges_a_few_times_each() -> None:
    ranges: Any = tuple(Counted(i * 3, i * 3 + 1) for i in range(2_000))
    slots = Table(Slot(i * 3 + 2, _S.READY, 1, 1) for i in range(1_990))
    assert len(wanted(order(1_000_000, 2_000), AssignmentStatus(completed=ranges), slots, 0)) == 2_000
    assert Counted.reads < 10 * 2_000


@given(st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40)), st.integers(0, 40), st.integers(0, 5))
def test_numbers_in_and_between_ranges(held: set[int], asked: set[int], limit: int, most: int) -> None:
    spans = spans_of(held)
    assert among(spans, asked) == {number for number in asked if holds(spans, number)} == held & asked
    assert missing(spans, limit, most, asked) == [n for n in range(limit) if n not in held | asked][:most]


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


@given(one=st.sets(st.integers(0, 12)), other=st.sets(st.integers(0, 12)))
def test_what_is_done_stays_done_by_whatever_ranges_it_is_told(one: set[int], other: set[int]) -> None:
    status = AssignmentStatus(completed=spans_of(one))
    assert {index for index in range(14) if is_done(status, index)} == one
    assert covers(spans_of(one), spans_of(other)) is (one >= other)
