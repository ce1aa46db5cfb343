"""The nodes as the score sees them: what each has free, in columns, with one number that stands for its whole state.

Reads the scheduler's picture and follows its log of changed rows, each change once however many shapes are ranked. Owns no
capacity and authorises nothing. Called by the score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np

from fairlead.decide.scores.fill.kernel import DEVICES_MAX, States
from fairlead.decide.scores.fill.lists import MIB, Ints, Pattern, scrambled
from fairlead.model.resources import SHARE_WHOLE, Device, DeviceHold, Resources

# A state's key is a sum of its parts times fixed odd numbers, so that the key after a placement is found by adding and
# subtracting. Two states with one key are as likely as two equal draws of 64 bits, and cost a worse rank for one slot.
CPU_KEY, MEMORY_KEY, KIND_KEY = (int(n) | 1 for n in scrambled(1 << 20, 3))
ROOM_KEY: Final = scrambled(1 << 21, SHARE_WHOLE + 1)
ROOM_KEY[0] = 0  # an absent device and a full one are alike

_ROOM_KEYS: Final = ROOM_KEY.tolist()

PLAIN: Final = 0  # the kind of nodes without devices


class FleetView(Protocol):
    rows: int

    @property
    def cells(self) -> Mapping[str, Any]: ...

    @property
    def devices(self) -> Sequence[Sequence[Device]]: ...

    @property
    def device_used(self) -> Sequence[Mapping[str, int]]: ...


class UseView(Protocol):
    """A slot that lies on a node."""

    @property
    def row(self) -> int: ...
    @property
    def requests(self) -> Resources: ...
    @property
    def devices(self) -> tuple[DeviceHold, ...]: ...


class Picture(Protocol):
    """What the score reads of the scheduler's snapshot."""

    @property
    def uses(self) -> Mapping[Any, UseView]: ...

    @property
    def fleet(self) -> FleetView: ...

    @property
    def changed(self) -> Sequence[int]: ...

    changed_base: int


class Nodes:
    def __init__(self) -> None:
        self.kinds: dict[tuple[str, tuple[str, ...]], int] = {("", ()): PLAIN}
        self.due: list[int] = []  # rows not read yet; they look full until they are
        self._read = -1
        none: Ints = np.zeros(0, np.int64)
        self.states = States(none, none, none, np.zeros((0, 1), np.int16))
        self.key = self.idle = none
        self.idle_of_kind: list[int] = [0]
        self.capacity = 0  # thousandths of all devices, free or not
        self._devices: list[Sequence[Device] | None] = []
        self._kind: list[int] = []
        self._ids: list[list[str]] = []

    def _grow(self, rows: int, width: int) -> None:
        """Room for so many rows, and so many devices on each."""
        states, have = self.states, len(self.key)
        width = max(width, states.rooms.shape[1])
        rooms = np.zeros((rows, width), np.int16)
        rooms[:have, width - states.rooms.shape[1] :] = states.rooms  # ascending, so that absent ones come first
        more = np.zeros(rows - have, np.int64)
        cpu, memory, kind, self.key, self.idle = (
            np.concatenate((column, more)) for column in (states.cpu, states.memory, states.kind, self.key, self.idle)
        )
        self.states = States(cpu, memory, kind, rooms)
        self._devices += [None] * (rows - have)
        self._kind += [PLAIN] * (rows - have)
        self._ids += [[]] * (rows - have)

    def follow(self, picture: Picture, most: int | None = None) -> int:
        """How many changes there were since the last look. Reads at most so many rows; the rest are `due`."""
        fleet, end = picture.fleet, picture.changed_base + len(picture.changed)
        if len(self.key) < fleet.rows:
            self._grow(fleet.rows, 1)
        if self._read < picture.changed_base:
            self.due = list(range(fleet.rows))
        elif self._read != end:
            self.due += set(picture.changed[self._read - picture.changed_base :])
        if self.due:
            rows, self.due = (self.due, []) if most is None else (self.due[:most], self.due[most:])
            for row in rows:
                self._read_row(fleet, row)
        changes, self._read = end - self._read, end
        return changes

    def _read_row(self, fleet: FleetView, row: int) -> None:
        cpu, memory = max(fleet.cells["cpu_free"][row], 0), max(fleet.cells["memory_free"][row], 0) >> MIB
        if fleet.devices[row] is not self._devices[row]:
            self._describe(row, fleet.devices[row])
        kind, used = self._kind[row], fleet.device_used[row]
        free = [SHARE_WHOLE - used.get(device, 0) for device in self._ids[row]]
        idle = sum(free)
        if len(free) > self.states.rooms.shape[1]:
            self._grow(len(self.key), len(free))
        states, width = self.states, self.states.rooms.shape[1]
        self.idle_of_kind[kind] += idle - int(self.idle[row])
        self.idle[row] = idle
        states.cpu[row], states.memory[row] = cpu, memory
        if free:
            states.rooms[row] = [0] * (width - len(free)) + sorted(free)
        key = cpu * CPU_KEY + memory * MEMORY_KEY + kind * KIND_KEY + sum([_ROOM_KEYS[room] for room in free])
        self.key[row] = (key + (1 << 63)) % (1 << 64) - (1 << 63)

    def _describe(self, row: int, devices: Sequence[Device]) -> None:
        """Kind and devices. Of several resources on one node the one with most devices counts."""
        of: dict[str, list[Device]] = {}
        for device in devices:
            of.setdefault(device.resource, []).append(device)
        mine = max(of.values(), key=len, default=[])[:DEVICES_MAX]
        named = (mine[0].resource, tuple(sorted({device.model for device in mine}))) if mine else ("", ())
        kind = self.kinds.setdefault(named, len(self.kinds))
        if kind == len(self.idle_of_kind):
            self.idle_of_kind.append(0)
        self.idle_of_kind[self._kind[row]] -= int(self.idle[row])
        self.idle[row] = 0
        self.capacity += SHARE_WHOLE * (len(mine) - len(self._ids[row]))
        self._devices[row], self._kind[row], self._ids[row] = devices, kind, [device.id for device in mine]
        self.states.kind[row] = kind

    def open_to(self, pattern: Pattern) -> list[bool]:
        """For each kind whether a request of this pattern may be there."""
        if not pattern.devices:
            return [True] * len(self.kinds)
        wanted = set(pattern.models)
        return [pattern.resource == resource and (not wanted or bool(wanted & set(models))) for resource, models in self.kinds]
