"""SQLite's write-ahead log as the store keeps it: bounded while commits go on, and long before anybody waits for it."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from fairlead.store.contract import Committed
from fairlead.store.sqlite import CHECKPOINT_FALLBACK_FACTOR, PAGE_BYTES, SqliteStore
from tests.store.batches import batch_after, chain, collect, committed, lead, whole_tail


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "plane.db"


async def test_checkpoints_keep_the_log_bounded_while_commits_go_on(path: Path) -> None:
    limit = 256 * 1024
    store = SqliteStore(path, checkpoint_bytes=limit)
    await store.open()
    fence = await lead(store)
    last = None
    for number in range(400):
        last = batch_after(last, b"%d" % number * 4000)
        assert await store.commit(fence, last) == Committed()
        if number % 20 == 0:
            await store.stats()  # gives the upkeep thread a turn, however busy the machine is
    log_bytes = int((await store.stats()).detail["wal_bytes"])
    written = sum(len(batch.blob) for batch in await whole_tail(store))
    # Behind the fallback there is what is committed while a checkpoint runs; twice the bound leaves room for that.
    assert log_bytes < 2 * CHECKPOINT_FALLBACK_FACTOR * limit < written
    await store.close()


async def test_the_log_shrinks_again_after_a_long_load(path: Path) -> None:
    limit = 64 * 1024
    store = SqliteStore(path, checkpoint_bytes=limit)
    await store.open()
    fence = await lead(store)
    await committed(store, fence, 1)
    await store.materialise(fence, 1, [(f"{n}", 1, b"v" * 100) for n in range(5000)], [])
    checkpoint = await store.load()
    await anext(checkpoint.chunks)
    for batch in chain(50, await store.head()):
        assert await store.commit(fence, batch) == Committed()
    await collect(checkpoint)
    for _ in range(3):
        assert await store.commit(fence, batch_after(await store.head())) == Committed()
        await store.stats()  # stands behind the checkpoint that the commit asked for
    connection = apsw.Connection(str(path))
    connection.execute("SELECT * FROM head").fetchall()  # opens the log; without it a checkpoint says -1
    frames, _ = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    connection.close()
    assert 0 <= frames * PAGE_BYTES < limit
    await store.close()


async def test_a_log_that_is_stretched_is_written_within_its_length_from_its_beginning(path: Path) -> None:
    log, length = path.with_name(path.name + "-wal"), 256 * 1024
    store = SqliteStore(path, log_bytes=length)
    await store.open()
    fence = await lead(store)
    stretched = log.stat().st_size
    assert length * 0.9 < stretched < length * 1.1
    last = None
    for number in range(9):
        last = batch_after(last, b"%d" % number)
        assert await store.commit(fence, last) == Committed()
        assert store._writer.wal_pages * PAGE_BYTES < stretched / 2
    assert log.stat().st_size == stretched, "a commit that makes it longer takes twice as long"
    assert len(await whole_tail(store)) == 9
    await store.close()


async def test_a_log_that_is_long_enough_is_left_as_it_is(path: Path) -> None:
    store, other = SqliteStore(path, log_bytes=64 * 1024), SqliteStore(path, log_bytes=64 * 1024)
    await store.open()
    await lead(store)
    before = (await store.head()).renewals
    assert before > 0, "what it is stretched with is a sign of life"
    fence = await lead(other)
    assert (await other.head()).renewals == before
    assert await other.commit(fence, batch_after(None)) == Committed()
    for each in (store, other):
        await each.close()


async def test_who_is_deposed_while_it_stretches_the_log_writes_no_further_sign_of_life(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    old = await lead(store)
    await lead(store, "somebody else")
    before = await store.head()
    store._writer.stretch_log(old, 1 << 20)
    assert await store.head() == before
    await store.close()
