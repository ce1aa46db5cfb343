"""Work for the simulated driver, the ids of its instances, and a world where they outlive their agent."""

from __future__ import annotations

from fairlead.agent.drivers.contract import InstanceId
from fairlead.agent.drivers.simulated import World
from fairlead.model.kinds.intent import Template
from fairlead.model.kinds.slot import Token

SIMULATED = Template(driver="simulated")


def world() -> World:
    return World(running={}, starts={})


def id_of(name: str, epoch: int = 1, attempt: int = 1) -> InstanceId:
    return InstanceId("risk", name, Token(1, epoch, attempt))
