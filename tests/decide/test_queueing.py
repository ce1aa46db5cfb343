"""From an assignment to the queue, as values: ranges, withdrawals, and epochs that never begin anew."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.decide.queueing import Told, first_epoch, floor_needed, queue_bodies, request_for, same_but_for_times, status_of
from fairlead.decide.slots import Slot
from fairlead.model.commands import Body, Delete, Enqueue, Put
from fairlead.model.kinds.intent import JobRule
from fairlead.model.kinds.slot import SlotRef
from fairlead.model.kinds.work import (
    Assignment,
    AssignmentSpec,
    AssignmentStatus,
    Revision,
    RevisionSpec,
    SchedulingRequest,
    SchedulingRequestSpec,
    SchedulingRequestStatus,
    SlotRange,
    Successor,
)
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Metadata

_S = SlotState


def assignment(count: int, *, floor: int = 0, deleting: bool = False, **fields: object) -> Assignment:
    gone = datetime(2026, 1, 1, tzinfo=UTC) if deleting else None
    slots = (SlotRange(first=0, last=count - 1),) if count else ()
    spec = AssignmentSpec(workload="api", workload_uid="u", generation=2, region="r", slots=slots, **fields)  # type: ignore[arg-type]
    meta = Metadata(name="api.r", namespace="t", deletion_time=gone)
    return Assignment(metadata=meta, spec=spec, status=AssignmentStatus(epoch_floor=floor))


def revision(generation: int) -> Revision:
    spec = RevisionSpec(workload="api", workload_uid="u", generation=generation)
    return Revision(metadata=Metadata(name=f"api.g{generation}", namespace="t"), spec=spec)


def bodies(a: Assignment, slots: dict[int, Slot], want: dict[int, int]) -> list[Body]:
    return queue_bodies(a, slots, want, revision)


def test_new_slots_are_queued_in_ranges_above_the_floor() -> None:
    found = bodies(assignment(600, floor=4), {}, dict.fromkeys(range(600), 2))
    assert [(b.request.spec.slot.index, b.count, b.request.spec.epoch) for b in found if isinstance(b, Enqueue)] == [
        (0, 256, 5),
        (256, 256, 5),
        (512, 88, 5),
    ]


def test_each_slot_that_stands_in_is_queued_by_itself_and_names_its_own() -> None:
    successors = tuple(Successor(index, f"east/api-{index}@3") for index in (0, 1))
    found = bodies(assignment(3, successors=successors), {}, {0: 2, 1: 2, 2: 2})
    queued = [(b.request.spec.slot.index, b.count, b.request.spec.supersedes) for b in found if isinstance(b, Enqueue)]
    assert queued == [(0, 1, "east/api-0@3"), (1, 1, "east/api-1@3"), (2, 1, "")]


def test_what_is_not_wanted_and_not_known_to_be_over_is_told_where_it_is_exclusive_everywhere() -> None:
    slots = {i: Slot(i, state, 2, 1) for i, state in enumerate(SlotState)}
    over = sum(slot.state in (_S.RELEASED, _S.SUCCEEDED) for slot in slots.values())
    told = Told(True, True)
    assert status_of(assignment(0, exclusive="global"), slots, {}, told, 0).unwanted == len(slots) - over
    assert status_of(assignment(1, exclusive="global"), slots, dict.fromkeys(slots, 2), told, 0).unwanted == 0
    assert status_of(assignment(0), slots, {}, told, 0).unwanted == 0, "nobody asks"


def test_what_is_there_in_any_state_is_not_queued_again() -> None:
    slots = {i: Slot(i, state, 2, 1) for i, state in enumerate(SlotState)}
    assert bodies(assignment(len(slots)), slots, dict.fromkeys(slots, 2)) == []


def test_a_slot_is_forgotten_only_once_its_epoch_is_on_record() -> None:
    ended = {0: Slot(0, _S.RELEASED, 2, 3)}
    assert bodies(assignment(0, floor=2), ended, {}) == []
    assert floor_needed(assignment(0).spec, ended, {}, 2) == 3
    assert floor_needed(assignment(0).spec, ended, {}, 7) == 7  # it never goes down
    assert bodies(assignment(0, floor=3), ended, {}) == [Delete("Binding", "t", "api-0")]
    assert bodies(assignment(0, deleting=True), ended, {}) == [Delete("Binding", "t", "api-0")], "nobody comes after it"


def test_what_ended_well_by_itself_is_forgotten_like_any_other_of_a_service_and_counted_first_of_a_job() -> None:
    """A service whose template says `restartPolicy: OnFailure` may end well; it could never be deleted."""
    ended = {0: Slot(0, _S.SUCCEEDED, 2, 3)}
    assert floor_needed(assignment(0).spec, ended, {}, 2) == 3
    assert bodies(assignment(0, floor=3), ended, {}) == [Delete("Binding", "t", "api-0")]
    assert bodies(assignment(0, deleting=True), ended, {}) == [Delete("Binding", "t", "api-0")]
    assert bodies(assignment(1), ended, {0: 2}) == [], "while it is wanted it stays"
    job = JobRule(completions=1)
    assert bodies(assignment(0, deleting=True, job=job), ended, {}) == []


def test_a_request_that_never_began_leaves_only_the_lives_before_it() -> None:
    fresh = {0: Slot(0, _S.PENDING, 2, 1, attempt=0)}
    assert bodies(assignment(0), fresh, {}) == [Delete("SchedulingRequest", "t", "api-0")]
    second = {0: Slot(0, _S.PENDING, 2, 2, attempt=0)}
    assert (bodies(assignment(0), second, {}), floor_needed(assignment(0).spec, second, {}, 0)) == ([], 1)
    begun = {0: Slot(0, _S.PENDING, 2, 1, attempt=1)}
    assert (bodies(assignment(0), begun, {}), floor_needed(assignment(0).spec, begun, {}, 0)) == ([], 1)


def test_a_waiting_slot_takes_a_newer_generation_in_place_and_goes_back_by_being_queued_afresh() -> None:
    waiting = {0: Slot(0, _S.PENDING, 1, 1, attempt=0)}
    (put,) = bodies(assignment(1), waiting, {0: 2})
    assert isinstance(put, Put)
    assert (put.object.spec.generation, put.object.spec.epoch) == (2, 1)
    assert bodies(assignment(1), {0: Slot(0, _S.PENDING, 3, 1, attempt=0)}, {0: 2}) == [Delete("SchedulingRequest", "t", "api-0")]


def test_a_waiting_slot_that_was_moved_for_room_still_says_where_it_was_when_its_request_is_written_anew() -> None:
    asked = request_for(assignment(1), revision(1), 0, 2)
    until = datetime(2026, 1, 1, tzinfo=UTC)
    asked = replace(asked, spec=replace(asked.spec, left_node="n1", left_until_time=until))
    (put,) = bodies(assignment(1), {0: Slot(0, _S.PENDING, 1, 2, attempt=0, request=asked)}, {0: 2})
    assert isinstance(put, Put)
    assert (put.object.spec.generation, put.object.spec.left_node, put.object.spec.left_until_time) == (2, "n1", until)


def test_what_is_queued_bears_the_labels_that_its_workload_has_by_now() -> None:
    order = assignment(1)
    labelled = replace(order, metadata=replace(order.metadata, labels={"tier": "gold", "app": "api"}))
    made = request_for(labelled, revision(1), 0, 2)
    assert made.spec.ask.labels == (("app", "api"), ("tier", "gold"))
    assert replace(made, spec=replace(made.spec, ask=revision(1).spec.ask)) == request_for(order, revision(1), 0, 2)


def test_running_slots_are_never_touched_here() -> None:
    running = {
        i: Slot(i, state, 1, 1) for i, state in enumerate((_S.BOUND, _S.SERVING, _S.DRAINING, _S.UNKNOWN, _S.FAILED, _S.RESERVED))
    }
    assert bodies(assignment(0), running, {}) == []


def test_a_gang_is_queued_whole_and_its_single_members_without_it() -> None:
    (whole,) = bodies(assignment(3, gang=True), {}, {0: 2, 1: 2, 2: 2})
    assert isinstance(whole, Enqueue)
    assert (whole.request.spec.gang, whole.request.spec.gang_size) == ("api", 3)
    assert request_for(assignment(3, gang=True), revision(2), 1, 2).spec.gang == ""


def test_a_gang_waits_for_its_members_as_long_as_its_assignment_says() -> None:
    (whole,) = bodies(assignment(3, gang=True, gang_timeout_seconds=300.0), {}, {0: 2, 1: 2, 2: 2})
    assert isinstance(whole, Enqueue)
    assert whole.request.spec.gang_timeout_seconds == 300.0


def waiting_gang(count: int, size: int, generation: int = 2) -> dict[int, Slot]:
    def asked(index: int) -> SchedulingRequest:
        return request_for(assignment(size, gang=True), revision(generation), index, 1, size)

    return {index: Slot(index, _S.PENDING, generation, 1, attempt=0, request=asked(index)) for index in range(count)}


def counted(found: list[Body]) -> list[tuple[str, int, int]]:
    requests = [body.request if isinstance(body, Enqueue) else body.object for body in found if isinstance(body, Enqueue | Put)]
    return [
        (one.metadata.name, one.spec.gang_size, one.spec.generation) for one in requests if isinstance(one, SchedulingRequest)
    ]


def test_a_gang_that_waits_is_counted_anew_when_it_is_scaled() -> None:
    assert bodies(assignment(3, gang=True), waiting_gang(3, 3), dict.fromkeys(range(3), 2)) == []
    fewer = bodies(assignment(2, gang=True, floor=9), waiting_gang(4, 4), dict.fromkeys(range(2), 2))
    assert [body.name for body in fewer if isinstance(body, Delete)] == ["api-2", "api-3"]
    assert counted(fewer) == [("api-0", 2, 2), ("api-1", 2, 2)], "else they would wait for the two that are gone"
    more = bodies(assignment(4, gang=True), waiting_gang(3, 3), dict.fromkeys(range(4), 2))
    assert counted(more) == [("api-0", 4, 2), ("api-1", 4, 2), ("api-2", 4, 2), ("api-3", 4, 2)]


def test_a_gang_that_waits_stays_one_in_another_generation() -> None:
    newer = bodies(assignment(2, gang=True), waiting_gang(2, 2, generation=1), dict.fromkeys(range(2), 2))
    assert counted(newer) == [("api-0", 2, 2), ("api-1", 2, 2)]


def test_members_of_a_gang_that_has_started_go_one_by_one() -> None:
    started = {0: Slot(0, _S.SERVING, 2, 1), 1: Slot(1, _S.SERVING, 2, 1)}
    assert counted(bodies(assignment(3, gang=True), started, dict.fromkeys(range(3), 2))) == [("api-2", 0, 2)]


def test_one_that_was_queued_into_a_gang_that_has_started_goes_by_itself() -> None:
    left = waiting_gang(4, 4)[3]
    started = {index: Slot(index, _S.SERVING, 2, 1) for index in range(3)}
    assert counted(bodies(assignment(4, gang=True), {**started, 3: left}, dict.fromkeys(range(4), 2))) == [("api-3", 0, 2)]
    reserved = {index: Slot(index, _S.RESERVED, 2, 1) for index in range(3)}
    assert bodies(assignment(4, gang=True), {**reserved, 3: left}, dict.fromkeys(range(4), 2)) == [], "they are being bound"


def waiting_for(order: Assignment, count: int) -> dict[int, Slot]:
    made = {index: request_for(order, revision(2), index, 3) for index in range(count)}
    return {index: Slot(index, _S.PENDING, 2, 3, attempt=1, request=request) for index, request in made.items()}


@pytest.mark.parametrize(
    "said",
    [
        {"priority": 1000},
        {"min_serving": 2},
        {"may_borrow": True},
        {"job": JobRule(deadline_time=datetime(2026, 1, 1, tzinfo=UTC))},
        {"gang_timeout_seconds": 300.0},
    ],
    ids=lambda said: next(iter(said)),
)
def test_what_an_order_says_anew_reaches_slots_that_wait_already(said: dict[str, Any]) -> None:
    before, now, want = assignment(2), assignment(2, **said), {0: 2, 1: 2}
    assert bodies(now, waiting_for(before, 2), want) == [
        Put("SchedulingRequest", request_for(now, revision(2), index, 3)) for index in (0, 1)
    ]
    assert bodies(now, waiting_for(now, 2), want) == [], "once they say it there is nothing more to write"
    assert bodies(now, {0: Slot(0, _S.SERVING, 2, 3), 1: Slot(1, _S.RESERVED, 2, 3)}, want) == []


def test_only_slots_that_stand_in_for_a_lost_region_take_its_budget_up() -> None:
    before, want = assignment(3), dict.fromkeys(range(3), 2)
    now = assignment(3, budget_name="loss", recovery=SlotRange(first=1, last=1))
    (put,) = bodies(now, waiting_for(before, 3), want)
    assert put == Put("SchedulingRequest", request_for(now, revision(2), 1, 3))
    assert bodies(now, waiting_for(now, 3), want) == []
    assert bodies(before, waiting_for(now, 3), want) == [Put("SchedulingRequest", request_for(before, revision(2), 1, 3))]


def test_a_slot_that_waits_names_what_it_stands_in_for_by_now() -> None:
    before, now = (assignment(2, successors=(Successor(0, f"east/api-0@{epoch}"),)) for epoch in (3, 4))
    (put,) = bodies(now, waiting_for(before, 2), {0: 2, 1: 2})
    assert put == Put("SchedulingRequest", request_for(now, revision(2), 0, 3))
    assert bodies(now, waiting_for(now, 2), {0: 2, 1: 2}) == []


def test_what_is_not_queued_yet_waits_with_a_reason_and_an_owner() -> None:
    for told, reason, owner in (
        (Told(False, True), "WaitingForQuota", "quota-controller"),
        (Told(True, False), "PendingEvaluation", "mirror"),
        (Told(True, True), "PendingEvaluation", "assignment-controller"),
    ):
        (found,) = status_of(assignment(2), {}, {0: 2, 1: 2}, told, 0).pending
        assert (found.reason, found.count, found.next_owner) == (reason, 2, owner)


def waiting(again: int) -> dict[int, Slot]:
    ref = SlotRef(workload="api", uid="u", index=0)
    status = SchedulingRequestStatus(reason="WaitingForCapacity", next_attempt_time=datetime(2026, 1, 1, 0, 0, again, tzinfo=UTC))
    meta = Metadata(name="api-0", namespace="t")
    request = SchedulingRequest(metadata=meta, spec=SchedulingRequestSpec(slot=ref), status=status)
    return {0: Slot(0, _S.PENDING, 2, 1, request=request)}


def test_the_next_attempt_alone_is_no_news() -> None:
    told = Told(True, True)
    one, other = (status_of(assignment(1), waiting(again), {0: 2}, told, 0) for again in (1, 2))
    assert one != other
    assert same_but_for_times(one, other)
    assert not same_but_for_times(one, status_of(assignment(1), {}, {0: 2}, told, 0))


def test_released_is_said_only_when_it_goes_and_nothing_is_left() -> None:
    def released(a: Assignment, slots: dict[int, Slot]) -> bool:
        return any(c.type == "Released" for c in status_of(a, slots, {}, Told(True, True), 0).conditions)

    assert not released(assignment(0), {})
    assert not released(assignment(0, deleting=True), {0: Slot(0, _S.DRAINING, 1, 1)})
    assert released(assignment(0, deleting=True), {})


def test_a_workload_made_again_under_its_name_begins_above_every_epoch_the_first_one_had() -> None:
    made = assignment(1, floor=4)
    born = replace(made, metadata=replace(made.metadata, uid="us-east.1.2f"))
    (queued,) = bodies(born, {}, {0: 2})
    assert isinstance(queued, Enqueue)
    assert queued.request.spec.epoch == 0x2F + 1
    assert first_epoch(replace(born, status=AssignmentStatus(epoch_floor=90))) == 91, "what was forgotten since counts as well"
    assert first_epoch(replace(made, metadata=replace(made.metadata, uid="somebody-else-s"))) == 5
