"""Owns faults that are aimed at one safeguard and would hardly ever come together by chance.

Like those of chaos.py: every value is drawn before anything is looked at, each counts itself and undoes itself. What they block
or hold is undone by `Chaos.heal` as well. Called by chaos.py.
"""

from __future__ import annotations

from collections.abc import Callable

from fairlead.model.registry import GLOBAL
from fairlead.sim.loop import Draws
from fairlead.sim.platform import Platform


class Aimed:
    def __init__(self, platform: Platform, left_out: Callable[[], bool]) -> None:
        self._platform = platform
        self._left_out = left_out
        self._counts = platform.machines.counts

    async def usurp(self, draws: Draws) -> None:
        """A leader loses its store and does not know; one node hears this leader only, and all others the next one."""
        at, node_at, for_s = draws.random(), draws.random(), draws.uniform(25.0, 45.0)
        planes = [p for p in self._platform.planes.values() if p.name != GLOBAL and len(p.servers) > 1 and p.leaders()]
        if self._left_out() or not planes:
            return
        plane = planes[int(at * len(planes))]
        name, machines, network = plane.leaders()[0].config.name, self._platform.machines, self._platform.network
        agents = [agent for agent in self._platform.agents.values() if agent.node.region == plane.name]
        node = agents[int(node_at * len(agents))].program.machine
        leader = next(program.machine for program in plane.servers if program.name == name)
        others = [m for m in machines.all.values() if m not in (leader, node) and m.name.startswith(f"{plane.name}/")]
        pairs = [pair for one in (leader, node) for other in others for pair in ((one, other), (other, one))]
        self._counts["F5"] += 1
        machines.tell("chaos", f"{name} and {node.name} are cut from the rest of their region, for {for_s:.1f} s")

        def rejoin() -> None:
            for source, target in pairs:
                network.unblock(source, target)

        for source, target in pairs:
            network.block(source, target)
        self._platform.loop.after(for_s, rejoin)

    async def freeze(self, draws: Draws) -> None:
        """An agent stands still for some leases of its node, and what it has started does not (F8)."""
        at, leases = draws.random(), draws.uniform(1.0, 6.0)
        agents = [agent.program for agent in self._platform.agents.values()]
        program, for_s = agents[int(at * len(agents))], 5.0 + leases * self._platform.scenario.node_lease_s
        if self._left_out() or not program.alive or program.running is None or program.running.paused:
            return
        self._counts["F8"] += 1
        self._platform.machines.tell("chaos", f"{program.name} stands still, for {for_s:.1f} s")
        program.pause()
        self._platform.loop.after(for_s, program.resume)
