"""Loading and following: a checkpoint, then the journal, batch by batch, with the chain of hashes checked at every step.

Used by a starting server, by a standby that keeps warm, and by a new leader that catches up. Reads the store, writes only the
state in memory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from fairlead.authority.hot import hot_of
from fairlead.authority.state import CLOCK, Rec, State
from fairlead.model.anchor import decode_anchor
from fairlead.model.ids import key, split_key
from fairlead.model.journal import Blob, chain_hash, decode_blob
from fairlead.ports import Clock
from fairlead.store.contract import NO_HASH, Batch, Compacted, Corrupt, Fence, Head, ObjectRow, Store, StoreUnreachable

log = logging.getLogger(__name__)

CLOCK_KEY = key(CLOCK, "", "self")
# How long a tail may lack what the head names before the store counts as damaged. A head is linearizable, a tail need not be:
# it may come from a replica that is a moment behind.
TAIL_LAG_S = (0.05, 0.1, 0.2, 0.3, 0.5, 0.5, 0.5, 0.5)


class Forked(Exception):
    """The store's history is not the one in memory: it lost a tail, or was restored. Memory must be dropped (P4, P6)."""


class Behind(Forked):
    """Memory ends before the journal begins: it must be dropped, but nothing was lost."""


class Follower:
    def __init__(self, store: Store, clock: Clock, state: State, published: Callable[[list[Rec]], None]) -> None:
        self._store = store
        self._clock = clock
        self.state = state
        self._published = published  # watchers on a standby see what the leader commits
        self.chain = b""
        self.last_ms = 0  # plane time of the last batch seen
        self.seen_at = 0.0  # our monotonic clock when we saw it happen; 0: it happened before we came
        self._live = False  # false while catching up on what happened before we came
        self._begun: Fence | None = None  # who led when this was loaded

    def saw(self, chain: bytes, time_ms: int) -> None:
        """A batch of our own became durable just now."""
        self.chain, self.last_ms, self.seen_at = chain, time_ms, self._clock.monotonic()

    def plane_ms(self) -> int:
        """Plane time, as a standby knows it and a new leader continues it (P5): from the last batch it saw happen; who has seen
        none happen takes the later of the last batch and the wall clock."""
        if self.seen_at:
            return self.last_ms + max(0, int((self._clock.monotonic() - self.seen_at) * 1000))
        return max(self.last_ms, int(self._clock.wall() * 1000))

    async def load(self) -> Head:
        """Fills the empty state from the store's objects. The journal after them comes with `catch_up`."""
        state = self.state
        checkpoint = await self._store.load()
        if checkpoint.position > checkpoint.head.position:
            raise Corrupt("objects", f"they are at {checkpoint.position}, beyond the head at {checkpoint.head.position}")
        async for chunk in checkpoint.chunks:
            rows = [row for row in chunk if row[0] != CLOCK_KEY]
            if len(rows) < len(chunk):
                self.last_ms = next(int.from_bytes(raw, "big") for name, _, raw in chunk if name == CLOCK_KEY)
            self._load(rows, checkpoint.position)
            await self._clock.sleep(0)
        state.loaded(checkpoint.position)
        self.chain = b""  # not known before the first batch; with none to come, the head's own is taken
        self._live, self._begun = False, checkpoint.head.fence()
        return checkpoint.head

    def _load(self, rows: list[ObjectRow], at_most: int) -> None:
        try:
            self.state.load(rows, at_most)
        except (ValueError, KeyError):  # msgspec's errors are ValueErrors; look for the row that did it
            for row in rows:
                try:
                    plural, _, _ = split_key(row[0])
                    hot_of(plural, row[2])
                except (ValueError, KeyError) as error:
                    raise Corrupt(f"object {row[0]}", f"it cannot be read: {error}") from error
            raise

    async def catch_up(self, head: Head) -> int:
        """Applies the journal up to the head. Raises Forked when it does not continue what is in memory."""
        state = self.state
        if head.position < state.position:
            raise Forked(f"the store is at {head.position}, memory at {state.position}: it lost its tail")
        if not self.chain and head.fence() != self._begun:
            # Objects carry no hash. What was loaded may be of a tail that was lost since, and what follows would be taken for its
            # continuation: nothing could ever show that memory is of two histories.
            raise Behind("another one leads since the objects were loaded: they may be of another history")
        applied = 0
        while state.position < head.position:
            batches = await following(self._store, self._clock, state.position, head)
            if isinstance(batches, Compacted):
                raise Behind(f"the journal starts after {batches.truncated}, memory is at {state.position}")
            for batch in batches:
                if batch.last > head.position:
                    return applied
                await self._apply_checked(batch)
                applied += 1
            await self._clock.sleep(0)
        if self.chain and head.position == state.position and head.hash != self.chain:
            differs = self._other_history("head", f"at position {head.position} the store has another history than memory")
            raise await self._of_one_history(differs)
        if head.position == state.position:
            self.chain = head.hash
            self._live = True
        return applied

    async def _apply_checked(self, batch: Batch) -> None:
        try:
            self.apply(batch)
        except Corrupt as damage:
            raise await self._of_one_history(damage) from None

    async def _of_one_history(self, found: Forked | Corrupt) -> Forked | Corrupt:
        """What does not fit together, and was read under two leaders, is no damage: a tail was lost in between."""
        if isinstance(found, Forked) or (await self._store.head()).fence() == self._begun:
            return found
        return Forked(f"{found}; but another one leads since this was read")

    def apply(self, batch: Batch) -> None:
        state = self.state
        where = f"journal row {batch.first}"
        if batch.first != state.position + 1:
            raise self._other_history(where, f"it does not follow {state.position}: a row is missing between them")
        if self.chain and batch.previous != self.chain:
            raise self._other_history(where, "it continues another history than the row before it")
        if chain_hash(batch.previous, batch.blob) != batch.hash:
            raise Corrupt(where, "its content does not match its hash")
        blob = _decode(batch)
        recs: list[Rec] = []
        try:
            for entry in blob.entries:
                for object_key, raw in entry.effects:
                    plural, tenant, name = split_key(object_key)
                    recs.append(state.apply(plural, tenant, name, raw))
        except (ValueError, KeyError) as error:
            raise Corrupt(where, f"its effect at {state.position} cannot be read: {error}") from error
        if state.position != batch.last:
            raise Corrupt(where, f"it holds effects up to {state.position}, not {batch.last}")
        state.confirm(batch.last)
        self._published(recs)
        self.chain = batch.hash
        self.last_ms = blob.header.time_ms
        self.seen_at = self._clock.monotonic() if self._live else 0.0

    def _other_history(self, where: str, detail: str) -> Forked | Corrupt:
        """Memory that was once level with the store and is not any more saw a history that is gone. Memory that comes from
        this very store, and cannot be brought level with it, shows that the store is damaged."""
        return Forked(f"{where}: {detail}") if self._live else Corrupt(where, detail)


