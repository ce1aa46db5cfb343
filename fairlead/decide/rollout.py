"""How a workload's slots in one region come to the wanted generation: which slots there should be, which may leave, who gets
traffic, and whether it progresses. Pure.

The number of slots is bounded by the indices there are: the region's own, and `maxSurge` spare ones; of Exclusive work the own
alone, each the one life of its slot at a time. The number that serve is
bounded by what may leave: nothing does unless, without it, at least `replicas - maxUnavailable` still serve; and where surge lets
another come first, the last copy never leaves first. Used by the assignment, rollout and repair controllers, on the same picture.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Final, NamedTuple

from fairlead.decide.slots import RUNNING, Slot, Slots, Table, grouped
from fairlead.decide.spans import index_set, size
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
    out: dict[int, int] = {}
    for span in order.slots:
        out.update(dict.fromkeys(range(span.first, span.last + 1), order.generation))
    spares = _spares(order, out, grouped(slots))
    out.update(dict.fromkeys(spares, order.generation))
    if order.rollout.paused:  # replaces nothing, not even what comes back after a failure
        out.update((index, slot.generation) for index, slot in slots.items() if index in out)
    for each in order.successors:  # one that was bound for another slot of the world must not run on in this one's name (P11)
        slot = slots.get(each.index)
        if slot is not None and slot.request is None and slot.supersedes != each.supersedes:
            out.pop(each.index, None)
    return out


def _spares(order: AssignmentSpec, own: dict[int, int], slots: Table) -> list[int]:
    """The spare indices in use: as many as surge allows while something is replaced, or may not leave before another serves; then
    until all of the region's own serve."""
    spare = order.spare
    if spare is None or not own or order.execution == "Exclusive":
        return []
    known = [slots[i] for i in range(spare.first, spare.last + 1) if i in slots and slots[i].state in _THERE]
    if order.rollout.paused:
        return [slot.index for slot in known]
    replacing = any(
        of != order.generation and state in _THERE and not own.keys().isdisjoint(group)
        for (state, of), group in slots.groups.items()
    )
    held = sum(slot.held and index in own for index, slot in slots.leaving.items())
    if not known and not replacing and not held:
        return []
    undone = len(own) - _own_serving(order, own, slots)
    right = sorted((s for s in known if s.generation == order.generation), key=lambda s: (not s.serves, s.index))
    if not replacing:
        started = [slot.index for slot in right if slot.state is not _S.PENDING][:undone]
        if len(started) >= held:
            return started
    count = min(order.rollout.max_surge, undone if replacing else held, spare.last - spare.first + 1)
    chosen = [slot.index for slot in right][:count]
    taken = set(chosen)
    rest = [i for i in range(spare.first, spare.last + 1) if i not in taken]
    return chosen + rest[: count - len(chosen)]


def _own_serving(order: AssignmentSpec, own: dict[int, int], slots: Table) -> int:
    """Of the region's own: those that serve the wanted generation, and nobody is taking away."""
    right = slots.groups.get((_S.SERVING, order.generation), {})
    return len(own.keys() & right.keys()) - sum(index in right and index in own for index in slots.leaving)


class Leaving(NamedTuple):
    """What should leave now, and which requests to leave are to be taken back."""

    evict: list[tuple[int, str]]
    cancel: list[int]


def serving_wanted(order: AssignmentSpec, slots: Slots) -> int:
    """How many serve the wanted generation, and nobody is taking away."""
    table = grouped(slots)
    right = table.groups.get((_S.SERVING, order.generation), {})
    return len(right) - sum(index in right for index in table.leaving)


def is_replacing(order: AssignmentSpec, slots: Slots) -> bool:
    return any(of != order.generation and state in _THERE for state, of in grouped(slots).groups)


def leaving(order: AssignmentSpec, slots: Slots, want: dict[int, int], unproven: int = 0) -> Leaving:
    """`unproven`: so many serve, and not for long enough to let others go for them."""
    table = grouped(slots)
    idle, serving = _candidates(order, table, want)
    may_go = idle | serving  # made once: ten thousand may be leaving
    cancel = [s.index for s in table.leaving.values() if s.ours and not s.approved and s.index not in may_go]
    own = 0 if not want else size(order.slots)
    least = max(own - order.rollout.max_unavailable, 1 if own and order.rollout.max_surge and order.spare is not None else 0)
    # One whose request is being taken back counts only when that is done: it may be approved first.
    room = max(0, table.serving() - least - (unproven if own else 0))
    # What does not serve costs nothing; of what serves, as many as may be missing.
    going = sorted(idle - table.leaving.keys()) + sorted(serving - table.leaving.keys())[:room]
    return Leaving([(index, _why_leave(order, table[index], want)) for index in going], sorted(cancel))


