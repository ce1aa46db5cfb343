"""Owns the node provider of the simulator: its machines are simulated ones, each with an agent that registers by itself.

The same interface as the local platform's agents (fairlead/compose/local_nodes.py), driven by the same comparison
(fairlead/client/providing.py) in the region's leader. A machine outlives the server that ordered it. Used where a platform is
made elastic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from fairlead.agent.settings import NodeDeclaration
from fairlead.client.plane import Plane
from fairlead.model.commands import Caller, Command, Put
from fairlead.model.kinds.capacity import Node, NodePool, NodeSpec
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.sim.driver import Instances
from fairlead.sim.loop import Draws
from fairlead.sim.machines import Program

PROVIDER: Final = Caller("provider simulated", Role.OPERATOR)


class Machine(Protocol):
    """A simulated machine with its agent."""

    node: NodeDeclaration
    program: Program
    instances: Instances


class Stillborn:
    """Machines that are ordered and never come up: half of them are refused, of the others the node is approved and no agent
    registers. Drawn once for each name, whoever leads."""

    def __init__(self, chance: float, draws: Draws, counts: Counter[str]) -> None:
        self._chance = chance
        self._draws = draws
        self._counts = counts
        self._drawn: dict[str, str] = {}
        self.left_out: Callable[[str], bool] = lambda strike: False
        self.healed: Callable[[], bool] = lambda: False

    def fate(self, name: str) -> str:
        """`refused`, `silent` or nothing at all."""
        if not self._chance or (name not in self._drawn and self.healed()):
            return ""
        if name not in self._drawn:
            hit, refused = self._draws.random() < self._chance, self._draws.random() < 0.5
            strikes = hit and not self.left_out(f"stillborn:{name}")
            self._counts["stillborn"] += strikes
            self._drawn[name] = ("refused" if refused else "silent") if strikes else ""
        return self._drawn[name]


class SimNodes:
    name = "simulated"

    def __init__(
        self, machines: Mapping[str, Machine], make: Callable[[NodeDeclaration], Machine], region: str, plane: Plane,
        stillborn: Stillborn | None = None,
    ) -> None:  # fmt: skip
        """`machines` by name, all there are; `make` adds one."""
        self._stillborn = stillborn
        self._machines = machines
        self._make = make
        self._region = region
        self._plane = plane

    async def running(self, pool: str) -> list[str]:
        mine = [name for name, each in self._machines.items() if (each.node.region, each.node.pool) == (self._region, pool)]
        return [name for name in mine if self._machines[name].program.alive]

    async def start(self, pool: NodePool, name: str) -> None:
        fate = self._stillborn.fate(name) if self._stillborn is not None else ""
        if fate == "refused":
            raise OSError(f"{name}: there is no machine to be had")
        spec = NodeSpec(region=self._region, pool=pool.metadata.name, allocatable=pool.spec.node, max_slots=pool.spec.max_slots)
        await self._plane.submit([Command(PROVIDER, Put("Node", Node(metadata=Metadata(name=name), spec=spec), "create"))])
        if fate:
            return
        machine = self._machines.get(name) or self._make(
            NodeDeclaration(
                name=name, region=self._region, pool=pool.metadata.name, allocatable=pool.spec.node, max_slots=pool.spec.max_slots
            )
        )  # fmt: skip
        if machine.program.machine.up and not machine.program.alive:  # it has no power, or came back by itself meanwhile
            machine.program.start()

    async def stop(self, pool: str, name: str) -> None:
        """With what runs on it: a node that was lost may be let go before its agent has heard that anything is over."""
        machine = self._machines[name]
        machine.program.kill()
        machine.instances.power_lost()
