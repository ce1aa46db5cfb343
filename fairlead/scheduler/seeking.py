"""Room for slots that stand in for a lost region's, in what their budget holds: first where nobody has borrowed it, else where
its borrowers can go. Proposes; the cycle assumes. Made by the cycle, for one run.

The slots of a run are equal, so a room that is none for one of them is none for the next, until something else of its node
changes. A room is taken out of the picture only where sums do not rule it out: with thousands of rooms that is what costs.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

from fairlead.decide.preempt import Plan
from fairlead.model.resources import Resources
from fairlead.scheduler.preempting import Preempting
from fairlead.scheduler.shapes import Shape
from fairlead.scheduler.snapshot import SlotKey, Snapshot, Use
from fairlead.scheduler.units import Item


class Room(NamedTuple):
    at: int  # its place in the order
    key: SlotKey
    use: Use


class Seeker:
    def __init__(self, snapshot: Snapshot, preempting: Preempting, shape: Shape, rooms: list[tuple[SlotKey, Use]]) -> None:
        self._snapshot = snapshot
        self._preempting = preempting
        self._shape = shape
        found = sorted(rooms, key=lambda room: (*self._waste(room[1].requests), room[0]))
        self._rooms = [Room(at, key, use) for at, (key, use) in enumerate(found)]
        self._open = {False: list(range(len(found))), True: list(range(len(found)))}  # two heaps: without and with evictions
        self._shut: dict[int, list[tuple[bool, int]]] = {}  # row -> rooms on it that are none
        self._alike: dict[int, set[tuple[bool, Resources]]] = {}  # row -> what rooms like these hold
        self._claimed: set[int] = set()

    def _waste(self, room: Resources) -> tuple[bool, int, int]:
        """The smallest of those that hold all that is asked; then the largest of those that need more of their node."""
        cpu, memory = room.cpu - self._shape.need.cpu, room.memory - self._shape.need.memory
        short = cpu < 0 or memory < 0
        return (short, -cpu, -memory) if short else (short, cpu, memory)

    def take(self, item: Item) -> tuple[Room, Plan | None] | None:
        """The next room for it, out of the picture already, and who has to leave. To be claimed or given back."""
        for evict, heap in self._open.items():
            while heap:
                room = self._rooms[heappop(heap)]
                if room.at in self._claimed:
                    continue
                if (evict, room.use.requests) not in self._alike.get(room.use.row, ()):
                    fits, plan = self._try(item, room, evict)
                    if fits:
                        return room, plan
                self._shut_out(room, evict)
        return None

    def _try(self, item: Item, room: Room, evict: bool) -> tuple[bool, Plan | None]:
        snapshot, shape, row = self._snapshot, self._shape, room.use.row
        if snapshot.uses.get(room.key) is not room.use or not (evict or self._holds(room.use)):
            return False, None
        snapshot.set_use(room.key, None)
        shape.catch_up()
        plan = self._preempting.plan(item, shape, row) if evict else None
        fits = plan is not None if evict else shape.ranking.best_of([row]) >= 0
        if not fits:
            snapshot.set_use(room.key, room.use)
        return fits, plan

    def _holds(self, use: Use) -> bool:
        """By the sums alone. What is held counts against firm work and not against who borrows."""
        cells, need, row = self._snapshot.fleet.cells, self._shape.need, use.row
        return bool(
            need.firm_cpu <= cells["cpu_free"][row] + use.requests.cpu
            and need.firm_memory <= cells["memory_free"][row] + use.requests.memory
            and need.cpu <= cells["cpu_unlent"][row]
            and need.memory <= cells["memory_unlent"][row]
            and need.slots <= cells["slots_free"][row]
        )

    def _shut_out(self, room: Room, evict: bool) -> None:
        self._shut.setdefault(room.use.row, []).append((evict, room.at))
        self._alike.setdefault(room.use.row, set()).add((evict, room.use.requests))

    def claimed(self, room: Room) -> None:
        """A slot was assumed there, and who had to leave is gone: another room on that node may do now; where there are rules
        about neighbours, one on any node."""
        self._claimed.add(room.at)
        need = self._shape.need
        anywhere = need.topology is not None or need.extra
        for row in list(self._shut) if anywhere else [room.use.row]:
            self._alike.pop(row, None)
            for evict, at in self._shut.pop(row, ()):
                heappush(self._open[evict], at)

    def give_back(self, room: Room, evict: bool) -> None:
        """No slot was assumed there after all."""
        self._snapshot.set_use(room.key, room.use)
        self._shut_out(room, evict)
