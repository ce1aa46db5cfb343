"""An agent on a plane in another process, as far as it can tell: over channels, which break."""

from __future__ import annotations

import random

from fairlead.agent.drivers.simulated import SimulatedDriver
from fairlead.agent.host import Host
from fairlead.agent.over_plane import PlaneRegion
from fairlead.agent.settings import AgentSettings, NodeDeclaration
from fairlead.authority.service import PlaneService
from fairlead.client.remote import RemotePlane
from fairlead.model.kinds.intent import Template
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.resources import Resources
from fairlead.ports import SystemClock
from tests.agent.processes import until
from tests.agent.regions import GI, Rig, rig
from tests.authority.planes import REGION
from tests.client.queues import Exchange

SIMULATED = Template(driver="simulated")


def remote_host(made: Rig, count: int) -> tuple[Host, SimulatedDriver, Exchange, RemotePlane]:
    exchange = Exchange(made.tasks)
    exchange.services["a"] = PlaneService(made.plane.authority, made.plane.clock)
    remote = RemotePlane(["a"], exchange.dial, SystemClock(), random.Random(1), "agent")
    made.tasks.start(remote.run(), "remote")
    driver = SimulatedDriver()
    settings = AgentSettings(drivers=("simulated",), heartbeat_s=0.05, retry_s=0.05, report_s=0.005)
    declared = [NodeDeclaration(name=f"n{i}", region=REGION, allocatable=Resources(16_000, 64 * GI)) for i in range(1, count + 1)]
    host = Host(declared, PlaneRegion(remote), {"simulated": driver}, SystemClock(), random.Random(2), settings)
    made.start(host)
    return host, driver, exchange, remote


async def test_work_is_started_reported_and_stopped_over_a_channel_that_breaks() -> None:
    async with rig() as made:
        host, driver, exchange, remote = remote_host(made, 1)
        await made.schedulable()
        first = await made.place("api", SIMULATED)
        await made.reaches(first, "Ready")
        told = host.handshakes_total
        await exchange.cut()
        second = await made.place("late", SIMULATED)  # bound while nobody listens
        await made.reaches(second, "Ready")
        assert host.handshakes_total > told
        assert remote.connects_total == 2
        assert (made.sessions(), made.state(first)) == (1, "Ready")
        await exchange.cut()
        await made.move(first, SlotState.DRAINING, Role.DISRUPTION, deadline_s=5.0)
        await made.reaches(first, "Released")
        assert [id.name for id in driver.world.running] == ["late-0"]


async def test_many_nodes_share_one_channel() -> None:
    async with rig() as made:
        host, driver, _, remote = remote_host(made, 40)
        await until(lambda: not any(node.needs_handshake for node in host.nodes.values()))
        names = [await made.place(f"w{i}", SIMULATED, node=f"n{i}") for i in range(1, 41, 5)]
        for name in names:
            await made.reaches(name, "Ready")
        assert len(driver.world.running) == len(names)
        assert remote.connects_total == 1
