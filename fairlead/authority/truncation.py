"""Keeps the engine's journal short: minutes of it (P8), never beyond what is materialised and archived.

What is cut off leaves an anchor behind: position, time and chain hash, signed under the plane's own key where the server has one,
so that a shortened journal can be told from a forged one.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

import msgspec

from fairlead.authority.materialiser import Materialiser
from fairlead.model.anchor import sign_anchor
from fairlead.model.journal import header_of
from fairlead.ports import Clock
from fairlead.store.contract import Batch, Compacted, Corrupt, Fence, Fenced, Head, Store, StoreUnreachable

log = logging.getLogger(__name__)

EVERY_S = 5.0


class JournalKept(msgspec.Struct, frozen=True):
    """How much journal the engine keeps, and who says which key signs what was cut off: it may be rotated meanwhile."""

    keep_s: float = 600.0
    keep_bytes: int = 256 * 1024 * 1024
    anchor_key: Callable[[], bytes] = bytes


_Noted = tuple[int, int, int, bytes]  # of a batch: last position, time, bytes, hash


class Truncation:
    def __init__(
        self, store: Store, clock: Clock, materialiser: Materialiser, kept: JournalKept, head: Head,
        archived: Callable[[], int] | None = None,
    ) -> None:  # fmt: skip
        """`head`: what this term began with. What its journal holds is looked at bit by bit, or leaders that follow each other
        sooner than a journal grows old would never cut any."""
        self._store = store
        self._clock = clock
        self._materialiser = materialiser
        self._kept = kept
        self._archived = archived
        self._batches: deque[_Noted] = deque()  # of this term
        self._older: deque[_Noted] = deque()  # of terms before, as far as they were looked at
        self._looked_at, self._begun_at = head.truncated, head.position
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
        while self._older or len(self._batches) > 1:
            batches = self._older or self._batches
            last, time_ms, size, hashed = batches[0]
            old = time_ms + self._kept.keep_s * 1000 < newest_ms or self._bytes > self._kept.keep_bytes
            if not old or last > limit:
                break
            batches.popleft()
            self._bytes -= size
            found = (last, time_ms, hashed)
        return found

    async def _look_back(self) -> None:
        """At a little more of what terms before have left."""
        if self._looked_at >= self._begun_at:
            return
        try:
            batches = await self._store.tail(self._looked_at)
            if isinstance(batches, Compacted):  # cut off by now
                self._looked_at = batches.truncated
                return
            found = [(each.last, header_of(each.blob).time_ms, len(each.blob), each.hash) for each in batches]
        except StoreUnreachable:
            return  # the next round looks again
        except (Corrupt, ValueError) as damage:  # it does not concern whoever leads already; the next start tells of it
            log.warning("the journal of earlier terms is not looked at for what may go: %s", damage)
            found = []
        self._older += [noted for noted in found if noted[0] <= self._begun_at]
        self._bytes += sum(noted[2] for noted in found if noted[0] <= self._begun_at)
        self._looked_at = found[-1][0] if found else self._begun_at

    async def run(self, fence: Fence) -> None:
        while True:
            await self._clock.sleep(EVERY_S)
            await self._look_back()
            due = self.due()
            if due is None:
                continue
            position, time_ms, hashed = due
            anchor = sign_anchor(self._kept.anchor_key(), position, hashed, time_ms)
            if isinstance(await self._store.truncate(fence, position, anchor), Fenced):
                return
