"""A lease of a grant ends while nobody leads the region (P13): agents end what is above the limit that stays, and that alone."""

from __future__ import annotations

from typing import Any

from fairlead.model.lifecycle import SlotState
from fairlead.model.registry import GLOBAL
from fairlead.sim.loop import sleep
from tests.sim.races.stage import REGION, TENANT, Stage, played

LEASE_S = 20
HONOURED_S = LEASE_S * 1.01 + 2.0  # for so long the global plane gives nothing of it to others


def test_what_is_above_the_limit_that_stays_ends_with_the_lease_though_its_region_is_down() -> None:
    async def script(stage: Stage) -> None:
        here = {"regions": {"allowed": [REGION]}}
        await stage.create("base", 1, cpu="100m", placement=here)
        await stage.until(lambda: stage.serving("base") == 1)
        (base,) = stage.bindings("base")
        await stage.until(lambda: not _provisional(stage, base))
        await stage.create("burst", 3, placement=here)
        await stage.until(lambda: stage.bindings("burst"))
        # From here on the region cannot be given more, and soon nobody leads it.
        above = [program.machine for program in stage.platform.planes[GLOBAL].servers]
        servers = stage.machines(servers=True)
        await stage.cut(above, servers, 60.0)
        await stage.until(lambda: all(_runs(stage, binding) for binding in stage.bindings("burst")))
        ending = [binding for binding in stage.bindings("burst") if _provisional(stage, binding)]
        assert ending, "some are above what stays"
        assert all(b.spec.provisional_until_time is not None for b in ending), "and nobody has confirmed them"
        for machine in servers:
            stage.world.chaos.power_off(machine)
        began = stage.loop.now
        for binding in ending:
            program = stage.agent_of(binding.spec.node).program
            if program.lives == 1:
                program.kill()
                program.start()
        await sleep(2.0)
        assert all(_provisional(stage, binding) for binding in ending), "an agent that comes later finds out from the shims"
        assert all(_runs(stage, binding) for binding in ending), "their lease lasts"
        await stage.until(lambda: not any(_runs(stage, binding) for binding in ending), HONOURED_S)
        await stage.until(lambda: stage.loop.now > began + 60.0)
        assert not any(_runs(stage, binding) for binding in ending), "nor do they start again without a lease"
        assert _runs(stage, base), "what stays was not touched"
        for machine in servers:
            stage.world.chaos.power_on(machine)
        await stage.until(lambda: [b.status.state for b in stage.bindings("burst")] == [SlotState.SERVING] * 3, 120.0)
        await stage.until(lambda: not any(_provisional(stage, binding) for binding in stage.bindings()))
        await stage.until(lambda: all(b.spec.provisional_until_time is None for b in stage.bindings()), 30.0)

    played(script, regions=2, tight=True, grant_lease_s=LEASE_S)


def _runs(stage: Stage, binding: Any) -> bool:
    return stage.platform.runs(binding.spec.node, TENANT, binding.metadata.name)


def _provisional(stage: Stage, binding: Any) -> bool:
    """Whether its agent holds it for something that ends with the lease."""
    node = stage.platform.hosts[stage.agent_of(binding.spec.node).program.name].nodes[binding.spec.node]
    lives = ((slot.id.name, slot.id.token) for slot in node.provisional.values())
    return (binding.metadata.name, binding.spec.token) in lives  # an earlier life of it may have ended on the same node
