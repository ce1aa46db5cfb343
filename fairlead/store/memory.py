"""A store in memory, for the simulator and for tests: `MemoryDisk` is what lasts, `MemoryStore` one process's view of
it.

Owns the guards of the contract in their plainest form and the seam where faults enter. It never sleeps, never draws a
random number: with no faults every call returns without giving up the loop, with faults the injected object decides
when and what. Called by the simulator, by the contract suite and by `fairlead demo`; never by a production plane.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from fairlead.store.contract import (
    BATCH_BYTES_MAX,
    FORMAT,
    AcquireResult,
    Batch,
    Checkpoint,
    CommitResult,
    Committed,
    Compacted,
    Contended,
    Fence,
    Fenced,
    FencedWriteResult,
    FormatTooNew,
    Head,
    MaterialiseResult,
    ObjectRow,
    OutcomeUnknown,
    StoreError,
    StoreStats,
    StoreUnreachable,
    Superseded,
    Unavailable,
)
from fairlead.store.rules import EMPTY, is_empty, may_commit, why_not_committed

CHUNK_ROWS = 2000
# A lost tail takes materialised objects back with it, so that many materialisations can be undone. A bound, because a
# simulated plane materialises for days; 64 is far more than the batches a failing-over replica can be behind.
UNDO_MAX = 64

Result = TypeVar("Result")


class Refuse(msgspec.Struct, frozen=True):
    """The call does not reach the disk: a write answers this, a read raises StoreUnreachable."""

    unavailable: Unavailable


class LoseAnswer(msgspec.Struct, frozen=True):
    """The write takes effect now, and its caller is told OutcomeUnknown."""


class LandLater(msgspec.Struct, frozen=True):
    """Its caller is told OutcomeUnknown; `MemoryFaults.in_flight` is handed the write and decides when it lands."""


Fault = Refuse | LoseAnswer | LandLater


class InFlight:
    """A write the network still holds. Its guards are judged when it lands, not when it was sent."""

    def __init__(self, disk: MemoryDisk, call: str, effect: Callable[[], object]) -> None:
        self.call = call
        self._disk = disk
        self._effect = effect
        disk.in_flight.append(self)

    def land(self) -> object:
        """Applies the write (once) and returns what the caller would have been told."""
        self._disk.in_flight.remove(self)
        return self._effect()

    def drop(self) -> None:
        self._disk.in_flight.remove(self)


class MemoryFaults(Protocol):
    """What a simulator injects. `call` is the name of the Store method."""

    async def before(self, call: str) -> Fault | None:
        """Awaited before the effect: the request's way to the store."""

    async def after(self, call: str) -> None:
        """Awaited after the effect: the answer's way back."""

    def in_flight(self, write: InFlight) -> None:
        """Takes over a write for which `before` said LandLater."""

    def batches_hidden(self) -> int:
        """How many of the newest batches a `tail` does not see yet (a stale replica)."""


class _Entry(msgspec.Struct, frozen=True):
    batch: Batch
    fence: Fence


class _Undo(msgspec.Struct, frozen=True):
    materialised: int
    rows: dict[str, tuple[int, bytes] | None]


