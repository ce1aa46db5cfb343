"""How good the victims of a node could be at best, for all nodes at once and for one.

A bound is (highest rank, how many, minus the youngest's minute, size, row) and never above what a close look at the node finds,
so the planner looks closely only where the bound is low. Columns and cells give the same (tests/decide/test_preempt_search.py).
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import numpy as np
from msgspec.structs import replace

from fairlead.decide.fit import Need, Row, View, feasible
from fairlead.decide.preempt_index import Column, Evictable
from fairlead.decide.preempt_node import NOBODY
from fairlead.decide.preempt_rules import unranked
from fairlead.model.resources import Device

Bound = tuple[int, int, int, int, int]

CLOSED, SHORT, CANDIDATE = 0, 1, 2  # closed: by a gate that no eviction opens; short: even if all left that may be evicted
_NO_AMOUNT: Final = -(1 << 60)  # less than any account can go below zero
_FOR_EVER_MS: Final = 1 << 60


class Fleet(Protocol):
    @property
    def rows(self) -> int: ...
    @property
    def devices(self) -> list[tuple[Device, ...]]: ...
    @property
    def device_used(self) -> list[dict[str, int]]: ...

    def all(self) -> Any: ...


class Picture(Protocol):
    """The plane as the proposer sees it; the scheduler's snapshot has it."""

    @property
    def fleet(self) -> Fleet: ...
    @property
    def changed(self) -> list[int]: ...
    @property
    def changed_base(self) -> int: ...
    @property
    def changes(self) -> int: ...
    @property
    def layout(self) -> int: ...

    def row(self, number: int) -> Any: ...


def without_amounts(need: Need) -> Need:
    """The need without what eviction can give: what is left are gates that no eviction opens."""
    return replace(
        need, cpu=_NO_AMOUNT, memory=_NO_AMOUNT, firm_cpu=_NO_AMOUNT, firm_memory=_NO_AMOUNT, slots=_NO_AMOUNT, scalars=(),
        devices=(),
    )  # fmt: skip


class Bounds:
    def __init__(self, need: Need, ranks: tuple[int, ...], evictable: Evictable) -> None:
        self._need = need
        self._gates = without_amounts(need)
        # What depends on more than the row (the time, the neighbours) is left out of bounds and asked again of every plan.
        self._bare = replace(self._gates, max_age_ms=_FOR_EVER_MS, topology=None, extra=())
        self._ranks = [(rank, not unranked(rank)[1]) for rank in ranks]  # with whether it is firm work's
        self._evictable = evictable

    def of_row(self, row: Row, number: int, view: View) -> Bound | int:
        """CLOSED, SHORT, or the bound."""
        if not feasible(self._bare, row, view):
            return CLOSED
        need, evictable = self._need, self._evictable
        own = evictable.cells
        cpu_firm = need.firm_cpu - row.cpu_free - own["cpu_free"][number]
        cpu = need.cpu - row.cpu_unlent - own["cpu_unlent"][number]
        memory_firm = need.firm_memory - row.memory_free - own["memory_free"][number]
        memory = need.memory - row.memory_unlent - own["memory_unlent"][number]
        slots = need.slots - row.slots_free - own["slots"][number]
        if cpu_firm <= 0 and cpu <= 0 and memory_firm <= 0 and memory <= 0 and slots <= 0:
            return (NOBODY, 0, 0, 0, number)
        count = _at_least(max(cpu_firm, cpu), max(memory_firm, memory), slots, own["cpu_max"][number], own["memory_max"][number])
        for rank, firm in self._ranks:
            level = evictable.levels[rank]
            gone_cpu, gone_memory = level.cpu_cells[number], level.memory_cells[number]
            cpu -= gone_cpu
            memory -= gone_memory
            slots -= level.slots_cells[number]
            if firm:
                cpu_firm -= gone_cpu
                memory_firm -= gone_memory
            if cpu_firm <= 0 and cpu <= 0 and memory_firm <= 0 and memory <= 0 and slots <= 0:
                return (rank, count, -own["minute_max"][number], count * own["size_min"][number], number)
        return SHORT

    def of_all(self, rows: Row, count_of_rows: int, view: View) -> tuple[Column, list[Column]]:
        """A verdict per row, and the columns of the bound (rank, count, minute, size)."""
        need, evictable, n = self._need, self._evictable, count_of_rows
        own = {name: column[:n] for name, column in evictable.columns.items()}
        short = [
            need.firm_cpu - rows.cpu_free - own["cpu_free"],
            need.cpu - rows.cpu_unlent - own["cpu_unlent"],
            need.firm_memory - rows.memory_free - own["memory_free"],
            need.memory - rows.memory_unlent - own["memory_unlent"],
            need.slots - rows.slots_free - own["slots"],
        ]
        count = np.maximum(
            _each_at_least(np.maximum(short[0], short[1]), own["cpu_max"]),
            _each_at_least(np.maximum(short[2], short[3]), own["memory_max"]),
        )
        count = np.maximum(count, np.maximum(short[4], 0))
        fits = _covered(short)
        count[fits] = 0
        rank = np.where(fits, NOBODY, 0)
        done = fits
        for value, firm in self._ranks:
            level = evictable.levels[value]
            gone = (level.cpu[:n] * firm, level.cpu[:n], level.memory[:n] * firm, level.memory[:n], level.slots[:n])
            short = [part - leaves for part, leaves in zip(short, gone, strict=True)]
            fits = _covered(short)
            rank[fits & ~done] = value
            done = done | fits
        is_open = self._mask(self._bare, rows, n, view)
        verdict = np.where(is_open, np.where(done, CANDIDATE, SHORT), CLOSED)
        minute = np.where(count > 0, -own["minute_max"], 0)
        return verdict, [rank, count, minute, count * own["size_min"]]

    def open_now(self, rows: Row, count_of_rows: int, view: View) -> Any:
        """Where every gate stands open that eviction does not: now, and with the neighbours as they are."""
        return self._mask(self._gates, rows, count_of_rows, view)

    def _mask(self, gates: Need, rows: Row, count_of_rows: int, view: View) -> Any:
        wide = getattr(self._need.classes, "wide", None)  # the tables as arrays, where they are bytes for one row
        asked = replace(gates, classes=wide()) if wide is not None else gates
        return np.broadcast_to(np.asarray(feasible(asked, rows, view)), (count_of_rows,))


def _covered(short: list[Column]) -> Any:
    return (short[0] <= 0) & (short[1] <= 0) & (short[2] <= 0) & (short[3] <= 0) & (short[4] <= 0)


def _at_least(cpu: int, memory: int, slots: int, cpu_max: int, memory_max: int) -> int:
    by_cpu = -(-cpu // max(cpu_max, 1)) if cpu > 0 else 0
    by_memory = -(-memory // max(memory_max, 1)) if memory > 0 else 0
    return int(max(by_cpu, by_memory, slots, 0))


def _each_at_least(short: Column, most: Column) -> Column:
    return np.maximum(-(-short // np.maximum(most, 1)), 0)
