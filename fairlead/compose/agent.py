"""An agent as a program: its channel to the region's servers, its drivers, its node. Started by `fairlead agent` and by the
local platform. What it started outlives it."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from fairlead.agent.drivers.directories import make_passable
from fairlead.agent.drivers.process import ProcessDriver, ProcessSettings
from fairlead.agent.host import Host
from fairlead.agent.over_plane import PlaneRegion
from fairlead.agent.settings import AgentSettings, NodeDeclaration, detect_address, detect_capacity
from fairlead.client.dial import Dialer
from fairlead.client.remote import RemotePlane
from fairlead.compose.config import TlsFiles, read_config
from fairlead.compose.program import log_to_stderr, stop_on_signals
from fairlead.model.resources import NOTHING, Device, Resources
from fairlead.observe.sums import CERTIFICATE_END, TELL_S
from fairlead.ports import Clock, Random, Tasks, system_random
from fairlead.security.enrolment import Renewal, identity
from fairlead.security.tls import TlsFiles as TlsPaths

_STOP_GRACE_S = 2.0


class AgentConfig(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    node: str  # the node's name; its certificate must bear it
    region: str  # the region it is in
    addresses: tuple[str, ...]  # of the region's servers, https://HOST:PORT
    state: str  # a directory, for what runs here and what the agent must remember
    zone: str = ""  # the zone it is in
    pool: str = ""  # the node pool it belongs to
    cpu: str = ""  # what it offers, a quantity; `cpu` and `memory` both empty: what the machine has
    memory: str = ""  # likewise
    scalars: dict[str, str] = {}  # other resources it offers, quantities by name
    devices: tuple[Device, ...] = ()  # what it has to give whole or in shares
    labels: dict[str, str] = {}  # for selectors; operators' once the node exists
    address: str = ""  # by which others reach what runs here; empty: the one this machine has towards its region's servers
    tls: TlsFiles | None = None  # by which it is known to its region
    renews: bool = False  # asks its region for a new certificate in time; else whoever issued it does that
    ports: tuple[int, int] = (20_000, 29_999)  # instances get theirs from these, first and last
    node_lease_s: float = 15.0  # until the region says how long its own is
    heartbeat_s: float = 5.0  # at most: three are sent in a lease
    max_slots: int = 110  # how many instances at once
    hourly_cost_millis: int = 0  # what the node costs, in thousandths an hour; for the score `cost` and for reports
    cgroups: bool = True  # limits instances by control groups, where the machine has them
    uids: bool = True  # a user each, where the agent may give them
    uid_range: tuple[int, int] = (200_000, 60_000)  # which ones: the first and how many; agents of one machine must share none
    stop_instances: bool = False  # when the agent is told to stop, so is what it runs; else the next agent adopts it

    def declaration(self) -> NodeDeclaration:
        asked = Resources.parse({name: text for name, text in (("cpu", self.cpu), ("memory", self.memory)) if text})
        capacity = (asked if asked != NOTHING else detect_capacity()) + Resources.parse(self.scalars)
        return NodeDeclaration(
            name=self.node,
            region=self.region,
            zone=self.zone,
            pool=self.pool,
            allocatable=capacity,
            devices=self.devices,
            labels=self.labels,
            address=_checked(self.address) if self.address else detect_address(self.addresses),
            max_slots=self.max_slots,
            hourly_cost_millis=self.hourly_cost_millis,
        )


def _checked(address: str) -> str:
    try:
        given = ipaddress.ip_address(address)
    except ValueError:
        raise ValueError(f"address: {address!r} is no IP address; DNS answers need one") from None
    if given.is_unspecified:
        raise ValueError(f"address: nobody can be sent to {address}; write the address by which others reach this node")
    return address


class AgentProgram:
    def __init__(self, config: AgentConfig, clock: Clock, random: Random) -> None:
        self.config = config
        self._clock = clock
        state = Path(config.state)
        make_passable(state)
        fence = state / "fence"
        settings = AgentSettings(
            node_lease_s=config.node_lease_s,
            heartbeat_s=config.heartbeat_s,
            ports=config.ports,
            port_begin=random.randrange(config.ports[0], config.ports[1] + 1),
            state_file=state / "remembered",
            fence_file=fence,
        )
        uids = config.uid_range if config.uids else None
        driver = ProcessSettings(state, fence, uids=uids, cgroups=config.cgroups)
        files = config.tls
        tls = None if files is None else identity(TlsPaths(Path(files.certificate), Path(files.key), Path(files.authority)))
        self._tls = tls
        self._dialer = Dialer(tls)
        self._renewal = Renewal(tls.files, config.addresses, clock) if tls is not None and config.renews else None
        self.plane = RemotePlane(config.addresses, self._dialer.dial, clock, random, f"agent {config.node}")
        drivers = {"process": ProcessDriver(driver, clock)}
        self.host = Host([config.declaration()], PlaneRegion(self.plane), drivers, clock, random, settings)
        self._stop = asyncio.Event()

    def stop(self) -> None:
        self._stop.set()

    async def _asked(self, operation: str, arguments: Sequence[Any]) -> Any:
        if operation != "logs":
            raise ValueError(f"an agent knows nothing of {operation}")
        tenant, name, stream, offset, limit = arguments
        chunk = await self.host.logs(tenant, name, stream, offset, limit)
        return [chunk.offset, chunk.data, chunk.next]

    async def _tell_loop(self) -> None:
        """How the agent does, for the region's /metrics."""
        while True:
            await self.plane.wait_connected()
            await self.plane.tell(self.figures())
            await self._clock.sleep(TELL_S)

    def figures(self) -> dict[str, float]:
        own = {} if self._tls is None else {CERTIFICATE_END: self._tls.ends().certificate_s}
        return self.host.figures() | own

    async def run(self) -> None:
        """Until stopped; what it started runs on and is adopted by the next one."""
        try:
            async with Tasks() as tasks:
                self.plane.attend([self.config.node], self._asked)
                tasks.start(self.plane.run(), "plane")
                tasks.start(self.host.run(), "host")
                if self._renewal is not None:
                    tasks.start(self._renewal.run(), "renewal")
                tasks.start(self._tell_loop(), "figures")
                await self._stop.wait()
                if self.config.stop_instances:
                    await self.host.stop_instances(_STOP_GRACE_S)
                tasks.cancel()
        finally:
            await self._dialer.close()


async def run_agent(path: Path, clock: Clock) -> None:
    """From its configuration file to its end."""
    config: AgentConfig = read_config(path, AgentConfig)
    log_to_stderr(program="agent", region=config.region, node=config.node)
    program = AgentProgram(config, clock, system_random())
    stop_on_signals(program.stop)
    await program.run()
