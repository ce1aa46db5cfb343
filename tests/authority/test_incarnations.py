"""Which incarnation a plane's leader begins when its store has lost history (P6)."""

from __future__ import annotations

import asyncio

from fairlead.model.commands import Accepted, Command
from fairlead.ports import Tasks
from fairlead.store.memory import MemoryDisk
from tests.authority.planes import OPERATOR, FakeClock
from tests.authority.test_commit_faults import server_of, tenant


async def test_an_incarnation_that_the_store_lost_again_is_not_given_out_again() -> None:
    """Simulator, seed 2 of `tails`: nodes had heard of the lost one, and refused everything that came after it."""
    disk, clock = MemoryDisk(), FakeClock()
    server = server_of(disk, clock, "one")

    async def committed(name: str, incarnation: int) -> None:
        """It leads in that incarnation, and has written something there."""
        async with asyncio.timeout(60):
            while disk.head.incarnation != incarnation or not server.leading:
                await clock.sleep(0.01)
            while not isinstance((await server.submit([Command(OPERATOR, tenant(name))]))[0], Accepted):
                await clock.sleep(0.01)

    async with Tasks() as tasks:
        running = tasks.start(server.run(), "server")
        await server.wait_leading()
        await committed("a", 1)
        await committed("b", 1)
        disk.lose_tail(1)
        await server.submit([Command(OPERATOR, tenant("c"))])
        await committed("d", 2)
        since = [kept for kept in disk.journal if kept.fence.incarnation == 2]
        assert disk.lose_tail(len(since), fence_too=True) == len(since)
        assert disk.head.incarnation == 1
        await server.submit([Command(OPERATOR, tenant("e"))])
        await committed("f", 3)
        server.stop()
        await running
