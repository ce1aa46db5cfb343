"""Slots on their way to another region, asked of a journal: the old region gives them up before anybody else has them (S1, P11).

In the global plane: no slot is taken from a region that is or was asked for some unless the region said that it has given it up,
and while one is asked no more slots are given out than there are. In a region: what it says it gave up is neither queued nor
bound, nor is it queued again under the same order. Sums of its own. Fed by JournalChecker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fairlead.model.kinds.work import Assignment, SlotRange

Found = Callable[[str, str], None]
Objects = dict[str, dict[tuple[str, str], Any]]
Key = tuple[str, str]


class MovingChecker:
    """Tell it of every change before it is applied."""

    def __init__(self, objects: Objects, found: Found) -> None:
        self._objects = objects
        self._found = found
        self._of: dict[Key, dict[str, Assignment]] = {}  # (tenant, workload) -> its assignments by region
        self._given: dict[Key, set[int]] = {}
        self.moved = 0

    def assignment(self, old: Assignment | None, new: Assignment | None) -> int:
        """How much was looked at."""
        now = new or old
        assert now is not None, "something has changed"
        key = (now.metadata.namespace, now.spec.workload)
        mine = self._of.setdefault(key, {})
        if new is None:
            mine.pop(now.spec.region, None)
            self._given.pop(key, None)
            return 0
        checked = self._taken(key, old, new) + self._grown(key, old, new)
        mine[new.spec.region] = new
        given = _numbers(new.status.given_up) if new.spec.give_up else set()
        if given - self._given.get(key, set()):
            checked += 1
            for index in sorted(given):
                self._held(key, index)
        self._given[key] = given
        return checked

    def request(self, tenant: str, old: Any, new: Any) -> int:
        """Of a region's plane: something is queued."""
        if new is None or old is not None:
            return 0
        slot = new.spec.slot
        if slot.index not in self._given.get((tenant, slot.workload), ()):
            return 0
        self._found("S1", f"{tenant}/{slot.workload}-{slot.index} was given up, and is queued again under the same order")
        return 1

    def _held(self, key: Key, index: int) -> None:
        name = f"{key[1]}-{index}"
        for plural in ("schedulingrequests", "bindings"):
            if (key[0], name) in self._objects[plural]:
                self._found("S1", f"{key[0]}/{name} is said to be given up, and there are {plural} of it")

    def _taken(self, key: Key, old: Assignment | None, new: Assignment) -> int:
        """A region that was asked loses what it gave up, and nothing else, as long as its people want what they wanted."""
        if old is None or old.spec.workload_generation != new.spec.workload_generation:
            return 0
        if not old.spec.give_up:
            return self._asked(key, old, new)
        lost = _own(old) - _own(new)
        moves = old.spec.overflow.gave_time != new.spec.overflow.gave_time
        if not lost or not (moves or _own(new)):  # else it may not be there any more at all
            return 0
        self.moved += len(lost)
        unasked = lost - _given_up(old)
        if unasked:
            self._found("S1", f"{'/'.join(key)}: {sorted(unasked)} was taken from {new.spec.region}, which has not given it up")
        return 1

    def _asked(self, key: Key, old: Assignment, new: Assignment) -> int:
        """Nothing goes with the question itself. Only where the workload is: a copy elsewhere may skip a version."""
        if not new.spec.give_up or key not in self._objects["workloads"]:
            return 0
        lost = _own(old) - _own(new)
        if lost:
            self._found(
                "S1", f"{'/'.join(key)}: {sorted(lost)} was taken from {new.spec.region} when it was asked to give some up"
            )
        return 1

    def _grown(self, key: Key, old: Assignment | None, new: Assignment) -> int:
        workload = self._objects["workloads"].get(key)
        others = [a for region, a in self._of[key].items() if region != new.spec.region]
        if workload is None or workload.spec.job is not None or not any(a.spec.give_up for a in (*others, old or new)):
            return 0
        if not _own(new) - (_own(old) if old is not None else set()):
            return 0
        total = len(_own(new)) + sum(len(_own(a) - _given_up(a)) for a in others)
        if total > workload.spec.replicas:
            self._found("S1", f"{'/'.join(key)} has {workload.spec.replicas} slots, and {total} are given out")
        return 1


def _given_up(assignment: Assignment) -> set[int]:
    """As an answer to the order that stands."""
    told = assignment.status.observed_generation == assignment.metadata.generation
    return _numbers(assignment.status.given_up) if told and assignment.spec.give_up else set()


def _own(assignment: Assignment) -> set[int]:
    recovery = assignment.spec.recovery
    return _numbers(assignment.spec.slots) - (_numbers((recovery,)) if recovery is not None else set())


def _numbers(spans: Iterable[SlotRange]) -> set[int]:
    return {index for span in spans for index in range(span.first, span.last + 1)}