async def following(store: Store, clock: Clock, after: int, head: Head) -> list[Batch] | Compacted:
    """What the journal has after a position that is before the head: at least one batch. Raises Forked where the store has gone
    back behind that head meanwhile, or may have, Corrupt where it has not."""
    for wait_s in (*TAIL_LAG_S, 0.0):
        batches = await store.tail(after)
        if isinstance(batches, Compacted) or batches:
            return batches
        log.info("the journal ends at %d, the head is at %d: a stale read, or a row is missing", after, head.position)
        await clock.sleep(wait_s)
    now = await store.head()
    if now.position < head.position:
        raise Forked(f"the store was at {head.position} and is at {now.position}: it lost its tail")
    if now.fence() != head.fence():  # it may have lost its tail, and grown beyond that place again
        raise Forked(f"the journal ended at {after} when the head was at {head.position}; another one leads since")
    begins = await _across(store, after, now)
    if begins is not None:
        raise Forked(f"position {after} lies within the batch that begins at {begins}: what was seen there is another history")
    raise Corrupt(f"journal after {after}", f"the head is at {head.position}, but nothing follows")


async def _across(store: Store, after: int, head: Head) -> int | None:
    """Where the batch begins that holds this position and goes on beyond it; None: there is none. Whoever saw that position end a
    batch saw a history that the store has lost, and has grown beyond since. Reads what there is: nobody goes on from here."""
    position = head.truncated
    while position < after:
        batches = await store.tail(position)
        if isinstance(batches, Compacted) or not batches:
            return None
        for batch in batches:
            if batch.first <= after < batch.last:
                return batch.first
        position = batches[-1].last
    return None


async def check_history(store: Store, clock: Clock) -> None:
    """Reads the whole journal that the store still has, from where it was cut to its head, and raises Corrupt if a row is damaged
    or missing. Loading would not notice: it begins where the objects end, and a start must not go well on luck."""
    while True:
        head: Head | None = None
        try:
            head = await store.head()
            await _check_history(store, clock, head)
        except StoreUnreachable as error:  # A start waits for its store; the tail at least is checked when it is loaded.
            log.warning("the journal could not be checked: %s", error)
        except Forked as fork:
            log.warning("the journal is checked again: %s", fork)
            continue
        except Corrupt as damage:
            if head is None or (await store.head()).fence() == head.fence():
                raise
            log.warning("the journal is checked again, because another one leads since: %s", damage)
            continue
        return


async def _check_history(store: Store, clock: Clock, head: Head) -> None:
    position, chain = head.truncated, _hash_at_cut(head)
    while position < head.position:
        batches = await following(store, clock, position, head)
        if isinstance(batches, Compacted):
            return  # A leader cut it off under us: it is in use, and has been checked by whoever started on it.
        for batch in batches:
            where = f"journal row {batch.first}"
            if batch.first != position + 1:
                raise Corrupt(where, f"the row that starts at {position + 1} is missing before it")
            if chain and batch.previous != chain:
                raise Corrupt(where, "it continues another history than the row before it")
            if chain_hash(batch.previous, batch.blob) != batch.hash:
                raise Corrupt(where, "its content does not match its hash")
            position, chain = batch.last, batch.hash
            if position == head.position and chain != head.hash:
                raise Corrupt("head", f"it names another batch at {position} than the journal has")
        await clock.sleep(0)


def _hash_at_cut(head: Head) -> bytes:
    if not head.truncated:
        return NO_HASH
    try:
        anchor = decode_anchor(head.anchor)
    except ValueError as error:
        raise Corrupt("anchor", f"what the cut journal left behind cannot be read: {error}") from error
    if anchor.position != head.truncated:
        raise Corrupt("anchor", f"it speaks of position {anchor.position}, the journal was cut at {head.truncated}")
    return anchor.hash


def _decode(batch: Batch) -> Blob:
    try:
        return decode_blob(batch.blob)
    except Exception as error:
        raise Corrupt(f"journal row {batch.first}", f"it cannot be read: {error}") from error
