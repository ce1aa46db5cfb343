"""The memory store's seam for faults: what a simulator can make of one call, and what stays guarded all the same."""

from __future__ import annotations

import pytest

from fairlead.store.contract import (
    AlreadyThere,
    Committed,
    Fenced,
    OutcomeUnknown,
    StoreUnreachable,
    Superseded,
    Unavailable,
)
from fairlead.store.memory import Fault, InFlight, LandLater, LoseAnswer, MemoryDisk, MemoryStore, Refuse
from tests.store.batches import batch_after, chain, collect, committed, lead, whole_tail

REFUSAL = Refuse(Unavailable("DiskFull", "no space"))


class Script:
    """Faults that are told beforehand: the next call gets the next fault."""

    def __init__(self, *faults: Fault | None) -> None:
        self.faults = list(faults)
        self.writes: list[InFlight] = []
        self.hidden = 0
        self.calls: list[str] = []

    async def before(self, call: str) -> Fault | None:
        self.calls.append(f"before {call}")
        return self.faults.pop(0) if self.faults else None

    async def after(self, call: str) -> None:
        self.calls.append(f"after {call}")

    def in_flight(self, write: InFlight) -> None:
        self.writes.append(write)

    def batches_hidden(self) -> int:
        return self.hidden


async def test_a_refused_write_is_absent_and_a_refused_read_raises() -> None:
    disk = MemoryDisk()
    fence = await lead(MemoryStore(disk))
    store = MemoryStore(disk, Script(REFUSAL, REFUSAL))
    assert await store.commit(fence, batch_after(None)) == REFUSAL.unavailable
    with pytest.raises(StoreUnreachable, match="no space"):
        await store.head()
    assert disk.head.position == 0


async def test_a_lost_answer_is_settled_by_resubmitting() -> None:
    disk = MemoryDisk()
    fence = await lead(MemoryStore(disk))
    store = MemoryStore(disk, Script(LoseAnswer()))
    batch = batch_after(None)
    assert isinstance(await store.commit(fence, batch), OutcomeUnknown)
    assert await store.commit(fence, batch) == AlreadyThere()


async def test_the_way_there_and_the_way_back_are_both_awaited() -> None:
    script = Script()
    await MemoryStore(MemoryDisk(), script).head()
    assert script.calls == ["before head", "after head"]


async def test_a_write_in_flight_lands_after_a_reader_has_seen_nothing() -> None:
    disk, script = MemoryDisk(), Script(LandLater())
    fence = await lead(MemoryStore(disk))
    store = MemoryStore(disk, script)
    batch = batch_after(None)
    assert isinstance(await store.commit(fence, batch), OutcomeUnknown)
    assert await whole_tail(store) == []
    assert script.writes[0].land() == Committed()
    assert await whole_tail(store) == [batch]
    assert disk.in_flight == []


async def test_a_write_that_lands_late_is_judged_where_it_lands() -> None:
    disk, script = MemoryDisk(), Script(LandLater(), LandLater(), LandLater())
    fence = await lead(MemoryStore(disk))
    store = MemoryStore(disk, script)
    batch = batch_after(None)
    for _ in range(3):
        await store.commit(fence, batch)
    assert await store.commit(fence, batch_after(None, b"another")) == Committed()
    assert script.writes[0].land() == Superseded(disk.head)
    await lead(MemoryStore(disk), "next")
    assert script.writes[1].land() == Fenced(disk.head)
    script.writes[2].drop()
    assert disk.in_flight == []


async def test_a_stale_tail_hides_the_newest_batches_only() -> None:
    disk, script = MemoryDisk(), Script()
    fence = await lead(MemoryStore(disk))
    batches = await committed(MemoryStore(disk), fence, 5)
    script.hidden = 2
    assert await MemoryStore(disk, script).tail(0) == batches[:3]
    assert await MemoryStore(disk, script).tail(4) == []


async def test_a_lost_tail_takes_head_and_objects_back_together() -> None:
    disk = MemoryDisk()
    store = MemoryStore(disk)
    fence = await lead(store)
    batches = await committed(store, fence, 5)
    await store.materialise(fence, 2, [("a", 2, b"2"), ("gone", 1, b"1")], [])
    await store.materialise(fence, 4, [("a", 4, b"4"), ("b", 3, b"3")], ["gone"])
    assert disk.lose_tail(2) == 2
    assert (disk.head.position, disk.head.hash, disk.head.materialised) == (3, batches[2].hash, 2)
    assert await collect(await store.load()) == {"a": (2, b"2"), "gone": (1, b"1")}
    assert await store.commit(fence, batch_after(batches[2], b"another fourth")) == Committed()


async def test_a_tail_cannot_be_lost_behind_the_journals_start() -> None:
    disk = MemoryDisk()
    store = MemoryStore(disk)
    fence = await lead(store)
    await committed(store, fence, 4)
    await store.materialise(fence, 3, [("a", 3, b"3")], [])
    await store.truncate(fence, 2, b"anchor")
    assert disk.lose_tail(9) == 1, "the objects at 3 cannot be taken back behind 2"
    assert (disk.head.position, disk.head.materialised) == (3, 3)


async def test_a_lost_tail_can_take_the_fence_back_too() -> None:
    disk = MemoryDisk()
    store = MemoryStore(disk)
    old = await lead(store, "old")
    first, second = chain(2)
    await store.commit(old, first)
    new = await lead(store, "new")
    await store.commit(new, second)
    assert disk.lose_tail(1, fence_too=True) == 1
    assert disk.head.fence() == old
