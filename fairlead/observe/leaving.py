"""S19 of those who are asked to leave, of a region's journal: the disruption controller lets a slot that serves go only where its
workload's budget holds without it, and drains none of a workload with a budget that it has not let go.

It decides on what it has seen, and the authority does not ask it again. So a finding is what nothing that was so within the last
forty seconds allows: of all the sets of slots that served then, without those it has let go, none was large enough, and the
budget was never smaller. Counts no claims: those are claims.py's. Owns who serves of workloads with a budget. Fed by
JournalChecker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from fairlead.model.kinds.work import Assignment, Binding, EvictionRequest
from fairlead.model.lifecycle import Role, SlotState

SEEN_MS: Final = 40_000  # L3 has a change seen within 35 s, and a look comes soon after it

Found = Callable[[str, str], None]
Objects = dict[str, dict[tuple[str, str], Any]]
Slot = tuple[str, str]


class _Kept:
    """One workload with a budget: who serves and how many must, now and until when it was otherwise."""

    def __init__(self, serving: frozenset[Slot]) -> None:
        self.floor = 0
        self.serving = serving
        self.floors: list[tuple[int, int]] = []
        self.served: list[tuple[int, frozenset[Slot]]] = []
        self.left: dict[Slot, int] = {}  # let go, and when it stopped to serve

    def forget(self, now_ms: int) -> None:
        self.floors = [each for each in self.floors if now_ms < each[0] + SEEN_MS]
        self.served = [each for each in self.served if now_ms < each[0] + SEEN_MS]
        self.left = {slot: ms for slot, ms in self.left.items() if now_ms < ms + SEEN_MS}


class LeavingChecker:
    """Tell it of every change before it is applied."""

    def __init__(self, objects: Objects, found: Found, checked: dict[str, int]) -> None:
        self._objects = objects
        self._found = found
        self._checked = checked
        self._kept: dict[str, _Kept] = {}  # by the workload's uid
        self._since_ms: dict[Slot, int] = {}  # of these: since when it serves
        self._approved: dict[Slot, str] = {}  # let go and not gone: the workload's uid
        self._withdrawn: dict[Slot, int] = {}  # no longer let go: since when
        self._begun_ms = -SEEN_MS

    def begun(self, now_ms: int) -> None:
        """All there was before the first batch was told. What it was decided on a moment earlier is not known."""
        self._begun_ms = now_ms

    def order(self, old: Assignment | None, new: Assignment | None, now_ms: int) -> None:
        order = new or old
        assert order is not None, "something has changed"
        uid, floor = order.spec.workload_uid, _floor(new)
        kept = self._kept.get(uid)
        if kept is None:
            if not floor:
                return
            here = self._objects["bindings"].items()
            serving = frozenset(at for at, one in here if one.spec.slot.uid == uid and one.status.state is SlotState.SERVING)
            kept = self._kept[uid] = _Kept(serving)
        if floor != kept.floor:
            kept.floors.append((now_ms, kept.floor))
            kept.floor = floor
        if new is None:
            del self._kept[uid]

    def binding(self, slot: Slot, old: Binding | None, new: Binding | None, now_ms: int, role: Role | None) -> None:
        one = new or old
        kept = self._kept.get(one.spec.slot.uid) if one is not None else None
        if one is None or kept is None:
            return
        did, does = (each is not None and each.status.state is SlotState.SERVING for each in (old, new))
        if did is not does:
            kept.forget(now_ms)
            kept.served.append((now_ms, kept.serving))
            kept.serving = kept.serving | {slot} if does else kept.serving - {slot}
            if does:
                self._since_ms[slot] = now_ms
                kept.left.pop(slot, None)
            elif slot in self._approved:
                kept.left[slot] = now_ms
        drains = old is not None and new is not None and new.status.state is SlotState.DRAINING is not old.status.state
        if drains and role is Role.DISRUPTION:
            self._drained(slot, kept, now_ms)

    def asked(self, slot: Slot, old: EvictionRequest | None, new: EvictionRequest | None, now_ms: int) -> None:
        was, uid = slot in self._approved, new.spec.slot.uid if new is not None else ""
        is_let_go = new is not None and _says(new, "Approved") and not _says(new, "Done")
        if was and not is_let_go:
            del self._approved[slot]
            self._withdrawn = {each: ms for each, ms in self._withdrawn.items() if now_ms < ms + SEEN_MS} | {slot: now_ms}
        elif is_let_go and not was:
            kept = self._kept.get(uid)
            if kept is not None and new is not None:
                self._let_go(slot, new, kept, now_ms)
            self._approved[slot] = uid

    def _let_go(self, slot: Slot, request: EvictionRequest, kept: _Kept, now_ms: int) -> None:
        bound: Binding | None = self._objects["bindings"].get(slot)
        about = bound is not None and request.spec.epoch in (0, bound.spec.token.epoch)
        since_ms = max(self._begun_ms, self._since_ms.get(slot, -SEEN_MS))
        if not about or slot not in kept.serving or now_ms < since_ms + SEEN_MS:
            return  # who does not serve may go
        kept.forget(now_ms)
        floor = min((kept.floor, *(floor for _, floor in kept.floors)))
        if not floor:
            return
        self._checked["S19"] += 1
        going = {slot, *kept.left, *(each for each in kept.serving if each in self._approved)}
        left = max(len(serving - going) for serving in (kept.serving, *(serving for _, serving in kept.served)))
        if left < floor:
            self._found("S19", f"{'/'.join(slot)} was let go, which leaves {left} of {floor} that must serve")

    def _drained(self, slot: Slot, kept: _Kept, now_ms: int) -> None:
        kept.forget(now_ms)
        let_go = slot in self._approved or now_ms < max(self._begun_ms, self._withdrawn.get(slot, -SEEN_MS)) + SEEN_MS
        if not let_go and min((kept.floor, *(floor for _, floor in kept.floors))):
            self._found("S19", f"{'/'.join(slot)} was drained, and nobody had let it go")


def _floor(order: Assignment | None) -> int:
    """How many have to serve here: never more than are wanted, and none of a job or of what goes away."""
    if order is None or order.spec.suspend or order.spec.job is not None or order.metadata.deletion_time is not None:
        return 0
    return min(order.spec.min_serving, sum(span.last + 1 - span.first for span in order.spec.slots))


def _says(request: EvictionRequest, kind: str) -> bool:
    """As it was last filed."""
    return any(
        one.type == kind and one.status == "True" and one.observed_generation == request.metadata.generation
        for one in request.status.conditions
    )
