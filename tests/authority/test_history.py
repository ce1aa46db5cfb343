"""Reads at an earlier revision or time, long after memory and the engine's journal have forgotten it."""

from __future__ import annotations

import asyncio
import errno
import random
from pathlib import Path

import pytest

from fairlead.authority.candidate import Timing
from fairlead.authority.history import History
from fairlead.authority.hub import Expired
from fairlead.authority.truncation import JournalKept
from fairlead.model import codec
from fairlead.model.commands import Command, Delete, Put
from fairlead.model.ids import revision as revision_of
from fairlead.model.journal import NO_COMMAND, Entry, Header, chain_hash, encode_blob
from fairlead.model.kinds.intent import Tenant, TenantSpec
from fairlead.model.meta import Metadata
from fairlead.store.archive import Archive
from fairlead.store.contract import FORMAT, NO_HASH, Batch
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import OPERATOR, FakeClock, PlaneForTest, ok, running_plane
from tests.store.archive_model import SMALL, Model, close_all, feed

SHORT = Timing(lease_ttl_s=2.0, renew_s=0.5, poll_s=0.02, ring_size=20, journal=JournalKept(keep_s=0.0, anchor_key=lambda: b"k"))


def tenant(name: str, weight: int = 1) -> Put:
    return Put("Tenant", Tenant(metadata=Metadata(name=name), spec=TenantSpec(weight=weight)))


async def fill(plane: PlaneForTest, prefix: str, count: int = 60) -> None:
    for outcome in await plane.authority.submit([Command(OPERATOR, tenant(f"{prefix}{n}")) for n in range(count)]):
        ok(outcome)


async def archived(plane: PlaneForTest) -> None:
    history = plane.authority._history
    assert history is not None
    async with asyncio.timeout(60):
        while history.archived(plane.authority._ctx.incarnation) < plane.authority._state.durable:
            await asyncio.sleep(0.01)


async def test_an_object_is_read_as_it_was_after_memory_and_journal_forgot_it(tmp_path: Path) -> None:
    clock, disk = FakeClock(), MemoryDisk()
    async with running_plane(MemoryStore(disk), clock, timing=SHORT, archive=tmp_path) as plane:
        first = ok(await plane.send(OPERATOR, tenant("a")))
        before_ms = plane.authority._ctx.plane_ms()
        clock.offset += 1.0
        second = ok(await plane.send(OPERATOR, tenant("a", weight=9)))
        gone = ok(await plane.send(OPERATOR, Delete("Tenant", "", "a")))
        clock.offset += 1.0
        await fill(plane, "x")
        await archived(plane)
        clock.offset += 20.0
        async with asyncio.timeout(60):
            while disk.head.truncated < 20:
                await fill(plane, f"y{disk.head.position}-", 1)
                clock.offset += 6.0
                await asyncio.sleep(0.02)
        with pytest.raises(Expired):
            plane.authority.view(first.revision)
        old = await plane.authority.past.get("tenants", "", "a", first.revision)
        assert old is not None
        assert old.decode().spec.weight == 1
        later = await plane.authority.past.get("tenants", "", "a", second.revision)
        assert later is not None
        assert later.decode().spec.weight == 9
        assert await plane.authority.past.get("tenants", "", "a", gone.revision) is None
        assert [rec.name for rec in await plane.authority.past.list("tenants", None, second.revision)] == ["a"]
        assert len(await plane.authority.past.list("tenants", None, plane.authority.view().revision)) > 60
        assert await plane.authority.past.revision_at(before_ms) == first.revision
        assert (
            await plane.authority.past.time_at(first.revision) <= before_ms < await plane.authority.past.time_at(second.revision)
        )
        with pytest.raises(Expired, match="history does not reach back so far"):
            await plane.authority.past.revision_at(1)


async def test_a_server_that_joins_late_keeps_history_from_then_on(tmp_path: Path) -> None:
    disk = MemoryDisk()
    clock = FakeClock()
    async with running_plane(MemoryStore(disk), clock, timing=SHORT) as plane:
        lost = ok(await plane.send(OPERATOR, tenant("early")))
        await fill(plane, "x")
        async with asyncio.timeout(60):
            while disk.head.truncated == 0:
                await fill(plane, f"y{disk.head.position}-", 1)
                clock.offset += 6.0
                await asyncio.sleep(0.02)
    async with running_plane(MemoryStore(disk), clock, timing=SHORT, archive=tmp_path) as plane:
        await archived(plane)
        kept = ok(await plane.send(OPERATOR, tenant("late")))
        await fill(plane, "z")
        await archived(plane)
        found = await plane.authority.past.get("tenants", "", "late", kept.revision)
        assert found is not None
        early = await plane.authority.past.get("tenants", "", "early", kept.revision)
        assert early is not None, "the checkpoint it began with holds what was there"
        with pytest.raises(Expired, match=r"history does not reach back so far: it begins at 20..-..-..T..:..:..Z, revision \d+"):
            await plane.authority.past.get("tenants", "", "early", lost.revision)


async def test_the_journal_is_not_cut_beyond_what_the_archive_has(tmp_path: Path) -> None:
    clock, disk = FakeClock(), MemoryDisk()
    async with running_plane(MemoryStore(disk), clock, timing=SHORT, archive=tmp_path) as plane:
        stuck = 7
        plane.authority._truncation._archived = lambda: stuck
        await fill(plane, "x")
        for _ in range(10):
            clock.offset += 6.0
            await fill(plane, f"y{disk.head.position}-", 1)
            await asyncio.sleep(0.02)
        assert disk.head.truncated <= stuck


async def test_a_disk_that_is_full_holds_up_history_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.authority.history.AGAIN_S", 0.01)

    def full(descriptor: int, parts: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with running_plane(archive=tmp_path) as plane:
        await fill(plane, "a", 3)
        await archived(plane)
        history = plane.authority._history
        assert history is not None
        with monkeypatch.context() as disk:
            disk.setattr("os.writev", full)  # of all that runs here only the archive writes so
            await fill(plane, "b", 3)
            while plane.authority.history_failures_total < 3:
                await asyncio.sleep(0.01)
            assert history.archived(plane.authority._ctx.incarnation) < plane.authority._state.durable
            await fill(plane, "c", 3)
        await archived(plane)
        assert plane.authority.leading
        found = await plane.authority.past.get("tenants", "", "b1", plane.authority.view().revision)
        assert found is not None


def test_what_is_archived_of_another_incarnation_does_not_count(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    blob = encode_blob(Header(FORMAT, 1, 1, "x", 1, 1000), [codec.encode(Entry(NO_COMMAND, (("regions//r", b"\x80"),)))])
    archive.append(Batch(1, 50, NO_HASH, chain_hash(NO_HASH, blob), blob))
    archive.sync()
    history = History(archive, MemoryStore(MemoryDisk()), FakeClock())
    assert history.archived(1) == 50
    assert history.archived(2) == 0, "a restore went back: its positions are others"
    archive.close()


async def test_a_damaged_file_is_told_in_words_to_who_asks_for_what_was_in_it(tmp_path: Path) -> None:
    archive, model = Archive(tmp_path, SMALL), Model()
    feed(archive, model.grow(random.Random(1), 40))
    close_all(archive)
    damaged = min(tmp_path.glob("*.segment"))
    data = bytearray(damaged.read_bytes())
    data[30] ^= 1
    damaged.write_bytes(data)
    history = History(archive, MemoryStore(MemoryDisk()), FakeClock())
    with pytest.raises(Expired, match=f"{damaged.name}: .* This part of the history is damaged"):
        await history.state_at(revision_of(1, 1), "kind", None)
    await history.close()
