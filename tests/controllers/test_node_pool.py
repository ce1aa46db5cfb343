"""Node pools: nodes are ordered for what they cure, a provider makes the order true, and what stays empty goes again."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.authority.local import LocalPlane
from fairlead.client.providing import Providing
from fairlead.controllers.node_pool import CLOSED, NodePoolController, Seen, scaled
from fairlead.controllers.runtime import Runtime, RuntimeSettings
from fairlead.decide.admission import OBJECT_BYTES_MAX, faults
from fairlead.decide.slots import instant, millis
from fairlead.model import codec
from fairlead.model.commands import Body, Delete, Put, PutStatus
from fairlead.model.kinds.capacity import (
    DrainOrder,
    IdleSince,
    Node,
    NodePool,
    NodePoolSpec,
    NodePoolStatus,
    NodeSpec,
    NodeStatus,
)
from fairlead.model.kinds.policy import Override, OverrideScope, OverrideSpec
from fairlead.model.kinds.slot import SlotRef
from fairlead.model.kinds.work import Ask, SchedulingRequest, SchedulingRequestSpec, SchedulingRequestStatus
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from fairlead.model.registry import BY_KIND
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
        name = await _ordered_in_vain(pools)
        await pools.look()
        clock.offset += 301
        await pools.look()
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
        name = await _ordered_in_vain(pools)
        await pools.look()
        clock.offset += 301
        await pools.look()
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


# --- looked at as a value

NOW = 1_700_000_000_000


def two_wait(*nodes: Node, spec: NodePoolSpec = SPEC, ordered: tuple[str, ...] = ()) -> list[Body]:
    """What follows where two slots, each of which needs a node, wait beside these."""
    names = ordered or tuple(node.metadata.name for node in nodes)
    pool = NodePool(Metadata(name="burst"), spec, NodePoolStatus(ordered=names, numbered=len(names)))
    return scaled(Seen([pool], nodes, requests_of(2), {}, []), REGION, NOW)


def requests_of(count: int, **spec: Any) -> list[SchedulingRequest]:
    return [
        SchedulingRequest(
            Metadata(name=f"api-{index}", namespace="risk"),
            SchedulingRequestSpec(
                slot=SlotRef(workload="api", uid="u", index=index), ask=Ask(requests=Resources(3000, GI)), **spec
            ),
            SchedulingRequestStatus(reason="WaitingForCapacity"),
        )
        for index in range(count)
    ]


def a_node(name: str, health: Any = "Ready", annotations: dict[str, str] | None = None, **spec: Any) -> Node:
    status = NodeStatus(schedulable=health == "Ready", health=health)
    made = NodeSpec(pool="burst", allocatable=SPEC.node, **spec)
    return Node(Metadata(name=name, annotations=annotations or {}), made, status)


def pool_after(bodies: list[Body]) -> NodePoolStatus:
    (status,) = [body.status for body in bodies if isinstance(body, PutStatus)]
    assert isinstance(status, NodePoolStatus)
    return status


@pytest.mark.parametrize(
    "useless",
    [
        {"unschedulable": True},
        {"unschedulable": True, "drain": DrainOrder(reason="x", requester="ada")},
        {"unschedulable": True, "drain": DrainOrder(reason="x", requester="ada"), "annotations": {CLOSED: "true"}},
        {"health": "Unknown"},
        {"health": "Lost"},
    ],
)
def test_nodes_that_take_no_work_are_not_on_their_way(useless: dict[str, Any]) -> None:
    bodies = two_wait(a_node("n1", **useless), a_node("n2", **useless))
    for body in bodies:
        assert not isinstance(body, Put) or not faults(BY_KIND["Node"], body.object, None)
    assert pool_after(bodies).ordered == ("n1", "n2", f"{REGION}-burst-3", f"{REGION}-burst-4")


@pytest.mark.parametrize(
    "useful",
    [
        {},
        {"health": ""},
        {"unschedulable": True, "annotations": {CLOSED: "true"}},
        {
            "unschedulable": True,
            "annotations": {CLOSED: "true"},
            "drain": DrainOrder(reason="x", requester="node-autoscaler"),
        },
    ],
)
def test_nodes_that_are_new_or_that_it_opens_again_are_on_their_way(useful: dict[str, Any]) -> None:
    after = pool_after(two_wait(a_node("n1", **useful), a_node("n2", **useful)))
    assert after.ordered == ("n1", "n2")
    assert after.conditions[0].message == "2 on their way"


@pytest.mark.parametrize(
    ("scope", "added", "let_go"),
    [
        ({"tenants": ("*",)}, 0, False),
        ({"tenants": ("*",), "regions": (REGION,)}, 0, False),
        ({"regions": (REGION,)}, 1, True),
        ({"tenants": ("risk",)}, 1, True),
        ({"workloads": ("api",)}, 1, True),
        ({"tenants": ("*",), "regions": ("elsewhere",)}, 3, True),
        ({"tenants": ("search",)}, 2, True),
        ({"workloads": ("web",)}, 3, True),
    ],
)
def test_a_pause_of_all_stills_the_pools_of_its_regions_and_one_of_some_adds_no_node_for_what_waits_of_them(
    scope: dict[str, Any], added: int, let_go: bool
) -> None:
    spec = OverrideSpec(kind="autoscaler-pause", reason="x", ttl_seconds=60, requester="a", scope=OverrideScope(**scope))
    paused = Override(Metadata(name="p", namespace="risk", creation_time=instant(NOW)), spec)
    other = [replace(each, metadata=replace(each.metadata, namespace="search")) for each in requests_of(1)]
    pool = NodePool(Metadata(name="burst"), SPEC)
    after = pool_after(scaled(Seen([pool], [], [*requests_of(2), *other], {}, [paused]), REGION, NOW))
    assert len(after.ordered) == added
    if added == 1:
        assert "none for 2 that wait under an autoscaler-pause" in after.conditions[0].message
    idle = NodePoolStatus(ordered=("n1",), idle=(IdleSince(node="n1", time=instant(NOW - 301_000)),))
    bodies = scaled(Seen([replace(pool, status=idle)], [a_node("n1")], [], {}, [paused]), REGION, NOW)
    assert any(isinstance(body, Put) for body in bodies) is let_go


def test_lost_and_empty_nodes_are_let_go_while_work_waits_so_that_others_may_come() -> None:
    full = replace(SPEC, max_nodes=2)
    lost = [a_node("n1", "Lost"), a_node("n2", "Lost")]
    bodies = two_wait(*lost, spec=full)
    closed = [body.object for body in bodies if isinstance(body, Put)]
    assert [CLOSED in node.metadata.annotations and node.spec.unschedulable for node in closed] == [True, True]
    assert pool_after(bodies).conditions[0].message == "no more than 2; 2 that are lost go"
    assert pool_after(two_wait(*closed, spec=full)).ordered == (), "closed at an earlier look, and still empty"
    deleted = two_wait(*closed, spec=full, ordered=("n9",))
    assert [body.name for body in deleted if isinstance(body, Delete)] == ["n1", "n2"]


def test_no_more_lost_nodes_are_let_go_than_what_waits_needs_and_none_that_somebody_keeps_closed() -> None:
    lost = [a_node("n0", "Lost", unschedulable=True), *(a_node(f"n{n}", "Lost") for n in range(1, 5))]
    closed = [body.object.metadata.name for body in two_wait(*lost) if isinstance(body, Put)]
    assert closed == ["n1", "n2"]


@pytest.mark.parametrize("region", ["eu", "r" * 63])
def test_a_pool_of_a_million_orders_as_many_as_its_status_can_name(region: str) -> None:
    spec = replace(SPEC, min_nodes=1_000_000, max_nodes=1_000_000)
    pool = NodePool(Metadata(name="eu-central-burst"), spec)
    status = pool_after(scaled(Seen([pool], [], [], {}, []), region, NOW))
    nodes = [replace(a_node(name), spec=NodeSpec(pool="eu-central-burst")) for name in status.ordered]
    pool = replace(pool, status=replace(status, numbered=99_999_000))
    full = pool_after(scaled(Seen([pool], nodes, [], {}, []), region, NOW + 1000))
    assert 1000 < len(full.ordered) == len(status.ordered)
    assert "can be ordered of one pool" in full.conditions[0].message
    assert 0 < len(full.idle) < len(full.ordered)
    assert len(codec.encode(full)) < OBJECT_BYTES_MAX - 40 * 1024


def test_of_more_empty_nodes_than_it_can_remember_the_longest_empty_are_remembered_and_go() -> None:
    names = [f"n{n:04d}" for n in range(3000)]
    long_ago = tuple(IdleSince(node=name, time=instant(NOW - 1_000_000)) for name in names[2990:])
    pool = NodePool(Metadata(name="burst"), replace(SPEC, max_nodes=5000), NodePoolStatus(ordered=tuple(names), idle=long_ago))
    bodies = scaled(Seen([pool], [a_node(name) for name in names], [], {}, []), REGION, NOW)
    assert [body.object.metadata.name for body in bodies if isinstance(body, Put)] == names[2990:]
    idle = {each.node: millis(each.time) for each in pool_after(bodies).idle}
    assert len(idle) < 3000
    assert [idle[name] for name in names[2990:]] == [NOW - 1_000_000] * 10
