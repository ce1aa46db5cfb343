"""After a store lost its tail a node may run what nobody remembers. Exclusive work waits until each has listed its own (S12)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.model.commands import Outcome, Put, PutStatus
from fairlead.model.kinds.capacity import Node, NodeSpec, NodeStatus
from fairlead.model.kinds.quota import GrantTerm, GrantTermSpec, GrantTermStatus
from fairlead.model.kinds.work import Assignment, AssignmentSpec, AssignmentStatus, SlotRange
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import OPERATOR, REGION, FakeClock, PlaneForTest, agent_of, bind_of, no, ok, running_plane

LISTED = NodeStatus(schedulable=True, health="Ready", session=1, incarnation=1)


async def says(plane: PlaneForTest, node: str, incarnation: int) -> None:
    ok(await plane.send(agent_of(node), PutStatus("Node", "", node, replace(LISTED, incarnation=incarnation))))


@asynccontextmanager
async def after_a_loss(clock: FakeClock, incarnation: int = 2, disk: MemoryDisk | None = None) -> AsyncIterator[PlaneForTest]:
    """Three nodes of which two had listed what they run, and one, an older agent's, never says when it did."""
    disk = disk or MemoryDisk()
    async with running_plane(MemoryStore(disk), clock) as plane:
        for name in ("n1", "n2", "n3"):
            await plane.add_node(name)
        await says(plane, "n1", 1)
        await says(plane, "n2", 1)
        await plane.grant("risk")
    if incarnation > 1:
        disk.set_incarnation(disk.head.fence(), incarnation)
    async with running_plane(MemoryStore(disk), clock) as plane:
        for name in ("n1", "n2", "n3"):
            plane.authority.heartbeat([(name, 1)])
        yield plane


def fence_s(plane: PlaneForTest) -> float:
    return plane.authority._settings.fence_s


async def time_passes(plane: PlaneForTest, clock: FakeClock, seconds: float, *heard: str) -> None:
    """In which these nodes are heard, and leases are taken anew."""
    while seconds > 0:
        clock.offset += min(seconds, 5.0)
        seconds -= 5.0
        plane.authority.heartbeat([(name, 1) for name in heard])


async def test_no_exclusive_slot_is_bound_before_every_node_has_said_what_it_runs() -> None:
    clock = FakeClock()
    async with after_a_loss(clock) as plane:
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        ok(await plane.request("risk", "job", 0, assigner, execution="Exclusive"))
        ok(await plane.request("risk", "api", 0, assigner))
        ok(await plane.send(scheduler, bind_of("risk", "api-0", "n1")))
        await time_passes(plane, clock, fence_s(plane) + 1.0, "n1", "n2", "n3")
        scheduler = await plane.as_role(Role.SCHEDULER)
        assert "n1" in no(await plane.send(scheduler, bind_of("risk", "job-0", "n3")), "FenceNotPassed").detail
        await says(plane, "n1", 2)
        assert "n2" in no(await plane.send(scheduler, bind_of("risk", "job-0", "n3")), "FenceNotPassed").detail
        await says(plane, "n2", 2)
        ok(await plane.send(scheduler, bind_of("risk", "job-0", "n3")))


@pytest.mark.parametrize("fields", [{"exclusive": "global"}, {"leaving": (SlotRange(first=0, last=0),)}])
async def test_nothing_that_runs_once_is_said_to_be_gone_before_every_node_has_said_what_it_runs(fields: dict[str, Any]) -> None:
    """The word of it starts the slot in another region."""
    clock, name = FakeClock(), f"api.{REGION}"
    async with after_a_loss(clock) as plane:
        mirror, asks = await plane.as_role(Role.MIRROR), await plane.as_role(Role.ASSIGNMENT)
        spec = AssignmentSpec("api", "u-risk-api", 1, REGION, execution="Exclusive", **fields)
        ok(await plane.send(mirror, Put("Assignment", Assignment(Metadata(name=name, namespace="risk"), spec))))

        async def told(unwanted: int) -> Outcome:
            said = AssignmentStatus(observed_generation=1, unwanted=unwanted)
            return await plane.send(asks, PutStatus("Assignment", "risk", name, said))

        no(await told(0), "FenceNotPassed")
        ok(await told(1))
        for node in ("n1", "n2"):
            await says(plane, node, 2)
        await time_passes(plane, clock, fence_s(plane) + 1.0, "n1", "n2", "n3")
        asks = await plane.as_role(Role.ASSIGNMENT)
        ok(await told(0))


