"""The store's objects behind the journal: never ahead, never with holes, whatever lands late."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from fairlead.authority import materialiser as module
from fairlead.authority.materialiser import Materialiser
from fairlead.authority.meters import Meters
from fairlead.authority.state import ADDED, DELETED, Rec
from fairlead.ports import SystemClock
from fairlead.store.contract import Fence
from fairlead.store.memory import Fault, MemoryDisk, MemoryStore
from tests.authority.faults import LAND_LATER, LOSE_ANSWER, HandFaults


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
