"""After a store lost its tail a node may run what nobody remembers. Exclusive work waits until each has listed its own (S12)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec.structs import replace

from fairlead.model.commands import PutStatus
from fairlead.model.kinds.capacity import NodeStatus
from fairlead.model.lifecycle import Role
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import FakeClock, PlaneForTest, agent_of, bind_of, no, ok, running_plane

LISTED = NodeStatus(schedulable=True, health="Ready", session=1, incarnation=1)


async def says(plane: PlaneForTest, node: str, incarnation: int) -> None:
    ok(await plane.send(agent_of(node), PutStatus("Node", "", node, replace(LISTED, incarnation=incarnation))))


@asynccontextmanager
async def after_a_loss(clock: FakeClock, incarnation: int = 2) -> AsyncIterator[PlaneForTest]:
    """Three nodes of which two had listed what they run, and one, an older agent's, never says when it did."""
    disk = MemoryDisk()
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


async def test_no_exclusive_slot_is_bound_before_every_node_has_said_what_it_runs() -> None:
    async with after_a_loss(FakeClock()) as plane:
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        ok(await plane.request("risk", "job", 0, assigner, execution="Exclusive"))
        ok(await plane.request("risk", "api", 0, assigner))
        ok(await plane.send(scheduler, bind_of("risk", "api-0", "n1")))
        assert "n1" in no(await plane.send(scheduler, bind_of("risk", "job-0", "n3")), "FenceNotPassed").detail
        await says(plane, "n1", 2)
        assert "n2" in no(await plane.send(scheduler, bind_of("risk", "job-0", "n3")), "FenceNotPassed").detail
        await says(plane, "n2", 2)
        ok(await plane.send(scheduler, bind_of("risk", "job-0", "n3")))


async def test_whoever_is_silent_for_a_whole_fence_runs_nothing_any_more() -> None:
    clock = FakeClock()
    async with after_a_loss(clock) as plane:
        fence_s = plane.authority._settings.fence_s
        assigner = await plane.as_role(Role.ASSIGNMENT)
        ok(await plane.request("risk", "job", 0, assigner, execution="Exclusive"))
        clock.offset += fence_s - 5.0
        plane.authority.heartbeat([("n1", 1), ("n3", 1)])
        clock.offset += 6.0
        plane.authority.heartbeat([("n1", 1), ("n3", 1)])
        scheduler = await plane.as_role(Role.SCHEDULER)
        assert "n1" in no(await plane.send(scheduler, bind_of("risk", "job-0", "n3")), "FenceNotPassed").detail
        await says(plane, "n1", 2)
        ok(await plane.send(scheduler, bind_of("risk", "job-0", "n3")))


async def test_a_silence_that_this_leader_has_not_seen_itself_proves_nothing() -> None:
    clock = FakeClock()
    async with after_a_loss(clock) as plane:
        for account in plane.authority._ctx.ledger.nodes.values():
            account.observed_ms = 0
        plane.authority.heartbeat([("n3", 1)])
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        ok(await plane.request("risk", "job", 0, assigner, execution="Exclusive"))
        assert "n1" in no(await plane.send(scheduler, bind_of("risk", "job-0", "n3")), "FenceNotPassed").detail
        clock.offset += plane.authority._settings.fence_s + 1.0
        plane.authority.heartbeat([("n3", 1)])
        scheduler = await plane.as_role(Role.SCHEDULER)
        ok(await plane.send(scheduler, bind_of("risk", "job-0", "n3")))


async def test_where_no_history_was_lost_nobody_waits() -> None:
    async with after_a_loss(FakeClock(), incarnation=1) as plane:
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        ok(await plane.request("risk", "job", 0, assigner, execution="Exclusive"))
        ok(await plane.send(scheduler, bind_of("risk", "job-0", "n3")))
