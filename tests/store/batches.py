"""Chained batches and object rows for the store tests. Pure; called by every test module beside it."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence

from fairlead.store.contract import (
    NO_HASH,
    Batch,
    Checkpoint,
    Committed,
    Compacted,
    Fence,
    Head,
    ObjectRow,
    OutcomeUnknown,
    Store,
)

ODD_KEYS = [
    "Ärger/工作負載/🚢",
    'it\'s "quoted" \\ and % and _ and ;--',
    "/a/b c/\t\n/../",
    '[1, {"json": null}]',
    "x" * 1000,
    " ",
    "null",
    "1",
    "e\u0301",  # decomposed, beside its composed twin: no engine may normalise
    "\u00e9",
    "a",
    "A",
]
ODD_VALUES = [b"", b"\0", bytes(range(256)), b"\xff" * 1000, b"'; DROP TABLE head; --", b"[1,2]", b"null", b"\0" * 10]


def chained(previous: bytes, blob: bytes) -> bytes:
    return hashlib.sha256(previous + blob).digest()


def batch_after(head: Head | Batch | None, blob: bytes = b"blob", effects: int = 1) -> Batch:
    """The batch that follows a head or another batch; None is the empty journal."""
    if head is None:
        position, previous = 0, NO_HASH
    else:
        position, previous = (head.last if isinstance(head, Batch) else head.position), head.hash
    return Batch(position + 1, position + effects, previous, chained(previous, blob), blob)


def chain(count: int, after: Head | Batch | None = None, effects: int = 1) -> list[Batch]:
    batches: list[Batch] = []
    last = after
    for index in range(count):
        batch = batch_after(last, b"batch %d" % index, effects)
        batches.append(batch)
        last = batch
    return batches


async def lead(store: Store, holder: str = "leader") -> Fence:
    """Acquires from whatever the head says now. A store that took longer than it was given may have done it: the head tells."""
    while True:
        fence = await store.acquire(holder, await store.head())
        if isinstance(fence, OutcomeUnknown):
            head = await store.head()
            if head.holder != holder:
                continue
            fence = head.fence()
        assert isinstance(fence, Fence), fence
        return fence


async def collect(checkpoint: Checkpoint) -> dict[str, tuple[int, bytes]]:
    rows: dict[str, tuple[int, bytes]] = {}
    async for chunk in checkpoint.chunks:
        for key, position, value in chunk:
            assert key not in rows, f"{key} twice in one load"
            rows[key] = (position, bytes(value))
    return rows


async def whole_tail(store: Store, after: int = 0) -> list[Batch]:
    found: list[Batch] = []
    while True:
        some = await store.tail(found[-1].last if found else after)
        assert not isinstance(some, Compacted), some
        if not some:
            return found
        found += some


async def in_chunks(*chunks: Sequence[ObjectRow]) -> AsyncIterator[list[ObjectRow]]:
    for chunk in chunks:
        yield list(chunk)


async def committed(store: Store, fence: Fence, count: int, effects: int = 1) -> list[Batch]:
    """`count` batches after the head; the test fails if one is not committed."""
    batches = chain(count, await store.head(), effects)
    for batch in batches:
        assert await store.commit(fence, batch) == Committed()
    return batches
