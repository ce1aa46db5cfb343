"""Who is next: priority, then the tenant with the least weighted dominant share, then deadline, then age, then name (the shorter
first, so that slots of one workload go by their number, which is how they come).

Owns the ready units and the shares. Within one priority each tenant has a line of its own, a heap; a level's heap holds the
head of each line. What changes is noted and put right at the next take, so that an event costs a few comparisons and no unit is
sorted twice. Knows nothing of backoff, gates or gangs beyond their size. Called by the queue.

A share counts what is bound and what has been handed out: used / capacity of the plane, the largest over all dimensions, divided
by the tenant's weight. A tenant that keeps failing (its requests fit nowhere) would stay first for ever, because what it does not
get does not count. So a stalled tenant that is first yields every second turn to the first that is not (L9).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from typing import Any, Final, NamedTuple

from fairlead.scheduler.units import Amounts, Item, Unit

# (deadline, created, rank and length of name, name, tenant, stay, unit). The stay is unique: no comparison reaches the unit.
Entry = tuple[int, int, int, str, str, int, Unit]
_NAME_BITS: Final = 16  # no name is as long
_ASIDE_MAX: Final = 4_096  # units on hold that one take sets aside: a few milliseconds


class Hold(NamedTuple):
    who: str
    since_ms: int
    until_ms: int


class Tenant:
    """One tenant's part of the queue. `used` is what is bound plus what is in flight."""

    __slots__ = ("bound", "factors", "failures", "holds", "items", "lines", "name", "reasons", "reweighed",
                 "share", "stalled", "used", "weight")  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.weight = 1
        self.items: dict[str, Item] = {}
        self.lines: dict[int, Line] = {}
        self.reasons: dict[str, int] = {}  # slots that wait, by reason
        self.holds: dict[str, Hold] = {}  # by workload; "" is all of them
        self.failures = 0
        self.stalled = False
        self.reweighed = False  # its share or standing has changed since its lines were offered
        self.share = 0.0
        self.factors: dict[str, float] = {}  # dimension to 1 / (capacity * weight)
        self.bound: dict[str, int] = {}
        self.used: dict[str, int] = {}

    def charge(self, amounts: Amounts) -> None:
        """Handed out: it counts at once."""
        used, factors, share = self.used, self.factors, self.share
        for name, amount in amounts:
            if name in used:
                amount += used[name]
            used[name] = amount
            if name in factors:
                part = amount * factors[name]
                if part > share:
                    share = part
        self.share = share

    def settle(self, amounts: Amounts, bound: bool) -> None:
        """No longer in flight: bound now, or back. The share follows when the order is told."""
        if bound:
            held = self.bound
            for name, amount in amounts:
                held[name] = held.get(name, 0) + amount
            return
        used = self.used
        for name, amount in amounts:
            used[name] -= amount

    def weigh(self) -> None:
        used, share = self.used, 0.0
        for name, factor in self.factors.items():
            share = max(share, used.get(name, 0) * factor)
        self.share = share

    def set_used(self, given: Mapping[str, int], with_taken: bool) -> None:
        """What is in flight now is part of `given`, or comes on top of it. Every dimension in flight keeps its entry."""
        flight = {name: amount - self.bound.get(name, 0) for name, amount in self.used.items()}
        known = {name: given.get(name, 0) for name in {**flight, **given}}
        if with_taken:
            self.used, self.bound = known, {name: amount - flight.get(name, 0) for name, amount in known.items()}
        else:
            self.used, self.bound = {name: amount + flight.get(name, 0) for name, amount in known.items()}, known

    def set_factors(self, capacity: Mapping[str, int]) -> None:
        """A dimension the plane has nothing of says nothing about shares."""
        self.factors = {name: 1 / (total * self.weight) for name, total in capacity.items() if total > 0}


