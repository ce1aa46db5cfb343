"""The whole of a store at one head: its objects with the journal's tail laid over them. Engine-independent, read only.

Owns the reading of a tail outside the authority, with every hash and count checked on the way. Never judges, never writes.
Called by backup.py, verify.py, compact.py and `fairlead store status`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from fairlead.model.journal import Blob, chain_hash, decode_blob
from fairlead.store.contract import Batch, Compacted, Corrupt, Head, ObjectRow, Store, StoreUnreachable

# The materialiser's own row: the plane time of the last batch the objects hold. No effect of any command writes it.
CLOCK_KEY = "clock//self"
ATTEMPTS_MAX = 5  # A leader cuts its journal every few seconds at most; five losses in a row are no accident.

Overlay = dict[str, tuple[int, bytes | None]]  # key -> position and newest image, None where it was deleted


class Tail(msgspec.Struct, frozen=True):
    """What the journal after some position comes to: the newest image of each key, and the time and hash at its end."""

    overlay: Overlay
    time_ms: int
    batches: int


class Snapshot:
    """`chunks` can be read once; `time_ms` and `tables` are complete when it is read to its end."""

    def __init__(self, head: Head, rows: AsyncIterator[list[ObjectRow]], tail: Tail) -> None:
        self.head = head
        self.time_ms = tail.time_ms
        self.tables: dict[str, int] = {}
        self._rows = rows
        self._overlay = dict(tail.overlay)
        if tail.batches:
            self._overlay[CLOCK_KEY] = (head.position, tail.time_ms.to_bytes(8, "big"))

    async def chunks(self) -> AsyncIterator[list[ObjectRow]]:
        overlay = self._overlay
        async for chunk in self._rows:
            yield self._counted([row for row in chunk if row[0] not in overlay])
        yield self._counted([(key, position, raw) for key, (position, raw) in overlay.items() if raw is not None])

    def _counted(self, rows: list[ObjectRow]) -> list[ObjectRow]:
        tables = self.tables
        for key, _, raw in rows:
            if key == CLOCK_KEY:
                self.time_ms = int.from_bytes(raw, "big")
            else:
                table = key.partition("/")[0]
                tables[table] = tables.get(table, 0) + 1
        return rows


async def take_snapshot(store: Store) -> Snapshot:
    """The store at the head it has now. Works beside a leader: what that one cuts off meanwhile only makes it start again."""
    for _ in range(ATTEMPTS_MAX):
        checkpoint = await store.load()
        tail = await fold_tail(store, checkpoint.position, checkpoint.head)
        if tail is not None:
            return Snapshot(checkpoint.head, checkpoint.chunks, tail)
        await close_rows(checkpoint.chunks)
    raise StoreUnreachable(f"the journal was cut off {ATTEMPTS_MAX} times while it was read; try again")


async def close_rows(rows: AsyncIterator[list[ObjectRow]]) -> None:
    """Gives a load's snapshot up before its end; engines differ in what they hand out."""
    close = getattr(rows, "aclose", None)
    if close is not None:
        await close()


async def fold_tail(store: Store, after: int, head: Head) -> Tail | None:
    """The journal after `after` up to the head; None when it was truncated meanwhile. Raises Corrupt where it does not hold."""
    overlay: Overlay = {}
    position, chain, time_ms, count = after, b"", 0, 0
    while position < head.position:
        batches = await store.tail(position)
        if isinstance(batches, Compacted):
            return None
        if not batches:
            raise Corrupt(f"journal after {position}", f"the head is at {head.position}, but nothing follows")
        for batch in batches:
            if position >= head.position:
                break  # A leader goes on; what came after the head we read is not ours.
            blob = open_batch(batch, position, chain)
            for at, (key, raw) in enumerate(effects_of(blob), batch.first):
                overlay[key] = (at, raw)
            position, chain, time_ms, count = batch.last, batch.hash, blob.header.time_ms, count + 1
    if position != head.position or (chain and chain != head.hash):
        raise Corrupt(f"journal row before {position}", f"it does not end where the head does, at {head.position}")
    return Tail(overlay, time_ms, count)


def open_batch(batch: Batch, after: int, chain: bytes) -> Blob:
    """The batch's content, if it is what must come at this place. An empty chain means that the hash before it is not known."""
    where = f"journal row {batch.first}"
    if batch.first != after + 1:
        raise Corrupt(where, f"the row that starts at {after + 1} is missing before it")
    if chain and batch.previous != chain:
        raise Corrupt(where, "it continues another history than the row before it")
    if chain_hash(batch.previous, batch.blob) != batch.hash:
        raise Corrupt(where, "its content does not match its hash")
    try:
        blob = decode_blob(batch.blob)
    except Exception as error:
        raise Corrupt(where, f"it cannot be read: {error}") from error
    found = sum(len(entry.effects) for entry in blob.entries)
    if found != batch.last - batch.first + 1:
        raise Corrupt(where, f"it holds {found} effects, but covers {batch.first}..{batch.last}")
    return blob


def effects_of(blob: Blob) -> list[tuple[str, bytes | None]]:
    return [effect for entry in blob.entries for effect in entry.effects]
