"""Owns what stays broken when all else is healed: the machine of one server of three, or of one node.

What is promised after healing is promised of a healed core, not of a whole platform: the rest must come to rest without it, and
what was on it must be elsewhere or be said to wait. Which kind is the scenario's, which one is drawn. Called by world.py.
"""

from __future__ import annotations

from collections.abc import Callable

from fairlead.sim.machines import Machine
from fairlead.sim.platform import Platform


class Remainder:
    def __init__(self, platform: Platform, power_off: Callable[[Machine], None]) -> None:
        self._platform = platform
        self._power_off = power_off
        self._draws = platform.loop.stream("remainder")

    def freeze(self) -> None:
        """Before all else is healed: from now on it has no power, and gets none."""
        kind = self._platform.scenario.remains
        if not kind:
            return
        planes, agents = list(self._platform.planes.values()), list(self._platform.agents.values())
        candidates = [agent.program.machine for agent in agents if "-twin-" not in agent.program.name]
        if kind == "server":
            candidates = [program.machine for plane in planes for program in plane.servers]
        machine = candidates[self._draws.randrange(len(candidates))]
        self._platform.machines.counts[f"remains_{kind}"] += 1
        self._platform.machines.tell("chaos", f"{machine.name} stays without power")
        machine.broken = True
        if machine.up:
            self._power_off(machine)
        for program in [one for one in self._platform.machines.programs.values() if one.machine is machine]:
            self._platform.hosts.pop(program.name, None)  # of lives that are over: with the world they go quietly
            for plane in planes:
                plane.made.pop(program.name, None)
