"""How a job goes: which of its completions run next, what counts as done or failed, and when it is over. Pure.

A completion is a slot index; it counts once, when its slot succeeds. A failed life counts once, by its epoch, before anybody
clears it away. A life that was drained or lost is no failure of the job. Used by the job, assignment and repair controllers.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from fairlead.decide.slots import RUNNING, Slots, millis
from fairlead.decide.spans import Spans, holds, joined, missing, size
from fairlead.model.kinds.intent import JobRule
from fairlead.model.kinds.work import AssignmentSpec, AssignmentStatus, SlotRange
from fairlead.model.lifecycle import SlotState

_S = SlotState
_THERE: Final = RUNNING | {_S.PENDING, _S.RESERVED, _S.DRAINING, _S.UNKNOWN, _S.FAILED, _S.RELEASED}

Verdict = Literal["", "Complete", "RetriesSpent", "DeadlinePassed"]


class Count(NamedTuple):
    completed: Spans
    failed: Spans
    failures: int


def count(status: AssignmentStatus, slots: Slots) -> Count:
    """What has ended so far, with what is new."""
    done = [s.index for s in slots.values() if s.state is _S.SUCCEEDED and not holds(status.completed, s.index)]
    known = {span.first: span.epoch for span in status.failed}
    fresh = {s.index: s.epoch for s in slots.values() if s.state is _S.FAILED and known.get(s.index, 0) < s.epoch}
    failed = tuple(SlotRange(first=i, last=i, epoch=e) for i, e in sorted((known | fresh).items()))
    return Count(joined(status.completed, done), failed, status.failures + len(fresh))


def counted(status: AssignmentStatus, index: int, epoch: int) -> bool:
    """This life's failure is in the books: it may be cleared away."""
    return any(span.first == index and span.epoch >= epoch for span in status.failed)


def verdict(job: JobRule, counted_so_far: Count, now_ms: int) -> Verdict:
    if size(counted_so_far.completed) >= job.completions:
        return "Complete"
    if counted_so_far.failures > job.retries:
        return "RetriesSpent"
    if job.deadline_time is not None and now_ms >= millis(job.deadline_time):
        return "DeadlinePassed"
    return ""


def wanted(
    order: AssignmentSpec, status: AssignmentStatus, slots: Slots, now_ms: int, *, deleting: bool = False
) -> dict[int, int]:
    """Those under way, and the lowest that are missing, up to the job's parallelism."""
    job = order.job
    assert job is not None, "a service has no completions"
    so_far = count(status, slots)
    if order.suspend or deleting or not order.slots or verdict(job, so_far, now_ms):
        return {}
    out = {s.index: order.generation for s in slots.values() if s.state in _THERE and not holds(so_far.completed, s.index)}
    room = job.parallelism - len(out)
    if room > 0:
        for index in missing(joined(so_far.completed, out), job.completions, room):
            out[index] = order.generation
    return out
