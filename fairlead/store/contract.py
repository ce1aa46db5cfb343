"""The one contract all store engines share, and the records that cross it. Owns no behaviour.

An engine keeps three things for one plane: a *head* (who leads, how far the journal reaches), a *journal* of one blob per
batch, and *objects*, the materialised state behind the journal. It never reads a blob, never makes an id or a time, and
decides one thing only: whether a batch still follows the head. Called by the authority, by `fairlead store` and by nobody else.

Positions count effects, not batches: a batch covers `first..last`, so every changed object has a revision of its own and a
watch that was cut in the middle of a batch resumes exactly (docs/adr/0005).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final, Protocol

import msgspec

# Raised by one whenever an engine's tables, keys or the journal's blobs change shape. An engine refuses a store
# whose format is newer than this, and migrates an older one when it opens it.
FORMAT = 1

# P2: a batch never exceeds these; etcd's default request limit (1.5 MiB) is the reason for the first.
BATCH_BYTES_MAX = 1024 * 1024
BATCH_COMMANDS_MAX = 2000

NO_HASH = b"\0" * 32  # The chain's value before the first batch.

ObjectRow = tuple[str, int, bytes]  # key, position that wrote it, encoded object


class Head(msgspec.Struct, frozen=True, gc=False):
    """Where a store stands. `holder` is unique for each acquisition, so no two leaders ever share a fence."""

    format: int
    incarnation: int
    epoch: int
    holder: str
    renewals: int
    position: int
    hash: bytes
    materialised: int  # objects hold the state at least up to here
    truncated: int  # the journal starts after this position
    anchor: bytes  # what the authority signed when it truncated; opaque to the engine

    def fence(self) -> Fence:
        return Fence(self.incarnation, self.epoch, self.holder)

    def sign_of_life(self) -> tuple[Fence, int, int]:
        """What a living leader changes. A standby watches it, and an acquire must find it as it was seen."""
        return self.fence(), self.renewals, self.position


class Fence(msgspec.Struct, frozen=True, gc=False):
    """Proof of leadership. Every write carries it and an engine compares all three fields."""

    incarnation: int
    epoch: int
    holder: str


class Batch(msgspec.Struct, frozen=True, gc=False):
    """One journal row. `hash` is sha256(previous || blob), so it names the batch and the whole history before it."""

    first: int
    last: int
    previous: bytes
    hash: bytes
    blob: bytes


# What a commit can come to (P1). Committed and AlreadyThere mean durable. Superseded, Fenced and Unavailable mean that *this*
# submission is absent for ever; of an earlier one that ended in OutcomeUnknown only AlreadyThere or Superseded tell. After
# OutcomeUnknown the only safe move is to commit the same batch again.
class Committed(msgspec.Struct, frozen=True, gc=False):
    pass


class AlreadyThere(msgspec.Struct, frozen=True, gc=False):
    pass


class Superseded(msgspec.Struct, frozen=True, gc=False):
    """Another batch holds this position under the same fence. Only a bug or a lost tail leads here."""

    head: Head


class Fenced(msgspec.Struct, frozen=True, gc=False):
    head: Head


STORE_LIMIT: Final = "StoreLimit"  # why a store is unavailable that has as many objects as it may: deletions it takes


class Unavailable(msgspec.Struct, frozen=True, gc=False):
    """Certainly not written: the store refused (disk full, read-only) or was never reached."""

    reason: str
    detail: str
    retry_after_s: float = 1.0


class OutcomeUnknown(msgspec.Struct, frozen=True, gc=False):
    """Sent, and no answer that settles it. The write may still land, even after a reader has seen nothing."""

    detail: str


class Contended(msgspec.Struct, frozen=True, gc=False):
    """Somebody else acquired first; here is what the head says now."""

    head: Head


CommitResult = Committed | AlreadyThere | Superseded | Fenced | Unavailable | OutcomeUnknown
AcquireResult = Fence | Contended | Unavailable | OutcomeUnknown
FencedWriteResult = Committed | Fenced | Unavailable | OutcomeUnknown
MaterialiseResult = Committed | Superseded | Fenced | Unavailable | OutcomeUnknown


class Compacted(msgspec.Struct, frozen=True, gc=False):
    """The journal no longer reaches back that far; load the objects instead."""

    truncated: int


class Checkpoint(msgspec.Struct, frozen=True):
    """The objects at one consistent point. `position` may be older than some rows (an engine may materialise in pieces);
    applying the journal after `position`, in order, always gives the state at the head."""

    head: Head
    position: int
    chunks: AsyncIterator[list[ObjectRow]]


class StoreError(Exception):
    """A store that cannot be used as it is. The message says what to do next."""


class FormatTooNew(StoreError):
    pass


class Corrupt(StoreError):
    """Something the store gave back cannot be what was written. `where` names the row."""

    def __init__(self, where: str, detail: str) -> None:
        super().__init__(f"{where}: {detail}. The store is damaged; restore a backup with `fairlead store restore`")
        self.where = where


class StoreUnreachable(StoreError):
    """A read failed. Reads have no outcome to resolve, so this is an exception with a delay, not a result."""

    def __init__(self, detail: str, retry_after_s: float = 1.0) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class StoreStats(msgspec.Struct, frozen=True):
    engine: str
    objects: int
    journal_batches: int
    journal_bytes: int
    bytes_on_disk: int
    detail: dict[str, str]


class Store(Protocol):
    """Writes answer with one of their results and never raise for what the world does; reads raise StoreUnreachable or Corrupt.

    One writer task per store object: `commit`, `materialise`, `truncate` and `renew` are not called concurrently with
    themselves, but reads and `renew` may run beside a commit.
    """

    async def open(self) -> Head:
        """Connects, creates an empty store where there is none, checks the format (FormatTooNew)."""

    async def close(self) -> None: ...

    async def head(self) -> Head:
        """Linearizable: never older than any commit or acquire that was answered, by whomever, before this call."""

    async def acquire(self, holder: str, observed: Head) -> AcquireResult:
        """Becomes leader with epoch = observed.epoch + 1 if the head still shows what was observed: the same fence, the same
        `renewals`, the same `position`. Without the last two, a renewal or a commit that landed since the observation would
        let the old leader trust itself for another lease while the new one serves (docs/commit-protocol.md, rule 8)."""

    async def renew(self, fence: Fence) -> FencedWriteResult:
        """Raises `renewals` by one if the fence holds."""

    async def resign(self, fence: Fence) -> FencedWriteResult:
        """Gives leadership up: the head's holder becomes empty, so that the next leader need not wait for a lease."""

    async def leader_gone(self) -> bool:
        """True only if the engine can prove that the process which acquired last is dead (a lock that died with it).
        Most cannot, and say False: then only the lease's silence tells."""

    async def commit(self, fence: Fence, batch: Batch) -> CommitResult:
        """Atomic and durable. Succeeds only if the fence is the head's and the head is at batch.first - 1 with batch.previous
        as its hash. Where it does not: Fenced if the fence differs, AlreadyThere if the row at batch.first has this hash,
        Superseded if another row has it or the head is behind."""

    def commit_on_the_spot(self, fence: Fence, batch: Batch) -> CommitResult | None:
        """The same as `commit`, here and now on the caller's thread, if that takes no longer than handing it over: well below a
        millisecond as a rule. None: nothing was tried, use `commit`. What is in doubt is settled by `commit`, as after itself."""

    async def tail(self, after: int, limit_bytes: int = 4 * BATCH_BYTES_MAX) -> list[Batch] | Compacted:
        """The batches with first > after, in order, at least one if there is one, else an empty list.
        Compacted if after < truncated."""

    async def load(self) -> Checkpoint:
        """Its head is as `head` would say it: no older than anything that was answered before this call."""

    async def materialise(
        self, fence: Fence, upto: int, rows: Sequence[ObjectRow], deleted: Sequence[str], as_of: int = 0
    ) -> MaterialiseResult:
        """Writes rows, removes deleted keys and sets `materialised` to `upto`, all under the fence. Rows and deletions are
        disjoint, and the state at `as_of` (at `upto` where nothing is said; later in all pieces but the last of several).
        Superseded, and nothing is written, where the head is behind `as_of`: the tail they came from is lost, and objects beyond
        the head would leave a store on which nobody can start. The fence makes the position enough: whoever lost a tail
        under it can commit nothing more, so the head cannot come back to `as_of` with another history.
        Idempotent. Durability may lag behind: a loss must take `materialised` back with it."""

    async def truncate(self, fence: Fence, through: int, anchor: bytes) -> FencedWriteResult:
        """Forgets journal batches with last <= through, keeping the anchor; nothing at all where `through` is beyond
        `materialised`, because the anchor speaks of `through` and of no earlier place."""

    async def set_incarnation(self, fence: Fence, incarnation: int) -> FencedWriteResult:
        """Raises the incarnation under the fence; the caller's fence afterwards has the new one."""

    async def seed(self, head: Head, chunks: AsyncIterator[list[ObjectRow]]) -> None:
        """Fills an *empty* store (restore). Raises StoreError if it is not empty. The head is written last, so an
        interrupted seed leaves a store that still counts as empty and can be seeded again."""

    async def stats(self) -> StoreStats: ...
