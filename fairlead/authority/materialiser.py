"""Brings the store's objects up to date behind the journal, so that loading does not depend on history's length (P2).

Keeps the newest image of each key that changed since it was last written: a node that changed a hundred times is written once.
Never ahead of the durable head. Runs as one of the leader's tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from fairlead.authority.building import Deposed
from fairlead.authority.meters import Meters
from fairlead.authority.state import CLOCK, Rec
from fairlead.model.ids import key
from fairlead.ports import Clock
from fairlead.store.contract import (
    BATCH_BYTES_MAX,
    STORE_LIMIT,
    Committed,
    Fence,
    Fenced,
    ObjectRow,
    Store,
    Superseded,
    Unavailable,
)

CHUNK_ROWS = 1000  # One statement of this size holds the store's writer for about five milliseconds,
CHUNK_BYTES = 4 * BATCH_BYTES_MAX  # and of this one for some tens: large objects must not make one that outlasts its time limit.
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
        self._flushing = asyncio.Lock()
        self._in_doubt = False  # a piece may still land
        self.limit: Unavailable | None = None  # the store holds as much as it may: nothing more can be made, only deleted

    def start(self, materialised: int) -> None:
        self._pending.clear()
        self.limit = None
        self._upto = self.materialised = materialised

    def note(self, last: int, time_ms: int, keys: Iterable[str], recs: list[Rec]) -> None:
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
        """Writes all that is pending; false when this process does not lead any more. Deposed when the store lost its tail. One
        at a time: a second one beside it could move `materialised` past rows that the first has not written yet, and the store
        would take those for late copies."""
        async with self._flushing:
            return await self._flush(fence)

    async def _flush(self, fence: Fence) -> bool:
        pending, self._pending = self._pending, {}
        upto, time_ms = self._upto, self._time_ms
        for chunk, reached in self._chunks(pending, upto):
            rows: list[ObjectRow] = [(name, rec.position, rec.raw) for name, rec in chunk if rec.raw is not None]
            deleted = [name for name, rec in chunk if rec.raw is None]
            if reached == upto:  # so that a cold start knows the plane's time even when the journal holds nothing newer (P5)
                rows.append((key(CLOCK, "", "self"), upto, time_ms.to_bytes(8, "big")))
            result = await self._store.materialise(fence, reached, rows, deleted, upto)
            if isinstance(result, Superseded):
                raise Deposed(f"the store is at {result.head.position}, not at {upto}: it lost its tail", lost_history=True)
            if isinstance(result, Fenced):
                return False
            if not isinstance(result, Committed):
                self._in_doubt |= not isinstance(result, Unavailable)
                await self._make_room(fence, result, pending, upto)
                self._restore(pending)
                return True
            self.materialised = reached
            self._meters.materialised_rows_total += len(chunk)
        self._in_doubt, self.limit = False, None
        return True

    async def _make_room(self, fence: Fence, why: object, pending: dict[str, Rec], upto: int) -> None:
        """A store that is full takes deletions, wherever they stand among what is pending. They are sent again with the rest: not
        before is everything up to a position there."""
        self.limit = why if isinstance(why, Unavailable) and why.reason == STORE_LIMIT else None
        gone = [name for name, rec in pending.items() if rec.raw is None] if self.limit is not None else []
        for start in range(0, len(gone), CHUNK_ROWS):
            await self._store.materialise(fence, self.materialised, [], gone[start : start + CHUNK_ROWS], upto)

    def _chunks(self, pending: dict[str, Rec], upto: int) -> Iterator[tuple[list[tuple[str, Rec]], int]]:
        """Pieces of what is pending, each with the position that the store then has everything up to.

        Normally in order of keys: neighbours in the store's index together, so that a piece touches a few of its pages and not
        a thousand; only the last piece moves the position. After a piece whose outcome is unknown, in order of positions: then
        every piece moves it, and the copy that may still land finds itself late and does nothing, instead of putting an old
        image over a newer one.
        """
        names = sorted(pending, key=lambda name: pending[name].position) if self._in_doubt else sorted(pending)
        pieces = _cut((name, pending[name]) for name in names)
        chunk = next(pieces, None)
        while chunk is not None:
            following = next(pieces, None)
            if following is None:
                yield chunk, upto
            else:
                yield chunk, chunk[-1][1].position if self._in_doubt else self.materialised
            chunk = following

    def _restore(self, pending: dict[str, Rec]) -> None:
        """It failed: everything waits for the next round, newer images first."""
        newer, self._pending = self._pending, pending
        self._pending.update(newer)


def _cut(items: Iterable[tuple[str, Rec]]) -> Iterator[list[tuple[str, Rec]]]:
    """Pieces of at most so many rows and so many bytes, with one row at least."""
    piece, size = list[tuple[str, Rec]](), 0
    for name, rec in items:
        cost = len(rec.raw) if rec.raw is not None else 0
        if piece and (len(piece) >= CHUNK_ROWS or size + cost > CHUNK_BYTES):
            yield piece
            piece, size = [], 0
        piece.append((name, rec))
        size += cost
    if piece:
        yield piece
