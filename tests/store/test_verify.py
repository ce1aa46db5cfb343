"""Verify finds each kind of damage and names its place; a sound store, at rest or in use, has none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from fairlead.authority.state import CLOCK, INTERNAL
from fairlead.model.ids import key
from fairlead.model.journal import chain_hash
from fairlead.model.registry import KINDS
from fairlead.ports import SystemClock, SystemIds
from fairlead.store.compact import compact
from fairlead.store.contract import Head
from fairlead.store.memory import MemoryDisk, MemoryStore
from fairlead.store.snapshot import CLOCK_KEY
from fairlead.store.verify import Report, decoders, verify_store
from tests.authority.planes import OPERATOR, ok, running_plane
from tests.store.conftest import Engine
from tests.store.filled import drop_row, execute, fill, filled_plane, flip_byte, journal_firsts, place, second_engine, tenant


@pytest.fixture(params=["sqlite", "postgres"])
async def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Engine]:
    """A filled store of an engine whose rows a test can reach behind its back."""
    engine = await second_engine(request.param, tmp_path / "plane")
    await fill(engine)
    yield engine
    await engine.close()


async def verified(engine: Engine) -> Report:
    return await verify_store(await engine.open_store())


def places(report: Report) -> list[str]:
    return [fault.where for fault in report.faults]


def test_verify_and_the_authority_know_the_same_tables() -> None:
    assert set(decoders()) == set(KINDS) | INTERNAL
    assert key(CLOCK, "", "self") == CLOCK_KEY


async def test_a_sound_store_has_no_faults(engine: Engine) -> None:
    await fill(engine)
    report = await verified(engine)
    assert report.faults == ()
    assert report.compared_after == 0, "the whole journal is there, so every object was compared with a replay"
    assert report.effects == report.position
    assert report.objects >= 17


async def test_a_store_in_use_has_no_faults(engine: Engine) -> None:
    async with filled_plane(engine) as plane:
        for number in range(30):
            ok(await plane.send(OPERATOR, tenant(f"t{number}")))
            if number % 10 == 0:
                assert (await verified(engine)).faults == ()


async def test_every_flipped_row_is_named_and_those_behind_it_are_still_read(damaged: Engine) -> None:
    firsts = await journal_firsts(damaged)
    bad = [firsts[2], firsts[-1]]
    for first in bad:
        await flip_byte(damaged, first)
    report = await verified(damaged)
    assert places(report) == [f"journal row {first}" for first in bad]
    assert report.batches >= len(firsts) - 2


async def test_a_missing_row_is_named_by_the_one_behind_it(damaged: Engine) -> None:
    firsts = await journal_firsts(damaged)
    await drop_row(damaged, firsts[3])
    (fault,) = (await verified(damaged)).faults
    assert fault.where == f"journal row {firsts[4]}"


async def test_a_missing_first_and_a_missing_last_row_are_found(damaged: Engine) -> None:
    firsts = await journal_firsts(damaged)
    await drop_row(damaged, firsts[0])
    await drop_row(damaged, firsts[-1])
    assert len((await verified(damaged)).faults) == 2


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("UPDATE {s}.objects SET value = (SELECT value FROM {s}.objects WHERE key = 'nodes//n1') WHERE key = 'nodes//n0'",
         "it is not what the journal wrote"),
        ("DELETE FROM {s}.objects WHERE key = 'nodes//n0'", "it is missing; the journal wrote it"),
        ("UPDATE {s}.objects SET position = 1 WHERE key = 'nodes//n0'", "but the journal changed it"),
        ("UPDATE {s}.objects SET position = 100000 WHERE key = 'nodes//n0'", "after the head's"),
    ],
)  # fmt: skip
async def test_an_object_that_is_not_what_the_journal_says_is_named(damaged: Engine, sql: str, said: str) -> None:
    await execute(damaged, sql)
    report = await verified(damaged)
    assert set(places(report)) == {"object nodes//n0"}
    assert said in report.faults[0].detail


async def test_an_object_that_cannot_be_read_is_named(damaged: Engine) -> None:
    await execute(damaged, f"UPDATE {{s}}.objects SET value = {place(damaged, 1)} WHERE key = 'nodes//n0'", b"\xc1")
    await execute(damaged, f"INSERT INTO {{s}}.objects (key, position, value) VALUES ('gnomes//a', 1, {place(damaged, 1)})", b"")
    report = await verified(damaged)
    details = {fault.where: fault.detail for fault in report.faults}
    assert "there is no such kind" in [fault.detail for fault in report.faults if fault.where == "object gnomes//a"]
    assert "object nodes//n0" in details


async def test_a_forged_journal_start_is_found(damaged: Engine) -> None:
    """Cutting rows off without the anchor that must be left behind."""
    firsts = await journal_firsts(damaged)
    await execute(damaged, f"UPDATE {{s}}.head SET truncated = {firsts[2] - 1}")
    await drop_row(damaged, firsts[0])
    await drop_row(damaged, firsts[1])
    assert "anchor" in places(await verified(damaged))


async def test_a_head_that_names_another_batch_is_found(damaged: Engine) -> None:
    await execute(damaged, f"UPDATE {{s}}.head SET hash = {place(damaged, 1)}", b"\7" * 32)
    assert places(await verified(damaged)) == ["head"]


async def two_tenants() -> MemoryDisk:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        ok(await plane.send(OPERATOR, tenant("risk")))
        ok(await plane.send(OPERATOR, tenant("lab")))
    return disk


async def test_a_row_that_is_sound_in_itself_but_of_another_history_is_found() -> None:
    disk = await two_tenants()
    entry = disk.journal[1]
    forged = replace(entry.batch, previous=b"\5" * 32, hash=chain_hash(b"\5" * 32, entry.batch.blob))
    disk.journal[1] = replace(entry, batch=forged)
    faults = (await verify_store(MemoryStore(disk))).faults
    assert faults[0].where == f"journal row {forged.first}"
    assert "another history" in faults[0].detail


async def test_an_anchor_of_another_place_is_found() -> None:
    disk = await two_tenants()
    await compact(MemoryStore(disk), SystemClock(), SystemIds(), keep_after=disk.journal[0].batch.last)
    assert (await verify_store(MemoryStore(disk))).faults == ()
    disk.head = replace(disk.head, truncated=disk.journal[0].batch.last)
    del disk.journal[0]
    (fault,) = (await verify_store(MemoryStore(disk))).faults
    assert fault.where == "anchor"


async def test_what_a_leader_writes_between_the_journal_and_the_objects_is_no_fault() -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        ok(await plane.send(OPERATOR, tenant("risk")))
        early = disk.head
        ok(await plane.send(OPERATOR, tenant("lab")))

    class Behind(MemoryStore):
        async def head(self) -> Head:
            return early

    report = await verify_store(Behind(disk))
    assert (report.faults, report.effects) == ((), disk.head.position)


async def test_after_a_truncation_the_anchor_is_where_the_chain_begins() -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        ok(await plane.send(OPERATOR, tenant("risk")))
    await compact(MemoryStore(disk), SystemClock(), SystemIds())
    async with running_plane(MemoryStore(disk)) as plane:
        ok(await plane.send(OPERATOR, tenant("lab")))
    report = await verify_store(MemoryStore(disk))
    assert report.faults == ()
    assert report.anchor.startswith("unsigned")
    assert report.compared_after > 0


async def test_an_anchor_of_somebody_else_is_a_fault_for_whoever_has_the_keys() -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        ok(await plane.send(OPERATOR, tenant("risk")))
    await compact(MemoryStore(disk), SystemClock(), SystemIds(), anchor_key=b"of the servers")
    assert (await verify_store(MemoryStore(disk))).anchor == "signed, not checked: no keys were given"
    genuine = await verify_store(MemoryStore(disk), keys=[b"newer", b"of the servers"])
    assert (genuine.faults, genuine.anchor) == ((), "signed")
    forged = await verify_store(MemoryStore(disk), keys=[b"newer"])
    assert [fault.where for fault in forged.faults] == ["anchor"]
