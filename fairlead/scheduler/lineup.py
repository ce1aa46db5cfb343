"""The nodes lined up by how full they are: where a slot unlike any before finds its best node by looking at a few of them.

A ranking rates every node for one shape, which pays when the shape comes again. For shapes that differ from others in amounts
alone, best fit among nodes of one size goes by what is left of the node, whatever is asked: so one line of nodes, fullest first,
serves them all. The search begins at the first node with enough left in sum, and ends where no later one can be as good. What
it finds is what a ranking would find, equals included (tests/scheduler/test_lineup.py). It declines what it does not understand:
then the ranking is made. Called by the cycle.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Final, NamedTuple

from fairlead.decide.fit import feasible
from fairlead.decide.scores import SCORE_MAX
from fairlead.decide.scores.room import SCALE_BITS
from fairlead.scheduler.fleet import OneRow
from fairlead.scheduler.snapshot import Snapshot

if TYPE_CHECKING:
    from fairlead.scheduler.shapes import Shape

_SIZES_MAX: Final = 16  # lines; a fleet of more sizes of nodes is left to rankings
_LOOKED_MAX: Final = 192  # nodes looked at for one slot; a ranking costs as much
_ROWS_AT_ONCE: Final = 2048  # rows lined up in one call: about two milliseconds
_TOLD: Final = 3  # nodes named to the decision's record
_UNDERSTOOD: Final = frozenset({"packing", "stability"})

Entry = tuple[int, int, int]  # what is left in all, CPU left, row
Size = tuple[int, int, int]  # CPU, memory, recent failures


class Line(NamedTuple):
    size: Size
    cpu_scale: int
    memory_scale: int
    entries: list[Entry]


class Rated(NamedTuple):
    row: int
    total: int
    rates: tuple[tuple[str, int, int], ...]  # score, weight, rate


class Found(NamedTuple):
    """The node to take, and the next best of those looked at. None: it fits nowhere."""

    best: tuple[Rated, ...]
    looked: int


class Lineup:
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._read = -1
        self._lines: dict[Size, Line] = {}
        self._where: list[tuple[Line, Entry] | None] = []
        self._due: list[int] = []  # rows still to be lined up

    @staticmethod
    def understands(shape: Shape) -> bool:
        """Whether what is asked, and what nodes are ranked by, is amounts and nothing else."""
        need, rules = shape.need, shape.rules
        plain = not (need.devices or need.scalars or need.extra or need.borrows or need.exclusive or need.topology)
        weights = {score.name: weight for score, weight in shape.scores}
        ranked = weights.keys() <= _UNDERSTOOD and weights.get("packing", 0) > 0
        return plain and ranked and rules.strategy == "cycle" and not shape.has_more_rates

    def best(self, shape: Shape) -> Found | None:
        """None: ask a ranking."""
        if not self._catch_up() or len(self._lines) > _SIZES_MAX:
            return None
        weights = {score.name: weight for score, weight in shape.scores}
        packing, stability = weights["packing"], weights.get("stability", 0)
        found: list[tuple[int, int, int, int]] = []  # total, negated; row; what is left; stability
        looked = 0
        for line in self._lines.values():
            steady = SCORE_MAX >> max(0, line.size[2])
            best, tried = self._search(line, shape)
            if best is None:
                return None
            looked += tried
            found += [(packing * (half - SCORE_MAX) - stability * steady, row, half, steady) for half, row in best]
        found.sort()
        return Found(tuple([self._rated(shape, *one) for one in found[:_TOLD]]), looked)

    def _rated(self, shape: Shape, negated: int, row: int, half: int, steady: int) -> Rated:
        rates = [(score.name, weight, SCORE_MAX - half if score.name == "packing" else steady) for score, weight in shape.scores]
        return Rated(row, -negated, tuple(rates))

    # --- one line --------------------------------------------------------------------------------------------------------

    def _search(self, line: Line, shape: Shape) -> tuple[list[tuple[int, int]] | None, int]:
        """(half of what is left, row) of the best that fit, and how many were looked at. None for too many."""
        need, snapshot = shape.need, self._snapshot
        fleet, memory_free = snapshot.fleet, snapshot.fleet.cells["memory_free"]
        cpu, memory, entries = need.cpu, need.memory, line.entries
        (cpu_total, memory_total, _), cpu_scale, memory_scale = line.size, line.cpu_scale, line.memory_scale
        asked = cpu * cpu_scale + memory * memory_scale
        at, looked, until = bisect_left(entries, (asked,)), 0, -1
        candidates: list[tuple[int, int]] = []
        while at < len(entries):
            left, cpu_free, row = entries[at]
            if 0 <= until < left:
                break
            looked += 1
            if looked > _LOOKED_MAX:
                return None, looked
            cpu_left, memory_left = cpu_free - cpu, memory_free[row] - memory
            at += 1
            if cpu_left < 0 or memory_left < 0:
                continue
            half = (
                (min(cpu_left, cpu_total) * cpu_scale >> SCALE_BITS)
                + (min(memory_left, memory_total) * memory_scale >> SCALE_BITS)
            ) >> 1
            if len(candidates) >= _TOLD and (half, row) > candidates[-1]:
                continue
            if not feasible(need, OneRow(fleet, row), snapshot):
                continue
            insort(candidates, (half, row))
            # Each share is rounded down and so is their half: what has three more left may still rate alike.
            until = asked + ((2 * candidates[0][0] + 4) << SCALE_BITS)
            at = bisect_left(entries, (left, cpu_free + 1), at)  # its equals come later, so none of them is taken before it
        return candidates[:_TOLD], looked

    # --- keeping it ------------------------------------------------------------------------------------------------------

    def _catch_up(self) -> bool:
        """Reads what changed. False while there is more of it than one call should take."""
        snapshot = self._snapshot
        if self._read < snapshot.changed_base:
            self._lines.clear()
            self._where = [None] * snapshot.fleet.rows
            self._due = list(range(snapshot.fleet.rows))
        elif self._read != snapshot.changes:
            self._due += dict.fromkeys(snapshot.changed[self._read - snapshot.changed_base :])
        self._read = snapshot.changes
        if self._due:
            rows, self._due = self._due[:_ROWS_AT_ONCE], self._due[_ROWS_AT_ONCE:]
            for row in rows:
                self._line_up(row)
        return not self._due

    def _line_up(self, row: int) -> None:
        cells, where = self._snapshot.fleet.cells, self._where
        while len(where) <= row:
            where.append(None)
        before = where[row]
        if before is not None:
            line, entry = before
            del line.entries[bisect_left(line.entries, entry)]
            where[row] = None
            if not line.entries:
                del self._lines[line.size]
        if not (cells["schedulable"][row] and cells["healthy"][row]) or cells["cordoned"][row]:
            return
        size = (cells["cpu_total"][row], cells["memory_total"][row], cells["recent_failures"][row])
        found = self._lines.get(size)
        if found is None:
            found = self._lines[size] = Line(size, cells["cpu_scale"][row], cells["memory_scale"][row], [])
        cpu_free = cells["cpu_free"][row]
        entry = (cpu_free * found.cpu_scale + cells["memory_free"][row] * found.memory_scale, cpu_free, row)
        insort(found.entries, entry)
        where[row] = (found, entry)
