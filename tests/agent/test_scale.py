"""Thousands of simulated nodes in one process: they come up and come back together, and cost little while nothing happens."""

from __future__ import annotations

import random
import resource

import pytest

from fairlead.agent.drivers.simulated import SimulatedDriver
from fairlead.agent.host import Host
from fairlead.agent.settings import AgentSettings, NodeDeclaration
from fairlead.authority.judge import Settings
from fairlead.model.kinds.intent import Template
from fairlead.model.resources import Resources
from tests.agent.processes import until
from tests.agent.regions import GI, Rig, rig
from tests.authority.planes import REGION

MANY = 500


def fleet(made: Rig, count: int, driver: SimulatedDriver, **settings: float) -> Host:
    declared = [
        NodeDeclaration(name=f"n{i:05d}", region=REGION, zone="abc"[i % 3], allocatable=Resources(16_000, 64 * GI))
        for i in range(count)
    ]
    values = AgentSettings(drivers=("simulated",), **settings)  # type: ignore[arg-type]
    return Host(declared, made.region, {"simulated": driver}, made.plane.clock, random.Random(1), values)


def through(host: Host) -> bool:
    return not any(node.needs_handshake for node in host.nodes.values())


async def test_a_fleet_comes_up_works_and_comes_back_after_a_cut_without_writing_anything() -> None:
    async with rig() as made:
        driver = SimulatedDriver()
        host = fleet(made, MANY, driver, heartbeat_s=0.2, retry_s=0.05)
        made.start(host)
        await until(lambda: host.nodes and through(host))
        writes = len(made.region.submitted)
        assert writes == 3 * MANY
        names = [await made.place(f"w{i}", Template(driver="simulated"), node=f"n{i * 50:05d}") for i in range(10)]
        for name in names:
            await made.reaches(name, "Ready")
        assert len(driver.world.running) == 10
        await until(lambda: len(made.region.submitted) >= writes + 20)
        before, told = len(made.region.submitted), host.handshakes_total
        made.region.cut()
        await until(lambda: not any(node.synced for node in host.nodes.values()))
        made.region.heal()
        await until(lambda: host.handshakes_total == told + MANY and through(host))
        again = [command.body for command in made.region.submitted[before:]]
        assert {type(body).__name__ for body in again} <= {"Report"}  # an inventory is read, not written
        assert {made.state(name) for name in names} == {"Ready"}
        assert all(count == 1 for count in driver.world.starts.values())


@pytest.mark.soak
async def test_five_thousand_nodes_reconnect_within_a_minute_and_idle_below_fifteen_per_cent_of_a_core() -> None:
    async with rig(settings=Settings(region=REGION)) as made:
        clock = made.plane.clock
        host = fleet(made, 5_000, SimulatedDriver())
        began = clock.monotonic()
        made.start(host)
        await until(lambda: through(host))
        up_s = clock.monotonic() - began
        made.region.cut()
        await until(lambda: not any(node.synced for node in host.nodes.values()))
        began = clock.monotonic()
        made.region.heal()
        await until(lambda: through(host))
        back_s = clock.monotonic() - began
        before, began = _cpu_s(), clock.monotonic()
        await clock.sleep(15.0)
        share = (_cpu_s() - before) / (clock.monotonic() - began)
        print(f"up {up_s:.2f} s, back {back_s:.2f} s, idle {share:.1%} of a core (agents and authority together)")
        assert back_s < 60
        assert share < 0.15


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
