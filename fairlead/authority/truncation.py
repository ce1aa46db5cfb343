"""Keeps the engine's journal short: minutes of it (P8), never beyond what is materialised and archived.

What is cut off leaves an anchor behind: position, time and chain hash, signed under the plane's own key where the server has one,
so that a shortened journal can be told from a forged one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec

from fairlead.authority.materialiser import Materialiser
from fairlead.model.anchor import sign_anchor
from fairlead.ports import Clock
from fairlead.store.contract import Batch, Fence, Fenced, Store

EVERY_S = 5.0


class JournalKept(msgspec.Struct, frozen=True):
    """How much journal the engine keeps, and who says which key signs what was cut off: it may be rotated meanwhile."""

    keep_s: float = 600.0
    keep_bytes: int = 256 * 1024 * 1024
    anchor_key: Callable[[], bytes] = bytes


class Truncation:
    def __init__(
        self, store: Store, clock: Clock, materialiser: Materialiser, kept: JournalKept, archived: Callable[[], int] | None = None
    ) -> None:
        self._store = store
        self._clock = clock
        self._materialiser = materialiser
        self._kept = kept
        self._archived = archived
        self._batches: deque[tuple[int, int, int, bytes]] = deque()  # last position, time, bytes, hash
        self._bytes = 0

    def note(self, batch: Batch, time_ms: int) -> None:
        self._batches.append((batch.last, time_ms, len(batch.blob), batch.hash))
        self._bytes += len(batch.blob)

    def due(self) -> tuple[int, int, bytes] | None:
        """The newest batch that may go: (position, time, hash)."""
        limit = self._materialiser.materialised
        if self._archived is not None:
            limit = min(limit, self._archived())
        newest_ms = self._batches[-1][1] if self._batches else 0
        found: tuple[int, int, bytes] | None = None
        while len(self._batches) > 1:
            last, time_ms, size, hashed = self._batches[0]
            old = time_ms + self._kept.keep_s * 1000 < newest_ms or self._bytes > self._kept.keep_bytes
            if not old or last > limit:
                break
            self._batches.popleft()
            self._bytes -= size
            found = (last, time_ms, hashed)
        return found

    async def run(self, fence: Fence) -> None:
        while True:
            await self._clock.sleep(EVERY_S)
            due = self.due()
            if due is None:
                continue
            position, time_ms, hashed = due
            anchor = sign_anchor(self._kept.anchor_key(), position, hashed, time_ms)
            if isinstance(await self._store.truncate(fence, position, anchor), Fenced):
                return
