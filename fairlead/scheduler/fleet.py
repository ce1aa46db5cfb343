"""The nodes in columns: what the gates and scores read, for all nodes at once or for one.

One int64 column per field. The same memory is read two ways: as numpy arrays by vectorised gates and scores, and through
memoryviews as plain Python ints when one row is fixed after a placement (an index into a memoryview costs 30 ns and gives an
int; into an array 100 ns and a numpy scalar that makes everything after it slow). Owns no meaning: snapshot.py says what goes in.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fairlead.model.resources import SHARE_WHOLE, Device

Column = NDArray[np.int64]
Models = tuple[str, ...]

FIELDS: Final = (
    "cpu_free", "memory_free", "cpu_unlent", "memory_unlent", "slots_free", "node_class", "schedulable", "healthy", "cordoned",
    "observed_ms", "number", "used_by", "exclusive_to", "cpu_total", "memory_total", "cpu_scale", "memory_scale",
    "hourly_cost_millis", "recent_failures",
)  # fmt: skip
_ROWS_AT_FIRST = 256


class Fleet:
    """Grows by doubling; `rows` of the columns are in use. Rows are never removed: a node that goes leaves a closed row."""

    def __init__(self) -> None:
        self.rows = 0
        self.columns: dict[str, Column] = {name: np.zeros(_ROWS_AT_FIRST, np.int64) for name in FIELDS}
        self.cells: dict[str, memoryview] = {}
        self.devices: list[tuple[Device, ...]] = []
        self.device_used: list[dict[str, int]] = []
        self.images: list[frozenset[str]] = []
        # Derived columns, made when somebody first asks: ("whole"|"share", resource, models) and ("image", name).
        self._derived: dict[tuple[str, str, Models], Column] = {}
        self._view()

    def _view(self) -> None:
        self.cells = {name: memoryview(column) for name, column in self.columns.items()}  # type: ignore[arg-type]

    def add_row(self) -> int:
        row = self.rows
        size = len(self.columns["number"])
        if row == size:
            for name, column in list(self.columns.items()):
                self.columns[name] = np.concatenate([column, np.zeros(size, np.int64)])
            self._derived.clear()
            self._view()
        self.rows += 1
        self.devices.append(())
        self.device_used.append({})
        self.images.append(frozenset())
        self.cells["number"][row] = row
        return row

    def add(self, name: str, row: int, amount: int) -> None:
        self.cells[name][row] += amount

    def scalar(self, kind: str, name: str) -> str:
        """The field of a named scalar, made at first use. `kind` is free or unlent."""
        field = f"{kind}:{name}"
        if field not in self.columns:
            self.columns[field] = np.zeros(len(self.columns["number"]), np.int64)
            self.cells[field] = memoryview(self.columns[field])  # type: ignore[arg-type]
        return field

    def devices_changed(self, row: int) -> None:
        for (kind, resource, models), column in self._derived.items():
            if kind != "image":
                column[row] = self._devices(kind, row, resource, models)

    def images_changed(self, row: int) -> None:
        for (kind, image, _), column in self._derived.items():
            if kind == "image":
                column[row] = image in self.images[row]

    def derived(self, kind: str, name: str, models: Models = ()) -> Column:
        found = self._derived.get((kind, name, models))
        if found is None:
            found = np.zeros(len(self.columns["number"]), np.int64)
            for row in range(self.rows):
                found[row] = name in self.images[row] if kind == "image" else self._devices(kind, row, name, models)
            self._derived[kind, name, models] = found
        elif len(found) < self.rows:
            raise AssertionError("a derived column outlived the growth of its fleet")
        return found

    def _devices(self, kind: str, row: int, resource: str, models: Models) -> int:
        used = self.device_used[row]
        fitting = [d.id for d in self.devices[row] if d.resource == resource and (not models or d.model in models)]
        if kind == "whole":
            return sum(1 for device in fitting if not used.get(device))
        return max((SHARE_WHOLE - used.get(device, 0) for device in fitting), default=0)

    def all(self) -> Rows:
        return Rows(self, slice(0, self.rows))

    def some(self, rows: Column) -> Rows:
        return Rows(self, rows)


class Rows:
    """Every node, or those listed, as the gates' and scores' row: each field a column. Short-lived: made, asked, dropped."""

    cpu_free: Any
    memory_free: Any
    cpu_unlent: Any
    memory_unlent: Any
    slots_free: Any
    node_class: Any
    schedulable: Any
    healthy: Any
    cordoned: Any
    observed_ms: Any
    number: Any
    used_by: Any
    exclusive_to: Any
    cpu_total: Any
    memory_total: Any
    cpu_scale: Any
    memory_scale: Any
    hourly_cost_millis: Any
    recent_failures: Any

    def __init__(self, fleet: Fleet, index: slice | Column) -> None:
        self._fleet = fleet
        self._index = index
        self.are_all = isinstance(index, slice)

    def __getattr__(self, name: str) -> Any:
        column = self._fleet.columns.get(name)
        if column is None:
            raise AttributeError(name)
        values = column[self._index]
        setattr(self, name, values)  # gathered once, however many gates and scores ask
        return values

    def scalar_free(self, name: str) -> Any:
        return self._fleet.columns[self._fleet.scalar("free", name)][self._index]

    def scalar_unlent(self, name: str) -> Any:
        return self._fleet.columns[self._fleet.scalar("unlent", name)][self._index]

    def devices_whole(self, resource: str, models: Models) -> Any:
        return self._fleet.derived("whole", resource, models)[self._index]

    def devices_share(self, resource: str, models: Models) -> Any:
        return self._fleet.derived("share", resource, models)[self._index]

    def has_image(self, image: str) -> Any:
        return self._fleet.derived("image", image)[self._index]


class OneRow:
    """One node as plain ints."""

    __slots__ = (*FIELDS, "_fleet")

    cpu_free: int
    memory_free: int
    cpu_unlent: int
    memory_unlent: int
    slots_free: int
    node_class: int
    schedulable: int
    healthy: int
    cordoned: int
    observed_ms: int
    number: int
    used_by: int
    exclusive_to: int
    cpu_total: int
    memory_total: int
    cpu_scale: int
    memory_scale: int
    hourly_cost_millis: int
    recent_failures: int

    def __init__(self, fleet: Fleet, row: int) -> None:
        cells = fleet.cells
        self._fleet = fleet
        self.cpu_free = cells["cpu_free"][row]
        self.memory_free = cells["memory_free"][row]
        self.cpu_unlent = cells["cpu_unlent"][row]
        self.memory_unlent = cells["memory_unlent"][row]
        self.slots_free = cells["slots_free"][row]
        self.node_class = cells["node_class"][row]
        self.schedulable = cells["schedulable"][row]
        self.healthy = cells["healthy"][row]
        self.cordoned = cells["cordoned"][row]
        self.observed_ms = cells["observed_ms"][row]
        self.number = row
        self.used_by = cells["used_by"][row]
        self.exclusive_to = cells["exclusive_to"][row]
        self.cpu_total = cells["cpu_total"][row]
        self.memory_total = cells["memory_total"][row]
        self.cpu_scale = cells["cpu_scale"][row]
        self.memory_scale = cells["memory_scale"][row]
        self.hourly_cost_millis = cells["hourly_cost_millis"][row]
        self.recent_failures = cells["recent_failures"][row]

    def scalar_free(self, name: str) -> int:
        fleet = self._fleet
        return int(fleet.cells[fleet.scalar("free", name)][self.number])

    def scalar_unlent(self, name: str) -> int:
        fleet = self._fleet
        return int(fleet.cells[fleet.scalar("unlent", name)][self.number])

    def devices_whole(self, resource: str, models: Models) -> int:
        return int(self._fleet.derived("whole", resource, models)[self.number])

    def devices_share(self, resource: str, models: Models) -> int:
        return int(self._fleet.derived("share", resource, models)[self.number])

    def has_image(self, image: str) -> int:
        return int(self._fleet.derived("image", image)[self.number])
