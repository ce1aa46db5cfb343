"""A server that stood still has observed nothing meanwhile: what it did not hear then is not the nodes' silence."""

from __future__ import annotations

import pytest

from fairlead.sim import loop as sim
from fairlead.sim.loop import SimLoop, sleep
from fairlead.sim.platform import Platform
from fairlead.sim.scenario import Scenario
from fairlead.sim.walls import unheard

REGION = "us-east"


def healths(platform: Platform) -> list[str]:
    server = platform.planes[REGION].made[f"{REGION}-0"]
    return [rec.hot.status.health for rec in server.authority._state.live("nodes")]


def seen_after(pause_s: float, seed: int) -> set[str]:
    """What was said of the nodes from the moment that their region's only server went on."""

    async def main(loop: SimLoop) -> set[str]:
        platform = Platform(loop, Scenario(seed=seed, servers=1, nodes=3, regions=1))
        platform.start()
        await sleep(30.5)
        assert set(healths(platform)) == {"Ready"}
        server = platform.planes[REGION].servers[0]
        server.pause()
        await sleep(pause_s)
        server.resume()
        seen: set[str] = set()
        for _ in range(200):
            await sleep(0.02)
            seen |= set(healths(platform))
        return seen

    with unheard():
        return sim.run(main, seed).value


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_a_server_that_stood_still_for_nearly_a_node_s_lease_calls_no_living_node_silent(seed: int) -> None:
    assert seen_after(14.0, seed) == {"Ready"}
