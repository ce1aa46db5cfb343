"""History goes on where the bounds of others are exceeded: what one look at the journal brings, what memory remembers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fairlead.authority import history as histories
from fairlead.authority.candidate import Timing
from fairlead.authority.history import History
from fairlead.store.archive import Archive, Point
from fairlead.store.contract import BATCH_BYTES_MAX, Batch, Compacted
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import OPERATOR, FakeClock, ok, running_plane
from tests.authority.test_history import archived, fill, tenant


class Little(MemoryStore):
    """One look at its journal brings one batch, as a look at a long one brings only a part of it."""

    async def tail(self, after: int, limit_bytes: int = 4 * BATCH_BYTES_MAX) -> list[Batch] | Compacted:
        return await super().tail(after, 1)


async def test_after_a_lost_tail_history_goes_on_behind_a_journal_that_is_longer_than_one_look(tmp_path: Path) -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk), FakeClock(), archive=tmp_path) as plane:
        for number in range(5):
            ok(await plane.send(OPERATOR, tenant(f"t{number}")))
        await archived(plane)
    disk.lose_tail(2)
    fence = disk.head.fence()
    disk.set_incarnation(fence, fence.incarnation + 1)
    async with running_plane(Little(disk), FakeClock(), archive=tmp_path) as plane:
        made = ok(await plane.send(OPERATOR, tenant("after")))
        await archived(plane)
        history = plane.authority._history
        assert history is not None
        assert await history.get("tenants//after", made.revision) is not None


@pytest.mark.parametrize("store", [MemoryStore, Little])
async def test_a_standby_that_has_not_heard_of_a_new_incarnation_archives_it_from_its_beginning(
    tmp_path: Path, store: type[MemoryStore]
) -> None:
    """It was away, or slow: the new history has passed the place where its archive ends."""
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk), FakeClock(), archive=tmp_path) as plane:
        await fill(plane, "x", 5)
        for number in range(5):
            ok(await plane.send(OPERATOR, tenant(f"t{number}")))
        await archived(plane)
    disk.lose_tail(4)
    fence = disk.head.fence()
    disk.set_incarnation(fence, fence.incarnation + 1)
    async with running_plane(MemoryStore(disk), FakeClock()) as plane:
        made = [ok(await plane.send(OPERATOR, tenant(f"after{number}"))) for number in range(20)]
    archive = Archive(tmp_path)
    assert disk.head.position > archive.last().position
    history = History(archive, store(disk), FakeClock())
    async with asyncio.timeout(60):
        while archive.last() != Point(2, disk.head.position):
            await history._feed(lambda: None)
    for number, accepted in enumerate(made):
        assert await history.get(f"tenants//after{number}", accepted.revision) is not None, number
    assert archive.verify(deep=True) == []
    await history.close()


async def test_a_checkpoint_that_takes_longer_than_memory_reaches_back_is_made_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(histories, "_SLICE", 1)  # a pause after each object
    monkeypatch.setattr(histories, "UPKEEP_S", 0.0)
    timing = Timing(lease_ttl_s=20.0, renew_s=0.5, poll_s=0.02, ring_size=3)
    async with running_plane(timing=timing, archive=tmp_path) as plane:
        await fill(plane, "x", 100)
        for number in range(50):
            ok(await plane.send(OPERATOR, tenant(f"y{number}")))
            await asyncio.sleep(0)
        assert plane.authority.leading
        await archived(plane)
        async with asyncio.timeout(60):
            while not list(tmp_path.glob("*.checkpoint")):
                await asyncio.sleep(0.01)


async def test_history_that_begins_anew_after_a_loss_misses_nothing_of_what_has_come_since(tmp_path: Path) -> None:
    other, disk = MemoryDisk(), MemoryDisk()
    async with running_plane(MemoryStore(other), FakeClock(), archive=tmp_path) as plane:
        await fill(plane, "x", 40)
        await archived(plane)
    async with running_plane(MemoryStore(disk), FakeClock()) as plane:
        ok(await plane.send(OPERATOR, tenant("before")))
    fence = disk.head.fence()
    disk.set_incarnation(fence, fence.incarnation + 1)
    assert disk.head.position < other.head.position, "it begins before the place where the archive ends"
    async with running_plane(MemoryStore(disk), FakeClock(), archive=tmp_path) as plane:
        history = plane.authority._history
        assert history is not None
        async with asyncio.timeout(60):
            while history._began_at is None:
                await asyncio.sleep(0.01)
        made = [ok(await plane.send(OPERATOR, tenant(f"t{number}"))) for number in range(60)]
        await archived(plane)
        for number, accepted in enumerate(made):
            assert await history.get(f"tenants//t{number}", accepted.revision) is not None, number