@pytest.mark.parametrize("silent", [False, True])
async def test_the_global_plane_is_asked_for_leases_when_nodes_that_are_well_have_said_what_they_run(silent: bool) -> None:
    """An offer is taken on what the ledger says is used: less than runs, if the end of history had bindings (S5)."""
    clock = FakeClock()
    async with after_a_loss(clock) as plane:
        term = GrantTerm(Metadata(name=REGION), GrantTermSpec(REGION))
        ok(await plane.send(await plane.as_role(Role.MIRROR), Put("GrantTerm", term)))

        async def asks() -> Outcome:
            quota = await plane.as_role(Role.QUOTA)
            status = GrantTermStatus(incarnation=2, asked=1, asked_time=plane.authority._ctx.now)
            return await plane.send(quota, PutStatus("GrantTerm", "", REGION, status))

        assert "n1" in no(await asks(), "Conflict").detail
        await says(plane, "n1", 2)
        assert "n2" in no(await asks(), "Conflict").detail
        if silent:
            await time_passes(plane, clock, fence_s(plane) + 1.0, "n1")
        else:
            await says(plane, "n2", 2)
        ok(await asks())


async def test_a_node_that_history_forgot_has_ended_its_own_before_an_exclusive_slot_is_bound() -> None:
    """All that are known have spoken, and still: one that joined in what was lost is known to nobody."""
    clock = FakeClock()
    async with after_a_loss(clock) as plane:
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        ok(await plane.request("risk", "job", 0, assigner, execution="Exclusive"))
        await says(plane, "n1", 2)
        await says(plane, "n2", 2)
        refused = no(await plane.send(scheduler, bind_of("risk", "job-0", "n3")), "FenceNotPassed")
        assert "forgotten" in refused.detail
        assert refused.retry_after_s == pytest.approx(fence_s(plane), abs=0.5)
        await time_passes(plane, clock, fence_s(plane) + 1.0, "n1", "n2", "n3")
        scheduler = await plane.as_role(Role.SCHEDULER)
        ok(await plane.send(scheduler, bind_of("risk", "job-0", "n3")))


async def test_a_node_that_history_forgot_and_that_has_registered_again_is_waited_for_until_it_has_listed() -> None:
    """Its heartbeats count again, and with them its lease. What it is told to end may take its time."""
    clock = FakeClock()
    async with after_a_loss(clock) as plane:
        assigner = await plane.as_role(Role.ASSIGNMENT)
        ok(await plane.request("risk", "job", 0, assigner, execution="Exclusive"))
        for name in ("n1", "n2"):
            await says(plane, name, 2)
        ok(
            await plane.send(
                OPERATOR, Put("Node", Node(Metadata(name="n4"), NodeSpec(region=REGION, allocatable=Resources(1000, 1 << 30))))
            )
        )
        ok(await plane.send(agent_of("n4"), PutStatus("Node", "", "n4", NodeStatus(session=1, health="Ready"))))
        await time_passes(plane, clock, fence_s(plane) + 1.0, "n1", "n2", "n3", "n4")
        scheduler = await plane.as_role(Role.SCHEDULER)
        assert "n4" in no(await plane.send(scheduler, bind_of("risk", "job-0", "n3")), "FenceNotPassed").detail
        await says(plane, "n4", 2)
        ok(await plane.send(scheduler, bind_of("risk", "job-0", "n3")))


