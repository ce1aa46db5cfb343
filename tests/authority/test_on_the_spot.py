"""A lone command is committed within the step that judged it, where the store is quick; what the store says then is dealt with as
after any other commit (P1, P3)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from fairlead.authority import pace
from fairlead.authority.candidate import Timing
from fairlead.authority.local import LocalPlane
from fairlead.authority.pace import SPOT_BYTES, SPOT_COMMANDS, TRY_AFTER, TRY_S, Pace
from fairlead.client.plane import Feed
from fairlead.model.commands import Command, Delete, Refused, Unknown
from fairlead.model.lifecycle import Role
from fairlead.ports import Tasks
from fairlead.store.contract import Batch, CommitResult, Fence, OutcomeUnknown, Unavailable
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.faults import DISK_FULL, LAND_LATER, HandFaults
from tests.authority.planes import OPERATOR, FakeClock, PlaneForTest, bind_of, no, ok, running_plane
from tests.authority.test_commit_faults import put, tenant

FULL = Unavailable("DiskFull", "the disk is full", 0.01)


class SpotStore(MemoryStore):
    """Commits on the spot what `spot` lets it."""

    def __init__(self, disk: MemoryDisk, faults: HandFaults | None = None) -> None:
        super().__init__(disk, faults)
        self.spot: Callable[[Callable[[], CommitResult]], CommitResult | None] = lambda land: land()
        self.here = 0

    def commit_on_the_spot(self, fence: Fence, batch: Batch) -> CommitResult | None:  # type: ignore[override]
        self.here += 1
        return self.spot(lambda: self._disk.commit(fence, batch))


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "QUICK_S", 1e9)


pytestmark = pytest.mark.usefixtures("_quick")


async def names(plane: PlaneForTest) -> list[str]:
    return [rec.name for rec in (await plane.authority.view().page("tenants")).items]


async def test_a_lone_command_is_durable_answered_and_published_without_a_hand_over() -> None:
    disk, faults = MemoryDisk(), HandFaults()
    store = SpotStore(disk, faults)
    async with running_plane(store) as plane:
        watch = plane.authority.watch("tenants", plane.authority.view().revision)
        sent = faults.calls["commit"]
        answer = ok(await put(plane, "a"))
        assert faults.calls["commit"] == sent
        assert store.here
        assert disk.head.position == plane.authority.position
        assert plane.authority.view().revision >= answer.revision
        assert [rec.name for rec in await watch.wait()] == ["a"]


async def test_a_few_commands_that_came_together_are_one_commit_on_the_spot_and_many_are_handed_over() -> None:
    faults = HandFaults()
    store = SpotStore(MemoryDisk(), faults)
    async with running_plane(store) as plane:
        sent = faults.calls["commit"]
        outcomes = await plane.authority.submit([Command(OPERATOR, tenant(name)) for name in "ab"])
        assert [ok(outcome).key for outcome in outcomes] == ["tenants//a", "tenants//b"]
        assert (store.here, faults.calls["commit"]) == (1, sent)
        many = [Command(OPERATOR, tenant(f"t{n}")) for n in range(SPOT_COMMANDS + 1)]
        assert all(ok(outcome) for outcome in await plane.authority.submit(many))
        assert (store.here, faults.calls["commit"]) == (1, sent + 1)


async def test_a_batch_of_few_commands_and_many_bytes_is_handed_over() -> None:
    store = SpotStore(MemoryDisk())
    async with running_plane(store) as plane:
        large = tenant("large")
        notes = {f"example.com/n{n}": "x" * 1000 for n in range(SPOT_BYTES // 1000 + 1)}
        metadata = replace(large.object.metadata, annotations=notes)
        ok(await plane.send(OPERATOR, replace(large, object=replace(large.object, metadata=metadata))))
        assert store.here == 0


async def test_what_a_component_makes_of_it_is_in_the_same_commit_on_the_spot() -> None:
    """It is told before the store is asked, and what it answers within a few turns joins (ADR 0020)."""
    faults = HandFaults()
    store = SpotStore(MemoryDisk(), faults)
    async with running_plane(store) as plane:
        sent = faults.calls["commit"]
        feed = plane.authority.follow_early(["tenants"], plane.authority.view().revision)

        async def build_on_it() -> None:
            while not feed.take_nowait():
                await feed.wait()
            ok(await put(plane, "b"))

        building = asyncio.ensure_future(build_on_it())
        ok(await put(plane, "a"))
        await building
        assert (store.here, faults.calls["commit"]) == (1, sent)


async def test_a_commit_in_doubt_on_the_spot_is_not_settled_by_a_later_refusal() -> None:
    disk, faults = MemoryDisk(), HandFaults()
    store = SpotStore(disk, faults)
    async with running_plane(store) as plane:
        store.spot = lambda land: OutcomeUnknown("no answer")
        sent = faults.calls["commit"]
        faults.once("commit", DISK_FULL, LAND_LATER)
        sending = asyncio.ensure_future(put(plane, "a"))
        while faults.calls["commit"] < sent + 2:
            await asyncio.sleep(0)
        assert not sending.done()
        faults.held[0].land()
        ok(await sending)
        assert await names(plane) == ["a"]
        assert plane.authority.meters.commit_unknown_total == 1


async def test_a_commit_that_landed_on_the_spot_without_an_answer_takes_effect_once() -> None:
    disk = MemoryDisk()
    store = SpotStore(disk)
    async with running_plane(store) as plane:

        def lost(land: Callable[[], CommitResult]) -> CommitResult:
            land()
            return OutcomeUnknown("no answer")

        store.spot = lost
        first = ok(await put(plane, "a"))
        assert disk.head.position == plane.authority.position
        assert ok(await put(plane, "a")).revision == first.revision
        assert await names(plane) == ["a"]


async def test_trust_counts_from_when_it_was_first_sent() -> None:
    """It landed, the process stood still beyond its lease, then heard that it is there: that vouches for the past only."""
    clock = FakeClock()
    store = SpotStore(MemoryDisk())
    async with running_plane(store, clock, timing=Timing(lease_ttl_s=60.0, renew_s=6000.0, poll_s=0.02)) as plane:

        def late(land: Callable[[], CommitResult]) -> CommitResult:
            land()
            clock.offset += 120.0
            return OutcomeUnknown("no answer")

        store.spot = late
        ok(await put(plane, "a"))
        assert isinstance(plane.authority.heartbeat([("n1", 1)]), Refused)
        plane.authority.stop()
        clock.offset += 10_000.0


async def test_what_the_store_refuses_on_the_spot_is_taken_back() -> None:
    faults = HandFaults()
    store = SpotStore(MemoryDisk(), faults)
    async with running_plane(store) as plane:
        store.spot = lambda land: FULL
        sent = faults.calls["commit"]
        assert "DiskFull" in no(await put(plane, "a"), "StoreUnavailable").detail
        assert await names(plane) == []
        assert faults.calls["commit"] == sent, "a definite no needs no second opinion"
        store.spot = lambda land: land()
        assert not ok(await put(plane, "a")).replayed


async def test_a_store_that_cannot_now_gets_the_batch_as_ever() -> None:
    faults = HandFaults()
    store = SpotStore(MemoryDisk(), faults)
    async with running_plane(store) as plane:
        store.spot = lambda land: None
        sent = faults.calls["commit"]
        ok(await put(plane, "a"))
        assert faults.calls["commit"] == sent + 1


async def test_who_learns_on_the_spot_that_somebody_else_leads_steps_down() -> None:
    disk = MemoryDisk()
    async with running_plane(SpotStore(disk)) as plane:
        other = MemoryStore(disk)
        assert isinstance(await other.acquire("usurper", await other.head()), Fence)
        assert isinstance(await put(plane, "a"), Unknown)
        assert plane.authority.meters.deposed_total == 1
        plane.authority.stop()


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Pace:
    monkeypatch.setattr(pace, "QUICK_S", 0.001)
    return Pace()


def suits(seen: Pace) -> bool:
    return seen.suits(1, 100)


def after(seen: Pace, *took_s: float) -> Pace:
    for each in took_s:
        seen.handed_over(each)
    return seen


def test_a_store_is_tried_once_it_was_seen_not_to_be_slow(seen: Pace) -> None:
    assert not suits(after(seen, *[0.002] * (TRY_AFTER - 1)))
    assert suits(after(seen, 0.02))
    assert not seen.is_quick


def test_a_store_that_was_never_seen_below_the_limit_is_not_tried(seen: Pace) -> None:
    assert not suits(after(seen, *[TRY_S * 1.01] * 1000))


def test_one_quick_commit_on_the_spot_shows_a_quick_store_and_one_slow_one_casts_doubt(seen: Pace) -> None:
    seen.here(0.0003)
    assert suits(seen)
    seen.here(0.04)
    assert not suits(seen)


def test_what_waits_for_threads_and_turns_of_the_loop_casts_no_doubt(seen: Pace) -> None:
    seen.here(0.0003)
    assert suits(after(seen, *[0.05] * 1000))


def test_a_store_that_hung_is_tried_again_after_so_many_commits_and_trusted_if_it_is_quick(seen: Pace) -> None:
    seen.here(3600.0)
    assert not suits(after(seen, *[0.0004] * (TRY_AFTER - 1)))
    assert suits(after(seen, 0.0004))
    seen.here(0.0003)
    assert suits(seen)


def test_a_store_that_is_slow_in_every_try_is_tried_once_in_so_many_commits(seen: Pace) -> None:
    tries = 0
    for _ in range(20 * TRY_AFTER):
        if suits(seen):
            tries += 1
            seen.here(0.004)
        else:
            seen.handed_over(0.0045)
    assert tries == 18  # a try is a commit, too


async def test_people_are_answered_then_watches_told_then_components_answered() -> None:
    """Of one batch. Components have looked on meanwhile; a person waits for the answer, or for the watch."""
    async with running_plane(MemoryStore(MemoryDisk())) as plane:
        component = await plane.as_role(Role.ASSIGNMENT)
        watch = plane.authority.watch("tenants", plane.authority.view().revision)
        order: list[str] = []

        async def told(who: str, work: Awaitable[object]) -> None:
            await work
            order.append(who)

        async with Tasks() as tasks:
            tasks.start(told("watch", watch.wait()), "watch")
            tasks.start(told("component", plane.send(component, Delete("Workload", "risk", "none"))), "component")
            tasks.start(told("person", put(plane, "a")), "person")
        assert order == ["person", "watch", "component"]


async def test_what_is_handed_over_leads_to_a_try_and_says_nothing_else_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "QUICK_S", 0.001)
    clock = FakeClock()

    class Waiting(SpotStore):
        async def commit(self, fence: Fence, batch: Batch) -> CommitResult:
            clock.offset += 0.003  # for its thread and for the loop
            return await super().commit(fence, batch)

    store = Waiting(MemoryDisk())
    async with running_plane(store, clock) as plane:
        tried = []
        for n in range(TRY_AFTER + 2):  # the plane's first batch was handed over, too
            ok(await put(plane, f"t{n}"))
            tried.append(store.here)
        assert tried[TRY_AFTER // 2] == 0
        assert tried[-1] == tried[-2] + 1 > 1, "quick at the first try, and trusted since"


async def test_other_planes_and_agents_are_told_a_turn_before_anybody_is_answered() -> None:
    """What they are sent leaves at the end of a turn of the loop: an answer made in the same turn would hold it up."""
    async with running_plane(MemoryStore(MemoryDisk())) as plane:
        near = LocalPlane(plane.authority, plane.clock)
        far = near.follow(("tenants", "workloads"), near.revision())  # of several kinds: a picture that somebody keeps
        far.take_nowait()
        turns: dict[str, int] = {}
        turn, over = 0, False

        async def count() -> None:
            nonlocal turn
            while not over:
                turn += 1
                await asyncio.sleep(0)

        async def told(who: str, work: Awaitable[object]) -> None:
            await work
            turns[who] = turn

        async with Tasks() as tasks:
            tasks.start(count(), "turns")
            follower = tasks.start(told("follower", far.wait()), "follower")
            person = tasks.start(told("person", put(plane, "a")), "person")
            await asyncio.gather(follower, person)
            over = True
        assert turns["follower"] < turns["person"]


async def test_of_a_batch_that_binds_whoever_acts_on_it_hears_before_components_do() -> None:
    async with running_plane(SpotStore(MemoryDisk())) as plane:
        await plane.add_node("n1")
        ok(await put(plane, "a"))
        await plane.grant("a")
        ok(await plane.request("a", "w", 0, await plane.as_role(Role.ASSIGNMENT)))
        scheduler = await plane.as_role(Role.SCHEDULER)
        order: list[str] = []

        async def told(who: str, feed: Feed) -> None:
            feed.take_nowait()
            await feed.wait()
            assert [change.name for change in feed.take_nowait()] == ["w-0"]
            order.append(who)

        async with asyncio.timeout(60), Tasks() as tasks:
            for who, early in (("component", True), ("agent", False)):
                near = LocalPlane(plane.authority, plane.clock, early=early)
                tasks.start(told(who, near.follow(("bindings", "nodes"), near.revision())), who)
            await asyncio.sleep(0)
            ok(await plane.send(scheduler, bind_of("a", "w-0", "n1")))
        assert order == ["agent", "component"]