class Line:
    """One tenant's ready units of one priority. Most come in order and stand in `run`; the others are in a heap."""

    __slots__ = ("dirty", "heap", "level", "offered", "ready", "run", "stamp", "tenant")

    def __init__(self, tenant: Tenant, level: Level) -> None:
        self.tenant = tenant
        self.level = level
        self.run: deque[Entry] = deque()
        self.heap: list[Entry] = []
        self.ready = 0  # entries that are not void
        self.stamp = 0  # of its entry in the level's heap; 0: it has none
        self.offered: Entry | None = None  # the head that entry was made with
        self.dirty = False

    def head(self) -> Entry | None:
        """The first that is not void."""
        run, heap = self.run, self.heap
        while run and run[0][6].stay != run[0][5]:
            run.popleft()
        while heap and heap[0][6].stay != heap[0][5]:
            heappop(heap)
        if not heap:
            return run[0] if run else None
        return run[0] if run and run[0] < heap[0] else heap[0]

    def pop(self, head: Entry) -> None:
        if self.run and self.run[0] is head:
            self.run.popleft()
        else:
            heappop(self.heap)
        self.ready -= 1

    def sweep(self) -> None:
        if len(self.heap) + len(self.run) > 2 * self.ready + 64:
            self.heap = [entry for entry in self.heap if entry[6].stay == entry[5]]
            self.run = deque(entry for entry in self.run if entry[6].stay == entry[5])
            heapify(self.heap)


class Level:
    """The lines of one priority: heads of tenants in good standing, and of stalled ones, as (share, entry, stamp, line)."""

    __slots__ = ("active", "dirty", "heads", "lines", "priority", "stalled", "yields")

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.heads: list[tuple[float, Entry, int, Line]] = []
        self.stalled: list[tuple[float, Entry, int, Line]] = []
        self.yields = False  # the last turn went to a stalled tenant: the next one goes to another, if there is one
        self.dirty: list[Line] = []
        self.lines = 0
        self.active = False


