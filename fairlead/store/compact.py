"""Brings a store's objects up to its head and cuts the journal behind them, for a store that no server leads.

Owns a short leadership: it acquires like any leader (P4), so it can never run beside one, and gives it back at the end. Writes no
batch and decides nothing; what was acknowledged stays as it is. Called by `fairlead store compact`.
"""

from __future__ import annotations

import msgspec

from fairlead.model.anchor import sign_anchor
from fairlead.model.journal import decode_blob
from fairlead.ports import Clock, Ids
from fairlead.store.contract import Committed, Fence, Fenced, Head, ObjectRow, OutcomeUnknown, Store, StoreError, StoreUnreachable
from fairlead.store.snapshot import CLOCK_KEY, Tail, fold_tail

LEASE_SILENCE_S = 10.1  # A leader's lease and one per cent for the clocks (P4), as a standby waits before it takes over.
POLL_S = 0.25
RENEW_S = 3.0
CHUNK_ROWS = 1000  # One statement of this size holds the store's writer for about five milliseconds.


class LeaderIsLive(StoreError):
    """Somebody leads this store. Nothing was changed."""


class Deposed(StoreError):
    """A server took over while we worked. What was written until then is right and stays."""


class Outcome(msgspec.Struct, frozen=True):
    position: int
    epoch: int
    rows_materialised: int
    batches_removed: int
    journal_bytes_before: int
    journal_bytes_after: int


async def compact(
    store: Store, clock: Clock, ids: Ids, *, anchor_key: bytes = b"", keep_after: int | None = None,
    silence_s: float = LEASE_SILENCE_S,
) -> Outcome:  # fmt: skip
    """`keep_after`: the journal after this position stays (an archive has not got it yet). None: all of it may go."""
    before = await store.stats()
    leading = _Leading(store, clock, await _acquire(store, clock, ids, silence_s))
    try:
        position, written = await leading.compact(anchor_key, keep_after)
    finally:
        # Also when it failed: a server that wants to start need not wait until our lease has run out.
        await store.resign(leading.fence)
    after = await store.stats()
    return Outcome(
        position=position,
        epoch=leading.fence.epoch,
        rows_materialised=written,
        batches_removed=before.journal_batches - after.journal_batches,
        journal_bytes_before=before.journal_bytes,
        journal_bytes_after=after.journal_bytes,
    )


async def _acquire(store: Store, clock: Clock, ids: Ids, silence_s: float) -> Fence:
    head = await _wait_silent(store, clock, silence_s)
    holder = f"store-compact/{ids.token()}"
    result = await store.acquire(holder, head)
    if isinstance(result, OutcomeUnknown):
        head = await store.head()  # It may have landed: the holder is ours alone, so the head tells.
        result = head.fence() if head.holder == holder else result
    if not isinstance(result, Fence):
        raise LeaderIsLive(f"leadership could not be acquired: {result}")
    return result


async def _wait_silent(store: Store, clock: Clock, silence_s: float) -> Head:
    """The head of a store that nobody leads, or whose leader gave no sign of life for a whole lease."""
    head = await store.head()
    until = clock.monotonic() + silence_s
    while head.holder and not await store.leader_gone():
        now = await store.head()
        if (now.epoch, now.holder, now.renewals, now.position) != (head.epoch, head.holder, head.renewals, head.position):
            raise LeaderIsLive(
                f"{now.holder} leads this store (epoch {now.epoch}) and compacts it by itself; stop that server first"
            )
        if clock.monotonic() >= until:
            break
        await clock.sleep(POLL_S)
    return head


class _Leading:
    """Our short term: every write carries the fence, and the lease is renewed so that a standby does not step in."""

    def __init__(self, store: Store, clock: Clock, fence: Fence) -> None:
        self._store = store
        self._clock = clock
        self.fence = fence
        self._renewed = clock.monotonic()

    async def compact(self, anchor_key: bytes, keep_after: int | None) -> tuple[int, int]:
        """After the acquire, P4's order: the head, the tail up to it, and only then writes. (position, rows written)"""
        head = await self._store.head()
        if head.fence() != self.fence:
            raise Deposed(f"{head.holder} acquired epoch {head.epoch} meanwhile")
        tail = await fold_tail(self._store, head.materialised, head)
        if tail is None:
            raise Deposed("the journal was cut off by somebody else")
        written = await self._materialise(head, tail)
        await self._truncate(head.position if keep_after is None else min(keep_after, head.position), anchor_key)
        return head.position, written

    async def _materialise(self, head: Head, tail: Tail) -> int:
        if not tail.batches:
            return 0
        items = sorted(tail.overlay.items())
        for start in range(0, len(items), CHUNK_ROWS):
            await self._renew()
            chunk = items[start : start + CHUNK_ROWS]
            done = start + CHUNK_ROWS >= len(items)
            rows: list[ObjectRow] = [(key, at, raw) for key, (at, raw) in chunk if raw is not None]
            if done:
                rows.append((CLOCK_KEY, head.position, tail.time_ms.to_bytes(8, "big")))
            deleted = [key for key, (_, raw) in chunk if raw is None]
            upto = head.position if done else head.materialised
            _must(await self._store.materialise(self.fence, upto, rows, deleted, head.position))
        return len(items)

    async def _truncate(self, through: int, anchor_key: bytes) -> None:
        """Cuts after a whole batch, and signs exactly that place: so the batch that ends there is looked up first."""
        head = await self._store.head()
        position, hashed, time_ms = await self._last_batch(head, through)
        if position > head.truncated:
            _must(await self._store.truncate(self.fence, position, sign_anchor(anchor_key, position, hashed, time_ms)))

    async def _last_batch(self, head: Head, through: int) -> tuple[int, bytes, int]:
        found = (head.truncated, head.hash, 0)
        while found[0] < through:
            await self._renew()
            batches = await self._store.tail(found[0])
            if not isinstance(batches, list) or not batches:
                break
            for batch in batches:
                if batch.last > through:
                    return found
                found = (batch.last, batch.hash, decode_blob(batch.blob).header.time_ms)
        return found

    async def _renew(self) -> None:
        if self._clock.monotonic() - self._renewed > RENEW_S:
            self._renewed = self._clock.monotonic()
            _must(await self._store.renew(self.fence))


def _must(result: object) -> None:
    if isinstance(result, Fenced):
        raise Deposed(f"{result.head.holder} took over with epoch {result.head.epoch}; the store is whole, compact it later")
    if not isinstance(result, Committed):
        raise StoreUnreachable(f"the store did not answer as it should: {result}")
