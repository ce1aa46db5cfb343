"""How long agents may count on an acknowledgement is the region's to say; one that begins to say less waits for those who heard
more (P9, S12)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fairlead.authority.authority import Authority
from fairlead.authority.candidate import Timing
from fairlead.authority.judge import Settings
from fairlead.authority.term import HeartbeatAck
from fairlead.model.commands import Caller, Command, LeaseAcquire
from fairlead.model.lifecycle import Role
from fairlead.ports import InPlaceFile, Kept, SystemIds, Tasks
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import FakeClock, ok

TIMING = Timing(lease_ttl_s=2.0, renew_s=0.3, poll_s=0.02)


def _server(disk: MemoryDisk, clock: FakeClock, lease_s: float, kept: Kept | None = None) -> Authority:
    settings = Settings(region="local", node_lease_s=lease_s)
    return Authority(MemoryStore(disk), clock, SystemIds(), settings, timing=TIMING, kept=kept)


async def _led(
    disk: MemoryDisk, clock: FakeClock, lease_s: float, seconds: float = 0.0, kept: Kept | None = None
) -> tuple[HeartbeatAck, float, float]:
    """A leader with this lease, from its start to its end after so many seconds: what it tells agents; the fence when it began
    and, from then on, when the longest may be over."""
    server = _server(disk, clock, lease_s, kept)
    async with Tasks() as tasks:
        running = tasks.start(server.run(), "server")
        async with asyncio.timeout(60):
            while not server.leading:
                clock.offset += 0.1
                await asyncio.sleep(0.002)
        since_ms = server._ctx.leader_since_ms
        ack = server.heartbeat([])
        assert isinstance(ack, HeartbeatAck)
        fences = server._ctx.fence_s(since_ms), server._ctx.fence_s(since_ms + int(ack.longest_s * 1010) + 2001)
        clock.offset += seconds
        if seconds:  # the journal shows how long it was
            ok((await server.submit([Command(Caller("a", Role.NODE), LeaseAcquire("a", Role.NODE, 1.0))]))[0])
        server.stop()
        await running
    return ack, *fences


async def test_agents_are_told_the_regions_lease_and_a_shorter_one_takes_effect_when_the_longer_ones_are_over() -> None:
    disk, clock = MemoryDisk(), FakeClock()
    ack, began, later = await _led(disk, clock, 30.0)
    assert (ack.lease_s, ack.longest_s) == (30.0, 30.0)
    assert began == later == pytest.approx(32.3)
    ack, began, later = await _led(disk, clock, 10.0)
    assert (ack.lease_s, ack.longest_s) == (10.0, 30.0)
    assert [began, later] == pytest.approx([32.3, 12.1])
    ack, began, later = await _led(disk, clock, 10.0, seconds=40.0)
    assert [ack.longest_s, began] == pytest.approx([30.0, 32.3]), "the leader between them did not last long enough"
    ack, began, later = await _led(disk, clock, 10.0)
    assert [ack.longest_s, began] == pytest.approx([10.0, 12.1])


async def test_a_wall_clock_that_was_set_forward_does_not_make_a_longer_lease_end_any_sooner() -> None:
    disk, clock = MemoryDisk(), FakeClock()
    await _led(disk, clock, 30.0)
    await _led(disk, clock, 10.0)
    wall = clock.wall
    clock.wall = lambda: wall() + 3600.0  # type: ignore[method-assign]
    ack, began, _ = await _led(disk, clock, 10.0)
    assert [ack.longest_s, began] == pytest.approx([30.0, 32.3])


@pytest.mark.parametrize("earlier", [False, True], ids=["nobody led before", "one that told less led before"])
async def test_a_longer_lease_is_waited_for_also_where_the_store_lost_that_it_was_told(tmp_path: Path, earlier: bool) -> None:
    disk, clock, file = MemoryDisk(), FakeClock(), InPlaceFile(tmp_path / "seen")
    if earlier:
        await _led(disk, clock, 10.0)
    before = len(disk.journal)
    await _led(disk, clock, 30.0, kept=file)
    disk.lose_tail(len(disk.journal) - before, fence_too=True)
    ack, began, later = await _led(disk, clock, 10.0, kept=file)
    assert (ack.incarnation, ack.lease_s, ack.longest_s) == (2, 10.0, 30.0)
    assert [began, later] == pytest.approx([32.3, 12.1])


async def test_a_longer_lease_that_the_store_lost_is_waited_for_once_and_not_by_every_leader_since(tmp_path: Path) -> None:
    disk, clock, file = MemoryDisk(), FakeClock(), InPlaceFile(tmp_path / "seen")
    await _led(disk, clock, 30.0, kept=file)
    disk.lose_tail(len(disk.journal), fence_too=True)
    await _led(disk, clock, 10.0, seconds=40.0, kept=file)
    ack, began, _ = await _led(disk, clock, 10.0, kept=file)
    assert [ack.longest_s, began] == pytest.approx([10.0, 12.1])


async def test_a_standby_that_heard_of_a_longer_lease_waits_for_it_when_the_store_has_lost_it() -> None:
    disk, clock = MemoryDisk(), FakeClock()
    await _led(disk, clock, 10.0)
    before = len(disk.journal)
    leader, standby = _server(disk, clock, 30.0), _server(disk, clock, 10.0)
    async with Tasks() as tasks, asyncio.timeout(60):
        leading = tasks.start(leader.run(), "leader")
        await leader.wait_leading()
        tasks.start(standby.run(), "standby")
        while not standby.ready:
            await asyncio.sleep(0.002)
        leading.cancel()  # as if it were killed
        disk.lose_tail(len(disk.journal) - before, fence_too=True)
        while not standby.leading:
            clock.offset += 0.1
            await asyncio.sleep(0.002)
        ack = standby.heartbeat([])
        assert isinstance(ack, HeartbeatAck)
        assert (ack.incarnation, ack.lease_s, ack.longest_s) == (2, 10.0, 30.0)
        tasks.cancel()
