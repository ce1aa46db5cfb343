"""Compacting loses nothing, never runs beside a leader, and leaves a store on which a server starts."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fairlead.model.anchor import anchor_is_genuine
from fairlead.ports import SystemClock, SystemIds
from fairlead.store.compact import Deposed, LeaderIsLive, Outcome, compact
from fairlead.store.contract import Fence, FencedWriteResult, Store
from fairlead.store.memory import MemoryDisk, MemoryStore
from fairlead.store.verify import verify_store
from tests.authority.planes import OPERATOR, FakeClock, no, ok, running_plane
from tests.store.conftest import Engine
from tests.store.filled import KEY, fill, filled_plane, rows_of, tenant


async def compacted(store: Store, **options: object) -> Outcome:
    return await compact(store, SystemClock(), SystemIds(), **options)  # type: ignore[arg-type]


async def test_nothing_is_lost_and_a_server_starts_on_it(engine: Engine) -> None:
    await fill(engine)
    store = await engine.open_store()
    before = await rows_of(store)
    done = await compacted(store, anchor_key=b"secret")
    head = await store.head()
    assert (head.materialised, head.truncated, head.holder) == (head.position, head.position, "")
    assert (done.journal_bytes_after, done.batches_removed > 5) == (0, True)
    assert anchor_is_genuine([b"old", b"secret"], head.anchor)
    assert not anchor_is_genuine([b"old", b""], head.anchor)
    assert await rows_of(store) == before
    async with running_plane(await engine.open_store()) as plane:
        again = ok(await plane.send(OPERATOR, tenant("risk"), KEY))
        assert again.replayed, "receipts are still there"
    assert (await verify_store(await engine.open_store())).faults == ()


async def test_an_unmaterialised_tail_is_brought_into_the_objects() -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        ok(await plane.send(OPERATOR, tenant("risk")))
        crashed = MemoryDisk()
        crashed.head, crashed.journal, crashed.objects = disk.head, list(disk.journal), dict(disk.objects)
    assert crashed.head.holder
    assert crashed.head.materialised < crashed.head.position
    before = await rows_of(MemoryStore(crashed))
    done = await compact(MemoryStore(crashed), FakeClock(), SystemIds(), silence_s=0.05)
    assert done.rows_materialised > 0
    assert await rows_of(MemoryStore(crashed)) == before
    assert crashed.journal == []


async def test_a_live_leader_is_left_alone(engine: Engine) -> None:
    async with filled_plane(engine) as plane:
        with pytest.raises(LeaderIsLive, match="stop that server first"):
            await compacted(await engine.open_store())
        ok(await plane.send(OPERATOR, tenant("still-here")))


async def test_what_an_archive_does_not_hold_yet_stays_in_the_journal() -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        for name in ("a", "b", "c"):
            ok(await plane.send(OPERATOR, tenant(name)))
    kept = disk.journal[1].batch.last
    await compacted(MemoryStore(disk), keep_after=kept)
    assert disk.journal[0].batch.first == kept + 1
    assert disk.head.truncated == kept
    assert (await verify_store(MemoryStore(disk))).faults == ()
    await compacted(MemoryStore(disk), keep_after=0)
    assert disk.head.truncated == kept, "an archive that has nothing of it keeps all that is left"


async def test_a_batch_that_the_archive_holds_in_part_stays_whole() -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        ok(await plane.send(OPERATOR, tenant("a")))
        ok(await plane.send(OPERATOR, tenant("b"), KEY))  # The object and its receipt: two effects.
    wide = next(entry.batch for entry in disk.journal if entry.batch.last > entry.batch.first)
    await compacted(MemoryStore(disk), keep_after=wide.first)
    assert (disk.journal[0].batch, disk.head.truncated) == (wide, wide.first - 1)
    assert (await verify_store(MemoryStore(disk))).faults == (), "and the anchor speaks of that very place"


async def test_a_server_that_takes_over_meanwhile_wins() -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        ok(await plane.send(OPERATOR, tenant("risk")))

    class Raced(MemoryStore):
        async def truncate(self, fence: Fence, through: int, anchor: bytes) -> FencedWriteResult:
            disk.head = replace(disk.head, epoch=fence.epoch + 1, holder="somebody-else")
            return await super().truncate(fence, through, anchor)

    before = await rows_of(MemoryStore(disk))
    with pytest.raises(Deposed, match="somebody-else"):
        await compacted(Raced(disk))
    assert disk.head.holder == "somebody-else"
    assert await rows_of(MemoryStore(disk)) == before


async def test_an_empty_store_has_nothing_to_compact() -> None:
    done = await compacted(MemoryStore(MemoryDisk()))
    assert (done.position, done.rows_materialised, done.batches_removed) == (0, 0, 0)


async def test_old_leaders_are_fenced_by_the_compaction() -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        old = plane.authority.fence
    assert old is not None
    await compacted(MemoryStore(disk))
    assert disk.head.epoch == old.epoch + 1
    async with running_plane(MemoryStore(disk)) as plane:
        ok(await plane.send(OPERATOR, tenant("risk"), KEY))
        no(await plane.send(OPERATOR, tenant("other"), KEY), "IdReused")
