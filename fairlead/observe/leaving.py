"""S19 of those who are asked to leave, of a region's journal: the disruption controller lets a slot that serves go, or drains it,
only where its workload's budget holds without it.

Asked of what is so at that very commit: the authority judges it there. Whoever was let go is counted on no more, and may drain
however few serve by then. Counts no claims: those are claims.py's. Owns who serves of workloads with a budget. Fed by
JournalChecker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairlead.model.kinds.work import Assignment, Binding, EvictionRequest
from fairlead.model.lifecycle import Role, SlotState

Found = Callable[[str, str], None]
Objects = dict[str, dict[tuple[str, str], Any]]
Slot = tuple[str, str]


class _Kept:
    """One workload with a budget: who serves, and how many must."""

    def __init__(self, serving: set[Slot]) -> None:
        self.floor = 0
        self.serving = serving


class LeavingChecker:
    """Tell it of every change before it is applied."""

    def __init__(self, objects: Objects, found: Found, checked: dict[str, int]) -> None:
        self._objects = objects
        self._found = found
        self._checked = checked
        self._kept: dict[str, _Kept] = {}  # by the workload's uid

    def order(self, old: Assignment | None, new: Assignment | None) -> None:
        order = new or old
        assert order is not None, "something has changed"
        uid, floor = order.spec.workload_uid, _floor(new)
        kept = self._kept.get(uid)
        if kept is None:
            if not floor:
                return
            here = self._objects["bindings"].items()
            serving = {at for at, one in here if one.spec.slot.uid == uid and one.status.state is SlotState.SERVING}
            kept = self._kept[uid] = _Kept(serving)
        kept.floor = floor
        if new is None:
            del self._kept[uid]

    def binding(self, slot: Slot, old: Binding | None, new: Binding | None, role: Role | None) -> None:
        one = new or old
        kept = self._kept.get(one.spec.slot.uid) if one is not None else None
        if kept is None:
            return
        drains = new is not None and new.status.state is SlotState.DRAINING
        if drains and slot in kept.serving and role is Role.DISRUPTION and not self._is_let_go(slot):
            self._leaves(slot, kept, "drained")
        if new is not None and new.status.state is SlotState.SERVING:
            kept.serving.add(slot)
        else:
            kept.serving.discard(slot)

    def asked(self, slot: Slot, new: EvictionRequest | None) -> None:
        kept = self._kept.get(new.spec.slot.uid) if new is not None else None
        if kept is None or slot not in kept.serving or self._is_let_go(slot):
            return  # who does not serve may go
        if _lets_go(new, self._objects["bindings"].get(slot)):
            self._leaves(slot, kept, "let go")

    def _leaves(self, slot: Slot, kept: _Kept, how: str) -> None:
        if not kept.floor:
            return
        self._checked["S19"] += 1
        left = sum(each != slot and not self._is_let_go(each) for each in kept.serving)
        if left < kept.floor:
            self._found("S19", f"{'/'.join(slot)} was {how}, which leaves {left} of {kept.floor} that must serve")

    def _is_let_go(self, slot: Slot) -> bool:
        return _lets_go(self._objects["evictionrequests"].get(slot), self._objects["bindings"].get(slot))


def _lets_go(request: EvictionRequest | None, bound: Binding | None) -> bool:
    """As it was last filed, and of this life of the slot."""
    if request is None or bound is None:
        return False
    same = request.spec.slot.uid == bound.spec.slot.uid and request.spec.epoch in (0, bound.spec.token.epoch)
    return same and _says(request, "Approved") and not _says(request, "Done")


def _floor(order: Assignment | None) -> int:
    """How many have to serve here: never more than are wanted, and none of a job or of what goes away."""
    if order is None or order.spec.suspend or order.spec.job is not None or order.metadata.deletion_time is not None:
        return 0
    return min(order.spec.min_serving, sum(span.last + 1 - span.first for span in order.spec.slots))


def _says(request: EvictionRequest, kind: str) -> bool:
    return any(
        one.type == kind and one.status == "True" and one.observed_generation == request.metadata.generation
        for one in request.status.conditions
    )
