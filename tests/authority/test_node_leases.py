"""How long agents may count on an acknowledgement is the region's to say; one that begins to say less waits for those who heard
more (P9, S12)."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.authority.authority import Authority
from fairlead.authority.candidate import Timing
from fairlead.authority.judge import Settings
from fairlead.authority.term import HeartbeatAck
from fairlead.model.commands import Caller, Command, LeaseAcquire
from fairlead.model.lifecycle import Role
from fairlead.ports import SystemIds, Tasks
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import FakeClock, ok

TIMING = Timing(lease_ttl_s=2.0, renew_s=0.3, poll_s=0.02)


async def _led(disk: MemoryDisk, clock: FakeClock, lease_s: float, seconds: float = 0.0) -> tuple[HeartbeatAck, float, float]:
    """A leader with this lease, from its start to its end after so many seconds: what it tells agents; the fence when it began
    and, from then on, when the longest may be over."""
    server = Authority(MemoryStore(disk), clock, SystemIds(), Settings(region="local", node_lease_s=lease_s), timing=TIMING)
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
