"""Node pools: nodes are ordered for what they cure, a provider makes the order true, and what stays empty goes again."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.authority.local import LocalPlane
from fairlead.client.providing import Providing
from fairlead.controllers.node_pool import CLOSED, NodePoolController
from fairlead.controllers.runtime import Runtime, RuntimeSettings
from fairlead.decide.autoscaling import has_let_go
from fairlead.model.commands import Body, Delete, Put, PutStatus
from fairlead.model.kinds.capacity import (
    DrainOrder,
    Node,
    NodePool,
    NodePoolSpec,
    NodePoolStatus,
    NodeStatus,
)
from fairlead.model.kinds.policy import Override, OverrideScope, OverrideSpec
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from tests.authority.planes import (
    GI,
    OPERATOR,
    REGION,
    FakeClock,
    PlaneForTest,
    agent_of,
    bind_of,
    move_of,
    no,
    ok,
    report_of,
    running_plane,
)

SPEC = NodePoolSpec(max_nodes=5, provider="simulated", node=Resources(4000, 16 * GI), idle_seconds=300.0, up_wait_seconds=1.0)


class Simulated:
    """A provider whose machines are nodes that register at once."""

    name = "simulated"

    def __init__(self, plane: PlaneForTest) -> None:
        self._plane = plane
        self.machines: list[str] = []
        self.stopped: list[str] = []

    async def running(self, pool: str) -> list[str]:
        return self.machines

    async def start(self, pool: NodePool, name: str) -> None:
        self.machines.append(name)
        await self._plane.add_node(name, cpu=4000, memory=16 * GI, pool=pool.metadata.name)

    async def stop(self, pool: str, name: str) -> None:
        self.machines.remove(name)
        self.stopped.append(name)


class Pools:
    def __init__(self, plane: PlaneForTest, clock: FakeClock) -> None:
        self.plane, self.clock = plane, clock
        self.local = LocalPlane(plane.authority, clock)
        self.provider = Simulated(plane)
        self._controller = NodePoolController(REGION)
        self._providing = Providing(self.local, clock, self.provider)

    async def look(self) -> None:
        """One look of the controller, carried out in its name, and one round of the provider."""
        bodies = await self.sweep()
        caller = await self.plane.as_role(Role.AUTOSCALER)
        for body in bodies:
            ok(await self.plane.send(caller, body))
        await self._providing.once()

    async def sweep(self) -> list[Body]:
        return await self._controller.sweep(self.local, self.clock)

    def found(self, plural: str, name: str) -> Any:
        rec = self.plane.authority.view().get(plural, "", name)
        return rec.hot if rec is not None and rec.raw is not None else None

    @property
    def ordered(self) -> tuple[str, ...]:
        return tuple(self.found("nodepools", "burst").status.ordered)

    async def waiting(self, count: int, reason: str, start: int = 0, workload: str = "api") -> None:
        assignment, scheduler = await self.plane.as_role(Role.ASSIGNMENT), await self.plane.as_role(Role.SCHEDULER)
        for index in range(start, start + count):
            ok(await self.plane.request("risk", workload, index, assignment))
            request = self.plane.authority.view().get("schedulingrequests", "risk", f"{workload}-{index}")
            assert request is not None
            status = replace(request.hot.status, reason=reason)
            ok(await self.plane.send(scheduler, PutStatus("SchedulingRequest", "risk", f"{workload}-{index}", status)))

    async def withdrawn(self, count: int, workload: str = "api", start: int = 0) -> None:
        assignment = await self.plane.as_role(Role.ASSIGNMENT)
        for index in range(start, start + count):
            ok(await self.plane.send(assignment, Delete("SchedulingRequest", "risk", f"{workload}-{index}")))


async def _pools(plane: PlaneForTest, clock: FakeClock) -> Pools:
    await plane.grant("risk")
    ok(await plane.send(OPERATOR, Put("NodePool", NodePool(metadata=Metadata(name="burst"), spec=SPEC))))
    return Pools(plane, clock)


async def test_a_scaled_up_node_is_scaled_down_after_its_cool_down_when_it_is_empty() -> None:
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        pools = await _pools(plane, clock)
        await pools.waiting(6, "WaitingForCapacity")  # two nodes of four cores
        await pools.look()
        assert pools.ordered == (f"{REGION}-burst-1", f"{REGION}-burst-2")
        assert sorted(pools.provider.machines) == sorted(pools.ordered)
        clock.offset += 2
        await pools.look()
        assert len(pools.ordered) == 2, "they still wait, but nothing has been placed on those that came: no more are bought"
        await pools.withdrawn(6)
        await pools.look()
        clock.offset += 301
        await pools.look()
        name = pools.ordered[0]
        assert pools.found("nodes", name).spec.unschedulable, "closed first"
        assert len(pools.ordered) == 2
        await pools.look()
        assert len(pools.ordered) == 0
        assert len(pools.provider.stopped) == 2
        node = await plane.as_role(Role.NODE)
        ok(await plane.send(node, PutStatus("Node", "", name, NodeStatus(health="Lost", session=1))))
        await pools.look()
        assert pools.found("nodes", name) is None


async def test_machines_that_are_on_their_way_out_do_not_count_as_the_fewest_there_must_be() -> None:
    """Their nodes are deregistered only once they are silent; meanwhile the last one must not be let go for their sake."""
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        pools = await _pools(plane, clock)
        await pools.waiting(9, "WaitingForCapacity")  # three nodes of four cores
        await pools.look()
        assert len(pools.ordered) == 3
        one = NodePool(metadata=Metadata(name="burst"), spec=replace(SPEC, min_nodes=1))
        ok(await plane.send(OPERATOR, Put("NodePool", one)))
        await pools.withdrawn(9)
        for _ in range(4):
            await pools.look()
            clock.offset += 301
        assert len(pools.ordered) == 1
        assert len(pools.provider.stopped) == 2
        (left,) = pools.ordered
        assert not pools.found("nodes", left).spec.unschedulable
        assert pools.found("nodepools", "burst").status.nodes == 3, "nobody has deregistered the others yet"


async def _ordered_in_vain(pools: Pools) -> str:
    """The one node that was ordered for work which has gone since."""
    await pools.waiting(1, "WaitingForCapacity")
    await pools.look()
    (name,) = pools.ordered
    await pools.withdrawn(1)
    return name


async def _closed_when_empty(pools: Pools, clock: FakeClock) -> str:
    """A node that was ordered, and stayed empty for as long as one may."""
    name = await _ordered_in_vain(pools)
    await pools.look()
    clock.offset += 301
    await pools.look()
    return name


async def test_a_pool_is_not_deleted_before_the_last_of_its_machines_is_gone() -> None:
    """Nobody would stop them, or let go of their nodes, any more."""
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        pools = await _pools(plane, clock)
        name = await _ordered_in_vain(pools)
        refused = no(await plane.send(OPERATOR, Delete("NodePool", "", "burst")), "InUse")
        assert "set its minNodes and maxNodes to 0 first" in refused.detail
        ok(
            await plane.send(
                OPERATOR, Put("NodePool", NodePool(metadata=Metadata(name="burst"), spec=replace(SPEC, max_nodes=0)))
            )
        )
        await pools.look()
        await pools.look()
        assert pools.provider.stopped == [name]
        no(await plane.send(OPERATOR, Delete("NodePool", "", "burst")), "InUse")
        node = await plane.as_role(Role.NODE)
        ok(await plane.send(node, PutStatus("Node", "", name, NodeStatus(health="Lost", session=1))))
        await pools.look()
        ok(await plane.send(OPERATOR, Delete("NodePool", "", "burst")))


async def test_nothing_is_ordered_for_what_nodes_do_not_cure_nor_while_placement_lags_nor_under_a_pause() -> None:
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        pools = await _pools(plane, clock)
        await pools.waiting(3, "WaitingForQuota", workload="poor")
        await pools.look()
        assert pools.ordered == ()
        await pools.waiting(3, "WaitingForCapacity")
        await pools.waiting(9, "PendingEvaluation", workload="new")
        await pools.look()
        assert pools.ordered == ()
        await pools.withdrawn(9, "new")
        spec = OverrideSpec(kind="autoscaler-pause", reason="x", ttl_seconds=60, scope=OverrideScope(tenants=("*",)))
        ok(await plane.send(OPERATOR, Put("Override", Override(metadata=Metadata(name="p", namespace="risk"), spec=spec))))
        await pools.look()
        assert pools.ordered == ()
        clock.offset += 61
        await pools.look()
        assert len(pools.ordered) == 1


async def test_a_closed_node_is_opened_again_when_it_is_wanted_after_all_and_one_in_use_is_not_closed() -> None:
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        pools = await _pools(plane, clock)
        name = await _closed_when_empty(pools, clock)
        assert CLOSED in pools.found("nodes", name).metadata.annotations
        await pools.waiting(1, "WaitingForCapacity", start=7)
        await pools.look()
        assert not pools.found("nodes", name).spec.unschedulable
        assert name in pools.ordered


async def test_an_empty_node_that_somebody_keeps_closed_goes_only_where_the_pool_may_have_fewer_and_then_wholly() -> None:
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        pools = await _pools(plane, clock)
        name = await _ordered_in_vain(pools)
        node = pools.found("nodes", name)
        ok(await plane.send(OPERATOR, Put("Node", replace(node, spec=replace(node.spec, unschedulable=True)))))
        for _ in range(3):
            await pools.look()
            clock.offset += 301
        assert (pools.ordered, pools.provider.stopped) == ((name,), []), "whoever closed it may be looking at it"
        none = NodePool(metadata=Metadata(name="burst"), spec=replace(SPEC, max_nodes=0))
        ok(await plane.send(OPERATOR, Put("NodePool", none)))
        await pools.look()
        assert CLOSED in pools.found("nodes", name).metadata.annotations
        assert pools.ordered == (name,), "its machine goes at the next look, as with every other"
        ok(await plane.send(OPERATOR, Put("NodePool", NodePool(metadata=Metadata(name="burst"), spec=SPEC))))
        await pools.look()
        left = pools.found("nodes", name)
        assert (left.spec.unschedulable, CLOSED in left.metadata.annotations) == (True, False), "as it was closed before"
        ok(await plane.send(OPERATOR, Put("NodePool", none)))
        await pools.look()
        await pools.look()
        assert pools.provider.stopped == [name]
        agent = await plane.as_role(Role.NODE)
        ok(await plane.send(agent, PutStatus("Node", "", name, NodeStatus(health="Lost", session=1))))
        await pools.look()
        assert pools.found("nodes", name) is None, "nothing of it is left to count"


@pytest.mark.parametrize(
    "ordered", [{"unschedulable": True}, {"unschedulable": True, "drain": DrainOrder(reason="disk", requester="ada")}]
)
async def test_what_somebody_orders_of_a_node_while_it_is_looked_at_stands(ordered: dict[str, Any]) -> None:
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        pools = await _pools(plane, clock)
        name = await _closed_when_empty(pools, clock)
        await pools.waiting(1, "WaitingForCapacity", start=7)
        bodies = await pools.sweep()
        assert [body.object.spec.unschedulable for body in bodies if isinstance(body, Put)] == [False], "it is wanted again"
        seen = pools.found("nodes", name)
        kept = {key: value for key, value in seen.metadata.annotations.items() if key != CLOSED}
        mine = replace(seen, metadata=replace(seen.metadata, annotations=kept), spec=replace(seen.spec, **ordered))
        ok(await plane.send(OPERATOR, Put("Node", mine)))
        caller = await plane.as_role(Role.AUTOSCALER)
        for body in bodies:
            outcome = await plane.send(caller, body)
            no(outcome, "Conflict") if isinstance(body, Put) else ok(outcome)
        assert pools.found("nodes", name).spec == mine.spec
        await pools.look()
        assert pools.found("nodes", name).spec == mine.spec, "the next look knows of it"


def _opened(pools: Pools, name: str) -> Node:
    node: Node = pools.found("nodes", name)
    return replace(node, spec=replace(node.spec, unschedulable=False))


async def test_a_machine_stays_whose_node_is_opened_between_the_look_and_the_order_that_it_shall_go() -> None:
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        pools = await _pools(plane, clock)
        name = await _closed_when_empty(pools, clock)
        bodies = await pools.sweep()
        assert [body.status.ordered for body in bodies if isinstance(body, PutStatus)] == [()]
        ok(await plane.send(OPERATOR, Put("Node", _opened(pools, name))))
        caller = await plane.as_role(Role.AUTOSCALER)
        for body in bodies:
            no(await plane.send(caller, body), "Conflict")
        assert pools.ordered == (name,)
        plane.authority.heartbeat([(name, 1)])
        await pools.waiting(1, "WaitingForCapacity", start=9)
        ok(await plane.send(await plane.as_role(Role.SCHEDULER), bind_of("risk", "api-9", name)))
        node = pools.found("nodes", name)
        ok(await plane.send(OPERATOR, Put("Node", replace(node, spec=replace(node.spec, unschedulable=True)))))
        for body in bodies:
            no(await plane.send(caller, body), "InUse")
        await pools.look()
        assert (pools.ordered, pools.provider.stopped) == ((name,), [])


async def test_a_node_whose_machine_was_let_go_is_not_opened_again_nor_does_it_come_back() -> None:
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        pools = await _pools(plane, clock)
        name = await _closed_when_empty(pools, clock)
        await pools.look()
        assert pools.ordered == ()
        opened = _opened(pools, name)
        assert "burst has let" in no(await plane.send(OPERATOR, Put("Node", opened)), "BeingDeleted").detail
        node = await plane.as_role(Role.NODE)
        ok(await plane.send(node, PutStatus("Node", "", name, NodeStatus(health="Lost", session=1))))
        await pools.look()
        again = replace(opened, metadata=Metadata(name=name))
        no(await plane.send(agent_of(name), Put("Node", again)), "BeingDeleted")
        unpooled = replace(again, spec=replace(again.spec, pool=""))
        ok(await plane.send(agent_of(name), Put("Node", unpooled)))


def test_what_a_pool_has_let_go_is_what_it_numbered_and_does_not_order() -> None:
    pool = NodePool(Metadata(name="burst"), SPEC, NodePoolStatus(ordered=("eu-burst-2",), numbered=3))
    names = ("eu-burst-1", "eu-burst-2", "eu-burst-3", "eu-burst-4", "eu-burst-01", "eu-burst-x", "us-burst-1", "eu-burst")
    assert [name for name in names if has_let_go(pool, "eu", name)] == ["eu-burst-1", "eu-burst-3"]
    assert not has_let_go(replace(pool, spec=replace(SPEC, provider="")), "eu", "eu-burst-1"), "nobody stops it"


async def test_a_pool_that_may_have_fewer_is_drained_within_budgets_before_a_machine_goes() -> None:
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        pools = await _pools(plane, clock)
        await pools.waiting(6, "WaitingForCapacity")
        await pools.look()
        first, second = pools.ordered
        scheduler = await plane.as_role(Role.SCHEDULER)
        for index, node in ((0, first), (1, second), (2, second)):
            ok(await plane.send(scheduler, bind_of("risk", f"api-{index}", node)))
        await pools.withdrawn(3, start=3)
        smaller = NodePool(metadata=Metadata(name="burst"), spec=replace(SPEC, max_nodes=1))
        ok(await plane.send(OPERATOR, Put("NodePool", smaller)))
        await pools.look()
        drain = pools.found("nodes", first).spec.drain
        assert (drain.requester, drain.reason) == ("node-autoscaler", "no more than 1"), "the one with the least on it"
        assert pools.found("nodes", second).spec.drain is None
        await pools.look()
        assert pools.ordered == (first, second), "what is on it has not left"
        ok(await plane.send(OPERATOR, Put("NodePool", NodePool(metadata=Metadata(name="burst"), spec=SPEC))))
        await pools.look()
        reopened = pools.found("nodes", first)
        assert (reopened.spec.drain, reopened.spec.unschedulable) == (None, False), "it may stay after all"
        ok(await plane.send(OPERATOR, Put("NodePool", smaller)))
        await pools.look()
        disruption = await plane.as_role(Role.DISRUPTION)
        ok(await plane.send(disruption, move_of("risk", "api-0", SlotState.DRAINING)))
        ok(await plane.send(agent_of(first), report_of("risk", "api-0", SlotState.RELEASED)))
        await pools.look()
        assert list(pools.ordered) == [second], "empty: it need not wait to be idle"
        assert pools.provider.stopped == [first]


async def test_an_autoscaler_closes_nodes_and_changes_nothing_else_of_them() -> None:
    async with running_plane() as plane:
        await plane.add_node("n1")
        caller = await plane.as_role(Role.AUTOSCALER)
        rec = plane.authority.view().get("nodes", "", "n1")
        assert rec is not None
        node = rec.hot
        ok(await plane.send(caller, Put("Node", replace(node, spec=replace(node.spec, unschedulable=True)))))
        no(await plane.send(caller, Put("Node", replace(node, spec=replace(node.spec, max_slots=1)))), "NotOwner")


async def test_it_runs_on_the_runtime_and_leaves_pools_without_a_provider_alone() -> None:
    async with running_plane() as plane:
        local = LocalPlane(plane.authority, plane.clock)
        bare = NodePool(metadata=Metadata(name="plain"), spec=NodePoolSpec(max_nodes=3))
        ok(await plane.send(OPERATOR, Put("NodePool", bare)))
        assert await NodePoolController(REGION).sweep(local, plane.clock) == []
        runtime = Runtime(NodePoolController(REGION), local, plane.clock, random.Random(1), RuntimeSettings())
        assert runtime.info.role is Role.AUTOSCALER
