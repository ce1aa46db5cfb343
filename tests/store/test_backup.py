"""A backup is the whole store at one head, refuses to be read when a single bit is wrong, and restores as a new incarnation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from fairlead.authority.hub import Expired
from fairlead.authority.state import DECODERS
from fairlead.model.commands import Accepted, Delete, Put
from fairlead.model.ids import revision
from fairlead.model.kinds.intent import Tenant, TenantSpec
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Evidence, Metadata
from fairlead.ports import SystemClock, Tasks
from fairlead.store.backup import HEADER_BYTES, BackupDamaged, BackupFile, restore_backup, write_backup
from fairlead.store.contract import FORMAT, Batch, Fenced, FormatTooNew, Head, ObjectRow, Store, StoreError
from fairlead.store.memory import MemoryDisk, MemoryStore
from fairlead.store.rules import is_empty
from fairlead.store.snapshot import CLOCK_KEY
from fairlead.store.verify import verify_backup, verify_store
from tests.authority.planes import OPERATOR, bind_of, no, ok, running_plane
from tests.store.batches import batch_after
from tests.store.conftest import ENGINES, Engine, MemoryEngine
from tests.store.filled import KEY, SESSION, fill, filled_plane, rows_of, second_engine, tenant

NOW_MS = 1_700_000_000_000


@pytest.fixture
async def file(tmp_path: Path) -> Path:
    """A small backup of a real history."""
    engine = MemoryEngine()
    await fill(engine)
    path = tmp_path / "plane.backup"
    await write_backup(await engine.open_store(), path, NOW_MS)
    return path


async def restored(path: Path, store: Store | None = None, at_least: int = 0) -> tuple[Store, Head]:
    store = store or MemoryStore(MemoryDisk())
    with BackupFile(path) as backup:
        return store, (await restore_backup(backup, store, at_least)).head


# --- there and back


async def test_everything_comes_back_as_it_was(engine: Engine, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    await fill(engine)
    store = await engine.open_store()
    path = tmp_path / "plane.backup"
    header = await write_backup(store, path, NOW_MS)
    before, head = await rows_of(store), await store.head()
    assert header.rows == len(before) >= 18
    assert (header.position, header.hash, header.incarnation, header.plane) == (head.position, head.hash, 1, "local")
    assert (header.tables["bindings"], header.tables["nodes"]) == (4, 3)
    other = await second_engine(request.node.callspec.params["engine"], tmp_path / "second")
    try:
        target, _ = await restored(path, await other.open_store())
        assert await rows_of(target) == before
        after = await target.head()
        assert (after.position, after.hash, after.materialised, after.truncated) == (
            head.position,
            head.hash,
            head.position,
            head.position,
        )
        assert (await verify_store(target)).faults == ()
    finally:
        await other.close()


@pytest.mark.parametrize(("origin", "target"), [("sqlite", "postgres"), ("postgres", "etcd"), ("etcd", "sqlite")])
async def test_a_backup_of_one_engine_restores_into_another(tmp_path: Path, origin: str, target: str) -> None:
    first, second = await second_engine(origin, tmp_path / "first"), await second_engine(target, tmp_path / "second")
    try:
        await fill(first)
        source = await first.open_store()
        await write_backup(source, tmp_path / "plane.backup", NOW_MS)
        store, _ = await restored(tmp_path / "plane.backup", await second.open_store())
        assert await rows_of(store) == await rows_of(source)
        async with running_plane(await second.open_store()) as plane:
            ok(await plane.send(OPERATOR, tenant("new")))
    finally:
        await first.close()
        await second.close()


@pytest.mark.parametrize("name", list(ENGINES))
async def test_a_backup_beside_a_busy_leader_is_one_moment_of_its_history(tmp_path: Path, name: str) -> None:
    engine = await second_engine(name, tmp_path / "plane")
    path = tmp_path / "plane.backup"
    try:
        async with filled_plane(engine) as plane, Tasks() as tasks:
            stop = False

            async def write() -> None:
                number = 0
                while not stop:
                    ok(await plane.send(OPERATOR, tenant(f"busy-{number}")))
                    number += 1

            writing = tasks.start(write(), "writer")
            header = await write_backup(await engine.open_store(), path, NOW_MS)
            stop = True
            await writing
        with BackupFile(path) as backup:
            assert verify_backup(backup).faults == ()
        source = await engine.open_store()
        store, _ = await restored(path)
        expected = {key: row for key, row in (await rows_of(source)).items() if row[0] <= header.position}
        found = await rows_of(store)
        # What changed after the backup is at a later position in the source; all else is equal, and nothing else is there.
        assert {key: row for key, row in found.items() if key in expected and key != CLOCK_KEY} == {
            key: row for key, row in expected.items() if key != CLOCK_KEY
        }
        assert sorted(key for key in found if key.startswith("tenants//busy")) == sorted(
            key for key in expected if key.startswith("tenants//busy")
        )
    finally:
        await engine.close()


async def test_the_unmaterialised_tail_is_in_the_backup(tmp_path: Path) -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        ok(await plane.send(OPERATOR, tenant("risk")))
        head = disk.head
        assert head.materialised < head.position, "the materialiser has not come by yet"
        header = await write_backup(MemoryStore(disk), tmp_path / "b", NOW_MS)
    store, _ = await restored(tmp_path / "b")
    assert "tenants//risk" in await rows_of(store)
    assert header.time_ms > 0


async def test_the_tail_replaces_and_removes_objects_and_none_is_there_twice(tmp_path: Path) -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        for name in ("kept", "changed", "removed"):
            ok(await plane.send(OPERATOR, tenant(name)))
    async with running_plane(MemoryStore(disk)) as plane:
        changed = Tenant(metadata=Metadata(name="changed"), spec=TenantSpec(weight=7))
        ok(await plane.send(OPERATOR, Put("Tenant", changed)))
        ok(await plane.send(OPERATOR, Delete("Tenant", "", "removed")))
        assert disk.head.materialised < disk.head.position
        await write_backup(MemoryStore(disk), tmp_path / "b", NOW_MS)
    with BackupFile(tmp_path / "b") as backup:
        rows = [row for chunk in backup.rows() for row in chunk if row[0].startswith("tenants/")]
    assert sorted(key for key, _, _ in rows) == ["tenants//changed", "tenants//kept"]
    (raw,) = [raw for key, _, raw in rows if key == "tenants//changed"]
    assert DECODERS["tenants"].decode(raw).spec.weight == 7


async def test_an_empty_store_can_be_backed_up_and_restored(tmp_path: Path) -> None:
    header = await write_backup(MemoryStore(MemoryDisk()), tmp_path / "b", NOW_MS)
    assert (header.rows, header.position) == (0, 0)
    _, head = await restored(tmp_path / "b")
    assert head.incarnation == 2


# --- a file that is not what was written


async def test_a_flipped_byte_anywhere_is_refused_and_nothing_is_written(file: Path, tmp_path: Path) -> None:
    whole = file.read_bytes()
    bad = tmp_path / "bad"
    # Every byte of the header's content and the trailer, and a sample of the rest.
    places = {*range(0, 200, 7), HEADER_BYTES - 1, *range(HEADER_BYTES, len(whole), 97), *range(len(whole) - 44, len(whole))}
    for at in sorted(places):
        bad.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        store = MemoryStore(MemoryDisk())
        with pytest.raises(StoreError, match=r"byte|rows|format"):
            await restored(bad, store)
        assert is_empty(await store.head()), f"byte {at}"


async def test_a_file_that_ends_early_is_refused(file: Path, tmp_path: Path) -> None:
    whole = file.read_bytes()
    bad = tmp_path / "bad"
    for size in {0, 7, 100, HEADER_BYTES, HEADER_BYTES + 3, *range(HEADER_BYTES, len(whole), 211), len(whole) - 1}:
        bad.write_bytes(whole[:size])
        with pytest.raises(BackupDamaged, match="byte"):
            await restored(bad)


async def test_the_place_of_the_damage_is_named(file: Path) -> None:
    whole = bytearray(file.read_bytes())
    whole[HEADER_BYTES + 20] ^= 1
    file.write_bytes(whole)
    with pytest.raises(BackupDamaged, match=f"frame at byte {HEADER_BYTES}: it does not match its checksum.*use another backup"):
        await restored(file)
    with BackupFile(file) as backup:
        (fault,) = verify_backup(backup).faults
    assert fault.where == f"frame at byte {HEADER_BYTES}"


async def test_a_backup_of_a_newer_format_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.store.backup.FORMAT", FORMAT - 1)
    with pytest.raises(FormatTooNew, match="upgrade Fairlead first"):
        BackupFile(file)


async def test_a_backup_that_fails_leaves_neither_a_file_nor_a_piece_of_one(tmp_path: Path) -> None:
    class Failing(MemoryStore):
        async def load(self):  # type: ignore[no-untyped-def]
            checkpoint = await super().load()

            async def torn() -> AsyncIterator[list[ObjectRow]]:
                async for rows in checkpoint.chunks:
                    yield rows
                raise OSError("the network is gone")

            return msgspec.structs.replace(checkpoint, chunks=torn())

    with pytest.raises(OSError, match="network"):
        await write_backup(Failing(MemoryDisk()), tmp_path / "plane.backup", NOW_MS)
    assert list(tmp_path.iterdir()) == []


# --- a new incarnation (P6)


async def test_a_store_that_holds_anything_is_not_restored_into(engine: Engine, file: Path) -> None:
    await fill(engine)
    store = await engine.open_store()
    before = await rows_of(store)
    with pytest.raises(StoreError, match="not empty"):
        await restored(file, store)
    assert await rows_of(store) == before


async def test_the_new_incarnation_is_above_everything_anybody_has_seen(file: Path) -> None:
    assert (await restored(file))[1].incarnation == 2
    assert (await restored(file, at_least=7))[1].incarnation == 8
    again, head = await restored(file)
    await write_backup(again, file, NOW_MS)
    assert (await restored(file, at_least=1))[1].incarnation == head.incarnation + 1


async def test_a_fence_of_the_old_history_is_refused(engine: Engine, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    old = await engine.open_store()
    fence = await old.acquire("old-leader", await old.head())
    assert not isinstance(fence, StoreError)
    batch: Batch = batch_after(await old.head())
    await write_backup(old, tmp_path / "b", NOW_MS)
    other = await second_engine(request.node.callspec.params["engine"], tmp_path / "second")
    try:
        store, head = await restored(tmp_path / "b", await other.open_store())
        assert head.epoch > 1
        assert isinstance(await store.commit(fence, batch), Fenced)  # type: ignore[arg-type]
        assert isinstance(await store.renew(fence), Fenced)  # type: ignore[arg-type]
    finally:
        await other.close()


@pytest.mark.parametrize("name", ["memory", "sqlite", "postgres", "etcd"])
async def test_leases_receipts_and_revisions_of_the_old_incarnation_are_refused(tmp_path: Path, name: str) -> None:
    """S16."""
    engine, other = await second_engine(name, tmp_path / "first"), await second_engine(name, tmp_path / "second")
    try:
        async with filled_plane(engine) as plane:
            scheduler = await plane.as_role(Role.SCHEDULER)
            old_revision = plane.authority.view().revision
            path = tmp_path / "b"
            await write_backup(await engine.open_store(), path, NOW_MS)
        await restored(path, await other.open_store())
        async with running_plane(await other.open_store()) as plane:
            assert plane.authority.fence is not None
            assert plane.authority.fence.incarnation == 2
            no(await plane.send(scheduler, bind_of("risk", "api-4", "n1")), "FencedOut")
            no(await plane.send(OPERATOR, tenant("risk"), KEY), "ReceiptExpired")
            answer = plane.authority.receipt(OPERATOR.actor, KEY.key)
            assert answer is not None
            assert not isinstance(answer, Accepted)
            no(await plane.send(OPERATOR, tenant("lab"), SESSION), "ReceiptExpired")
            stale = Evidence(observed_revision=old_revision)
            no(await plane.send(OPERATOR, tenant("third"), evidence=stale), "StaleEvidence")
            with pytest.raises(Expired):
                plane.authority.view(old_revision)
            # And it serves: the role is taken again, and what waited is bound under a token of the new incarnation.
            again = await plane.as_role(Role.SCHEDULER)
            plane.authority.heartbeat([("n1", 1)])
            bound = ok(await plane.send(again, bind_of("risk", "api-4", "n1")))
            assert bound.token is not None
            assert bound.token.incarnation == 2
            assert plane.authority.view().revision > revision(2, 0) > old_revision
    finally:
        await engine.close()
        await other.close()


async def test_a_restored_plane_continues_the_backups_time(file: Path) -> None:
    store, _ = await restored(file)
    with BackupFile(file) as backup:
        time_ms = backup.header.time_ms
    async with running_plane(store):
        pass
    later = await write_backup(store, file, NOW_MS)
    assert later.time_ms >= time_ms
    assert abs(later.time_ms - SystemClock().wall() * 1000) < 60_000
