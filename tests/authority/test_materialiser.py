"""The store's objects behind the journal: never ahead, never with holes, whatever lands late."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from fairlead.authority import materialiser as module
from fairlead.authority.materialiser import Materialiser
from fairlead.authority.meters import Meters
from fairlead.authority.state import ADDED, DELETED, Rec
from fairlead.model.commands import Command, Delete, Put
from fairlead.model.kinds.intent import Region, RegionSpec
from fairlead.model.meta import Metadata
from fairlead.ports import SystemClock
from fairlead.store.contract import STORE_LIMIT, Fence, MaterialiseResult, ObjectRow, Unavailable
from fairlead.store.memory import Fault, MemoryDisk, MemoryStore
from tests.authority.faults import LAND_LATER, LOSE_ANSWER, HandFaults
from tests.authority.planes import OPERATOR, no, ok, running_plane


class LateFaults(HandFaults):
    """Some pieces are given up and land at a moment of their own."""

    def __init__(self, draws: random.Random) -> None:
        super().__init__()
        self._draws = draws

    async def before(self, call: str) -> Fault | None:
        if call != "materialise":
            return None
        while self.held and self._draws.random() < 0.4:
            self.held.pop(self._draws.randrange(len(self.held))).land()
        return self._draws.choice((None, None, None, LAND_LATER, LOSE_ANSWER))


@pytest.mark.parametrize("seed", range(30))
async def test_whatever_lands_late_objects_and_journal_together_are_the_state(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_ROWS", 4)
    draws = random.Random(seed)
    disk = MemoryDisk()
    faults = LateFaults(draws)
    store = MemoryStore(disk, faults)
    await store.open()
    fence = await store.acquire("leader", await store.head())
    assert isinstance(fence, Fence)
    writer = Materialiser(store, SystemClock(), Meters())
    writer.start(0)
    truth: dict[str, tuple[int, bytes]] = {}
    changes: list[tuple[int, str, bytes | None]] = []
    position = 0
    for _ in range(60):
        recs, keys = [], []
        for _ in range(draws.randrange(1, 12)):
            position += 1
            name = f"t{draws.randrange(15):02d}"
            raw = None if draws.random() < 0.3 else b"%d" % position
            recs.append(Rec("tenants", "", name, position, raw, None, None, ADDED if raw else DELETED))
            keys.append(f"tenants//{name}")
            changes.append((position, keys[-1], raw))
            truth.pop(keys[-1], None)
            if raw is not None:
                truth[keys[-1]] = (position, raw)
        disk.head = replace(disk.head, position=position)
        writer.note(position, 1, keys, recs)
        await writer.flush(fence)
        rebuilt = {key: row for key, row in disk.objects.items() if key.startswith("tenants/")}
        for where, key, raw in changes:
            if where > disk.head.materialised:
                rebuilt.pop(key, None)
                if raw is not None:
                    rebuilt[key] = (where, raw)
        assert rebuilt == truth, f"seed {seed} at {position}, materialised {disk.head.materialised}"


class Limited(MemoryStore):
    """Holds so many objects, and takes deletions whatever it holds."""

    most = 12

    async def materialise(
        self, fence: Fence, upto: int, rows: Sequence[ObjectRow], deleted: Sequence[str], as_of: int = 0
    ) -> MaterialiseResult:
        would = self._disk.objects.keys() | {name for name, _, _ in rows}
        if rows and len(would - set(deleted)) > self.most:
            return Unavailable(STORE_LIMIT, f"at most {self.most} objects", 60.0)
        return await super().materialise(fence, upto, rows, deleted, as_of)


async def test_a_store_that_is_full_refuses_what_is_new_takes_what_is_deleted_and_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "CHUNK_ROWS", 4)
    monkeypatch.setattr(module, "EVERY_S", 0.02)

    def put(name: str, **labels: str) -> Put:
        return Put("Region", Region(metadata=Metadata(name=name, labels=labels), spec=RegionSpec(areas=("us",))))

    disk = MemoryDisk()
    async with running_plane(Limited(disk)) as plane:
        for number in range(9):
            ok(await plane.send(OPERATOR, put(f"m{number}")))
        while disk.head.materialised < plane.authority._state.durable:
            await asyncio.sleep(0.01)
        for outcome in await plane.authority.submit([Command(OPERATOR, put(f"a{number}")) for number in range(8)]):
            ok(outcome)
        while plane.authority._materialiser.limit is None:
            await asyncio.sleep(0.01)
        refused = no(await plane.send(OPERATOR, put("one-more")), "StoreUnavailable")
        assert "at most 12 objects" in refused.detail
        ok(await plane.send(OPERATOR, put("m0", changed="yes")))
        for number in range(9):
            ok(await plane.send(OPERATOR, Delete("Region", "", f"m{number}")))
        while plane.authority._materialiser.limit is not None:
            await asyncio.sleep(0.01)
        ok(await plane.send(OPERATOR, put("one-more")))
        while disk.head.materialised < plane.authority._state.durable:
            await asyncio.sleep(0.01)
        assert not any(name.startswith("regions//m") for name in disk.objects)


async def test_a_server_that_leads_no_longer_does_not_speak_of_a_limit_that_it_met() -> None:
    async with running_plane() as plane:
        plane.authority._materialiser.limit = Unavailable(STORE_LIMIT, "at most 12 objects", 60.0)
        region = Put("Region", Region(metadata=Metadata(name="r"), spec=RegionSpec(areas=("us",))))
        no(await plane.send(OPERATOR, region), "StoreUnavailable")
        plane.authority.stop()
        no(await plane.send(OPERATOR, region), "NotLeader")


class Narrow(MemoryStore):
    """Gives up a statement that is too long for its time limit."""

    async def materialise(
        self, fence: Fence, upto: int, rows: Sequence[ObjectRow], deleted: Sequence[str], as_of: int = 0
    ) -> MaterialiseResult:
        if sum(len(raw) for _, _, raw in rows) > 8 << 20:
            return Unavailable("Timeout", "canceling statement due to statement timeout")
        return await super().materialise(fence, upto, rows, deleted, as_of)


async def test_large_objects_are_written_in_pieces_that_a_store_takes() -> None:
    disk = MemoryDisk()
    store = Narrow(disk)
    fence = await store.acquire("leader", await store.open())
    assert isinstance(fence, Fence)
    disk.head = replace(disk.head, position=200)
    recs = [Rec("policies", "", f"p{number}", number, bytes(100_000), None, None, ADDED) for number in range(1, 201)]
    writer = Materialiser(store, SystemClock(), Meters())
    writer.start(0)
    writer.note(200, 1, [rec.key for rec in recs], recs)
    assert await writer.flush(fence)
    assert writer.materialised == 200
    assert len(disk.objects) == 201, "with the clock"