def _candidates(order: AssignmentSpec, table: Table, want: dict[int, int]) -> tuple[set[int], set[int]]:
    """Those that run and should not, or not so: the ones that serve apart."""
    idle: set[int] = set()
    serving: set[int] = set()
    for (state, generation), group in table.groups.items():
        if state not in RUNNING:
            continue
        wrong = generation != order.generation and not order.rollout.paused
        (serving if state is _S.SERVING else idle).update(group.keys() if wrong else group.keys() - want.keys())
    return idle, serving


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
    table = grouped(slots)
    out = set(table.may_serve)
    groups = table.groups.items()
    if all(out.isdisjoint(group) for (state, _), group in groups if state is _S.SERVING):
        out |= {s.index for s in table.of(_S.UNKNOWN) if s.in_traffic and not s.lost}
    return out


def fitting(admitted: set[int], said: Container[int], sizes: Mapping[int, int], bytes_max: int) -> set[int]:
    """Of those who should get traffic as many as one object holds: first whoever is named already, then in their order. Without
    this bound the object would be refused as a whole, and nobody could be withdrawn from it either."""
    left, out = bytes_max, set()
    for index in sorted(admitted, key=lambda index: (index not in said, index)):
        left -= sizes[index]
        if left < 0:
            break
        out.add(index)
    return out


def serving_steps(slots: Slots, naming: Container[int] = ()) -> list[tuple[Slot, SlotState]]:
    """Ready -> Serving for those whom Endpoints name, Serving -> Ready for those whom they no longer do. `naming`: whom they will
    name before these steps are taken, because they are written with them and stand before them."""
    table = grouped(slots)
    admitted = traffic(table)
    come = [s.index for s in table.of(_S.READY) if s.index in admitted and (s.in_traffic or s.index in naming)]
    go: list[int] = []
    for (state, _), group in table.groups.items():
        if state is _S.SERVING:
            go += [index for index in group.keys() - table.in_traffic.keys() if index not in admitted]
    steps = [(index, _S.SERVING) for index in come] + [(index, _S.READY) for index in go]
    return [(table[index], to) for index, to in sorted(steps)]


# --- progress


class Progress(NamedTuple):
    updated: int  # of the region's own: serve the wanted generation, and have for long enough
    remaining: int  # still to come, or still to go
    since_ms: int  # when it last became better
    deadline_ms: int | None  # when standing still becomes a failure
    condition: Condition


def progress(
    order: AssignmentSpec, slots: Slots, before: Endpoints | None, since_ms: int, now_ms: int, unproven: int = 0
) -> Progress:
    table, own = grouped(slots), index_set(order.slots)
    updated = max(0, len(own & table.groups.get((_S.SERVING, order.generation), {}).keys()) - unproven)
    others = 0
    for (state, generation), group in table.groups.items():
        if state in _THERE:
            others += len(group) if generation != order.generation else len(group.keys() - own)
    remaining = len(own) - updated + others
    same = before is not None and before.status.generation == order.generation
    better = before is None or not same or updated > before.status.updated or remaining < before.status.remaining
    begins = remaining and before is not None and not before.status.remaining  # it was done: what is to be done now is new
    since_ms = now_ms if better or begins else since_ms
    if remaining == 0 or order.suspend:
        done = "Suspended" if order.suspend else "Complete"
        return Progress(updated, remaining, since_ms, None, _condition("True", done, f"{updated} of {len(own)} serve"))
    message = f"{updated} of {len(own)} serve generation {order.generation}, {others} others are still there"
    if unproven:
        message += f", {unproven} have served for less than {order.rollout.min_ready_seconds} s"
    if order.rollout.paused:
        return Progress(updated, remaining, since_ms, None, _condition("Unknown", "Paused", message))
    deadline_ms = since_ms + order.rollout.progress_deadline_seconds * 1000
    if now_ms >= deadline_ms:
        seconds = order.rollout.progress_deadline_seconds
        said = f"{message}; nothing became better for {seconds} s"
        return Progress(updated, remaining, since_ms, None, _condition("False", "ProgressDeadlineExceeded", said))
    reason = "Proving" if unproven and remaining == unproven else "RollingOut"
    return Progress(updated, remaining, since_ms, deadline_ms, _condition("True", reason, message))


def _condition(status: str, reason: str, message: str) -> Condition:
    return Condition(type="Progressing", status=status, reason=reason, message=message)  # type: ignore[arg-type]
