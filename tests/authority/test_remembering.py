"""A store that loses its tail while all its servers are down is found out by what one of them had written down (P6)."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from fairlead.authority.authority import Authority
from fairlead.authority.candidate import Timing
from fairlead.authority.judge import Settings
from fairlead.authority.remembering import Remembering, Seen, lost_since
from fairlead.model.commands import Accepted, Command, Put
from fairlead.model.kinds.capacity import Grant, GrantSpec
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from fairlead.ports import InPlaceFile, Kept, SystemIds, Tasks
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import OPERATOR, FakeClock
from tests.authority.test_commit_faults import tenant


class World:
    def __init__(self, directory: Path) -> None:
        self.disk, self.clock = MemoryDisk(), FakeClock()
        self.file = InPlaceFile(directory / "seen")

    @asynccontextmanager
    async def leading(self, kept: Kept | None) -> AsyncIterator[Authority]:
        """One life of a server, which ends as if it were killed: what it wrote is all that is left."""
        timing = Timing(lease_ttl_s=2.0, renew_s=0.3, poll_s=0.02)
        store = MemoryStore(self.disk)
        server = Authority(store, self.clock, SystemIds(), Settings(region="local"), timing=timing, kept=kept)
        async with Tasks() as tasks:
            tasks.start(server.run(), "server")
            async with asyncio.timeout(60):
                while not server.leading:
                    self.clock.offset += 0.1
                    await self.clock.sleep(0.005)
            yield server
            tasks.cancel()

    @asynccontextmanager
    async def standing_by(self, kept: Kept) -> AsyncIterator[Authority]:
        """Beside somebody who leads, for as long as it lives."""
        timing = Timing(lease_ttl_s=60.0, renew_s=9.0, poll_s=0.01)
        store = MemoryStore(self.disk)
        standby = Authority(store, self.clock, SystemIds(), Settings(region="local"), timing=timing, kept=kept)
        async with Tasks() as tasks:
            tasks.start(standby.run(), "standby")
            yield standby
            tasks.cancel()

    async def write(self, server: Authority, *names: str) -> None:
        for name in names:
            assert isinstance((await server.submit([Command(OPERATOR, tenant(name))]))[0], Accepted)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_a_tail_that_was_lost_while_the_only_server_was_down_begins_a_new_incarnation(world: World) -> None:
    async with world.leading(world.file) as server:
        await world.write(server, "a", "b")
    assert world.disk.lose_tail(1) == 1
    async with world.leading(world.file) as server:
        assert server.fence is not None
        assert server.fence.incarnation == 2
        await world.write(server, "c")
    async with world.leading(world.file) as server:
        assert server.fence is not None
        assert server.fence.incarnation == 2, "once is enough"


async def test_a_start_on_a_store_that_lost_nothing_begins_none(world: World) -> None:
    for name in ("a", "b", "c"):
        async with world.leading(world.file) as server:
            await world.write(server, name)
            assert server.fence is not None
            assert server.fence.incarnation == 1
    async with world.leading(None) as server:  # another one has written since
        await world.write(server, "d", "e")
    async with world.leading(world.file) as server:
        assert server.fence is not None
        assert server.fence.incarnation == 1


async def test_a_tail_that_another_server_has_written_over_is_missed_all_the_same(world: World) -> None:
    async with world.leading(world.file) as server:
        await world.write(server, "a", "b", "c")
    seen = world.disk.head.position
    world.disk.lose_tail(3)
    async with world.leading(None) as server:  # it has never seen what is gone
        await world.write(server, "d", "e", "f", "g", "h")
        assert server.fence is not None
        assert server.fence.incarnation == 1
    assert world.disk.head.position > seen
    async with world.leading(world.file) as server:
        assert server.fence is not None
        assert server.fence.incarnation == 2


async def test_an_incarnation_that_was_lost_while_the_only_server_was_down_is_not_given_out_again(world: World) -> None:
    async with world.leading(world.file) as server:
        await world.write(server, "a", "b")
    world.disk.lose_tail(1)
    async with world.leading(world.file) as server:
        await world.write(server, "c")
    since = [each for each in world.disk.journal if each.fence.incarnation == 2]
    world.disk.lose_tail(len(since), fence_too=True)
    assert world.disk.head.incarnation == 1
    async with world.leading(world.file) as server:
        assert server.fence is not None
        assert server.fence.incarnation == 3


async def test_a_standby_remembers_what_it_showed(world: World, tmp_path: Path) -> None:
    own = InPlaceFile(tmp_path / "standby")
    async with world.leading(None) as server, world.standing_by(own):
        await world.write(server, "a", "b")
        async with asyncio.timeout(60):
            while (seen := Remembering(own).last()) is None or seen.position < world.disk.head.position:
                await asyncio.sleep(0.01)
    world.disk.lose_tail(1)
    async with world.leading(own) as server:
        assert server.fence is not None
        assert server.fence.incarnation == 2


async def test_a_standby_that_missed_something_still_does_after_a_restart(world: World) -> None:
    async with world.leading(world.file) as server:
        await world.write(server, "a", "b")
    world.disk.lose_tail(1)
    async with world.leading(None) as leader, world.standing_by(world.file) as standby:
        async with asyncio.timeout(60):
            while not standby.ready:
                await asyncio.sleep(0.01)
        await world.write(leader, "c", "d")
        await asyncio.sleep(0.1)
    async with world.leading(world.file) as server:
        assert server.fence is not None
        assert server.fence.incarnation == 2


async def test_of_what_the_journal_no_longer_has_nothing_can_be_said(world: World) -> None:
    async with world.leading(world.file) as server:
        await world.write(server, "a", "b")
    store, head = MemoryStore(world.disk), world.disk.head
    before = head.position - 1
    other = Seen(head.incarnation, head.epoch, before, b"?" * 32)
    assert "another history" in await lost_since(other, head, store, world.clock)
    materialised = replace(head, materialised=head.position)
    world.disk.head = materialised
    world.disk.truncate(head.fence(), head.position, b"")
    assert await lost_since(other, world.disk.head, store, world.clock) == ""


def test_what_was_half_written_tells_nothing(tmp_path: Path) -> None:
    file = InPlaceFile(tmp_path / "seen")
    assert Remembering(file).last() is None
    seen = Seen(2, 7, 99, b"h" * 32)
    Remembering(file).note(seen, 0)
    assert Remembering(file).last() == seen
    whole = file.read()
    assert whole is not None
    for torn in (b"", whole[:-1], bytes([whole[0] ^ 1]) + whole[1:], whole + b"x"):
        (tmp_path / "seen").write_bytes(torn)
        assert Remembering(file).last() is None


def test_what_an_earlier_version_wrote_tells_how_far_it_was_and_nothing_of_leases(tmp_path: Path) -> None:
    file, seen = InPlaceFile(tmp_path / "seen"), Seen(2, 7, 99, b"h" * 32, 30.0)
    Remembering(file).note(seen, 0)
    assert Remembering(file).last() == seen
    other, later = InPlaceFile(tmp_path / "other"), seen._replace(position=120, lease_s=15.0)
    Remembering(other).note(later, 0)
    whole = other.read()
    assert whole is not None
    file.write(whole[:60], durable=False)  # over ours
    assert Remembering(file).last() == later._replace(lease_s=0.0)
    (tmp_path / "seen").write_bytes(whole[:60])
    assert Remembering(file).last() == later._replace(lease_s=0.0)


def test_a_lease_that_agents_are_told_survives_a_power_cut() -> None:
    file = Flaky()
    remembering = Remembering(file)
    remembering.note(Seen(1, 1, 10, b"a" * 32, 15.0), 7)
    remembering.note(Seen(1, 2, 20, b"b" * 32, 30.0), 7)
    file.lose_power()
    assert Remembering(file).last() == Seen(1, 2, 20, b"b" * 32, 30.0)


def test_a_disk_that_is_full_stops_nobody_and_is_written_as_soon_as_it_has_room(caplog: pytest.LogCaptureFixture) -> None:
    class Disk:
        full = True
        data: bytes | None = None

        def read(self) -> bytes | None:
            return self.data

        def write(self, data: bytes, *, durable: bool) -> None:
            if self.full:
                raise OSError(errno.ENOSPC, "no space left")
            self.data = data

    disk = Disk()
    remembering = Remembering(disk)
    remembering.note(Seen(1, 1, 1, b"a" * 32), 0)
    remembering.note(Seen(1, 1, 2, b"b" * 32), 0)
    assert len([each for each in caplog.records if "cannot be written" in each.message]) == 1
    disk.full = False
    remembering.note(Seen(1, 1, 2, b"b" * 32), 0)
    assert Remembering(disk).last() == Seen(1, 1, 2, b"b" * 32)


class Flaky:
    """A file, and what a power cut would leave of it."""

    def __init__(self) -> None:
        self.data: bytes | None = None
        self.synced: bytes | None = None
        self.syncs = 0

    def read(self) -> bytes | None:
        return self.data

    def write(self, data: bytes, *, durable: bool) -> None:
        self.data = data
        if durable:
            self.synced, self.syncs = data, self.syncs + 1

    def lose_power(self) -> None:
        self.data = self.synced


def test_what_was_seen_survives_a_power_cut_as_far_as_the_last_pledge_and_is_not_synced_without_one() -> None:
    file = Flaky()
    remembering = Remembering(file)
    one, two, three = (Seen(1, 1, position, bytes([position]) * 32) for position in (10, 20, 30))
    remembering.note(one, 7)
    remembering.note(two, 7)
    assert file.syncs == 1, "nothing was pledged since"
    remembering.note(three, 25)
    assert file.syncs == 2
    file.lose_power()
    assert Remembering(file).last() == three


def test_a_pledge_of_the_batch_that_is_still_on_its_way_is_not_taken_for_one_that_was_synced() -> None:
    """Judging runs ahead of the store: the newest pledge may be of a later batch than the one that became durable."""
    file = Flaky()
    remembering = Remembering(file)
    remembering.note(Seen(1, 1, 10, b"a" * 32), 15)
    remembering.note(Seen(1, 1, 20, b"b" * 32), 15)
    file.lose_power()
    assert Remembering(file).last() == Seen(1, 1, 20, b"b" * 32)


@pytest.mark.parametrize(
    "now", [Seen(2, 3, 40, b"n" * 32), Seen(1, 1, 20, b"o" * 32)], ids=["another incarnation", "it went back"]
)
def test_a_sync_of_another_history_says_nothing_about_this_one(now: Seen) -> None:
    file = Flaky()
    remembering = Remembering(file)
    remembering.note(Seen(1, 1, 30, b"a" * 32), 5)
    remembering.note(now, 12)
    file.lose_power()
    assert Remembering(file).last() == now


async def test_an_offer_that_a_plane_has_made_or_taken_is_remembered_over_a_power_cut(world: World) -> None:
    file = Flaky()
    async with world.leading(file) as server:
        await world.write(server, "a", "b")
        before = file.syncs
        await world.write(server, "c", "d")
        assert file.syncs == before, "nobody was promised anything"
        spec = GrantSpec(region="local", version=1, during=Resources(1000, 0), after=Resources(1000, 0))
        offer = Put("Grant", Grant(metadata=Metadata(name="local", namespace="a"), spec=spec))
        (answer,) = await server.submit([Command(OPERATOR, offer)])
        assert isinstance(answer, Accepted)
        file.lose_power()
        seen = Remembering(file).last()
        assert seen is not None
        assert seen.position == server.view().revision & ((1 << 44) - 1)


async def test_a_standby_remembers_a_pledge_over_a_power_cut_too(world: World) -> None:
    own, others = Flaky(), Flaky()
    async with world.leading(own) as server, world.standing_by(others):
        spec = GrantSpec(region="local", version=1, during=Resources(1000, 0), after=Resources(1000, 0))
        await world.write(server, "a")
        offer = Put("Grant", Grant(metadata=Metadata(name="local", namespace="a"), spec=spec))
        assert isinstance((await server.submit([Command(OPERATOR, offer)]))[0], Accepted)
        position = server.view().revision & ((1 << 44) - 1)
        async with asyncio.timeout(60):
            while (seen := Remembering(others).last()) is None or seen.position < position:
                await world.clock.sleep(0.005)
    others.lose_power()
    kept = Remembering(others).last()
    assert kept is not None
    assert kept.position == position
