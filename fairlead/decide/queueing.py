"""From an assignment to the queue: what to queue, what to withdraw, what to forget, and what to say upward. Pure.

Epochs are what this guards. A slot that is forgotten leaves its epoch in the assignment's `epochFloor`, which is durable before
the slot goes; a slot that is queued afresh begins above the floor. The next life of a slot whose binding is still there is
repair's step, not this one's. Used by the assignment and job controllers; `request_for` by repair too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from msgspec.structs import replace

from fairlead.decide.assigning import BLOCK, RECOVERY_FIRST
from fairlead.decide.overflow import giving
from fairlead.decide.slots import ENDED, Group, Slot, Slots, Table, Terms, counts, grouped, instant, pending_reasons
from fairlead.decide.spans import size, spans_of
from fairlead.model.commands import Body, Delete, Enqueue, Put
from fairlead.model.ids import born_at
from fairlead.model.kinds.intent import PendingReason
from fairlead.model.kinds.slot import SlotRef
from fairlead.model.kinds.work import (
    Ask,
    Assignment,
    AssignmentSpec,
    AssignmentStatus,
    Revision,
    SchedulingRequest,
    SchedulingRequestSpec,
)
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Condition, Metadata, set_condition

ENQUEUE_MAX: Final = 256  # slots in one command, as the authority takes them
_S = SlotState

RevisionOf = Callable[[int], Revision | None]


def request_for(assignment: Assignment, revision: Revision, index: int, epoch: int, gang_size: int = 0) -> SchedulingRequest:
    order, spec = assignment.spec, revision.spec
    stands_in = order.recovery is not None and order.recovery.first <= index <= order.recovery.last
    slot = SlotRef(workload=order.workload, uid=order.workload_uid, index=index)
    return SchedulingRequest(
        metadata=Metadata(name=slot.object_name, namespace=assignment.metadata.namespace),
        spec=SchedulingRequestSpec(
            slot=slot,
            epoch=epoch,
            generation=spec.generation,
            ask=_labelled(spec.ask, assignment.metadata),
            execution=spec.execution,
            exclusive=spec.exclusive,
            gang=order.workload if gang_size else "",
            start_target_seconds=spec.start_target_seconds,
            supersedes=next((each.supersedes for each in order.successors if each.index == index), ""),
            **_terms(order, gang_size, stands_in)._asdict(),
        ),
    )


def _labelled(ask: Ask, order: Metadata) -> Ask:
    """A label that was changed since the revision was made goes for all that is queued from then on."""
    labels = tuple(sorted(order.labels.items()))
    return ask if labels == ask.labels else replace(ask, labels=labels)


def _terms(order: AssignmentSpec, gang_size: int, stands_in: bool) -> Terms:
    return Terms(
        priority=order.priority,
        gang_size=gang_size,
        gang_timeout_seconds=order.gang_timeout_seconds,
        deadline_time=order.job.deadline_time if order.job is not None else None,
        may_borrow=order.may_borrow,
        budget_name=order.budget_name if stands_in else "",
        min_serving=order.min_serving,
    )


def floor_needed(order: AssignmentSpec, slots: Slots, want: dict[int, int], floor: int) -> int:
    """The highest epoch among what will be forgotten. A request that never began a life leaves nothing of its own epoch."""
    return max([floor, *(_epoch_left(slot) for slot in _to_forget(order, grouped(slots), want))])


def _to_forget(order: AssignmentSpec, table: Table, want: dict[int, int]) -> Iterator[Slot]:
    # Of a job, what has ended well is counted first, and goes then (controllers/job.py).
    over = (_S.RELEASED,) if order.job is not None else (_S.RELEASED, _S.SUCCEEDED)
    for (state, generation), group in table.groups.items():
        if state in over:
            yield from (group[index] for index in sorted(group.keys() - want.keys()))
        elif state is _S.PENDING:
            # A waiting slot may not go back to an earlier generation in place: it is withdrawn and queued afresh.
            gone = group.keys() - want.keys() | {
                index for index in _otherwise(group, want, generation) if want[index] < generation
            }
            yield from (group[index] for index in sorted(gone))


def _otherwise(group: Group, want: dict[int, int], generation: int) -> Iterator[int]:
    """Those of a group that another generation is wanted of."""
    others = {wanted for wanted in set(want.values()) if wanted != generation}
    return (index for index in group if want.get(index) in others) if others else iter(())


def _epoch_left(slot: Slot) -> int:
    return slot.epoch if slot.state is not _S.PENDING or slot.attempt else slot.epoch - 1


def queue_bodies(assignment: Assignment, slots: Slots, want: dict[int, int], revision_of: RevisionOf) -> list[Body]:
    """What brings the queue to what is wanted, as far as the durable floor allows."""
    tenant, floor = assignment.metadata.namespace, assignment.status.epoch_floor
    deleting = assignment.metadata.deletion_time is not None
    out: list[Body] = []
    table = grouped(slots)
    for slot in _to_forget(assignment.spec, table, want):
        if deleting or _epoch_left(slot) <= floor:
            kind = "SchedulingRequest" if slot.state is _S.PENDING else "Binding"
            out.append(Delete(kind, tenant, f"{assignment.spec.workload}-{slot.index}"))
    together = _together(assignment, slots, want)
    restated = _restated(assignment.spec, table, together) & want.keys()
    for (state, generation), group in table.groups.items():
        if state is not _S.PENDING:
            continue
        for index in sorted({*_otherwise(group, want, generation), *(restated & group.keys())}):
            revision = revision_of(want[index]) if want[index] >= generation else None
            if revision is not None:
                made = request_for(assignment, revision, index, group[index].epoch, together)
                out.append(Put("SchedulingRequest", _as_before(made, group[index].request)))
    out += _enqueues(assignment, slots, want, revision_of, together)
    return out


def _as_before(made: SchedulingRequest, before: SchedulingRequest | None) -> SchedulingRequest:
    """With what neither its order nor its generation says: where it was before."""
    if before is None or not before.spec.left_node:
        return made
    left = before.spec
    return replace(made, spec=replace(made.spec, left_node=left.left_node, left_until_time=left.left_until_time))


def _together(assignment: Assignment, slots: Slots, want: dict[int, int]) -> int:
    """How many members a gang has that has not started: all that are wanted. 0: one of them has begun a life, after which each
    goes by itself; or it is no gang."""
    if not assignment.spec.gang:
        return 0
    here = [slots[index] for index in want.keys() & slots.keys()]
    waits = all(slot.state is _S.PENDING and slot.request is not None and slot.request.spec.gang for slot in here)
    return len(want) if waits else 0


def _restated(order: AssignmentSpec, table: Table, together: int) -> set[int]:
    """Those that wait, and whose order says something else by now than their requests do: another priority, another budget, or
    more or fewer fellows of a gang, for which they would wait for ever."""
    stands_in = order.recovery
    if order.gang and not together and table.count(_S.RESERVED):
        return set()  # its members are being bound, together: what they ask for stays as it is until that has ended
    plain, recovery = _terms(order, together, False), _terms(order, together, True)
    out = {each.index for each in order.successors if _names_another(table.get(each.index), each.supersedes)}
    for terms, group in table.waiting.items():
        if stands_in is not None:
            own = range(stands_in.first, stands_in.last + 1)
            out.update(index for index in group if terms != (recovery if index in own else plain))
        elif terms != plain:
            out |= group.keys()
    return out


def _names_another(slot: Slot | None, supersedes: str) -> bool:
    return slot is not None and slot.request is not None and slot.request.spec.supersedes != supersedes


def first_epoch(assignment: Assignment) -> int:
    """Above every epoch that a slot of this name ever had here: of those that were forgotten, and of an earlier workload of the
    same name, whose assignment is gone and its floor with it. Agents remember the highest token they saw. Each new epoch took
    an effect of its own, so none can have passed the position at which this assignment was made."""
    return max(assignment.status.epoch_floor, born_at(assignment.metadata.uid)) + 1


def _enqueues(
    assignment: Assignment, slots: Slots, want: dict[int, int], revision_of: RevisionOf, together: int
) -> Iterator[Body]:  # fmt: skip
    by_generation: dict[int, list[int]] = {}
    for index in sorted(want.keys() - slots.keys()):
        by_generation.setdefault(want[index], []).append(index)
    for generation, fresh in by_generation.items():
        revision = revision_of(generation)
        if revision is None:
            continue
        most = 1 if assignment.spec.successors else ENQUEUE_MAX  # each of those names what it stands in for
        for span in spans_of(fresh):
            for first in range(span.first, span.last + 1, most):
                request = request_for(assignment, revision, first, first_epoch(assignment), together)
                yield Enqueue(request, min(most, span.last + 1 - first))


class Told(NamedTuple):
    """What the status is made of beside the slots themselves."""

    granted: bool  # the tenant has a grant in this region
    revision_here: bool
    progressing: Condition | None = None


def status_of(assignment: Assignment, slots: Slots, want: dict[int, int], told: Told, now_ms: int) -> AssignmentStatus:
    """What the region says of it: counts by stage, why slots wait, whether it is released."""
    meta, order, before = assignment.metadata, assignment.spec, assignment.status
    unqueued = len(want.keys() - slots.keys())
    pending = pending_reasons(slots)
    if unqueued:
        pending = (*pending, _unqueued(unqueued, order.region, meta.namespace, told))
    deleting = meta.deletion_time is not None
    here = counts(0 if deleting or order.suspend else size(order.slots), order.generation, slots)
    here = replace(here, pending=here.pending + unqueued)
    conditions = before.conditions
    if told.progressing is not None:
        conditions = set_condition(conditions, replace(told.progressing, observed_generation=meta.generation))
    if deleting and not slots:
        gone = Condition(
            type="Released",
            status="True",
            reason="NoSlots",
            observed_generation=meta.generation,
            last_transition_time=instant(now_ms),
        )
        conditions = set_condition(conditions, gone)
    return replace(
        before,
        observed_generation=meta.generation,
        generation=order.generation,
        replicas=here,
        pending=pending,
        generations=tuple(sorted({generation for _, generation in grouped(slots).groups} | set(want.values()))),
        epoch_floor=floor_needed(assignment.spec, slots, want, before.epoch_floor),
        unwanted=_unwanted(slots, want) if order.exclusive or order.execution == "Exclusive" else 0,
        conditions=conditions,
        stood_in=_standing_in(slots) if order.recovery is not None or before.stood_in else 0,
        given_up=spans_of(giving(order, before, slots).gone),
    )


def _standing_in(slots: Slots) -> int:
    return sum(slot.index % BLOCK >= RECOVERY_FIRST for slot in grouped(slots).of(SlotState.SERVING))


def _unwanted(slots: Slots, want: dict[int, int]) -> int:
    """Slots that are not wanted and are not known to be over: also one that waits could still be bound."""
    return sum(slot.state not in ENDED for index, slot in slots.items() if index not in want)


def _unqueued(count: int, region: str, tenant: str, told: Told) -> PendingReason:
    if not told.granted:
        detail = f"tenant {tenant} has no grant in {region}"
        return PendingReason(reason="WaitingForQuota", count=count, next_owner="quota-controller", detail=detail)
    if not told.revision_here:
        detail = f"the revision has not reached {region} yet"
        return PendingReason(reason="PendingEvaluation", count=count, next_owner="mirror", detail=detail)
    return PendingReason(reason="PendingEvaluation", count=count, next_owner="assignment-controller", detail="not queued yet")


def same_but_for_times(new: AssignmentStatus, old: AssignmentStatus) -> bool:
    """Nothing changed that anybody waits to read: the time of the next attempt moves all the time."""
    return replace(new, pending=_timeless(new)) == replace(old, pending=_timeless(old))


def _timeless(status: AssignmentStatus) -> tuple[PendingReason, ...]:
    return tuple(replace(pending, next_attempt_time=None) for pending in status.pending)
