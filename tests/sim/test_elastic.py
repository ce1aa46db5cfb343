"""A region of the simulator that starts machines for its node pools: the same servers and comparison, simulated machines."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from fairlead.model.commands import Caller, Command, Put
from fairlead.model.kinds.capacity import NodePool, NodePoolSpec
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from fairlead.sim import loop as sim
from fairlead.sim.loop import SimLoop, sleep
from fairlead.sim.platform import Platform
from fairlead.sim.scenario import Scenario
from fairlead.sim.walls import unheard

REGION = "us-east"
POOL = NodePoolSpec(provider="simulated", min_nodes=2, max_nodes=3, node=Resources(4000, 16 << 30), idle_seconds=5.0)


async def ordered(platform: Platform, spec: NodePoolSpec) -> None:
    authority = platform.planes[REGION].made[f"{REGION}-0"].authority
    pool = NodePool(metadata=Metadata(name="burst"), spec=spec)
    await authority.submit([Command(Caller("ada", Role.OPERATOR), Put("NodePool", pool))])


def healths(platform: Platform) -> dict[str, str]:
    state: Any = platform.planes[REGION].made[f"{REGION}-0"].authority._state
    return {rec.name: rec.hot.status.health for rec in state.live("nodes") if rec.hot.spec.pool == "burst"}


def alive(platform: Platform) -> list[str]:
    return sorted(name for name, agent in platform.agents.items() if agent.node.pool == "burst" and agent.program.alive)


def test_machines_are_started_for_a_pool_and_again_when_they_die_and_go_when_fewer_are_wanted() -> None:
    async def main(loop: SimLoop) -> list[Any]:
        platform = Platform(loop, Scenario(seed=1, servers=1, nodes=1, regions=1))
        platform.elastic = True
        platform.start()
        await sleep(20.0)
        await ordered(platform, POOL)
        await sleep(30.0)
        seen: list[Any] = [healths(platform), alive(platform)]
        platform.agents[f"{REGION}-burst-1"].program.kill()
        await sleep(40.0)
        seen += [healths(platform), alive(platform)]
        await ordered(platform, replace(POOL, min_nodes=0, max_nodes=1))
        await sleep(90.0)
        return [*seen, healths(platform), alive(platform)]

    with unheard():
        first, up, after, still, last, left = sim.run(main, 1).value
    both = [f"{REGION}-burst-1", f"{REGION}-burst-2"]
    assert (first, up) == (dict.fromkeys(both, "Ready"), both)
    assert (after, still) == (dict.fromkeys(both, "Ready"), both), "the one that died was started again, the other left alone"
    assert len(left) <= 1
    assert set(last) == set(left), "what went is deregistered"
