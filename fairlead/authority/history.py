"""Thirty days of history beside the engine (P8): feeds the archive, and reads what memory has forgotten.

Every server keeps an archive of its own, leader or standby, so history outlives any one disk. A standby tails the store. A leader
has made the batches itself and hands them over once they are durable; whatever does not continue what is archived (a start, a
restore, a server that was behind) it tails too. All file work happens on one thread of its own. Never writes the store. Run by
the authority; asked by whoever reads at an earlier revision or time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from fairlead.authority.hub import Expired
from fairlead.authority.reader import View
from fairlead.authority.state import State
from fairlead.model.ids import revision as revision_of
from fairlead.model.ids import split_revision
from fairlead.model.journal import decode_blob
from fairlead.ports import Clock
from fairlead.store.archive import (
    GENESIS,
    Archive,
    ArchiveError,
    BeyondHorizon,
    ChainBroken,
    Contents,
    Gap,
    LaterIncarnation,
    Point,
)
from fairlead.store.contract import BATCH_BYTES_MAX, Batch, Compacted, ObjectRow, Store, StoreUnreachable

log = logging.getLogger(__name__)

FEED_S = 0.5
GATHER_S = 0.25  # while batches come: those of this while are read, written and synced together
UPKEEP_S = 60.0
AGAIN_S = 5.0  # after its files could not be written or read
HANDED_BYTES_MAX = 8 * BATCH_BYTES_MAX  # that wait for the archive's thread; beyond it they are tailed
_SLICE = 5000

T = TypeVar("T")


class Handed(NamedTuple):
    """A batch that this server made, known to be durable."""

    batch: Batch
    incarnation: int
    time_ms: int
    images: Sequence[tuple[str, bytes | None]]  # its effects, as the blob has them


class History:
    def __init__(self, archive: Archive, store: Store, clock: Clock) -> None:
        self._archive = archive
        self._store = store
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="archive")
        self._began_at: int | None = None  # a checkpoint stands here, and nothing was archived after it yet
        self._began_in = 0  # the incarnation of that
        self._known = GENESIS  # how far the journal was gone over in that incarnation, and held nothing that is not archived
        self._seen_in = 0  # the latest incarnation that a batch was seen of
        self._trouble = ""  # why its files could not be written, when that was tried last
        self.failures_total = 0
        self._handed: deque[Handed] = deque()  # in the order of their positions
        self._handed_bytes = 0

    @property
    def directory(self) -> Path:
        return self._archive.directory

    def archived(self, incarnation: int) -> int:
        """Up to this position of that incarnation nothing is lost when the engine's journal is cut. What was archived of another
        one says nothing: a restore goes back, and the same positions are given out again."""
        synced = self._archive.synced()
        began_at = self._began_at if self._began_at is not None and self._began_in == incarnation else 0
        return max(synced.position if synced.incarnation == incarnation else 0, began_at)

    def hand_over(self, batch: Batch, incarnation: int, time_ms: int, images: Sequence[tuple[str, bytes | None]]) -> None:
        """By the leader, of what became durable: so that it is neither read from the store, decoded nor hashed again."""
        self._handed.append(Handed(batch, incarnation, time_ms, images))
        self._handed_bytes += len(batch.blob)
        while self._handed_bytes > HANDED_BYTES_MAX:
            self._drop_handed()

    def _drop_handed(self) -> Handed:
        handed = self._handed.popleft()
        self._handed_bytes -= len(handed.batch.blob)
        return handed

    async def run(self, view: Callable[[], tuple[View, State, int, int] | None]) -> None:
        """`view` gives (view, state, incarnation, plane time) at the durable head, or None while there is none."""
        upkeep_at = self._clock.monotonic()
        while True:
            pause_s = FEED_S
            try:
                pause_s = await self._feed(view)
                if self._clock.monotonic() >= upkeep_at:
                    upkeep_at = self._clock.monotonic() + UPKEEP_S
                    await self._upkeep(view)
                self._trouble = ""
            except StoreUnreachable as error:
                log.info("history waits for the store: %s", error)
            except (OSError, ArchiveError) as error:
                # A full disk, or a damaged file. The plane goes on; its journal keeps what is not archived.
                self.failures_total += 1
                if str(error) != self._trouble:
                    log.error("history cannot be kept in %s: %s", self.directory, error)
                self._trouble, pause_s = str(error), AGAIN_S
            await self._clock.sleep(pause_s)

    async def _feed(self, view: Callable[[], tuple[View, State, int, int] | None]) -> float:
        """How long to wait for more, in seconds."""
        last = self._archive.last()
        handed = self._take_handed(last)
        if handed:
            await self._on_thread(partial(self._append_handed, handed))
            return GATHER_S
        at = view()
        start, latest = await self._feed_from(last, at)
        batches = await self._store.tail(start)
        try:
            if isinstance(batches, Compacted):
                raise Gap(f"the engine's journal starts after {batches.truncated}, the archive ends at {last}")
            if not batches:
                return FEED_S
            await self._on_thread(partial(self._append, batches, latest))
            self._known = Point(latest or 0, batches[-1].last)
            many = sum(len(batch.blob) for batch in batches) >= BATCH_BYTES_MAX  # so there is more
            return 0.0 if many else GATHER_S
        except LaterIncarnation as later:
            self._seen_in = later.incarnation
            return 0.0
        except (Gap, ChainBroken) as error:
            # History that nobody has any more, or another history than before: go on from a checkpoint of the present.
            log.warning("history begins anew: %s", error)
            await self._begin_anew(view)
            return FEED_S

    def _take_handed(self, last: Point) -> list[Handed]:
        """Those that continue what is archived, if there are any. What is older goes: it was tailed."""
        while self._handed and Point(self._handed[0].incarnation, self._handed[0].batch.last) <= last:
            self._drop_handed()
        taken: list[Handed] = []
        end, hashed = last, self._archive.last_hash()
        while self._handed and self._began_at is None:
            batch, incarnation, *_ = self._handed[0]
            if (incarnation, batch.first, batch.previous) != (end.incarnation, end.position + 1, hashed):
                break
            taken.append(self._drop_handed())
            end, hashed = Point(incarnation, batch.last), batch.hash
        return taken

    async def _feed_from(self, last: Point, at: tuple[View, State, int, int] | None) -> tuple[int, int | None]:
        """After which position, and the latest incarnation whose beginning is not before it; None: nothing is."""
        end = last
        if self._began_at is not None:
            end = Point(self._began_in, max(self._began_at, last.position if last.incarnation == self._began_in else 0))
        # A standby may not have heard yet of what it reads.
        latest = max(self._seen_in, at[2] if at is not None else 0)
        if end.position and latest > end.incarnation:
            # A restore, or a lost tail: positions went back. Go over the whole journal; what is archived already is known. One
            # look brings a part of it, so the next one goes on behind that.
            gone_over = self._known.position if self._known.incarnation == latest else 0
            return max((await self._store.head()).truncated, gone_over), latest
        return end.position, end.incarnation if end.position else None

    def _append(self, batches: list[Batch], latest: int | None) -> None:
        try:
            for batch in batches:
                self._archive.append(batch, after_gap=self._began_at is not None, latest=latest)
                self._began_at = None
        except LaterIncarnation:
            self._appended()
            raise
        self._appended()

    def _append_handed(self, handed: list[Handed]) -> None:
        for batch, incarnation, time_ms, images in handed:
            self._archive.append(batch, Contents(incarnation, time_ms, [key for key, _ in images]))
        self._appended()

    def _appended(self) -> None:
        self._archive.sync()
        while self._archive.waiting():
            self._archive.close_segment()

    async def _begin_anew(self, view: Callable[[], tuple[View, State, int, int] | None]) -> None:
        at = view()
        if at is None:
            return
        await self._checkpoint(*at)
        self._began_in, self._began_at = split_revision(at[0].revision)

    async def _upkeep(self, view: Callable[[], tuple[View, State, int, int] | None]) -> None:
        at = view()
        if at is None:
            return
        if self._archive.checkpoint_due(at[3]):
            await self._checkpoint(*at)
        trimmed = await self._on_thread(partial(self._archive.trim, at[3]))
        log.debug("history trimmed: %s", trimmed)

    async def _checkpoint(self, view: View, state: State, incarnation: int, time_ms: int) -> None:
        point = Point(incarnation, split_revision(view.revision)[1])
        state.hold(point.position)  # else a busy plane would forget it while it is still read
        try:
            rows = [row async for row in _rows(view, state, self._clock)]
        finally:
            state.let_go(point.position)
        await self._on_thread(partial(self._archive.write_checkpoint, point, time_ms, rows))

    # --- reading -----------------------------------------------------------------------------------------------------

    async def get(self, key: str, revision: int) -> tuple[int, bytes] | None:
        """(position, object) as it stood at that revision. Like all reads here it raises Expired for what is not archived."""
        return await self._read(partial(self._archive.get, key, Point(*split_revision(revision))))

    async def point_at(self, time_ms: int) -> Point:
        """The newest point at or before that plane time."""
        return await self._read(partial(self._archive.position_at, time_ms))

    async def time_at(self, revision: int) -> int | None:
        """The plane time of that revision's batch; None: it is newer than what is archived."""

        def read() -> int | None:
            point = Point(*split_revision(revision))
            if point > self._archive.last():
                return None
            before = Point(point.incarnation, point.position - 1)
            return next((decode_blob(batch.blob).header.time_ms for batch in self._archive.batches(before, point)), None)

        return await self._read(read)

    async def state_at(self, revision: int, plural: str, tenant: str | None) -> list[ObjectRow]:
        """The objects of one kind (and tenant) at that revision. Reads a checkpoint and what follows it: seconds, not ms."""
        prefix = f"{plural}/" if tenant is None else f"{plural}/{tenant}/"

        def read() -> list[ObjectRow]:
            point = Point(*split_revision(revision))
            return [row for row in self._archive.state_at(point) if row[0].startswith(prefix)]

        return await self._read(read)

    async def _read(self, work: Callable[[], T]) -> T:
        try:
            return await self._on_thread(work)
        except BeyondHorizon as error:
            raise Expired(_beyond(error), 0) from error
        except ArchiveError as error:  # never archived, or damaged
            raise Expired(str(error), 0) from error

    async def _on_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def close(self) -> None:
        await self._on_thread(self._archive.close)
        self._thread.shutdown()


def _beyond(error: BeyondHorizon) -> str:
    horizon = error.horizon
    if horizon is None:
        return "history does not reach back so far; nothing older is kept"
    reach = f"revision {revision_of(horizon.point.incarnation, horizon.point.position)}"
    since = datetime.fromtimestamp(horizon.time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"history does not reach back so far: it begins at {since}, {reach}"


async def _rows(view: View, state: State, clock: Clock) -> AsyncIterator[ObjectRow]:
    """Every object at the view's revision, internal ones too, giving the loop back between slices."""
    for plural in state.plurals():
        page_after = ("", "")
        while True:
            page = await view.page(plural, after=page_after, limit=_SLICE)
            for rec in page.items:
                assert rec.raw is not None
                yield rec.key, rec.position, rec.raw
            if not page.next_name:
                break
            page_after = (page.next_tenant, page.next_name)
            await clock.sleep(0)
