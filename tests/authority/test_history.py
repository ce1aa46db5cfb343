"""Reads at an earlier revision or time, long after memory and the engine's journal have forgotten it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fairlead.authority.candidate import Timing
from fairlead.authority.hub import Expired
from fairlead.authority.truncation import JournalKept
from fairlead.model.commands import Command, Delete, Put
from fairlead.model.kinds.intent import Tenant, TenantSpec
from fairlead.model.meta import Metadata
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import OPERATOR, FakeClock, PlaneForTest, ok, running_plane

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
        while history.archived() < plane.authority._state.durable:
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
        history = plane.authority._history
        assert history is not None
        stuck = 7
        history.archived = lambda: stuck  # type: ignore[method-assign]
        plane.authority._truncation._archived = history.archived
        await fill(plane, "x")
        for _ in range(10):
            clock.offset += 6.0
            await fill(plane, f"y{disk.head.position}-", 1)
            await asyncio.sleep(0.02)
        assert disk.head.truncated <= stuck
