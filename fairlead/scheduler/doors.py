"""Which nodes take a kind of work at all, remembered: the half of feasible() that asks nothing about amounts and is therefore the
same for slots of any size. Slots that all differ would otherwise pay for it anew each.

A mask holds while no node changed its class, state or owner, and for a second: nodes that fall silent meanwhile are noticed when
they are chosen. Called by shapes that rate all rows.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from fairlead.decide.fit import open_to
from fairlead.decide.need import Need
from fairlead.scheduler.snapshot import Snapshot

_KEPT_MS: Final = 1000
_KEPT_MAX: Final = 64


class _Kept(NamedTuple):
    classes: Any  # held, so that its id stays its own
    version: int
    at_ms: int
    mask: Any


class Doors:
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._kept: dict[tuple[int, int, int], _Kept] = {}

    def open_to(self, columns: Need) -> Any:
        snapshot = self._snapshot
        if columns.exclusive:  # depends on who is there, which every placement changes
            return open_to(columns, snapshot.fleet.all(), snapshot)
        key = (id(columns.classes), columns.max_age_ms, columns.tenant if snapshot.exclusive_rows else 0)
        kept = self._kept.get(key)
        now_ms = snapshot.now_ms
        is_fresh = kept is not None and kept.at_ms <= now_ms < kept.at_ms + _KEPT_MS
        if kept is not None and is_fresh and kept.classes is columns.classes and kept.version == snapshot.doors:
            return kept.mask
        if len(self._kept) >= _KEPT_MAX:
            self._kept.clear()
        mask = open_to(columns, snapshot.fleet.all(), snapshot)
        self._kept[key] = _Kept(columns.classes, snapshot.doors, now_ms, mask)
        return mask
