"""Slots of Exclusive services on their way to another region, asked of the global plane's journal: no region is given more before
others have said that as many have ended (S12, P11).

Counts what each region may run: every slot it was ordered since it said last that nothing else is left there. What others stand
in for is recovery's (S12 by chain). Sums of its own. Fed by JournalChecker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from fairlead.model.kinds.intent import Workload
from fairlead.model.kinds.work import Assignment, SlotRange

Found = Callable[[str, str], None]
Objects = dict[str, dict[tuple[str, str], Any]]
GENERATIONS_KEPT: Final = 32  # of a workload: an order is decided on the newest, or on one a moment older


class HandingOverChecker:
    """Tell it of every change before it is applied."""

    def __init__(self, objects: Objects, found: Found) -> None:
        self._objects = objects
        self._found = found
        self._replicas: dict[str, dict[int, int]] = {}  # of each workload by uid, at its newest generations
        self._may: dict[str, dict[str, set[int]]] = {}  # of each by region: the slots that may run there
        self._told: dict[str, dict[str, Assignment]] = {}

    def workload(self, new: Workload | None) -> None:
        if new is None:
            return
        known = self._replicas.setdefault(new.metadata.uid, {})
        known[new.metadata.generation] = new.spec.replicas
        if len(known) > GENERATIONS_KEPT:
            del known[min(known)]

    def assignment(self, old: Assignment | None, new: Assignment | None) -> int:
        """How much was looked at."""
        now = new or old
        assert now is not None, "something has changed"
        uid, region = now.spec.workload_uid, now.spec.region
        may, told = self._may.setdefault(uid, {}), self._told.setdefault(uid, {})
        if new is None:
            may.pop(region, None)
            told.pop(region, None)
            return 0
        if new.spec.execution != "Exclusive" or new.spec.job is not None:
            return 0
        own, before = _given(new), may.get(region)
        counted = self._counted(uid, region)
        told[region] = new
        here = own | (_numbers(new.spec.leaving) if before is None else before - _numbers(new.spec.superseded))
        may[region] = own if _is_settled(new) else here
        grows = (old is not None and bool(own - _given(old))) or (old is None and bool(own))
        if not grows or self._counted(uid, region) <= counted:
            return 0
        return self._grown(uid, new)

    def _grown(self, uid: str, new: Assignment) -> int:
        most = self._replicas.get(uid, {}).get(new.spec.workload_generation)
        if most is None:  # a copy in a region's plane, or it was decided on what is long over
            return 0
        total = sum(self._counted(uid, region) for region in self._may[uid])
        if total > most:
            name = f"{new.metadata.namespace}/{new.spec.workload}"
            self._found(
                "S12",
                f"{name} has {most} slots that run once, and with those given to {new.spec.region} {total} may run",
            )
        return 1

    def _counted(self, uid: str, region: str) -> int:
        """How many may run there, as far as is known. Of a region that was written off somebody has said that none do."""
        last, may = self._told[uid].get(region), self._may[uid].get(region, set())
        if last is None or (not last.spec.exclusive and ("", region) not in self._objects["regions"]):
            return 0
        own = _given(last)
        left = len(may - own)
        return len(own) + (min(left, last.status.unwanted or left) if _is_told(last) else left)


def _is_told(assignment: Assignment) -> bool:
    return assignment.status.observed_generation == assignment.metadata.generation


def _is_settled(assignment: Assignment) -> bool:
    here = assignment.status
    there = here.replicas.bound + here.replicas.reserved + here.replicas.pending
    return _is_told(assignment) and not here.unwanted and there <= len(_numbers(assignment.spec.slots))


def _given(assignment: Assignment) -> set[int]:
    """Its own, also those that another region stands in for."""
    order = assignment.spec
    recovery = order.recovery
    return _numbers((*order.slots, *order.superseded)) - (_numbers((recovery,)) if recovery is not None else set())


def _numbers(spans: Iterable[SlotRange]) -> set[int]:
    return {index for span in spans for index in range(span.first, span.last + 1)}