class MemoryDisk:
    """What survives a process. Every method is one atomic step."""

    def __init__(self) -> None:
        self.in_flight: list[InFlight] = []
        self.empty()

    def empty(self) -> None:
        self.head = EMPTY
        self.journal: list[_Entry] = []
        self.objects: dict[str, tuple[int, bytes]] = {}
        self._undo: deque[_Undo] = deque(maxlen=UNDO_MAX)

    def acquire(self, holder: str, observed: Head) -> Fence | Contended:
        if self.head.sign_of_life() != observed.sign_of_life():
            return Contended(self.head)
        self.head = replace(self.head, epoch=observed.epoch + 1, holder=holder)
        return self.head.fence()

    def renew(self, fence: Fence) -> Committed | Fenced:
        if self.head.fence() != fence:
            return Fenced(self.head)
        self.head = replace(self.head, renewals=self.head.renewals + 1)
        return Committed()

    def resign(self, fence: Fence) -> Committed | Fenced:
        if self.head.fence() != fence:
            return Fenced(self.head)
        self.head = replace(self.head, holder="")
        return Committed()

    def commit(self, fence: Fence, batch: Batch) -> CommitResult:
        if not may_commit(self.head, fence, batch):
            return why_not_committed(self.head, fence, batch, self._hash_at(batch.first))
        self.journal.append(_Entry(batch, fence))
        self.head = replace(self.head, position=batch.last, hash=batch.hash)
        return Committed()

    def materialise(
        self, fence: Fence, upto: int, rows: Sequence[ObjectRow], deleted: Sequence[str], as_of: int = 0
    ) -> Committed | Superseded | Fenced:
        if self.head.fence() != fence:
            return Fenced(self.head)
        if max(upto, as_of) > self.head.position:
            return Superseded(self.head)
        # One that lands late must not take objects back behind a journal that may be truncated by now.
        if upto < self.head.materialised:
            return Committed()
        touched = [key for key, _, _ in rows] + list(deleted)
        self._undo.append(_Undo(self.head.materialised, {key: self.objects.get(key) for key in touched}))
        for key, position, value in rows:
            self.objects[key] = (position, value)
        for key in deleted:
            self.objects.pop(key, None)
        self.head = replace(self.head, materialised=upto)
        return Committed()

    def truncate(self, fence: Fence, through: int, anchor: bytes) -> Committed | Fenced:
        if self.head.fence() != fence:
            return Fenced(self.head)
        if through > self.head.materialised:
            return Committed()
        count = bisect_right(self.journal, through, key=lambda entry: entry.batch.last)
        if count:
            self.head = replace(self.head, truncated=self.journal[count - 1].batch.last, anchor=anchor)
            del self.journal[:count]
        return Committed()

    def set_incarnation(self, fence: Fence, incarnation: int) -> Committed | Fenced:
        assert incarnation > fence.incarnation, f"incarnation {incarnation} does not raise {fence.incarnation}"
        if self.head.fence() != fence:
            return Fenced(self.head)
        self.head = replace(self.head, incarnation=incarnation)
        return Committed()

    def tail(self, after: int, limit_bytes: int, hidden: int) -> list[Batch] | Compacted:
        if after < self.head.truncated:
            return Compacted(self.head.truncated)
        found: list[Batch] = []
        size = 0
        start = bisect_right(self.journal, after, key=lambda entry: entry.batch.first)
        for index in range(start, len(self.journal) - hidden):
            batch = self.journal[index].batch
            size += len(batch.blob)
            if found and size > limit_bytes:
                break
            found.append(batch)
        return found

    def seed(self, head: Head, objects: dict[str, tuple[int, bytes]]) -> None:
        self.refuse_unless_empty()
        self.objects = objects
        self.head = head

    def lose_tail(self, count: int, *, fence_too: bool = False) -> int:
        """Forgets up to `count` of the newest batches, as a failover to a replica that was behind does. Objects go back
        too, as far as they can be undone; returns how many batches are gone. With `fence_too` the head's fence is
        again the one the last surviving batch was committed under, as if the acquisition was in the lost part."""
        lost = 0
        while lost < count and self.journal and self._rewind_objects(self.journal[-1].batch.first - 1):
            gone = self.journal.pop().batch
            self.head = replace(self.head, position=gone.first - 1, hash=gone.previous)
            lost += 1
        if lost and fence_too and self.journal:
            fence = self.journal[-1].fence
            self.head = replace(self.head, incarnation=fence.incarnation, epoch=fence.epoch, holder=fence.holder)
        return lost

    def _rewind_objects(self, position: int) -> bool:
        while self.head.materialised > position:
            # Objects older than the journal's start would leave a gap between the two.
            if not self._undo or self._undo[-1].materialised < self.head.truncated:
                return False
            undo = self._undo.pop()
            for key, old in undo.rows.items():
                if old is None:
                    self.objects.pop(key, None)
                else:
                    self.objects[key] = old
            self.head = replace(self.head, materialised=undo.materialised)
        return True

    def refuse_unless_empty(self) -> None:
        if not is_empty(self.head):
            raise StoreError(f"the store is not empty (epoch {self.head.epoch}, position {self.head.position})")

    def _hash_at(self, first: int) -> bytes | None:
        index = bisect_left(self.journal, first, key=lambda entry: entry.batch.first)
        if index < len(self.journal) and self.journal[index].batch.first == first:
            return self.journal[index].batch.hash
        return None


