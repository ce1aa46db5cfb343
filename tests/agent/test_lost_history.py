"""Exclusive work after its region has lost the end of its history, or was restored: what moved meanwhile is bound to one node and
runs on another, and never runs on both (S12). Nothing really runs here."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from fairlead.agent.drivers.contract import InstanceId
from fairlead.agent.drivers.simulated import SimulatedDriver
from fairlead.agent.node import Node
from fairlead.agent.region import Ack, Held, Inventory
from fairlead.agent.remembered import Remembered
from fairlead.agent.settings import AgentSettings, NodeDeclaration
from fairlead.client.plane import Expired
from fairlead.model.commands import Put
from fairlead.model.ids import revision
from fairlead.model.lifecycle import Role, SlotState
from fairlead.ports import Tasks
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.agent.processes import until
from tests.agent.regions import AuthorityPlane, LocalRegion, Rig, rig
from tests.agent.simulated import SIMULATED, id_of
from tests.authority.planes import FakeClock, bind_of, ok, request_of, running_plane

FENCE_S = 15.0 * 1.01 + 2.0


class Slow(SimulatedDriver):
    """What it runs takes as long as it may to end."""

    async def stop(self, id: InstanceId, grace_s: float) -> None:
        pass


@asynccontextmanager
async def moved(clock: FakeClock, drivers: dict[str, SimulatedDriver]) -> AsyncIterator[tuple[Rig, dict[str, LocalRegion]]]:
    """A slot that went from n1 to n2, in batches that the region's store then lost. Yields the region as it is after that; no
    agent has been told of it yet."""
    disk = MemoryDisk()
    async with Tasks() as tasks:
        async with rig(clock, store=MemoryStore(disk)) as made:
            regions = {name: LocalRegion(made.plane) for name in drivers}
            for name, driver in drivers.items():
                tasks.start(made.agent({"simulated": driver}, regions[name], name=name).run(), name)
                await made.schedulable(name)
            await made.place("alone", SIMULATED, execution="Exclusive")
            await until(lambda: id_of("alone-0") in drivers["n1"].world.running)
            await made.reaches("alone-0", "Ready")
            kept = disk.head.position
            await made.move("alone-0", SlotState.DRAINING, Role.DISRUPTION)
            await until(lambda: id_of("alone-0") not in drivers["n1"].world.running)
            await made.reaches("alone-0", "Released")
            again = request_of("risk", "alone", 0, cpu=100, execution="Exclusive", epoch=2)
            ok(await made.plane.send(made.roles[Role.REPAIR], Put("SchedulingRequest", again, mode="create")))
            ok(await made.plane.send(made.roles[Role.SCHEDULER], bind_of("risk", "alone-0", "n2", epoch=2)))
            await until(lambda: id_of("alone-0", 2) in drivers["n2"].world.running)
            for region in regions.values():
                region.cut()
        while disk.head.position > kept:
            assert disk.lose_tail(1)
        disk.set_incarnation(disk.head.fence(), 2)
        async with running_plane(MemoryStore(disk), clock) as plane:
            for region in regions.values():
                region._plane = AuthorityPlane(plane)
            try:
                yield Rig(plane, {}, tasks), regions
            finally:
                tasks.cancel()


async def test_what_moved_in_lost_history_is_over_where_it_was_and_said_to_be_so_when_it_has_ended_where_it_went() -> None:
    """What its region hears of may be started elsewhere, so it hears nothing before the other copy has certainly ended."""
    clock, drivers = FakeClock(), {"n1": SimulatedDriver(), "n2": SimulatedDriver()}
    async with moved(clock, drivers) as (made, regions):
        assert made.state("alone-0") == "Ready"
        regions["n1"].heal()  # n2 is not heard, and goes on until its lease is over
        began = clock.monotonic()
        while made.state("alone-0") != "Failed":
            assert clock.monotonic() < began + 2 * FENCE_S, "nobody else can say it"
            clock.offset += 0.5
            await clock.sleep(0.02)
            assert not drivers["n1"].world.running
        assert clock.monotonic() >= began + FENCE_S
        assert not drivers["n2"].world.running


@pytest.mark.parametrize("execution", ["Replicated", "Exclusive"])
async def test_what_was_bound_before_history_was_lost_and_does_not_run_is_not_begun(execution: str) -> None:
    """It may have left since, and its quota may be another region's (S5). What runs is adopted, and goes on."""
    clock, disk, driver = FakeClock(), MemoryDisk(), SimulatedDriver()
    async with Tasks() as tasks:
        async with rig(clock, store=MemoryStore(disk)) as made:
            region = LocalRegion(made.plane)
            tasks.start(made.agent({"simulated": driver}, region).run(), "agent")
            await made.schedulable("n1")
            for name in ("gone", "here"):
                await made.place(name, SIMULATED, execution=execution)
                await made.reaches(f"{name}-0", "Ready")
            kept = disk.head.position
            await made.move("gone-0", SlotState.DRAINING, Role.DISRUPTION)
            await made.reaches("gone-0", "Released")
            region.cut()
        while disk.head.position > kept:
            assert disk.lose_tail(1)
        disk.set_incarnation(disk.head.fence(), 2)
        async with running_plane(MemoryStore(disk), clock) as plane:
            region._plane = AuthorityPlane(plane)
            after = Rig(plane, {}, tasks)
            assert after.state("gone-0") == "Ready", "its region knows no better"
            region.heal()
            for _ in range(200):
                clock.offset += 0.5
                await clock.sleep(0.02)
                assert id_of("gone-0") not in driver.world.running
                if after.state("gone-0") == "Failed":
                    break
            assert (after.state("gone-0"), after.state("here-0")) == ("Failed", "Ready")
            assert id_of("here-0") in driver.world.running or execution == "Exclusive", (
                "an Exclusive one ended when nobody was heard"
            )
            tasks.cancel()