class Order:
    def __init__(self) -> None:
        self._levels: dict[int, Level] = {}
        self._active: list[int] = []  # negated priorities of levels that may have something, in order
        self._stamps = count(1)
        self._reweighed: list[Tenant] = []

    @property
    def has_ready(self) -> bool:
        return bool(self._active or self._reweighed)

    def put(self, tenant: Tenant, unit: Unit) -> None:
        """Among the ready ones. Its `stay` is new."""
        line = tenant.lines.get(unit.priority)
        if line is None:
            line = self._line(tenant, unit.priority)
        name = unit.name
        entry = (unit.deadline_ms, unit.created_ms, (unit.rank << _NAME_BITS) + len(name), name, unit.tenant, unit.stay, unit)
        run = line.run
        line.ready += 1
        if not run or run[-1] < entry:
            run.append(entry)
        else:
            heappush(line.heap, entry)
        if not line.dirty and (not line.stamp or line.offered is None or entry < line.offered):
            self._mark(line)

    def drop(self, tenant: Tenant, unit: Unit) -> None:
        """No longer ready. Its entry is void once its `stay` changes, which is the caller's next step."""
        line = tenant.lines[unit.priority]
        line.ready -= 1
        line.sweep()

    def reweighed(self, tenant: Tenant) -> None:
        """The tenant's share, standing or hold has changed: its lines are offered anew at the next take."""
        if not tenant.reweighed:
            tenant.reweighed = True
            self._reweighed.append(tenant)

    def _weigh(self) -> None:
        for tenant in self._reweighed:
            tenant.reweighed = False
            tenant.weigh()
            self._mark_lines(tenant)
        self._reweighed.clear()

    def _mark_lines(self, tenant: Tenant) -> None:
        for line in tenant.lines.values():
            if line.ready and not line.dirty:
                self._mark(line)

    def take(self, limit: int, set_aside: Callable[[Tenant, Unit], bool]) -> list[Unit]:
        """The next units in order, at most `limit` slots unless the first unit alone has more, each charged to its tenant.
        `set_aside` is asked about units of tenants with holds; it takes those that may not go."""
        out: list[Unit] = []
        room = limit
        if self._reweighed:
            self._weigh()
        for negated in tuple(self._active):
            level = self._levels[-negated]
            room = self._take_level(level, room, out, set_aside)
            if not (level.heads or level.stalled or level.dirty):
                level.active = False
                del self._active[bisect_left(self._active, negated)]
            if room <= 0:
                break
        return out

    # --- one level ---------------------------------------------------------------------------------------------------

    def _take_level(self, level: Level, room: int, out: list[Unit], set_aside: Callable[[Tenant, Unit], bool]) -> int:
        """Returns the room left; 0 also when the next is a gang that no longer fits. The hot loop, hence one function."""
        stamps, touched, aside = self._stamps, dict[str, Tenant](), 0
        if level.dirty:
            self._offer_marked(level)
        while room > 0 and aside < _ASIDE_MAX:
            heap = self._choose(level) if level.stalled else level.heads
            if not heap:
                break
            _, entry, stamp, line = heap[0]
            tenant = line.tenant
            if stamp != line.stamp or "" in tenant.holds:
                heappop(heap)
                if stamp == line.stamp:
                    line.stamp = 0  # offered again when the hold ends
                continue
            unit = entry[6]
            if unit.stay == entry[5]:
                if unit.slots > room and out:
                    room = 0
                    break
                line.pop(entry)
                if tenant.holds and set_aside(tenant, unit):
                    aside += 1
                else:
                    tenant.charge(unit.amounts)
                    touched[tenant.name] = tenant
                    out.append(unit)
                    room -= unit.slots
                    level.yields = tenant.stalled
            head = line.head()
            if head is None:
                heappop(heap)
                line.stamp = 0
            else:
                line.stamp = stamp = next(stamps)
                line.offered = head
                heapreplace(heap, (tenant.share, head, stamp, line))
        for tenant in touched.values():
            if len(tenant.lines) > 1:
                self._mark_lines(tenant)
        return room if aside < _ASIDE_MAX else 0

    def _choose(self, level: Level) -> list[tuple[float, Entry, int, Line]]:
        """Which heap's first goes: the lesser, unless it is a stalled tenant whose turn it is to yield."""
        for heap in (level.heads, level.stalled):
            while heap and (heap[0][2] != heap[0][3].stamp or "" in heap[0][3].tenant.holds):
                _, _, stamp, line = heappop(heap)
                if stamp == line.stamp:
                    line.stamp = 0
        heads, stalled = level.heads, level.stalled
        if not heads or not stalled:
            return heads or stalled
        return stalled if stalled[0][:2] < heads[0][:2] and not level.yields else heads

    def _offer_marked(self, level: Level) -> None:
        for line in level.dirty:
            line.dirty = False
            head = line.head()
            line.stamp = 0
            if head is not None:
                line.stamp = next(self._stamps)
                line.offered = head
                heappush(level.stalled if line.tenant.stalled else level.heads, (line.tenant.share, head, line.stamp, line))
        level.dirty.clear()
        for heap in (level.heads, level.stalled):
            if len(heap) > 2 * level.lines + 64:
                heap[:] = [entry for entry in heap if entry[2] == entry[3].stamp]
                heapify(heap)

    def _mark(self, line: Line) -> None:
        if line.dirty:
            return
        line.dirty = True
        level = line.level
        level.dirty.append(line)
        if not level.active:
            level.active = True
            insort(self._active, -level.priority)

    def _line(self, tenant: Tenant, priority: int) -> Line:
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = Level(priority)
        line = tenant.lines[priority] = Line(tenant, level)
        level.lines += 1
        return line


def least_of(parts: list[Amounts]) -> Amounts:
    """The smallest amount of each dimension over all parts; a dimension that one of them lacks is none."""
    found: dict[str, Any] = dict(parts[0])
    for part in parts[1:]:
        there = dict(part)
        found = {name: min(amount, there[name]) for name, amount in found.items() if name in there}
    return tuple(found.items())
