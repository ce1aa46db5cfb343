"""What could be evicted where, kept incrementally: in columns by rank for questions over all nodes, by slot for one node.

Fed by whoever keeps the picture of the plane (the scheduler's snapshot calls `told` for every use it books); read by the planner.
Never decides anything. Slots on their way out are not evictable and their capacity stays taken, because the picture goes on
booking them; what a claimer and its leaving victims count twice is credited here (see `claim`).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from typing import Any, Final, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from fairlead.decide.preempt_rules import Credit, credit_of, rank_of
from fairlead.model.resources import DeviceHold, Resources

Column = NDArray[np.int64]
SlotKey = tuple[str, str]  # tenant, name

LENT: Final = 2  # as in the ledger: firm 0, held 1, lent 2
_ROWS_AT_FIRST = 256
_DEVICE_SIZE = 8  # A device weighs as much as eight cores when victims of one cost are compared.


class Use(Protocol):
    """What the picture says of one hold on a node."""

    @property
    def row(self) -> int: ...
    @property
    def how(self) -> int: ...
    @property
    def requests(self) -> Resources: ...
    @property
    def devices(self) -> tuple[DeviceHold, ...]: ...
    @property
    def priority(self) -> int: ...
    @property
    def uid(self) -> str: ...
    @property
    def evictable(self) -> bool: ...
    @property
    def min_serving(self) -> int: ...


class Placed(msgspec.Struct, frozen=True, gc=False):
    """One slot that runs, as a possible victim."""

    key: SlotKey
    rank: int
    priority: int
    requests: Resources
    devices: tuple[DeviceHold, ...]
    borrowed: bool
    uid: str
    minute: int  # in which it was bound: what has run longest is dearest, to the minute
    size: int  # cpu and memory in one number, a core as much as 4 GiB
    min_serving: int
    age: tuple[int, SlotKey]  # youngest first, then by name


def size_of(requests: Resources, devices: tuple[DeviceHold, ...]) -> int:
    size = requests.cpu + (requests.memory >> 22)
    return size + _DEVICE_SIZE * sum([hold.thousandths for hold in devices]) if devices else size


class _Level:
    """What slots of one rank use, per row."""

    __slots__ = ("cpu", "cpu_cells", "memory", "memory_cells", "scalars", "slots", "slots_cells")

    def __init__(self, rows: int) -> None:
        self.cpu, self.memory, self.slots = (np.zeros(rows, np.int64) for _ in range(3))
        self.scalars: dict[str, Column] = {}
        self.view()

    def view(self) -> None:
        self.cpu_cells, self.memory_cells, self.slots_cells = cells(self.cpu), cells(self.memory), cells(self.slots)

    def grow(self) -> None:
        self.cpu, self.memory, self.slots = doubled(self.cpu), doubled(self.memory), doubled(self.slots)
        self.scalars = {name: doubled(column) for name, column in self.scalars.items()}
        self.view()

    def add(self, row: int, requests: Resources, sign: int) -> None:
        self.cpu_cells[row] += sign * requests.cpu
        self.memory_cells[row] += sign * requests.memory
        self.slots_cells[row] += sign
        for name, amount in requests.scalars:
            if name not in self.scalars:
                self.scalars[name] = np.zeros(len(self.cpu), np.int64)
            self.scalars[name][row] += sign * amount

    def scalar(self, name: str) -> Any:
        return self.scalars.get(name, 0)


def cells(column: Column) -> Any:
    """The column read and written as plain ints, at a third of the cost of a numpy scalar."""
    return memoryview(column)  # type: ignore[arg-type]


def doubled(column: Column) -> Column:
    return np.concatenate([column, np.zeros(len(column), np.int64)])


_LARGEST = 1 << 62  # larger than any slot


_NOWHERE: Final[tuple[int, Placed | None]] = (-1, None)


class Claiming(msgspec.Struct):
    """A claimer that waits for its victims."""

    row: int
    victims: tuple[SlotKey, ...]
    credit: Credit | None = None


# Largest cpu and memory of one victim of a row, the minute of the youngest, the size of the smallest; credits of the row.
_FIELDS = ("cpu_max", "memory_max", "minute_max", "size_min", "cpu_free", "memory_free", "cpu_unlent", "memory_unlent", "slots")


class Evictable:
    def __init__(self) -> None:
        self.levels: dict[int, _Level] = {}
        self.ranks: list[int] = []  # of levels, lowest first
        self.slots: list[dict[SlotKey, Placed]] = []
        self.live: dict[str, int] = {}  # workload uid -> its evictable slots
        self.floors: dict[str, int] = {}  # workload uid -> its budget, where that is more than its slots were bound under
        self.budget_changes: dict[str, None] = {}  # uids that have a budget and whose count changed; the planner empties it
        self.columns: dict[str, Column] = {name: np.zeros(_ROWS_AT_FIRST, np.int64) for name in _FIELDS}
        self.cells: dict[str, Any] = {name: cells(column) for name, column in self.columns.items()}
        self._size = _ROWS_AT_FIRST
        self._stale: dict[int, None] = {}
        self._leaving: dict[SlotKey, tuple[int, Placed]] = {}  # by slot: on which row
        self._claims: dict[SlotKey, Claiming] = {}
        self._claims_on: dict[int, dict[SlotKey, Claiming]] = {}
        self._claimer_of: dict[SlotKey, SlotKey] = {}  # victim -> claimer

    # --- being told ----------------------------------------------------------------------------------------------------

    def told(self, key: SlotKey, use: Use, sign: int) -> None:
        """One use was booked (sign 1) or taken back (-1). The signature of a snapshot's listener."""
        if use.evictable:
            if sign > 0:
                started_ms = getattr(use, "started_ms", 0)
                self.place(
                    use.row, key, use.priority, use.requests, use.devices, use.how == LENT, use.uid, started_ms, use.min_serving
                )
            else:
                self.unplace(use.row, key)
        elif sign > 0:
            self._reach(use.row)
            left = _placed(key, use.priority, use.requests, use.devices, use.how == LENT, use.uid, 0, 0)
            self._leaving[key] = use.row, left
            self._recount(key)
        elif self._leaving.pop(key, None) is not None:
            self._recount(key)

    def place(
        self,
        row: int,
        key: SlotKey,
        priority: int,
        requests: Resources,
        devices: tuple[DeviceHold, ...] = (),
        borrowed: bool = False,
        uid: str = "",
        started_ms: int = 0,
        min_serving: int = 0,
    ) -> None:
        if row >= len(self.slots):
            self._reach(row)
        if self.floors:
            min_serving = max(min_serving, self.floors.get(uid, 0))
        placed = _placed(key, priority, requests, devices, borrowed, uid, started_ms, min_serving)
        level = self.levels.get(placed.rank)
        if level is None:
            level = self.levels[placed.rank] = _Level(self._size)
            insort(self.ranks, placed.rank)
        level.add(row, requests, 1)
        here = self.slots[row]
        here[key] = placed
        if row not in self._stale:
            self._extend(row, placed, alone=len(here) == 1)
        self._count(placed, 1)
        if key in self._claimer_of:  # a victim that runs is in another life, which nobody has claimed
            self._recount(self._claimer_of.pop(key))
        if key in self._claims:
            self._recount(key)

    def unplace(self, row: int, key: SlotKey) -> None:
        here = self.slots[row]
        placed = here.pop(key)
        self.levels[placed.rank].add(row, placed.requests, -1)
        self._stale[row] = None  # was it the largest, the youngest, the smallest? Asked when somebody wants to know
        self._count(placed, -1)
        if key in self._claims:
            self._recount(key)

    def _extend(self, row: int, placed: Placed, *, alone: bool) -> None:
        own, requests = self.cells, placed.requests
        if requests.cpu > own["cpu_max"][row]:
            own["cpu_max"][row] = requests.cpu
        if requests.memory > own["memory_max"][row]:
            own["memory_max"][row] = requests.memory
        if alone or placed.minute > own["minute_max"][row]:
            own["minute_max"][row] = placed.minute
        if alone or placed.size < own["size_min"][row]:
            own["size_min"][row] = placed.size

    def refresh(self) -> None:
        """Brings the extremes of rows up to date; to be called before columns or cells are read."""
        own = self.cells
        for row in self._stale:
            cpu = memory = minute = 0
            size = _LARGEST
            for p in self.slots[row].values():  # one pass: it is made once for every claim
                asks = p.requests
                if asks.cpu > cpu:
                    cpu = asks.cpu
                if asks.memory > memory:
                    memory = asks.memory
                if p.minute > minute:
                    minute = p.minute
                if p.size < size:
                    size = p.size
            own["cpu_max"][row], own["memory_max"][row], own["minute_max"][row] = cpu, memory, minute
            own["size_min"][row] = size if size != _LARGEST else 0
        self._stale.clear()

    def _count(self, placed: Placed, sign: int) -> None:
        live = self.live.get(placed.uid, 0) + sign
        if live:
            self.live[placed.uid] = live
        else:
            self.live.pop(placed.uid, None)
        if placed.min_serving:
            self.budget_changes[placed.uid] = None

    def _reach(self, row: int) -> None:
        while row >= len(self.slots):
            self.slots.append({})
        while row >= self._size:
            self._size *= 2
            for level in self.levels.values():
                level.grow()
            self.columns = {name: doubled(column) for name, column in self.columns.items()}
            self.cells = {name: cells(column) for name, column in self.columns.items()}

    def reach(self, rows: int) -> None:
        """There are this many rows, whether or not anything runs on them."""
        if rows > len(self.slots):
            self._reach(rows - 1)

    # --- claims in flight ----------------------------------------------------------------------------------------------

    def claim(self, claimer: SlotKey, row: int, victims: Iterable[SlotKey]) -> None:
        """From now on `claimer` waits for `victims` on `row`, and what both book is credited once. To be told when a plan is
        proposed and when the watch shows a binding with startAfter; telling it twice changes nothing."""
        self.unclaim(claimer)
        for done in [key for key, other in self._claims_on.get(row, {}).items() if other.credit is None]:
            self.unclaim(done)
        claiming = Claiming(row, tuple(victims))
        self._claims[claimer] = claiming
        self._claims_on.setdefault(row, {})[claimer] = claiming
        for victim in claiming.victims:
            before = self._claimer_of.get(victim)
            self._claimer_of[victim] = claimer
            if before is not None and before != claimer:
                self._recount(before)  # it waited for another life of that victim: nobody else tells it when this one ends
        self._recount(claimer)

    def unclaim(self, claimer: SlotKey) -> None:
        """The claim was refused, or its victims are gone."""
        claiming = self._claims.pop(claimer, None)
        if claiming is None:
            return
        self._credit(claiming, None)
        del self._claims_on[claiming.row][claimer]
        for victim in claiming.victims:
            if self._claimer_of.get(victim) == claimer:
                del self._claimer_of[victim]

    def _recount(self, key: SlotKey) -> None:
        claimer = key if key in self._claims else self._claimer_of.get(key)
        if claimer is None:
            return
        claiming = self._claims[claimer]
        taker = self.slots[claiming.row].get(claimer)
        leaving = []
        for victim in claiming.victims:
            row, placed = self._leaving.get(victim, _NOWHERE)
            if placed is not None and row == claiming.row and self._claimer_of.get(victim) == claimer:
                leaving.append(placed)
        self._credit(claiming, credit_of(taker, leaving) if taker is not None and leaving else None)

    def _credit(self, claiming: Claiming, credit: Credit | None) -> None:
        for given, sign in ((claiming.credit, -1), (credit, 1)):
            if given is None:
                continue
            row, own = claiming.row, self.cells
            own["cpu_free"][row] += sign * given.cpu_free
            own["memory_free"][row] += sign * given.memory_free
            own["cpu_unlent"][row] += sign * given.cpu_unlent
            own["memory_unlent"][row] += sign * given.memory_unlent
            own["slots"][row] += sign * given.slots
        claiming.credit = credit

    def credits(self, row: int) -> list[Credit]:
        """For the dimensions that have no columns: scalars and devices."""
        return [c.credit for c in self._claims_on.get(row, {}).values() if c.credit is not None]


def _placed(
    key: SlotKey,
    priority: int,
    requests: Resources,
    devices: tuple[DeviceHold, ...],
    borrowed: bool,
    uid: str,
    started_ms: int,
    min_serving: int,
) -> Placed:
    rank, size = rank_of(priority, borrowed), size_of(requests, devices)
    minute = started_ms // 60_000
    return Placed(key, rank, priority, requests, devices, borrowed, uid, minute, size, min_serving, (-minute, key))
