"""What the workload controller knows of slots that find no place: since when, where they could go, whom it has asked.

Reads assignments and regions, decides by decide/overflow.py, writes nothing. Called by the workload controller alone; its figures
are read by compose/metrics.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from fairlead.controllers.cache import Name
from fairlead.decide.admission.workload import execution_of
from fairlead.decide.assigning import RegionFacts, own_slots
from fairlead.decide.overflow import (
    Plan,
    Seen,
    Shares,
    Waits,
    given_up,
    is_closed,
    is_current,
    is_full,
    noted,
    own_waiting,
    plan,
    takes,
    waiting,
)
from fairlead.decide.spans import Spans, size
from fairlead.model.kinds.intent import Workload, WorkloadSpec
from fairlead.model.kinds.work import Assignment, Overflow


class Moves(NamedTuple):
    given: dict[str, Spans]  # region -> slots it holds no longer, to be given to another
    asks: dict[str, int]
    full: frozenset[str]  # regions that get no new slots if another may have them
    wake_ms: int | None = None
    taken_back: frozenset[str] = frozenset()  # regions whose ask ends because nobody else has room

    def left(self, assignment: Assignment) -> int:
        """How many slots of its own a region has without what it gave up."""
        return own_slots(assignment.spec) - size(self.given.get(assignment.spec.region, ()))

    def without(self, region: str) -> Moves:
        """The same, and that region is asked for nothing."""
        return self._replace(asks={name: count for name, count in self.asks.items() if name != region})


class Where(NamedTuple):
    """What is known of the regions for one workload."""

    facts: Mapping[str, RegionFacts]
    able: frozenset[str]  # may carry it
    silent: frozenset[str]
    crowded: Callable[[str], bool]


def may_overflow(spec: WorkloadSpec) -> bool:
    """Exclusive slots stay where they are: nothing but their region's own word would say that none of them runs any more."""
    single = spec.job is not None or spec.gang
    return spec.placement.overflow and not single and not spec.suspend and execution_of(spec) == "Replicated"


class Overflowing:
    def __init__(self) -> None:
        self._waits = Waits()
        self.shares = Shares()
        self.moved: dict[str, int] = {}  # region that gave them up -> slots

    def forget(self, key: Name) -> None:
        self._waits.forget(key)
        self.shares.forget(key)

    def look(
        self, workload: Workload, assignments: Sequence[Assignment], where: Where, after_ms: int, now_ms: int,
        held_until_ms: int = 0,
    ) -> Moves:  # fmt: skip
        """What was given up is taken in any case: nobody else will ever queue it. `held_until_ms`: nobody else is asked
        before."""
        key = (workload.metadata.namespace, workload.metadata.name)
        given = {a.spec.region: spans for a in assignments if (spans := given_up(a))}
        if not after_ms or not may_overflow(workload.spec):
            self._waits.forget(key)
            return Moves(given, {}, frozenset())
        if not any(a.spec.give_up or waiting(a.status) for a in assignments):  # as nearly always
            self._waits.forget(key)
            return Moves({}, {}, frozenset(a.spec.region for a in assignments if is_closed(a.spec.overflow, now_ms)))
        seen = self._seen(workload, key, assignments, where, now_ms)
        if given:
            return Moves(given, {}, frozenset(each.name for each in seen if each.name in given or not takes(each, now_ms)))
        held = now_ms < held_until_ms and not any(each.asked for each in seen)  # who was asked may be answering
        decided = Plan({}, held_until_ms) if held else plan(seen, after_ms, now_ms)
        full = frozenset(each.name for each in seen if is_full(each, after_ms, now_ms) or each.name in decided.asks)
        return Moves(given, decided.asks, full, decided.wake_ms, decided.taken_back)

    def _seen(self, workload: Workload, key: Name, assignments: Sequence[Assignment], where: Where, now_ms: int) -> list[Seen]:
        mine = {a.spec.region: a for a in assignments}
        least = workload.spec.placement.regions.per_region_minimum
        out = []
        for name, facts in sorted(where.facts.items()):
            a = mine.get(name)
            if a is None:
                out.append(Seen(name, 0, room=facts.room, heard=name not in where.silent, may=name in where.able,
                                crowded=where.crowded(name)))  # fmt: skip
                continue
            own = own_slots(a.spec)
            out.append(
                Seen(
                    name, own, least, own_waiting(a.status, own), a.status.replicas.pending,
                    self._waits.since_ms(key, name, a.status, now_ms), is_current(a), a.spec.give_up, a.spec.overflow,
                    max(0, facts.room - own), name not in where.silent, name in where.able, where.crowded(name),
                    a.spec.recovery is not None,
                )
            )  # fmt: skip
        return out

    def note(self, region: str, old: Assignment | None, moves: Moves, grew: bool, now_ms: int) -> Overflow:
        """What an Assignment is to remember."""
        past = old.spec.overflow if old is not None else Overflow()
        asked = bool(moves.asks.get(region)) and not (old is not None and old.spec.give_up)
        gave = size(moves.given.get(region, ()))
        if gave:
            self.moved[region] = self.moved.get(region, 0) + gave
        took = bool(moves.given) and grew and not gave
        return noted(past, now_ms, asked=asked, taken_back=region in moves.taken_back, gave=gave > 0, took=took)
