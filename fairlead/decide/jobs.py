"""How a job goes: which of its completions run next, what counts as done or failed, and when it is over. Pure.

A completion is a slot index; it counts once, when its slot succeeds. A failed life counts once, by its epoch, before anybody
clears it away. A life that was drained or lost is no failure of the job. An object has a largest size: where more fail together
than it can name, the rest is counted when the first have been cleared away. Used by the job, assignment and repair controllers;
`is_done` by the authority.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final, Literal, NamedTuple

from fairlead.decide.admission import OBJECT_BYTES_MAX
from fairlead.decide.slots import RUNNING, Slots, grouped, millis
from fairlead.decide.spans import Spans, among, joined, missing
from fairlead.model.kinds.intent import JobRule
from fairlead.model.kinds.work import AssignmentSpec, AssignmentStatus, SlotRange
from fairlead.model.lifecycle import SlotState

_S = SlotState
_PLACED: Final = RUNNING | {_S.RESERVED, _S.DRAINING, _S.UNKNOWN}
_WAITS: Final = (_S.PENDING, _S.FAILED, _S.RELEASED)

# What may be said of those that ended; the rest is for the spec, and for what else the status says. Completions alone always
# fit: they have no more gaps than slots have run at once.
_BYTES_MAX: Final = OBJECT_BYTES_MAX - 24 * 1024
_COMPLETED_BYTES: Final = 22  # a range of them
_FAILED_BYTES: Final = 37  # one, with its epoch
_FAILED_LEAST: Final = 100

Verdict = Literal["", "Complete", "RetriesSpent", "DeadlinePassed"]


class Count(NamedTuple):
    completed: Spans
    failed: Spans
    failures: int
    uncounted: int = 0  # failed lives that are counted later


def count(status: AssignmentStatus, slots: Slots) -> Count:
    """What has ended so far, with what is new."""
    table = grouped(slots)
    succeeded = [slot.index for slot in table.of(_S.SUCCEEDED)]
    counted_before = among(status.completed, succeeded)
    completed = joined(status.completed, [index for index in succeeded if index not in counted_before])
    failing = {slot.index: slot.epoch for slot in table.of(_S.FAILED)}
    failed, new, uncounted = _booked(status.failed, failing, completed)
    return Count(completed, failed, status.failures + new, uncounted)


def _booked(before: Spans, failing: dict[int, int], completed: Spans) -> tuple[Spans, int, int]:
    """The failed lives that are remembered, how many of them are new, and how many find no room yet. First those that are still
    there, which may go once they are in the books; a life that has gone is remembered while there is room, and its index has not
    succeeded since."""
    known = {span.first: span.epoch for span in before}
    fresh = sorted((index, epoch) for index, epoch in failing.items() if known.get(index, 0) < epoch)
    over = among(completed, known)
    most = max(_FAILED_LEAST, (_BYTES_MAX - _COMPLETED_BYTES * len(completed)) // _FAILED_BYTES)
    if not fresh and not over and len(known) <= most:
        return before, 0, 0
    there = {index: epoch for index, epoch in known.items() if index in failing and epoch >= failing[index]}
    new = dict(fresh[: max(0, most - len(there))])
    gone = [(index, epoch) for index, epoch in known.items() if index not in failing and index not in over]
    kept = dict(gone[: max(0, most - len(there) - len(new))])
    failed = sorted((there | new | kept).items())
    return tuple(SlotRange(first=i, last=i, epoch=e) for i, e in failed), len(new), len(fresh) - len(new)


def counted(status: AssignmentStatus, index: int, epoch: int) -> bool:
    """This life's failure is in the books: it may be cleared away."""
    at = bisect_left(status.failed, index, key=lambda span: span.first)
    return at < len(status.failed) and status.failed[at].first == index and status.failed[at].epoch >= epoch


def is_done(status: AssignmentStatus, index: int) -> bool:
    """This completion is in the books: it never runs again."""
    at = bisect_right(status.completed, index, key=lambda span: span.first)
    return at > 0 and index <= status.completed[at - 1].last


def done(job: JobRule, so_far: Count) -> int:
    """Completions that count: one beyond what the job asks for, of a time when it asked for more, stands in for no other."""
    return sum(min(span.last, job.completions - 1) - span.first + 1 for span in so_far.completed if span.first < job.completions)


def verdict(job: JobRule, so_far: Count, now_ms: int) -> Verdict:
    if done(job, so_far) >= job.completions:
        return "Complete"
    if so_far.failures > job.retries:
        return "RetriesSpent"
    if job.deadline_time is not None and now_ms >= millis(job.deadline_time):
        return "DeadlinePassed"
    return ""


def wanted(
    order: AssignmentSpec, status: AssignmentStatus, slots: Slots, now_ms: int, *, deleting: bool = False
) -> dict[int, int]:
    """Those that have a place, and beside them, up to the job's parallelism, those that wait and the lowest that are missing."""
    job = order.job
    assert job is not None, "a service has no completions"
    so_far = count(status, slots)
    if order.suspend or deleting or not order.slots or verdict(job, so_far, now_ms):
        return {}
    table = grouped(slots)
    placed = [slot.index for slot in table.of(*_PLACED)]
    waiting = sorted(slot.index for slot in table.of(*_WAITS))
    over = among(so_far.completed, (*placed, *waiting))
    out = {index: order.generation for index in placed if index < job.completions and index not in over}
    room = max(0, job.parallelism - len(placed))
    queued = [index for index in waiting if index < job.completions and index not in over][:room]
    out |= dict.fromkeys(queued, order.generation)
    if room > len(queued):
        more = missing(so_far.completed, job.completions, room - len(queued), out)
        out |= dict.fromkeys(more, order.generation)
    return out
