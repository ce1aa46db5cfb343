"""A host of simulated nodes as a program: `python -m bench.api_fleet CONFIG`. One channel, one heartbeat frame and one feed for
all of its nodes; what they run is simulated. Started by bench/api_rig.py."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import sys
import time
from pathlib import Path

import msgspec

from fairlead.agent.drivers.simulated import SimulatedDriver
from fairlead.agent.host import Host
from fairlead.agent.over_plane import PlaneRegion
from fairlead.agent.settings import AgentSettings, NodeDeclaration
from fairlead.client.dial import Dialer
from fairlead.client.remote import RemotePlane
from fairlead.compose.config import TlsFiles
from fairlead.compose.layout import read_config
from fairlead.main import run_plane
from fairlead.model.resources import Resources
from fairlead.ports import SystemClock, Tasks, system_random
from fairlead.security.tls import client_context

HEARD = re.compile(r"all heard at ([0-9.]+)")
ZONES = ("zone-a", "zone-b", "zone-c")


class FleetConfig(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    name: str
    region: str
    addresses: tuple[str, ...]
    tls: TlsFiles
    numbers: tuple[int, ...]  # of its nodes


def node_name(region: str, number: int) -> str:
    return f"{region}-n{number:05d}"


def declared(config: FleetConfig) -> list[NodeDeclaration]:
    return [
        NodeDeclaration(
            name=node_name(config.region, number), region=config.region, zone=ZONES[number % len(ZONES)],
            allocatable=Resources(64_000, 256 << 30), max_slots=1_000,
        )
        for number in config.numbers
    ]  # fmt: skip


async def serve(config: FleetConfig) -> None:
    clock, random = SystemClock(), system_random()
    files = config.tls
    dialer = Dialer(client_context(Path(files.authority), Path(files.certificate), Path(files.key)))
    plane = RemotePlane(config.addresses, dialer.dial, clock, random, config.name)
    settings = AgentSettings(drivers=("simulated",))
    host = Host(declared(config), PlaneRegion(plane), {"simulated": SimulatedDriver()}, clock, random, settings)
    stop = asyncio.Event()
    for wanted in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(wanted, stop.set)
    try:
        async with Tasks() as tasks:
            tasks.start(plane.run(), "plane")
            tasks.start(host.run(), "host")
            tasks.start(_say_heard(plane, host), "heard")
            await stop.wait()
            tasks.cancel()
    finally:
        await dialer.close()


async def _say_heard(plane: RemotePlane, host: Host) -> None:
    """Once for every connection: when all of its nodes are through their handshake and a heartbeat was acknowledged."""
    said = 0
    while True:
        await asyncio.sleep(0.02)
        if plane.connects_total == said or not plane.connected:
            continue
        acks, connection = host.acks_total, plane.connects_total
        while plane.connects_total == connection and (  # noqa: ASYNC110
            host.acks_total == acks or any(node.needs_handshake or not node.leased for node in host.nodes.values())
        ):
            await asyncio.sleep(0.02)  # seen from outside: an agent has no reason to tell anybody
        if plane.connects_total == connection:
            said = connection
            logging.info("all heard at %.3f", time.time())


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    run_plane(serve(read_config(Path(sys.argv[1]), FleetConfig)))
