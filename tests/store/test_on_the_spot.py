"""Commits on the caller's thread: only where nothing else can hold the caller up. (That they do what other commits do is for
the contract suite, which runs over an engine of its own for them.)"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from fairlead.store.contract import Batch, CommitResult, Committed, Fence
from fairlead.store.sqlite import SqliteStore
from tests.store.batches import batch_after, committed, lead

PATIENCE_S = 600.0


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    made = SqliteStore(tmp_path / "plane.db", busy_timeout_s=PATIENCE_S)
    await made.open()
    yield made
    await made.close()


async def in_time(store: SqliteStore, fence: Fence, batch: Batch) -> CommitResult:
    """The thread says that it is done a moment before it is free."""
    while (result := store.commit_on_the_spot(fence, batch)) is None:
        await asyncio.sleep(0.001)
    return result


async def test_it_waits_for_no_other_process(tmp_path: Path, store: SqliteStore) -> None:
    fence = await lead(store)
    (first,) = await committed(store, fence, 1)
    second = batch_after(first)
    assert await in_time(store, fence, second) == Committed()
    blocker = apsw.Connection(str(tmp_path / "plane.db"))
    blocker.execute("BEGIN IMMEDIATE")
    third = batch_after(second)
    for _ in range(3):  # at once each time: the store's own patience would outlast any test
        assert store.commit_on_the_spot(fence, third) is None
    blocker.execute("ROLLBACK")
    blocker.close()
    assert await in_time(store, fence, third) == Committed()
    assert (await store.head()).position == third.last


async def test_it_carries_no_pages_of_others_to_the_disk(store: SqliteStore) -> None:
    """What the materialiser wrote without an fsync comes with the next one, and that may take long."""
    fence = await lead(store)
    (first,) = await committed(store, fence, 1)
    second = batch_after(first)
    assert await in_time(store, fence, second) == Committed()
    await store.materialise(fence, 2, [("k", 1, b"v")], [])
    third = batch_after(second)
    for _ in range(20):  # more than the moment until the thread is free
        assert store.commit_on_the_spot(fence, third) is None
        await asyncio.sleep(0.001)
    assert await store.commit(fence, third) == Committed()
    assert await in_time(store, fence, batch_after(third)) == Committed()


async def test_it_gives_way_to_a_write_under_way_on_the_thread(store: SqliteStore) -> None:
    fence = await lead(store)
    (first,) = await committed(store, fence, 1)
    second = batch_after(first)
    assert await in_time(store, fence, second) == Committed()
    seen: list[CommitResult | None] = []
    await store._run(store._write_thread, lambda: seen.append(store.commit_on_the_spot(fence, batch_after(second))))
    assert seen == [None]
    assert (await store.head()).position == second.last