@pytest.mark.parametrize("is_asked", [True, False])
async def test_what_is_bound_nowhere_since_history_was_lost_ends_within_the_lease_it_had(
    is_asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its node is heard all the time. Told what runs there, its region says that it is not bound; or nobody comes to tell it."""

    async def nobody(held: list[Held]) -> Inventory:
        raise Expired("the answer is under way", 0)

    clock, drivers = FakeClock(), {"n1": SimulatedDriver(), "n2": Slow()}
    async with moved(clock, drivers) as (_, regions):
        if not is_asked:
            monkeypatch.setattr(regions["n2"], "inventory", nobody)
        began, beats = clock.monotonic(), regions["n2"].heartbeats
        regions["n2"].heal()
        await until(lambda: regions["n2"].heartbeats > beats)
        while drivers["n2"].world.running:
            assert clock.monotonic() < began + 15.0, "others wait for a fence, and start it"
            clock.offset += 0.5
            await clock.sleep(0.02)
        assert regions["n2"].heartbeats > beats


def test_before_it_has_said_what_it_runs_no_acknowledgement_lets_exclusive_work_run_for_longer() -> None:
    """Of an agent that comes again, and of one whose region goes on from an older history: it may be another's by now (S12)."""
    node = Node(NodeDeclaration("n1", "r"), AgentSettings(node_lease_s=10.0, kill_s=1.0), Remembered(), 0.0)
    node.inherit((7.0, 7.0), 0.0)
    assert node.heard(Ack(1, 1), 1.0, 1.0)
    assert (node.lease_until, node.global_until) == (7.0, 7.0)
    node.saw_listing(revision(1, 8), [])
    assert node.heard(Ack(1, 1), 2.0, 2.0)
    assert (node.lease_until, node.global_until) == (10.9, 10.9)
    assert node.heard(Ack(2, 1, global_valid_s=5.0), 4.0, 4.0)
    assert (node.lease_until, round(node.global_until, 3)) == (10.9, 7.95)
    node.saw_listing(revision(2, 8), [])
    assert node.heard(Ack(2, 1), 5.0, 5.0)
    assert (node.lease_until, node.global_until) == (13.9, 13.9)
