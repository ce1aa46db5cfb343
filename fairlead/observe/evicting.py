"""Who must leave when somebody asks for room, by the policies of a region and the budgets of its work, for L1.

Says less than is true where it is not sure: a victim has no disruption budget at all, and every policy that is there allows it.
Nothing of the scheduler's or the judge's. Called by waiting.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fairlead.decide.built_in_policy import BUILT_IN
from fairlead.model.kinds.policy import PriorityClass
from fairlead.model.lifecycle import SlotState

_CAPABLE = (SlotState.BOUND, SlotState.STARTING, SlotState.READY, SlotState.SERVING)

Objects = Mapping[str, Mapping[tuple[str, str], Any]]


class Evictor:
    """One request that waits, and whom it may send away."""

    def __init__(self, request: Any, objects: Objects) -> None:
        spec = request.spec
        self._priority, self._borrows = spec.priority, spec.may_borrow
        self._asks = not (spec.gang or spec.standing)
        policies = [one.spec.priority_classes for one in objects.get("schedulerpolicies", {}).values()]
        self._policies = [classes or BUILT_IN.priority_classes for classes in policies] or [BUILT_IN.priority_classes]
        orders = objects.get("assignments", {}).values()
        self._kept = {order.spec.workload_uid for order in orders if order.spec.min_serving}

    def may_evict(self, binding: Any) -> bool:
        spec = binding.spec
        if not self._asks or binding.status.state not in _CAPABLE or spec.min_serving or spec.slot.uid in self._kept:
            return False
        if spec.borrowed and not self._borrows:
            return True  # it agreed to leave when the room is asked for
        if spec.borrowed != self._borrows or spec.priority >= self._priority:
            return False
        return all(_allows(classes, self._priority, spec.priority) for classes in self._policies)


def _allows(classes: Sequence[PriorityClass], evictor: int, victim: int) -> bool:
    by, of = _class(classes, evictor), _class(classes, victim)
    if by is None or of is None or not by.preempts or not of.preemptible or of.value >= by.value:
        return False
    return not by.preempts_only or of.name in by.preempts_only


def _class(classes: Sequence[PriorityClass], priority: int) -> PriorityClass | None:
    """Of a priority: the highest that is not above it."""
    return max((one for one in classes if one.value <= priority), key=lambda one: one.value, default=None)
