"""Owns what stays broken when all else is healed: the machine of one server of three, of one node or of all
nodes of a zone, or a whole region of three.

What is promised after healing is promised of a healed core, not of a whole platform: the rest must come to rest without it, and
what was on it must be elsewhere or be said to wait. Which kind is the scenario's, which one is drawn. Called by world.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from fairlead.sim.machines import Machine, Program
from fairlead.sim.platform import Platform


class Remainder:
    def __init__(
        self, platform: Platform, power_off: Callable[[Machine], None], nodes: Callable[[str], Collection[tuple[str, str]]]
    ) -> None:
        """`nodes`: those that a region knows of."""
        self._platform = platform
        self._power_off = power_off
        self._nodes = nodes
        self._draws = platform.loop.stream("remainder")

    def freeze(self) -> None:
        """Before all else is healed: from now on it has no power, and gets none."""
        kind, platform = self._platform.scenario.remains, self._platform
        if not kind:
            return
        candidates = {
            "server": [[program.machine] for plane in platform.planes.values() for program in plane.servers],
            "node": [[agent.program.machine] for agent in platform.agents.values() if self._may_go(agent.program)],
            "zone": self._zones(),
            "region": [[one for one in platform.machines.all.values() if one.name.startswith(f"{r}/")] for r in platform.regions],
        }[kind]
        if not candidates:
            return
        chosen = candidates[self._draws.randrange(len(candidates))]
        what = ", ".join(machine.name for machine in chosen) if kind != "region" else chosen[0].name.partition("/")[0]
        platform.gone = what if kind == "region" else ""
        platform.machines.counts[f"remains_{kind}"] += 1
        platform.machines.tell("chaos", f"{what} stays without power")
        for machine in chosen:
            machine.broken = True
            if machine.up:
                self._power_off(machine)

    def _zones(self) -> list[list[Machine]]:
        """The nodes of each zone beside which there are others."""
        agents = [agent for name, agent in self._platform.agents.items() if name == agent.node.name]
        out = dict[tuple[str, str], list[Machine]]()
        for agent in agents:
            out.setdefault((agent.node.region, agent.node.zone), []).append(agent.program.machine)
        return [one for (region, zone), one in out.items() if any(r == region and z != zone for r, z in out)]

    def _may_go(self, agent: Program) -> bool:
        """People may have deleted the others. Where nobody is heard, a region suspects itself, and declares nobody lost."""
        region, _, name = agent.machine.name.partition("/")
        others = [other for _, other in self._nodes(region) if other != name]
        return "-twin-" not in agent.name and bool(others)
