"""Brings the store's objects up to date behind the journal, so that loading does not depend on history's length (P2).

Keeps the newest image of each key that changed since it was last written: a node that changed a hundred times is written once.
Never ahead of the durable head. Runs as one of the leader's tasks.
"""

from __future__ import annotations

from fairlead.authority.meters import Meters
from fairlead.authority.state import CLOCK, Rec
from fairlead.model.ids import key
from fairlead.ports import Clock
from fairlead.store.contract import Committed, Fence, Fenced, ObjectRow, Store

CHUNK_ROWS = 1000  # One statement of this size holds the store's writer for about five milliseconds.
EVERY_S = 2.0  # Objects that change again, or come and go, within this time are written once or not at all.
PENDING_MAX = 100_000  # Beyond this the materialiser no longer waits between rounds.


class Materialiser:
    def __init__(self, store: Store, clock: Clock, meters: Meters) -> None:
        self._store = store
        self._clock = clock
        self._meters = meters
        self._pending: dict[str, Rec] = {}
        self._upto = 0
        self._time_ms = 0
        self.materialised = 0

    def start(self, materialised: int) -> None:
        self._pending.clear()
        self._upto = self.materialised = materialised

    def note(self, last: int, time_ms: int, keys: list[str], recs: list[Rec]) -> None:
        self._pending.update(zip(keys, recs, strict=True))
        self._upto = last
        self._time_ms = time_ms

    @property
    def behind(self) -> int:
        return len(self._pending)

    async def run(self, fence: Fence) -> None:
        while True:
            if len(self._pending) < PENDING_MAX:
                await self._clock.sleep(EVERY_S)
            if self._pending and not await self.flush(fence):
                return

    async def flush(self, fence: Fence) -> bool:
        """Writes all that is pending; false when this process does not lead any more."""
        pending, self._pending = self._pending, {}
        upto, time_ms, before = self._upto, self._time_ms, self.materialised
        # Neighbours in the store's index together: a chunk in order of keys touches a few of its pages, not a thousand.
        keys = sorted(pending)
        for start in range(0, len(keys), CHUNK_ROWS):
            chunk = [(name, pending[name]) for name in keys[start : start + CHUNK_ROWS]]
            done = start + CHUNK_ROWS >= len(keys)
            rows: list[ObjectRow] = [(name, rec.position, rec.raw) for name, rec in chunk if rec.raw is not None]
            deleted = [name for name, rec in chunk if rec.raw is None]
            if done:  # so that a cold start knows the plane's time even when the journal holds nothing newer (P5)
                rows.append((key(CLOCK, "", "self"), upto, time_ms.to_bytes(8, "big")))
            result = await self._store.materialise(fence, upto if done else before, rows, deleted)
            if isinstance(result, Fenced):
                return False
            if not isinstance(result, Committed):
                self._restore(pending)
                return True
            self._meters.materialised_rows_total += len(chunk)
        self.materialised = upto
        return True

    def _restore(self, pending: dict[str, Rec]) -> None:
        """It failed: everything waits for the next round, newer images first."""
        newer, self._pending = self._pending, pending
        self._pending.update(newer)
