"""The store on one SQLite file: durable on a single host, the default engine.

Owns three threads and nothing else of weight: one for all writes (sqlite_writer.py), one for reads, one for upkeep
(checkpoints, stats), so that a read waits for no fsync and a commit for no checkpoint. High availability is same-host
only: several processes may open one file, and SQLite's lock orders their writes. Called by the authority and by
`fairlead store`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import weakref
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

from fairlead.store.contract import (
    BATCH_BYTES_MAX,
    FORMAT,
    AcquireResult,
    Batch,
    Checkpoint,
    CommitResult,
    Committed,
    Compacted,
    Fence,
    Fenced,
    FencedWriteResult,
    Head,
    MaterialiseResult,
    ObjectRow,
    StoreError,
    StoreStats,
)
from fairlead.store.sqlite_file import Settings, create_or_check, too_new
from fairlead.store.sqlite_leader import LeaderLock
from fairlead.store.sqlite_reader import ObjectCursor, Reader
from fairlead.store.sqlite_thread import StoreThread
from fairlead.store.sqlite_writer import Writer

PAGE_BYTES = 4096
CHECKPOINT_BYTES = 16 * 1024 * 1024  # Large enough to absorb rewritten pages, small enough to copy in a moment.
# What a server's log is made to begin with: a checkpoint's worth, and what is committed while it is copied.
LOG_BYTES = CHECKPOINT_BYTES * 9 // 8
# When the log is this many times longer in spite of checkpoints beside the commits, one runs between two commits.
CHECKPOINT_FALLBACK_FACTOR = 4

Result = TypeVar("Result")


class SqliteStore:
    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        vfs: str | None = None,
        busy_timeout_s: float = 2.0,
        checkpoint_bytes: int = CHECKPOINT_BYTES,
        log_bytes: int = 0,
        loses_acknowledged_data_on_power_cut: bool = False,
    ) -> None:
        """`vfs` names an apsw VFS, for the failing-disk rigs. `log_bytes`: how long the log is made when somebody begins to
        lead; with 0 it grows with what is committed. The last parameter is the power-loss rig's negative control and
        switches every fsync off."""
        self._settings = Settings(os.fspath(path), vfs, busy_timeout_s, not loses_acknowledged_data_on_power_cut)
        self._writer = Writer(self._settings)
        self._leader_lock = LeaderLock(f"{self._settings.path}.leader")
        self._reader = Reader(self._settings)
        self._upkeep = Reader(self._settings)
        self._write_thread = StoreThread("store-write")
        self._read_thread = StoreThread("store-read")
        self._upkeep_thread = StoreThread("store-upkeep")
        self._checkpoint_pages = max(1, checkpoint_bytes // PAGE_BYTES)
        self._log_bytes = log_bytes
        self._checkpointing: Future[None] | None = None
        self._loads: weakref.WeakSet[_Rows] = weakref.WeakSet()
        self._closed = False

    async def open(self) -> Head:
        return await self._run(self._write_thread, lambda: create_or_check(self._settings))

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        # Upkeep first: it may hand the store thread a last checkpoint.
        await self._run(self._upkeep_thread, self._upkeep.close)
        for rows in list(self._loads):
            await rows.aclose()
        await self._run(self._read_thread, self._reader.close)
        await self._run(self._write_thread, self._writer.close)
        await self._run(self._write_thread, self._leader_lock.release)
        for thread in (self._upkeep_thread, self._read_thread, self._write_thread):
            thread.shutdown()

    # --- reads

    async def head(self) -> Head:
        return await self._run(self._read_thread, self._reader.head)

    async def tail(self, after: int, limit_bytes: int = 4 * BATCH_BYTES_MAX) -> list[Batch] | Compacted:
        return await self._run(self._read_thread, lambda: self._reader.tail(after, limit_bytes))

    async def load(self) -> Checkpoint:
        cursor = await self._run(self._read_thread, lambda: ObjectCursor(self._settings))
        rows = _Rows(cursor, self._read_thread)
        self._loads.add(rows)
        return Checkpoint(cursor.head, cursor.head.materialised, rows)

    async def stats(self) -> StoreStats:
        return await self._run(self._upkeep_thread, self._upkeep.stats)

    # --- writes

    async def acquire(self, holder: str, observed: Head) -> AcquireResult:
        result = await self._write(lambda: self._writer.acquire(holder, observed))
        if isinstance(result, Fence):
            fence = result
            await self._run(self._write_thread, lambda: self._leader_lock.take(holder))
            await self._run(self._write_thread, lambda: self._writer.stretch_log(fence, self._log_bytes))
        return result

    async def renew(self, fence: Fence) -> FencedWriteResult:
        result = await self._write(lambda: self._writer.renew(fence))
        if isinstance(result, Committed):  # A predecessor that was stopped when we acquired may have let go meanwhile.
            await self._run(self._write_thread, lambda: self._leader_lock.take(fence.holder))
        return result

    async def resign(self, fence: Fence) -> FencedWriteResult:
        result = await self._write(lambda: self._writer.resign(fence))
        if isinstance(result, Committed):
            await self._run(self._write_thread, self._leader_lock.release)
        return result

    async def leader_gone(self) -> bool:
        head = await self.head()
        return bool(head.holder) and await self._run(self._write_thread, lambda: self._leader_lock.was_left_by(head.holder))

    async def commit(self, fence: Fence, batch: Batch) -> CommitResult:
        return await self._write(lambda: self._writer.commit(fence, batch))

    def commit_on_the_spot(self, fence: Fence, batch: Batch) -> CommitResult | None:
        if self._closed or not self._writer.is_settled:
            return None
        result = self._write_thread.call_here(lambda: self._writer.commit_unless_busy(fence, batch))
        self._checkpoint_if_due()
        return None if isinstance(result, Fenced) else result  # `commit` will hear the same, and see to the leader's lock

    async def materialise(
        self, fence: Fence, upto: int, rows: Sequence[ObjectRow], deleted: Sequence[str], as_of: int = 0
    ) -> MaterialiseResult:
        return await self._write(lambda: self._writer.materialise(fence, upto, rows, deleted, as_of))

    async def truncate(self, fence: Fence, through: int, anchor: bytes) -> FencedWriteResult:
        result = await self._write(lambda: self._writer.truncate(fence, through, anchor))
        if isinstance(result, Committed):
            # Each piece is a turn of its own on the store thread, so commits pass in between.
            while await self._write(self._writer.sweep):
                pass
        return result

    async def set_incarnation(self, fence: Fence, incarnation: int) -> FencedWriteResult:
        assert incarnation > fence.incarnation, f"incarnation {incarnation} does not raise {fence.incarnation}"
        return await self._write(lambda: self._writer.set_incarnation(fence, incarnation))

    async def seed(self, head: Head, chunks: AsyncIterator[list[ObjectRow]]) -> None:
        if head.format > FORMAT:
            raise too_new("the data to seed", head.format)
        run = await self._write(self._writer.seed_begin)
        async for chunk in chunks:
            await self._write(lambda rows=chunk: self._writer.seed_rows(run, rows))  # type: ignore[misc]
            if self._checkpointing is not None:  # Nobody waits for a seed, so it may wait for the log to be copied.
                await asyncio.wrap_future(self._checkpointing)
        await self._write(lambda: self._writer.seed_end(run, head))

    # --- threads

    async def _run(self, thread: StoreThread, work: Callable[[], Result]) -> Result:
        return await thread.call(work)

    async def _write(self, work: Callable[[], Result]) -> Result:
        result = await self._run(self._write_thread, work)
        if isinstance(result, Fenced):
            leader = result.head.holder
            await self._run(self._write_thread, lambda: self._leader_lock.fenced_by(leader))
        self._checkpoint_if_due()
        return result

    def _checkpoint_if_due(self) -> None:
        idle = self._checkpointing is None or self._checkpointing.done()
        if self._writer.wal_pages > self._checkpoint_pages and idle and not self._closed:
            self._checkpointing = self._upkeep_thread.submit(self._checkpoint)

    def _checkpoint(self) -> None:
        """On the upkeep thread. SQLite starts its log over by itself once all of it was copied and nobody reads it;
        commits that never pause can prevent that for ever, and an open load always does until it ends."""
        # A disk that fails here fails the commits too, and those have somebody to tell.
        with contextlib.suppress(StoreError):
            pages = self._upkeep.checkpoint()
            if pages > self._checkpoint_pages * CHECKPOINT_FALLBACK_FACTOR:
                self._write_thread.submit(self._writer.checkpoint).result()


class _Rows:
    """The chunks of one load. Gives its snapshot up at the end, on `aclose`, and when it is forgotten."""

    def __init__(self, cursor: ObjectCursor, thread: StoreThread) -> None:
        self._cursor = cursor
        self._thread = thread

    def __aiter__(self) -> AsyncIterator[list[ObjectRow]]:
        return self

    async def __anext__(self) -> list[ObjectRow]:
        chunk = await self._thread.call(self._cursor.next_chunk)
        if not chunk:
            raise StopAsyncIteration
        return chunk

    async def aclose(self) -> None:
        await self._thread.call(self._cursor.close)
