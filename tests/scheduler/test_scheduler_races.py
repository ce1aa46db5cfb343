"""A scheduler that is not alone: others bind before it, take its lease, lead its plane, or share its work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from fairlead.authority.candidate import Timing
from fairlead.authority.local import LocalPlane
from fairlead.client.plane import Change, Feed
from fairlead.model.commands import (
    Accepted,
    Bind,
    BindGang,
    BindMany,
    Caller,
    Command,
    LeaseAcquire,
    Outcome,
    PutStatus,
    Refused,
    Unknown,
)
from fairlead.model.lifecycle import Role
from fairlead.model.resources import DeviceAsk
from fairlead.scheduler.partition import Partition
from fairlead.store.contract import Fence
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import bind_of, gpu, ok
from tests.scheduler.running import Rig, rig

Meddling = Callable[[list[Bind]], Awaitable[None]]


def binds_of(command: Command) -> list[Bind]:
    body = command.body
    return list(body.binds) if isinstance(body, BindMany | BindGang) else [body] if isinstance(body, Bind) else []


class LateFeed:
    """A feed that keeps to itself what it has while `late` says so."""

    def __init__(self, feed: Feed, late: Callable[[], bool]) -> None:
        self._feed = feed
        self._late = late
        self._kept: list[Change] = []
        self.wait, self.poke, self.close = feed.wait, feed.poke, feed.close
        self.revision = feed.revision

    def take_nowait(self) -> Sequence[Change]:
        self._kept += self._feed.take_nowait()
        if self._late():
            return ()
        taken, self._kept = self._kept, []
        self.revision = self._feed.revision
        return taken


class Meddled(LocalPlane):
    """A plane where somebody acts, once, just before the first proposals arrive; whose watch may be late; that may have another
    leader."""

    def __init__(self, plane: LocalPlane, meddle: Meddling | None = None) -> None:
        super().__init__(plane._authority, plane._clock)
        self.meddle = meddle
        self.late = False
        self.not_leading = 0  # calls with proposals that are still to be turned away
        self.overloaded = 0  # calls with reasons that are
        self.proposed: list[list[Bind]] = []
        self.outcomes: list[Outcome] = []

    async def submit(self, commands: list[Command]) -> list[Outcome]:
        binds = [bind for command in commands for bind in binds_of(command)]
        if binds:
            self.proposed.append(binds)
            meddle, self.meddle = self.meddle, None
            if meddle is not None:
                await meddle(binds)
        if binds and self.not_leading:
            self.not_leading -= 1
            return [Refused("NotLeader", "another leads") for _ in commands]
        if self.overloaded and any(isinstance(command.body, PutStatus) for command in commands):
            self.overloaded -= 1
            return [Refused("Overloaded", "9 commands wait already") for _ in commands]
        outcomes = await super().submit(commands)
        self.outcomes += outcomes if binds else []
        return outcomes

    def follow(self, *args: Any, **kwargs: Any) -> Any:
        return LateFeed(super().follow(*args, **kwargs), lambda: self.late)


async def other_scheduler(r: Rig) -> Caller:
    return await r.plane.as_role(Role.SCHEDULER, "rival", "rival")


# --- lost races


async def test_a_slot_that_another_bound_meanwhile_is_left_where_it_is() -> None:
    async with rig() as r:
        for name in ("n1", "n2"):
            await r.plane.add_node(name)
        rival = await other_scheduler(r)

        async def bind_it_elsewhere(binds: list[Bind]) -> None:
            plane.late = True
            elsewhere = "n2" if binds[0].node == "n1" else "n1"
            ok(await r.plane.send(rival, bind_of("risk", "api-0", elsewhere)))

        plane = Meddled(r.local, bind_it_elsewhere)
        scheduler = await r.schedule(plane=plane)
        await r.ask("api", 0)
        await r.until(lambda: scheduler.meters.refusals and not scheduler.queue.has_ready)
        assert scheduler.meters.refusals == {"AlreadyBound": 1}
        plane.late = False
        await r.bound(await r.ask("web", 0))
        assert len([one for binds in plane.proposed for one in binds if one.name == "api-0"]) == 1, "it is not tried again"
        assert scheduler.meters.conflicts_total == 1
        await r.until(lambda: {key[1] for key in scheduler.snapshot.uses} == {"api-0", "web-0"})
        used = {key[1]: scheduler.snapshot.names[use.row] for key, use in scheduler.snapshot.uses.items()}
        assert used == {"api-0": r.node_of("api-0"), "web-0": r.node_of("web-0")}


async def test_a_node_that_another_filled_is_believed_to_be_full_and_the_slot_goes_elsewhere() -> None:
    async with rig() as r:
        await r.plane.add_node("n1", cpu=2000)
        await r.plane.add_node("n2", cpu=2000)
        rival = await other_scheduler(r)
        await r.ask("rival", 0, cpu=2000, suspend=True)

        async def fill_it(binds: list[Bind]) -> None:
            ok(await r.plane.send(rival, bind_of("risk", "rival-0", binds[0].node)))

        plane = Meddled(r.local, fill_it)
        scheduler = await r.schedule(plane=plane)
        await r.bound(await r.ask("api", 0))
        assert scheduler.meters.refusals == {"NoFit": 1}
        assert [binds[0].node for binds in plane.proposed] == [r.node_of("rival-0"), r.node_of("api-0")], "at once"


async def test_a_gang_that_another_bound_elsewhere_leaves_the_picture_true() -> None:
    """A member that the other put where this scheduler would have put it is a fact, and no assumption to take back."""
    async with rig() as r:
        for name in ("n1", "n2", "n3"):
            await r.plane.add_node(name, cpu=1000)
        rival = await other_scheduler(r)

        async def bind_the_gang(binds: list[Bind]) -> None:
            (spare,) = {"n1", "n2", "n3"} - {bind.node for bind in binds}
            places = (binds[0].node, spare)
            pairs = zip(binds, places, strict=True)
            ok(await r.plane.send(rival, BindGang(tuple(bind_of("risk", bind.name, node) for bind, node in pairs))))
            await r.until(lambda: ("risk", binds[0].name) in scheduler.snapshot.uses)
            for _ in range(5):
                await r.plane.clock.sleep(0.005)  # the watch is ahead of the answer

        scheduler = await r.schedule(plane=Meddled(r.local, bind_the_gang))
        for index in range(2):
            await r.ask("train", index, gang="train", gang_size=2)
        await r.until(lambda: scheduler.meters.refusals.get("GangRefused"))
        await r.until(lambda: len(scheduler.snapshot.uses) == 2)
        for index in range(2):
            use = scheduler.snapshot.uses["risk", f"train-{index}"]
            assert scheduler.snapshot.names[use.row] == r.node_of(f"train-{index}")


async def test_devices_that_the_authority_gave_instead_are_those_in_the_picture() -> None:
    async with rig() as r:
        await r.plane.grant("risk", 2, gpu=4)
        await r.plane.add_node("n1", devices=(gpu("g0"), gpu("g1"), gpu("g2")))
        rival = await other_scheduler(r)
        whole = (DeviceAsk(resource="gpu", count=1),)
        await r.ask("rival", 0, cpu=100, devices=whole, suspend=True)

        async def take_its_device(binds: list[Bind]) -> None:
            ok(await r.plane.send(rival, bind_of("risk", "rival-0", "n1", grant_version=2, devices=binds[0].devices)))

        scheduler = await r.schedule(plane=Meddled(r.local, take_its_device))
        await r.ask("infer", 0, cpu=100, devices=whole)
        await r.bound("infer-0")
        placed, taken = r.binding("infer-0"), r.binding("rival-0")
        assert placed is not None
        assert taken is not None
        wanted = {hold.id: 1000 for hold in (*placed.devices, *taken.devices)}
        assert len(wanted) == 2
        await r.until(lambda: scheduler.snapshot.fleet.device_used[0] == wanted)


# --- the lease, and the plane's leader


async def test_a_scheduler_whose_lease_is_taken_stops_proposing_and_starts_over() -> None:
    async with rig() as r:
        await r.plane.add_node("n1")
        plane = Meddled(r.local)

        async def take_its_lease(binds: list[Bind]) -> None:
            taken = await r.plane.send(Caller("scheduler-0", Role.SCHEDULER), LeaseAcquire("scheduler-0", Role.SCHEDULER))
            assert ok(taken).epoch == 2

        plane.meddle = take_its_lease
        scheduler = await r.schedule(plane=plane)
        await r.ask("api", 0)
        await r.bound("api-0")
        assert scheduler.meters.restarts_total == 1
        assert scheduler.meters.refusals in ({"FencedOut": 1}, {}), "on a slow machine its renewal hears of it first"
        assert isinstance(plane.outcomes[-1], Accepted)
        lease = r.plane.authority.view().get("leases", "", "scheduler-0")
        assert lease is not None
        assert lease.hot.spec.epoch == 3, "it asked for the lease again before it went on"


async def test_an_idle_scheduler_notices_by_renewing_that_its_lease_is_gone() -> None:
    async with rig() as r:
        scheduler = await r.schedule()
        ok(await r.plane.send(Caller("scheduler-0", Role.SCHEDULER), LeaseAcquire("scheduler-0", Role.SCHEDULER)))
        await r.until(lambda: scheduler.meters.restarts_total == 1)
        await scheduler.wait_serving()


async def test_after_a_change_of_leader_it_lists_again_and_nothing_is_bound_twice() -> None:
    disk = MemoryDisk()
    timing = Timing(lease_ttl_s=0.3, renew_s=0.1, poll_s=0.01)
    async with rig(store=MemoryStore(disk), timing=timing) as r:
        await r.plane.add_node("n1", cpu=20_000)
        usurped = False

        async def usurp(binds: list[Bind]) -> None:
            nonlocal usurped
            other = MemoryStore(disk)
            await other.open()
            assert isinstance(await other.acquire("usurper", await other.head()), Fence)
            usurped = True

        plane = Meddled(r.local)
        scheduler = await r.schedule(plane=plane)
        before = [await r.ask("api", index) for index in range(5)]
        await r.bound(*before)
        plane.meddle = usurp
        await r.ask("web", 0)
        await r.until(lambda: usurped and scheduler.meters.restarts_total > 0 and r.plane.authority.leading)
        assert any(isinstance(outcome, Unknown) for outcome in plane.outcomes)
        await r.until(lambda: not isinstance(r.plane.authority.heartbeat([("n1", 1)]), Refused))
        await r.bound("web-0", await r.ask("web", 1))
        await r.until(lambda: scheduler.queue.meters(scheduler.snapshot.now_ms).reasons == {}, "something still waits")
        names = {key[1] for key in scheduler.snapshot.uses}
        assert names == {*before, "web-0", "web-1"}
        assert scheduler.snapshot.fleet.cells["cpu_free"][0] == 20_000 - 7 * 1000


async def test_a_proposal_to_one_who_no_longer_leads_is_nobodys_fault_and_made_again() -> None:
    async with rig() as r:
        await r.plane.add_node("n1")
        plane = Meddled(r.local)
        plane.not_leading = 1
        scheduler = await r.schedule(plane=plane)
        await r.bound(await r.ask("api", 0))
        assert scheduler.meters.restarts_total == 1
        assert scheduler.meters.unschedulable_total == 0


# --- sharing the work


async def test_strict_parts_never_meet_and_together_do_everything() -> None:
    async with rig() as r:
        for name in ("n1", "n2", "n3"):
            await r.plane.add_node(name, cpu=64_000)  # room for all: what they might meet over is the slots, not the last place
        both = [await r.schedule(f"scheduler-{n}", partition=Partition(n, 2)) for n in range(2)]
        names = [await r.ask(f"w{n}", 0) for n in range(24)]
        await r.bound(*names)
        assert [s.meters.conflicts_total for s in both] == [0, 0]
        assert all(s.meters.proposed_total > 4 for s in both)
        assert sum(s.meters.proposed_total for s in both) == 24


async def test_the_part_of_a_scheduler_that_is_gone_is_picked_up_and_that_of_one_at_work_is_left_to_it() -> None:
    async with rig() as r:
        await r.plane.add_node("n1", cpu=64_000)
        parts = [Partition(n, 3, steal_after_ms=3000) for n in range(3)]  # long, or a busy machine makes one at work look gone
        first, second, third = [await r.schedule(f"scheduler-{n}", partition=parts[n]) for n in range(3)]
        third.stop()
        names = [await r.ask(f"w{n}", 0) for n in range(30)]
        await r.bound(*names)
        of_third = sum(parts[0].part_of("risk", f"u-risk-w{n}") == 2 for n in range(30))
        assert of_third > 3
        assert third.meters.proposed_total == 0
        assert first.meters.proposed_total + second.meters.proposed_total == 30, "nobody tries what another has"
        assert first.meters.conflicts_total + second.meters.conflicts_total == 0
        own = sum(parts[0].part_of("risk", f"u-risk-w{n}") == 0 for n in range(30))
        assert first.meters.proposed_total == own + of_third, "the next in the ring takes it"


async def test_why_a_slot_waits_is_said_again_where_a_busy_plane_would_not_hear_it() -> None:
    async with rig() as r:
        await r.plane.add_node("n1", cpu=500)
        plane = Meddled(r.local)
        plane.overloaded = 2
        await r.schedule(plane=plane)
        await r.ask("api", 0)
        await r.waits("api-0", "NoMatchingCapacity")
        assert plane.overloaded == 0
