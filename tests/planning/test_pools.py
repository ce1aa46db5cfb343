"""Plans of node pools: grown, shrunk, given to others, deleted. Who moves, who waits, what it costs; and what is not counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fairlead.cli import frame
from fairlead.client.planning import Planned, PlanRefused, Step
from fairlead.compose.controllers import tried_on
from fairlead.model.commands import Accepted, Command, Delete
from fairlead.model.kinds.capacity import Node, NodePool, NodePoolSpec, NodeSpec
from fairlead.model.meta import Metadata
from fairlead.model.registry import GLOBAL
from fairlead.model.resources import Resources
from fairlead.planning.copied import Copy
from fairlead.planning.planner import TrialPlanner
from fairlead.planning.steady import Steady
from fairlead.planning.trial import Trial
from fairlead.ports import SystemClock
from tests.cli.talks import talk
from tests.planning.manifests import workload as manifest
from tests.planning.manifests import written
from tests.planning.measure import GI, OPERATOR, Frozen, empty, put, workload
from tests.planning.platform import Platform
from tests.planning.test_plans import planned as asked

SHAPE = Resources(8_000, 64 * GI)  # eight slots of a core
BY_HAND = "east-byhand"  # a node of the pool that people made: no provider stops it


def pool(name: str = "burst", **spec: Any) -> Step:
    made = NodePoolSpec(**{"provider": "cloud", "node": SHAPE, "max_nodes": 9, **spec})
    return put("east", "NodePool", NodePool(metadata=Metadata(name=name), spec=made))


def by_hand() -> Step:
    spec = NodeSpec(region="east", zone="a", pool="burst", allocatable=SHAPE, hourly_cost_millis=500)
    return put("east", "Node", Node(metadata=Metadata(name=BY_HAND), spec=spec))


def region(*steps: Step) -> dict[str, Copy]:
    """As it comes to rest after these steps: without a pool, one node of sixteen cores."""
    copies = empty(1, Resources(100_000, 400 * GI))
    trial = Trial(copies, tried_on, SystemClock(), Steady())
    for _ in trial.open():
        pass
    assert trial.apply(steps) is None
    for _ in trial.settle():
        pass
    return copies


def of_pool(copies: dict[str, Copy]) -> list[str]:
    return sorted(rec.name for rec in copies["east"].state.live("nodes") if rec.hot.spec.pool == "burst")


async def tried(copies: dict[str, Copy], *steps: Step) -> Planned | PlanRefused:
    planes = {name: Frozen(copy) for name, copy in copies.items()}
    return (await TrialPlanner(tried_on, SystemClock()).plan(planes, steps))[0]


async def planned(copies: dict[str, Copy], *steps: Step) -> Planned:
    found = await tried(copies, *steps)
    assert isinstance(found, Planned), found
    assert found.settled
    return found


def waiting(found: Planned) -> int:
    return sum(row.count for row in found.pending)


async def test_a_pool_that_must_have_more_nodes_gives_places_to_who_waits_and_costs_more() -> None:
    copies = region(pool(), by_hand(), put(GLOBAL, "Workload", workload("api", 40)))  # 16 + 8 have a place
    found = await planned(copies, pool(min_nodes=3))
    assert {row.to_node for row in found.slots} == {"east-burst-1", "east-burst-2"}
    assert len(found.slots) == 16
    (cost,) = found.cost
    assert cost.nodes_after - cost.nodes_before == 1.0
    assert of_pool(copies) == [BY_HAND], "nothing was changed"


async def test_what_a_pool_may_have_is_not_counted_on() -> None:
    copies = region(pool(max_nodes=1), by_hand(), put(GLOBAL, "Workload", workload("api", 40)))
    found = await planned(copies, pool(max_nodes=9))
    assert (found.slots, found.workloads) == ((), ())
    (cost,) = found.cost
    assert cost.nodes_before == cost.nodes_after


async def test_a_pool_that_may_have_fewer_is_drained_and_who_then_has_no_place_is_named_with_the_reason() -> None:
    copies = region(pool(min_nodes=3), by_hand(), put(GLOBAL, "Workload", workload("api", 30)))
    assert of_pool(copies) == ["east-burst-1", "east-burst-2", BY_HAND]
    roomy = await planned(copies, pool(min_nodes=0, max_nodes=2))  # 30 of 32 places are left of 40
    moved = [row for row in roomy.slots if row.to_node]
    assert moved
    assert {row.from_node for row in moved} <= {"east-burst-1", "east-burst-2"}
    assert not roomy.pending
    (cost,) = roomy.cost
    assert cost.nodes_before - cost.nodes_after == 0.5
    tight = await planned(copies, pool(min_nodes=0, max_nodes=1))  # people's own node stays
    assert {row.reason for row in tight.pending} == {"WaitingForCapacity"}
    assert waiting(tight) == 30 - 24
    assert not {row.to_node for row in tight.slots} & {"east-burst-1", "east-burst-2"}


async def test_a_pool_that_the_change_does_not_touch_neither_grows_nor_shrinks() -> None:
    copies = region(pool(min_nodes=3), by_hand(), put(GLOBAL, "Workload", workload("api", 4)))
    assert isinstance(copies["east"].submit(pool(max_nodes=1).command), Accepted), "its controller has not looked yet"
    more = put(GLOBAL, "Workload", workload("more", 40))
    for steps in ((more,), (pool("other", max_nodes=0), more)):
        found = await planned(copies, *steps)
        assert all(row.workload == "more" for row in found.slots)
        assert waiting(found) == 4, "of 44, for which there are 40 places"
        assert not found.cost or found.cost[0].nodes_before == found.cost[0].nodes_after


async def test_a_pool_that_is_given_to_another_tenant_takes_nobody_else_s_new_slots() -> None:
    copies = region(pool(), by_hand())
    more = put(GLOBAL, "Workload", workload("api", 24))
    assert waiting(await planned(copies, more)) == 0
    found = await planned(copies, pool(allowed_tenants=("billing",)), more)
    assert waiting(found) == 8
    assert BY_HAND not in {row.to_node for row in found.slots}


async def test_a_pool_is_not_deleted_while_nodes_are_in_it() -> None:
    delete = Step("east", Command(OPERATOR, Delete("NodePool", "", "burst")))
    refused = await tried(region(pool(), by_hand()), delete)
    assert isinstance(refused, PlanRefused)
    assert refused.refused.reason == "InUse"
    assert "1 nodes are in pool burst" in refused.refused.detail
    gone = await planned(region(pool()), delete)
    assert (gone.slots, gone.pending) == ((), ())


def test_the_command_line_plans_a_pool_of_a_region_and_its_deletion(here: Platform, tmp_path: Path) -> None:
    spec = {"provider": "cloud", "node": {"cpu": "32", "memory": "64Gi"}, "minNodes": 1, "maxNodes": 1}
    tree = {"kind": "NodePool", "metadata": {"name": "east-large"}, "spec": spec}
    big = manifest("big", replicas=1, cpu="20", placement={"regions": {"allowed": ["east"]}})
    assert [row["reason"] for row in asked("-f", written(tmp_path, big))["pending"]] == ["NoMatchingCapacity"]
    status = asked("-f", written(tmp_path, tree, big))
    assert [row["toNode"] for row in status["slots"]] == ["east-east-large-1"]
    assert here.get("nodepools", "east-large", "", "east") is None, "nothing was changed"
    ran = talk("plan", "delete", "nodepool/east-large")
    assert ran.code == frame.NOT_FOUND, ran