class MemoryStore:
    """One process's connection to a MemoryDisk."""

    def __init__(self, disk: MemoryDisk, faults: MemoryFaults | None = None) -> None:
        self._disk = disk
        self._faults = faults

    async def open(self) -> Head:
        head = await self._read("open", lambda: self._disk.head)
        if head.format > FORMAT:
            raise FormatTooNew(f"the store has format {head.format}, this Fairlead reads up to {FORMAT}: upgrade Fairlead")
        return head

    async def close(self) -> None:
        """Nothing to give back: the disk outlives its stores."""

    async def head(self) -> Head:
        return await self._read("head", lambda: self._disk.head)

    async def acquire(self, holder: str, observed: Head) -> AcquireResult:
        return await self._write("acquire", lambda: self._disk.acquire(holder, observed))

    async def renew(self, fence: Fence) -> FencedWriteResult:
        return await self._write("renew", lambda: self._disk.renew(fence))

    async def resign(self, fence: Fence) -> FencedWriteResult:
        return await self._write("resign", lambda: self._disk.resign(fence))

    async def leader_gone(self) -> bool:
        return False  # Simulated processes leave no proof of their death: their lease has to run out.

    async def commit(self, fence: Fence, batch: Batch) -> CommitResult:
        return await self._write("commit", lambda: self._disk.commit(fence, batch))

    def commit_on_the_spot(self, fence: Fence, batch: Batch) -> None:
        return None

    async def tail(self, after: int, limit_bytes: int = 4 * BATCH_BYTES_MAX) -> list[Batch] | Compacted:
        hidden = self._faults.batches_hidden() if self._faults is not None else 0
        return await self._read("tail", lambda: self._disk.tail(after, limit_bytes, hidden))

    async def load(self) -> Checkpoint:
        def snapshot() -> tuple[Head, list[ObjectRow]]:
            return self._disk.head, [(key, *row) for key, row in self._disk.objects.items()]

        head, rows = await self._read("load", snapshot)
        return Checkpoint(head, head.materialised, _chunks(rows))

    async def materialise(
        self, fence: Fence, upto: int, rows: Sequence[ObjectRow], deleted: Sequence[str], as_of: int = 0
    ) -> MaterialiseResult:
        return await self._write("materialise", lambda: self._disk.materialise(fence, upto, rows, deleted, as_of))

    async def truncate(self, fence: Fence, through: int, anchor: bytes) -> FencedWriteResult:
        return await self._write("truncate", lambda: self._disk.truncate(fence, through, anchor))

    async def set_incarnation(self, fence: Fence, incarnation: int) -> FencedWriteResult:
        return await self._write("set_incarnation", lambda: self._disk.set_incarnation(fence, incarnation))

    async def seed(self, head: Head, chunks: AsyncIterator[list[ObjectRow]]) -> None:
        if head.format > FORMAT:
            raise FormatTooNew(f"the data has format {head.format}, this Fairlead reads up to {FORMAT}: upgrade Fairlead")
        await self._read("seed", self._disk.refuse_unless_empty)
        objects: dict[str, tuple[int, bytes]] = {}
        async for chunk in chunks:
            for key, position, value in chunk:
                objects[key] = (position, value)
        self._disk.seed(head, objects)

    async def stats(self) -> StoreStats:
        def count() -> StoreStats:
            journal_bytes = sum(len(entry.batch.blob) for entry in self._disk.journal)
            object_bytes = sum(len(key) + len(value) for key, (_, value) in self._disk.objects.items())
            return StoreStats(
                engine="memory",
                objects=len(self._disk.objects),
                journal_batches=len(self._disk.journal),
                journal_bytes=journal_bytes,
                bytes_on_disk=journal_bytes + object_bytes,
                detail={"in_flight": str(len(self._disk.in_flight))},
            )

        return await self._read("stats", count)

    async def _write(self, call: str, effect: Callable[[], Result]) -> Result | Unavailable | OutcomeUnknown:
        if self._faults is None:
            return effect()
        match await self._faults.before(call):
            case None:
                result = effect()
                await self._faults.after(call)
                return result
            case Refuse(unavailable):
                return unavailable
            case LoseAnswer():
                effect()
                await self._faults.after(call)
                return OutcomeUnknown(f"{call}: the answer was lost")
            case LandLater():
                self._faults.in_flight(InFlight(self._disk, call, effect))
                await self._faults.after(call)
                return OutcomeUnknown(f"{call}: no answer, the request may still be on its way")

    async def _read(self, call: str, effect: Callable[[], Result]) -> Result:
        if self._faults is None:
            return effect()
        match await self._faults.before(call):
            case None:
                result = effect()
                await self._faults.after(call)
                return result
            case Refuse(unavailable):
                raise StoreUnreachable(f"{call}: {unavailable.detail}", unavailable.retry_after_s)
            case LoseAnswer() | LandLater():
                await self._faults.after(call)
                raise StoreUnreachable(f"{call}: the answer was lost")


async def _chunks(rows: list[ObjectRow]) -> AsyncIterator[list[ObjectRow]]:
    for start in range(0, len(rows), CHUNK_ROWS):
        yield rows[start : start + CHUNK_ROWS]
