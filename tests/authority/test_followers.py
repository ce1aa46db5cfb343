"""A server that does not lead still answers reads and watches, a little behind, and goes on doing so when it takes over."""

from __future__ import annotations

import asyncio

from fairlead.authority.authority import Authority
from fairlead.authority.candidate import Timing
from fairlead.authority.follower import Follower
from fairlead.authority.hot import hot_of
from fairlead.authority.judge import Settings
from fairlead.authority.state import State
from fairlead.model.commands import Put
from fairlead.model.kinds.intent import Tenant
from fairlead.model.meta import Metadata
from fairlead.ports import SystemClock, SystemIds, Tasks
from fairlead.store.contract import Contended, Head
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import OPERATOR, REGION, FakeClock, PlaneForTest, no, ok, running_plane

QUICK = Timing(lease_ttl_s=2.0, renew_s=0.5, poll_s=0.01)


def tenant(name: str) -> Put:
    return Put("Tenant", Tenant(metadata=Metadata(name=name)))


async def test_watches_on_a_standby_see_what_the_leader_commits_and_outlive_a_takeover() -> None:
    disk = MemoryDisk()
    async with Tasks() as tasks:
        async with running_plane(MemoryStore(disk)) as leader:
            settings = Settings(region=REGION, address="https://standby:1")
            standby = Authority(MemoryStore(disk), SystemClock(), SystemIds(), settings, name="standby", timing=QUICK)
            running = tasks.start(standby.run(), "standby")
            ok(await leader.send(OPERATOR, tenant("risk")))
            while standby.view().get("tenants", "", "risk") is None:
                await asyncio.sleep(0.005)
            feed = standby.follow(("tenants",), standby.view().revision)
            ok(await leader.send(OPERATOR, tenant("search")))
            first = [rec.name for rec in feed.take_nowait()]  # it may have come already
            while not first:
                await feed.wait()
                first += [rec.name for rec in feed.take_nowait()]
            assert first == ["search"]
            behind = PlaneForTest(standby, SystemClock())
            no(await behind.send(OPERATOR, tenant("late")), "NotLeader")
        async with asyncio.timeout(60):
            await standby.wait_leading()
        ok(await behind.send(OPERATOR, tenant("billing")))
        seen: list[str] = []
        while "billing" not in seen:
            await feed.wait()
            seen += [rec.name for rec in feed.take_nowait()]
        assert seen == ["billing"]
        assert standby.leader_address == "https://standby:1"
        standby.stop()
        await running


def test_a_standby_counts_plane_time_on_from_a_batch_it_saw_happen_and_not_by_the_wall_clock() -> None:
    """P5. Who has seen none happen takes the later of the last batch and the wall clock."""
    clock = FakeClock()
    follower = Follower(MemoryStore(MemoryDisk()), clock, State(hot_of, 100), lambda recs: None)
    now_ms = int(clock.wall() * 1000)
    follower.last_ms = now_ms + 60_000
    assert follower.plane_ms() == follower.last_ms, "the wall clock is behind"
    follower.last_ms = now_ms - 60_000
    assert follower.plane_ms() >= now_ms
    follower.saw(b"", 5_000)
    clock.offset += 7.0
    assert 12_000 <= follower.plane_ms() < 13_000


async def test_a_standby_that_loses_the_race_for_leadership_keeps_what_it_knows() -> None:
    disk = MemoryDisk()

    class Slow(MemoryStore):
        """Believes that the leader is gone, and is never the first."""

        raced = 0

        async def leader_gone(self) -> bool:
            return True

        async def acquire(self, holder: str, observed: Head) -> Contended:
            self.raced += 1
            return Contended(await self.head())

    async with Tasks() as tasks, running_plane(MemoryStore(disk)) as leader:
        store = Slow(disk)
        standby = Authority(store, SystemClock(), SystemIds(), Settings(region=REGION), timing=QUICK)
        running = tasks.start(standby.run(), "standby")
        while not standby.ready:
            await asyncio.sleep(0.01)
        watch = standby.watch("tenants", standby.view().revision)
        before = store.raced
        while store.raced < before + 3:
            await asyncio.sleep(0.01)
        ok(await leader.send(OPERATOR, tenant("risk")))
        assert [rec.name for rec in await watch.wait()] == ["risk"]
        standby.stop()
        await running
