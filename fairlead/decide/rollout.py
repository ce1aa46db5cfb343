"""How a workload's slots in one region come to the wanted generation: which slots there should be, which may leave, who gets
traffic, and whether it progresses. Pure.

The number of slots is bounded by the indices there are: the region's own, and `maxSurge` spare ones. The number that serve is
bounded by what may leave: nothing does unless, without it, at least `replicas - maxUnavailable` still serve; and where surge lets
another come first, the last copy never leaves first. Used by the assignment, rollout and repair controllers, on the same picture.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from fairlead.decide.slots import RUNNING, Slot, Slots
from fairlead.decide.spans import indices, size
from fairlead.model.kinds.work import AssignmentSpec, Endpoints
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Condition

_S = SlotState
# A slot that holds its place: it waits, runs, or is on its way out.
_THERE: Final = frozenset(SlotState) - {_S.RELEASED, _S.SUCCEEDED}


def wanted(order: AssignmentSpec, slots: Slots, *, deleting: bool = False) -> dict[int, int]:
    """Index -> the generation its next life is to run."""
    if order.suspend or deleting:
        return {}
    own = list(indices(order.slots))
    out = {index: _next_generation(order, slots.get(index)) for index in own}
    for index in _spares(order, own, slots):
        out[index] = _next_generation(order, slots.get(index))
    return out


def _next_generation(order: AssignmentSpec, slot: Slot | None) -> int:
    """A paused rollout replaces nothing, not even what comes back after a failure."""
    return slot.generation if order.rollout.paused and slot is not None else order.generation


def _spares(order: AssignmentSpec, own: list[int], slots: Slots) -> list[int]:
    """The spare indices in use: as many as surge allows while something is replaced, then until all of the region's own serve."""
    spare = order.spare
    if spare is None or not own:
        return []
    known = [slots[i] for i in range(spare.first, spare.last + 1) if i in slots and slots[i].state in _THERE]
    if order.rollout.paused:
        return [slot.index for slot in known]
    here = [slots[i] for i in own if i in slots]
    undone = len(own) - sum(slot.serves and slot.generation == order.generation for slot in here)
    replacing = any(slot.generation != order.generation and slot.state in _THERE for slot in here)
    right = sorted((s for s in known if s.generation == order.generation), key=lambda s: (not s.serves, s.index))
    if not replacing:
        return [slot.index for slot in right if slot.state is not _S.PENDING][:undone]
    count = min(order.rollout.max_surge, undone, spare.last - spare.first + 1)
    chosen = [slot.index for slot in right][:count]
    rest = [i for i in range(spare.first, spare.last + 1) if i not in chosen]
    return chosen + rest[: count - len(chosen)]


class Leaving(NamedTuple):
    """What should leave now, and which requests to leave are to be taken back."""

    evict: list[tuple[int, str]]
    cancel: list[int]


def leaving(order: AssignmentSpec, slots: Slots, want: dict[int, int]) -> Leaving:
    candidates = {s.index: why for s in slots.values() if s.state in RUNNING and (why := _why_leave(order, s, want))}
    cancel = [s.index for s in slots.values() if s.ours and s.leaving and not s.approved and s.index not in candidates]
    own = 0 if not want else size(order.slots)
    least = max(own - order.rollout.max_unavailable, 1 if own and order.rollout.max_surge and order.spare is not None else 0)
    # One whose request is being taken back counts only when that is done: it may be approved first.
    serving = sum(slot.serves for slot in slots.values())
    evict: list[tuple[int, str]] = []
    # What does not serve costs nothing; of what serves, the wrong generation goes before what is merely too much.
    for index in sorted(candidates, key=lambda i: (slots[i].serves, i in want and slots[i].generation == want[i], i)):
        slot = slots[index]
        if slot.leaving:
            continue
        if slot.serves:
            if serving - 1 < least:
                continue
            serving -= 1
        evict.append((index, candidates[index]))
    return Leaving(evict, cancel)


def _why_leave(order: AssignmentSpec, slot: Slot, want: dict[int, int]) -> str:
    if slot.index not in want:
        return "suspended" if order.suspend else "not wanted here any more"
    if slot.generation != order.generation and not order.rollout.paused:
        return f"rollout from generation {slot.generation} to {order.generation}"
    return ""


# --- traffic


def traffic(slots: Slots) -> set[int]:
    """Who should get traffic: who is ready and is not leaving. A lost one keeps it only while nobody else serves: it may well
    still answer, and the last copy is never taken away on a suspicion."""
    out = {s.index for s in slots.values() if s.state in (_S.READY, _S.SERVING) and s.ready and not s.approved}
    if not any(slots[index].state is _S.SERVING for index in out):
        out |= {s.index for s in slots.values() if s.state is _S.UNKNOWN and s.in_traffic and not s.lost}
    return out


def serving_steps(slots: Slots) -> list[tuple[Slot, SlotState]]:
    """Ready -> Serving for those whom Endpoints name, Serving -> Ready for those whom they no longer do."""
    out: list[tuple[Slot, SlotState]] = []
    admitted = traffic(slots)
    for slot in slots.values():
        if slot.state is _S.READY and slot.in_traffic and slot.index in admitted:
            out.append((slot, _S.SERVING))
        elif slot.state is _S.SERVING and not slot.in_traffic and slot.index not in admitted:
            out.append((slot, _S.READY))
    return out


# --- progress


class Progress(NamedTuple):
    updated: int  # of the region's own: serve the wanted generation
    remaining: int  # still to come, or still to go
    since_ms: int  # when it last became better
    deadline_ms: int | None  # when standing still becomes a failure
    condition: Condition


def progress(order: AssignmentSpec, slots: Slots, before: Endpoints | None, since_ms: int, now_ms: int) -> Progress:
    own = set(indices(order.slots))
    updated = sum(s.state is _S.SERVING and s.generation == order.generation and s.index in own for s in slots.values())
    others = sum(s.state in _THERE and (s.generation != order.generation or s.index not in own) for s in slots.values())
    remaining = len(own) - updated + others
    same = before is not None and before.status.generation == order.generation
    better = before is None or not same or updated > before.status.updated or remaining < before.status.remaining
    since_ms = now_ms if better else since_ms
    if remaining == 0 or order.suspend:
        done = "Suspended" if order.suspend else "Complete"
        return Progress(updated, remaining, since_ms, None, _condition("True", done, f"{updated} of {len(own)} serve"))
    message = f"{updated} of {len(own)} serve generation {order.generation}, {others} others are still there"
    if order.rollout.paused:
        return Progress(updated, remaining, since_ms, None, _condition("Unknown", "Paused", message))
    deadline_ms = since_ms + order.rollout.progress_deadline_seconds * 1000
    if now_ms >= deadline_ms:
        seconds = order.rollout.progress_deadline_seconds
        said = f"{message}; nothing became better for {seconds} s"
        return Progress(updated, remaining, since_ms, None, _condition("False", "ProgressDeadlineExceeded", said))
    return Progress(updated, remaining, since_ms, deadline_ms, _condition("True", "RollingOut", message))


def _condition(status: str, reason: str, message: str) -> Condition:
    return Condition(type="Progressing", status=status, reason=reason, message=message)  # type: ignore[arg-type]