async def test_the_next_leader_of_an_incarnation_goes_on_counting_where_the_first_began() -> None:
    clock, disk = FakeClock(), MemoryDisk()
    async with running_plane(MemoryStore(disk), clock) as plane:
        await plane.add_node("n1")
        await plane.grant("risk")
    disk.set_incarnation(disk.head.fence(), 2)
    async with running_plane(MemoryStore(disk), clock) as plane:
        began = plane.authority._ctx.state.hot("planes", "", "self").spec.incarnation_time
        plane.authority.heartbeat([("n1", 1)])
        await time_passes(plane, clock, fence_s(plane) + 1.0, "n1")
        await plane.grant("search")  # the journal shows how long it was
    async with running_plane(MemoryStore(disk), clock) as plane:
        assert plane.authority._ctx.state.hot("planes", "", "self").spec.incarnation_time == began
        plane.authority.heartbeat([("n1", 1)])
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        ok(await plane.request("risk", "job", 0, assigner, execution="Exclusive"))
        ok(await plane.send(scheduler, bind_of("risk", "job-0", "n1")))


async def test_a_wall_clock_that_was_set_forward_does_not_make_a_node_that_history_forgot_end_any_sooner() -> None:
    """A cold start goes on from the wall clock, if that is later: how long ago the incarnation began it cannot tell (P5)."""
    clock, disk = FakeClock(), MemoryDisk()
    async with after_a_loss(clock, disk=disk) as plane:
        for name in ("n1", "n2"):
            await says(plane, name, 2)
    wall = clock.wall
    clock.wall = lambda: wall() + 3600.0  # type: ignore[method-assign]
    async with running_plane(MemoryStore(disk), clock) as plane:
        plane.authority.heartbeat([("n1", 1), ("n2", 1), ("n3", 1)])
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        ok(await plane.request("risk", "job", 0, assigner, execution="Exclusive"))
        refused = no(await plane.send(scheduler, bind_of("risk", "job-0", "n3")), "FenceNotPassed")
        assert "forgotten" in refused.detail
        await time_passes(plane, clock, fence_s(plane) + 1.0, "n1", "n2", "n3")
        scheduler = await plane.as_role(Role.SCHEDULER)
        ok(await plane.send(scheduler, bind_of("risk", "job-0", "n3")))


async def test_whoever_is_silent_for_a_whole_fence_runs_nothing_any_more() -> None:
    clock = FakeClock()
    async with after_a_loss(clock) as plane:
        assigner = await plane.as_role(Role.ASSIGNMENT)
        ok(await plane.request("risk", "job", 0, assigner, execution="Exclusive"))
        clock.offset += fence_s(plane) - 5.0
        plane.authority.heartbeat([("n1", 1), ("n3", 1)])
        clock.offset += 6.0
        plane.authority.heartbeat([("n1", 1), ("n3", 1)])
        scheduler = await plane.as_role(Role.SCHEDULER)
        assert "n1" in no(await plane.send(scheduler, bind_of("risk", "job-0", "n3")), "FenceNotPassed").detail
        await says(plane, "n1", 2)
        ok(await plane.send(scheduler, bind_of("risk", "job-0", "n3")))


async def test_a_silence_that_this_leader_has_not_seen_itself_proves_nothing() -> None:
    """The incarnation began longer than a fence ago; who was heard by the leader before this one is not known."""
    clock, disk = FakeClock(), MemoryDisk()
    async with after_a_loss(clock, disk=disk) as plane:
        clock.offset += fence_s(plane) + 1.0
        await plane.grant("search")  # the journal shows how long it was
    async with running_plane(MemoryStore(disk), clock) as plane:
        plane.authority.heartbeat([("n3", 1)])
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        ok(await plane.request("risk", "job", 0, assigner, execution="Exclusive"))
        assert "n1" in no(await plane.send(scheduler, bind_of("risk", "job-0", "n3")), "FenceNotPassed").detail
        clock.offset += fence_s(plane) + 1.0
        plane.authority.heartbeat([("n3", 1)])
        scheduler = await plane.as_role(Role.SCHEDULER)
        ok(await plane.send(scheduler, bind_of("risk", "job-0", "n3")))


async def test_where_no_history_was_lost_nobody_waits() -> None:
    async with after_a_loss(FakeClock(), incarnation=1) as plane:
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        ok(await plane.request("risk", "job", 0, assigner, execution="Exclusive"))
        ok(await plane.send(scheduler, bind_of("risk", "job-0", "n3")))
