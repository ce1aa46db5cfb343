"""What a leader hands to its archive: neither read from the store again nor trusted where it does not continue the archive."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.authority import history as histories
from fairlead.authority.history import History
from fairlead.model.commands import Delete
from fairlead.model.ids import split_revision
from fairlead.model.journal import chain_hash, decode_blob
from fairlead.ports import SystemClock
from fairlead.store.archive import GENESIS, Archive, Point
from fairlead.store.archive.open_segment import effects_of
from fairlead.store.contract import Batch
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import OPERATOR, FakeClock, PlaneForTest, ok, running_plane
from tests.authority.test_history import archived, fill, tenant
from tests.store.archive_model import Model, feed


class Mute:
    """A store that shows nobody its journal."""

    async def tail(self, after: int) -> list[Batch]:
        return []


@asynccontextmanager
async def leading(tmp_path: Path, disk: MemoryDisk) -> AsyncIterator[tuple[PlaneForTest, History]]:
    async with running_plane(MemoryStore(disk), FakeClock(), archive=tmp_path) as plane:
        history = plane.authority._history
        assert history is not None
        await archived(plane)
        yield plane, history


async def test_a_leaders_archive_grows_without_a_look_at_the_store_and_holds_the_same(tmp_path: Path) -> None:
    disk = MemoryDisk()
    async with leading(tmp_path, disk) as (plane, history):
        history._store = Mute()  # type: ignore[assignment]
        made = ok(await plane.send(OPERATOR, tenant("a", weight=7)))
        await fill(plane, "x")
        gone = ok(await plane.send(OPERATOR, Delete("Tenant", "", "a")))
        await archived(plane)
        assert await history.get("tenants//a", made.revision) is not None
    again = Archive(tmp_path)  # as a restart finds it
    journal = await MemoryStore(disk).tail(0)
    assert isinstance(journal, list)
    mine = list(again.batches(GENESIS, again.last()))
    assert mine == journal[: len(mine)]
    assert again.last().position >= split_revision(gone.revision)[1]
    again.seal()
    again.close_segment()
    assert again.verify(deep=True) == []
    again.close()


async def test_what_is_too_much_to_wait_for_the_archive_is_tailed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "HANDED_BYTES_MAX", 0)
    async with leading(tmp_path, MemoryDisk()) as (plane, history):
        await fill(plane, "x")
        assert not history._handed
        assert history._handed_bytes == 0
        await archived(plane)


def handed(history: History, batches: list[Batch], incarnation: int = 1) -> None:
    for batch in batches:
        blob = decode_blob(batch.blob)
        history.hand_over(batch, incarnation, blob.header.time_ms, list(effects_of(blob)))


@pytest.fixture
def begun(tmp_path: Path) -> Any:
    """A history whose archive has the first ten of twenty batches."""
    archive = Archive(tmp_path / "archive")
    batches = Model().grow(random.Random(4), 20)
    feed(archive, batches[:10])
    yield History(archive, MemoryStore(MemoryDisk()), SystemClock()), archive, batches
    archive.close()


def test_only_what_continues_the_archive_is_taken(begun: tuple[History, Archive, list[Batch]]) -> None:
    history, archive, batches = begun
    handed(history, batches[5:14])
    assert [one.batch for one in history._take_handed(archive.last())] == batches[10:14]
    handed(history, batches[15:])
    assert history._take_handed(Point(1, batches[13].last)) == []
    assert len(history._handed) == 5, "they wait until what is missing was tailed, and go then"
    assert history._take_handed(Point(1, batches[-1].last)) == []
    assert not history._handed
    assert history._handed_bytes == 0


def test_a_batch_of_another_incarnation_or_chain_is_left_to_the_tail(begun: tuple[History, Archive, list[Batch]]) -> None:
    history, archive, batches = begun
    handed(history, batches[10:12], incarnation=2)
    assert history._take_handed(archive.last()) == []
    history._handed.clear()
    forged = replace(batches[10], previous=b"y" * 32, hash=chain_hash(b"y" * 32, batches[10].blob))
    handed(history, [forged])
    assert history._take_handed(archive.last()) == []


def test_nothing_is_taken_while_history_begins_anew(begun: tuple[History, Archive, list[Batch]]) -> None:
    history, archive, batches = begun
    handed(history, batches[10:])
    history._began_at = archive.last().position
    assert history._take_handed(archive.last()) == []


async def test_two_kinds_of_feeding_make_the_same_files(begun: tuple[History, Archive, list[Batch]], tmp_path: Path) -> None:
    history, archive, batches = begun
    handed(history, batches[10:])
    taken = history._take_handed(archive.last())
    await asyncio.to_thread(history._append_handed, taken)
    tailed = Archive(tmp_path / "tailed")
    feed(tailed, batches)
    for one in (archive, tailed):
        one.seal()
        one.close_segment()
    (mine,), (other,) = (list(one.directory.glob("*.segment")) for one in (archive, tailed))
    assert mine.read_bytes() == other.read_bytes()
    tailed.close()
