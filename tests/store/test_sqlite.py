"""What only the SQLite engine can get wrong: its file, its lock, its log and its threads."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest
from msgspec.structs import replace

from fairlead.store.contract import (
    FORMAT,
    Batch,
    Committed,
    Corrupt,
    Fenced,
    FormatTooNew,
    StoreError,
    StoreUnreachable,
    Unavailable,
)
from fairlead.store.rules import EMPTY
from fairlead.store.sqlite import SqliteStore
from tests.store.batches import batch_after, collect, committed, in_chunks, lead

PAGE_BYTES = 4096
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "plane.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    made = SqliteStore(path)
    await made.open()
    yield made
    await made.close()


def execute(path: Path, *statements: str) -> None:
    connection = apsw.Connection(str(path))
    for statement in statements:
        connection.execute(statement)
    connection.close()


async def open_and_close(path: Path) -> None:
    store = SqliteStore(path)
    try:
        await store.open()
    finally:
        await store.close()


# --- the file


async def test_a_database_of_somebody_else_is_refused_and_left_alone(path: Path) -> None:
    execute(path, "CREATE TABLE theirs (x)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="not a Fairlead store"):
        await open_and_close(path)
    assert path.read_bytes() == before


async def test_a_database_with_another_application_id_is_refused(path: Path) -> None:
    execute(path, "PRAGMA application_id = 1234")
    with pytest.raises(StoreError, match="not a Fairlead store"):
        await open_and_close(path)


async def test_a_file_that_is_no_database_is_called_corrupt(path: Path) -> None:
    path.write_bytes(b"certainly not a database " * 1000)
    with pytest.raises(Corrupt, match=r"plane\.db"):
        await open_and_close(path)


async def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()
    await open_and_close(path)
    await open_and_close(path)


async def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnreachable, match="no-such-directory"):
        await open_and_close(tmp_path / "no-such-directory" / "plane.db")


async def test_a_file_whose_tables_are_newer_is_refused_before_they_are_read(path: Path) -> None:
    await open_and_close(path)
    execute(path, f"PRAGMA user_version = {FORMAT + 1}", "DROP TABLE head")
    with pytest.raises(FormatTooNew, match=f"format {FORMAT + 1}, this Fairlead reads up to {FORMAT}"):
        await open_and_close(path)


async def test_many_that_create_one_file_at_once_agree(path: Path) -> None:
    stores = [SqliteStore(path) for _ in range(6)]
    assert await asyncio.gather(*(store.open() for store in stores)) == [EMPTY] * 6
    for store in stores:
        await store.close()


async def test_a_store_that_was_never_opened_can_be_closed(path: Path) -> None:
    await SqliteStore(path).close()


# --- damage


async def three_batches(store: SqliteStore) -> list[Batch]:
    fence = await lead(store)
    batches = await committed(store, fence, 3)
    await store.materialise(fence, 3, [("a", 3, b"a")], [])
    return batches


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE journal SET blob = x'00' WHERE first = 2",
        "UPDATE journal SET hash = zeroblob(32) WHERE first = 2",
        "UPDATE journal SET previous = zeroblob(32) WHERE first = 2",
    ],
)
async def test_a_changed_journal_row_is_named(store: SqliteStore, path: Path, damage: str) -> None:
    batches = await three_batches(store)
    execute(path, damage)
    with pytest.raises(Corrupt, match="journal row 2"):
        await store.tail(0)
    assert await store.tail(2) == batches[2:]


async def test_a_missing_journal_row_is_noticed(store: SqliteStore, path: Path) -> None:
    await three_batches(store)
    execute(path, "DELETE FROM journal WHERE first = 2")
    with pytest.raises(Corrupt, match="journal row 3"):
        await store.tail(0)


async def test_a_missing_head_is_corrupt(store: SqliteStore, path: Path) -> None:
    await three_batches(store)
    execute(path, "DELETE FROM head")
    with pytest.raises(Corrupt, match="head"):
        await store.head()
    refused = await store.renew(EMPTY.fence())
    assert isinstance(refused, Unavailable)
    assert refused.reason == "Corrupt"


async def test_a_head_of_other_types_than_its_table_has_is_corrupt(store: SqliteStore, path: Path) -> None:
    await three_batches(store)
    loose = ("CREATE TABLE loose AS SELECT * FROM head", "DROP TABLE head", "ALTER TABLE loose RENAME TO head")
    execute(path, *loose, "UPDATE head SET position = NULL")
    with pytest.raises(Corrupt, match="head"):
        await store.head()


async def test_an_overwritten_page_is_corrupt_for_reads_and_unavailable_for_writes(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await three_batches(store)
    await store.close()
    content = bytearray(path.read_bytes())
    for page in range(1, len(content) // PAGE_BYTES):
        content[page * PAGE_BYTES : (page + 1) * PAGE_BYTES] = b"\xee" * PAGE_BYTES
    path.write_bytes(content)
    store = SqliteStore(path)
    with pytest.raises(Corrupt):
        await store.open()
    with pytest.raises(Corrupt):
        await store.tail(0)
    refused = await store.acquire("somebody", EMPTY)
    assert isinstance(refused, Unavailable)
    assert refused.reason == "Corrupt"
    await store.close()


async def test_a_value_of_another_type_than_its_table_has_is_corrupt(store: SqliteStore, path: Path) -> None:
    await three_batches(store)
    execute(
        path,
        "DROP TABLE objects",
        "CREATE TABLE objects (key, position, value)",
        "INSERT INTO objects VALUES (1, 2, 3)",
    )
    with pytest.raises(Corrupt, match="objects"):
        await collect(await store.load())


# --- the lock


async def test_a_writer_that_finds_the_lock_taken_waits_a_bounded_time(path: Path) -> None:
    store = SqliteStore(path, busy_timeout_s=0.02)
    await store.open()
    fence = await lead(store)
    blocker = apsw.Connection(str(path))
    blocker.execute("BEGIN IMMEDIATE")
    refused = await store.commit(fence, batch_after(None))
    assert isinstance(refused, Unavailable)
    assert refused.reason == "Busy"
    assert (await store.head()).position == 0, "reads go on under another's lock"
    blocker.execute("ROLLBACK")
    blocker.close()
    assert await store.commit(fence, batch_after(None)) == Committed()
    await store.close()


async def test_a_reader_never_blocks_a_commit(store: SqliteStore) -> None:
    fence = await lead(store)
    await committed(store, fence, 1)
    await store.materialise(fence, 1, [(f"{n}", 1, b"v") for n in range(5000)], [])
    checkpoint = await store.load()
    first = await anext(checkpoint.chunks)
    await committed(store, fence, 3)
    await store.materialise(fence, 4, [], [f"{n}" for n in range(5000)])
    rest = [row async for chunk in checkpoint.chunks for row in chunk]
    assert len(first) + len(rest) == 5000, "the snapshot is the one of the moment it was taken"


async def test_a_store_made_read_only_says_so(path: Path) -> None:
    name = "read-only-file"

    class ReadOnlyFile(apsw.VFSFile):
        def xWrite(self, data: object, offset: int) -> None:
            raise apsw.ReadOnlyError("remounted read-only")

    class ReadOnlyDisk(apsw.VFS):
        def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
            return ReadOnlyFile("", name, flags)

    await open_and_close(path)
    disk = ReadOnlyDisk(name, "")
    store = SqliteStore(path, vfs=name)
    await store.open()
    refused = await store.acquire("somebody", EMPTY)
    assert isinstance(refused, Unavailable)
    assert refused.reason == "ReadOnly"
    assert await store.head() == EMPTY
    await store.close()
    disk.unregister()


# --- the lock that dies with the leader


async def leader_process(path: Path, holder: str) -> asyncio.subprocess.Process:
    """Another process that has acquired the store and says so."""
    program = (
        "import asyncio, sys\n"
        "from fairlead.store.sqlite import SqliteStore\n"
        "from tests.store.batches import lead\n"
        "async def main():\n"
        "    store = SqliteStore(sys.argv[1])\n"
        "    await store.open()\n"
        "    await lead(store, sys.argv[2])\n"
        "    print('leading', flush=True)\n"
        "    await asyncio.to_thread(sys.stdin.read)\n"
        "asyncio.run(main())\n"
    )
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, str(path), holder, stdin=pipe, stdout=pipe, cwd=ROOT
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"leading\n"
    return process


async def test_a_killed_leader_is_gone_at_once_and_a_stopped_one_is_not(store: SqliteStore, path: Path) -> None:
    assert not await store.leader_gone(), "nobody ever led"
    process = await leader_process(path, "theirs")
    try:
        assert not await store.leader_gone()
        process.send_signal(signal.SIGSTOP)
        assert not await store.leader_gone(), "a stopped process may go on at any time"
    finally:
        process.kill()
        await process.wait()
    assert await store.leader_gone()
    assert await store.leader_gone(), "asking takes nothing away"
    await lead(store, "ours")
    assert not await store.leader_gone()


async def test_the_death_of_a_stopped_predecessor_says_nothing_of_the_leader_after_it(store: SqliteStore, path: Path) -> None:
    process = await leader_process(path, "theirs")
    process.send_signal(signal.SIGSTOP)
    fence = await lead(store, "ours")
    standby = SqliteStore(path)
    await standby.open()
    process.kill()
    await process.wait()
    assert not await standby.leader_gone(), "the lock is free, but it was never ours"
    assert await store.renew(fence) == Committed()
    assert not await standby.leader_gone()
    await store.close()
    assert await standby.leader_gone(), "the renewal took the lock; closing gave it up"
    await standby.close()


async def test_a_leader_lets_go_of_its_lock_when_it_resigns_or_is_fenced(store: SqliteStore, path: Path) -> None:
    other = SqliteStore(path)
    await other.open()
    old = await lead(store, "first")
    new = await lead(other, "second")
    assert isinstance(await store.renew(old), Fenced)
    assert await other.renew(new) == Committed()
    assert isinstance(await store.renew(old), Fenced), "what comes late of an old term"
    assert not await store.leader_gone()
    assert await other.resign(new) == Committed()
    assert not await store.leader_gone(), "nobody leads, so nobody is gone"
    third = await lead(store, "third")
    fourth = await lead(store, "fourth")
    assert isinstance(await store.renew(third), Fenced)
    assert not await other.leader_gone(), "a late answer of a store's earlier term does not give up its present one"
    assert await store.renew(fourth) == Committed()
    await other.close()


# --- what is removed, and what is seeded


async def test_truncation_removes_the_rows_and_not_only_the_mark(store: SqliteStore, path: Path) -> None:
    fence = await lead(store)
    await committed(store, fence, 100)
    await store.materialise(fence, 100, [], [])
    await store.truncate(fence, 90, b"anchor")
    connection = apsw.Connection(str(path))
    assert connection.execute("SELECT count(*), min(first) FROM journal").fetchall() == [(10, 91)]
    connection.close()


async def test_a_seed_is_refused_before_anything_is_read_or_staged(store: SqliteStore, path: Path) -> None:
    await lead(store)

    async def never_read() -> AsyncIterator[list[tuple[str, int, bytes]]]:
        raise AssertionError("the backup was read in vain")
        yield []

    with pytest.raises(StoreError, match="empty"):
        await store.seed(EMPTY, never_read())


async def test_a_seed_of_a_newer_format_is_refused_and_the_store_stays_empty(store: SqliteStore) -> None:
    with pytest.raises(FormatTooNew):
        await store.seed(replace(EMPTY, format=FORMAT + 1), in_chunks([("a", 1, b"a")]))
    assert await store.head() == EMPTY


@pytest.mark.parametrize("chunks_after", [0, 1])
async def test_a_seed_overtaken_by_another_stops(store: SqliteStore, path: Path, chunks_after: int) -> None:
    other = SqliteStore(path)
    await other.open()

    async def overtaken() -> AsyncIterator[list[tuple[str, int, bytes]]]:
        yield [("first", 1, b"1")]
        await other.seed(EMPTY, in_chunks([("second", 1, b"2")]))
        for _ in range(chunks_after):
            yield [("first again", 1, b"1")]

    with pytest.raises(StoreError, match="another seed"):
        await store.seed(EMPTY, overtaken())
    assert await collect(await other.load()) == {"second": (1, b"2")}
    await other.close()
