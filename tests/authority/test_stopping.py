"""A server that is told to stop: what it still writes, how long it waits for a store that is away, what the next one finds."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.authority.candidate import Timing
from fairlead.model.commands import (
    Command,
    IdempotencyKey,
    Unknown,
)  # fmt: skip
from fairlead.ports import SystemClock, Tasks
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.faults import LAND_LATER, HandFaults
from tests.authority.planes import OPERATOR, FakeClock, ok, running_plane
from tests.authority.test_commit_faults import put, server_of, tenant


async def test_a_restart_finds_everything_and_does_not_wait_for_a_lease_that_was_given_up() -> None:
    disk, clock = MemoryDisk(), SystemClock()
    async with running_plane(MemoryStore(disk), clock) as plane:
        ok(await put(plane, "a"))
    started = clock.monotonic()
    async with running_plane(MemoryStore(disk), clock, timing=Timing(lease_ttl_s=60.0)) as plane:
        assert clock.monotonic() - started < 30, "half of the lease"
        assert plane.authority.view().get("tenants", "", "a") is not None


async def test_stopping_while_objects_are_being_written_loses_none_of_them() -> None:
    """The last flush must not overtake one that is under way: what the store has materialised would have holes."""
    disk, faults = MemoryDisk(), HandFaults()
    async with running_plane(MemoryStore(disk, faults)) as plane:
        for n in range(3):
            ok(await put(plane, f"early-{n}"))
        gate = faults.hold("materialise")
        await faults.wait_held("materialise")
        faults.gates.clear()  # only the one under way stays where it is
        for n in range(3):
            ok(await put(plane, f"late-{n}"))
        plane.authority.stop()
        for _ in range(200):
            await asyncio.sleep(0)
        gate.set()
    assert disk.head.materialised == disk.head.position
    names = sorted(key.split("/")[2] for key in disk.objects if key.startswith("tenants/"))
    assert names == [f"early-{n}" for n in range(3)] + [f"late-{n}" for n in range(3)]


async def test_a_server_told_to_stop_while_its_store_is_away_waits_for_its_lease_and_no_longer() -> None:
    clock, faults = FakeClock(), HandFaults()
    timing = Timing(lease_ttl_s=10.0, renew_s=3.0, poll_s=0.02)
    async with running_plane(MemoryStore(MemoryDisk(), faults), clock, timing=timing) as plane:
        faults.hold("commit")
        faults.hold("renew")
        sending = asyncio.ensure_future(put(plane, "a"))
        await faults.wait_held("commit")
        plane.authority.stop()
        for _ in range(20):
            await asyncio.sleep(0.002)
        assert not sending.done(), "while the lease runs the answer may yet come"
        clock.offset += timing.lease_ttl_s
        assert isinstance(await sending, Unknown)


@pytest.mark.parametrize("in_doubt", [True, False], ids=["its outcome is unknown", "no answer at all"])
async def test_a_server_told_to_stop_before_its_first_batch_is_known_waits_for_its_lease_and_no_longer(in_doubt: bool) -> None:
    disk, clock, faults = MemoryDisk(), FakeClock(), HandFaults()
    if in_doubt:
        faults.always["commit"] = LAND_LATER
    else:
        faults.hold("commit")
    server = server_of(disk, clock, "one", faults)
    async with asyncio.timeout(20), Tasks() as tasks:
        running = tasks.start(server.run(), "server")
        while not faults.calls.get("commit"):
            await asyncio.sleep(0)
        server.stop()
        for _ in range(20):
            await asyncio.sleep(0.002)
        assert not running.done(), "while the lease runs the answer may yet come"
        clock.offset += 2.0
        await running
    epoch, late = disk.head.epoch, faults.held[:1]
    for write in late:
        write.land()
    async with asyncio.timeout(20), Tasks() as tasks:
        second = server_of(disk, clock, "two")
        tasks.start(second.run(), "second")
        while not second.leading:
            clock.offset += 0.1
            await asyncio.sleep(0)
        assert disk.head.epoch == epoch + 1
        assert ok((await second.submit([Command(OPERATOR, tenant("a"), IdempotencyKey("a"))]))[0])
        second.stop()


@pytest.mark.parametrize("call", ["materialise", "resign"])
async def test_a_server_that_hands_over_to_nobody_because_its_store_is_away_ends_with_its_lease(call: str) -> None:
    disk, clock, faults = MemoryDisk(), FakeClock(), HandFaults()
    server = server_of(disk, clock, "one", faults)
    async with asyncio.timeout(20), Tasks() as tasks:
        running = tasks.start(server.run(), "server")
        await server.wait_leading()
        ok((await server.submit([Command(OPERATOR, tenant("a"), IdempotencyKey("a"))]))[0])
        faults.hold(call)
        server.stop()
        await faults.wait_held(call)
        faults.hold("renew")
        while not running.done():
            clock.offset += 0.1
            await asyncio.sleep(0)
    assert disk.head.holder, "nobody has resigned: the next leader waits for the lease, as after a crash"
