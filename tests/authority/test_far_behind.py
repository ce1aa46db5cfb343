"""A leader that begins with objects far behind the journal brings all of them up to date, not only what its memory of recent
changes reaches back to. Else the next one that loads would begin without them, and nobody would notice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from fairlead.authority.authority import Authority
from fairlead.authority.candidate import Candidate, Timing
from fairlead.authority.follower import Forked
from fairlead.authority.judge import Settings
from fairlead.authority.state import State
from fairlead.model.commands import Accepted, Command
from fairlead.ports import SystemIds, Tasks
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import OPERATOR, FakeClock
from tests.authority.test_commit_faults import tenant

RING = 5
NAMES = [f"t{number}" for number in range(6 * RING)]


class Plane:
    def __init__(self) -> None:
        self.disk, self.clock = MemoryDisk(), FakeClock()

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[Authority]:
        """One life of a server; it ends as if it were killed, unless somebody stops it."""
        timing = Timing(lease_ttl_s=2.0, renew_s=0.3, poll_s=0.02, ring_size=RING)
        server = Authority(MemoryStore(self.disk), self.clock, SystemIds(), Settings(region="local"), timing=timing)
        async with Tasks() as tasks:
            running = tasks.start(server.run(), "server")
            async with asyncio.timeout(60):
                while not server.leading:
                    self.clock.offset += 0.1
                    await self.clock.sleep(0.005)
            yield server
            if server.leading:
                tasks.cancel()
            else:
                await running

    async def write(self, server: Authority, *names: str) -> None:
        for name in names:
            assert isinstance((await server.submit([Command(OPERATOR, tenant(name))]))[0], Accepted)


def names_of(server: Authority) -> set[str]:
    return {rec.name for rec in server._state.live("tenants")}


async def test_what_lies_further_back_than_memory_reaches_is_written_to_the_objects_too() -> None:
    plane = Plane()
    async with plane.leading() as first:
        await plane.write(first, *NAMES)
        assert plane.disk.head.materialised == 0, "it is killed before it wrote any object"
    async with plane.leading() as second:
        assert names_of(second) == set(NAMES)
        await plane.write(second, "last")
        second.stop()  # brings the objects up to date
    assert plane.disk.head.materialised == plane.disk.head.position
    async with plane.leading() as third:
        assert names_of(third) == {*NAMES, "last"}


async def test_a_leader_that_is_up_to_date_forgets_again_what_lies_further_back() -> None:
    plane = Plane()
    async with plane.leading() as first:
        await plane.write(first, *NAMES)
    async with plane.leading() as second:
        await plane.write(second, "last")
        state = second._state
        assert state.position - state.horizon <= RING


async def test_objects_that_moved_on_under_a_takeover_are_loaded_again() -> None:
    """The head that was read is then no longer the store's: what it lacks among the objects cannot be told by it."""
    disk, clock = MemoryDisk(), FakeClock()
    made = Candidate(MemoryStore(disk), clock, SystemIds(), Settings(region="local"), Timing(), "a", lambda: False)
    made.memory.state.loaded(10)
    with pytest.raises(Forked):
        await made._reach(replace(disk.head, materialised=9))


def test_what_is_forgotten_cannot_be_held_and_is_not_told() -> None:
    state = State(lambda plural, raw: None, RING)
    for name in NAMES:
        state.confirm(state.apply("tenants", "", name, b"x").position)
    forgotten = state.horizon
    assert forgotten == len(NAMES) - RING
    with pytest.raises(AssertionError):
        state.hold(forgotten - 1)
    with pytest.raises(AssertionError):
        state.changes_since(forgotten - 1)
    state.hold(forgotten)
    for name in NAMES:
        state.confirm(state.apply("tenants", "", name, b"y").position)
    assert state.horizon == forgotten
    assert len(state.changes_since(forgotten)) == RING + len(NAMES)
    state.let_go(forgotten)
    state.confirm(state.apply("tenants", "", "more", b"z").position)
    assert len(state.changes_since(state.horizon)) == RING


async def test_leaders_that_follow_each_other_soon_cut_the_journal_all_the_same() -> None:
    plane = Plane()
    for life in range(6):  # each of five minutes, half of what is kept
        async with plane.leading() as server:
            for number in range(5):
                await plane.write(server, f"t{life}-{number}")
                plane.clock.offset += 60.0
                await asyncio.sleep(0.05)
    assert plane.disk.head.truncated > 0
    async with plane.leading() as last:
        assert names_of(last) == {f"t{life}-{number}" for life in range(6) for number in range(5)}
