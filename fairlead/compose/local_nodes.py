"""The node provider of the local platform: its machines are agents, each a process of its own on this machine.

Owns what it writes for each: an approved Node, a certificate, a configuration, a mark that it was made here. What runs is asked
of the operating system every time, so nothing is forgotten when the region's server goes and comes: an agent outlives the
server that started it, one that died is started again, and `fairlead down` and `up` see it as any other. Which there are to be
is the node autoscaler's word. Made by outside.py where a server's configuration names a platform; driven by
fairlead/client/providing.py.
"""

from __future__ import annotations

import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from fairlead.client.plane import Plane
from fairlead.compose.agent import AgentConfig
from fairlead.compose.config import PlaneConfig, TlsFiles
from fairlead.compose.layout import Layout
from fairlead.compose.own_users import of_provided
from fairlead.compose.processes import AGENT, STOP_S, Processes
from fairlead.compose.wiring import REGIONS
from fairlead.model.commands import Caller, Command, Put, Refused
from fairlead.model.kinds.capacity import Node, NodePool, NodeSpec
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.ports import Clock
from fairlead.security.certificates import LocalAuthority, Named, Pair
from fairlead.security.files import write, write_private
from fairlead.security.hidden import Hidden
from fairlead.wire import json_codec

PORTS: Final = (20_000, 20_999)  # of what runs there: below those of the platform's own nodes
PROVIDER: Final = Caller("provider local", Role.OPERATOR)  # the operator's word is the pool


class LocalNodes:
    name = "local"

    def __init__(self, config: PlaneConfig, address: str, plane: Plane, clock: Clock) -> None:
        """`address` is where the agents reach their region."""
        self._config = config
        self._address = address
        self._plane = plane
        self._clock = clock
        self._layout = Layout(Path(config.local_nodes), "")
        self._processes = Processes(self._layout, clock)

    def _mark(self, pool: str, name: str = "") -> Path:
        made = self._layout.path("provided", self._config.region, pool)
        return made / name if name else made

    async def running(self, pool: str) -> list[str]:
        marks = self._mark(pool)
        names = sorted(path.name for path in marks.iterdir()) if marks.exists() else []
        return [name for name in names if self._processes.pid(f"{AGENT}{name}") is not None]

    async def start(self, pool: NodePool, name: str) -> None:
        zone = await self._approve(pool, name)
        mark = self._mark(pool.metadata.name, name)
        if not mark.exists() or not self._layout.config_of(f"{AGENT}{name}").exists():
            self._write(pool, name, zone)
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
        self._processes.start(f"{AGENT}{name}")

    async def stop(self, pool: str, name: str) -> None:
        process = f"{AGENT}{name}"
        for number in (signal.SIGTERM, signal.SIGCONT):  # one that is paused hears nothing
            self._processes.signal(process, number)
        if not await self._processes.wait_gone([process], STOP_S):
            self._processes.kill([process])
            await self._processes.wait_gone([process], STOP_S)
        self._processes.kill_work([process])  # of an agent that could not stop it
        for path in (self._layout.config_of(process), self._mark(pool, name), *self._pair_files(process)):
            path.unlink(missing_ok=True)
        self._layout.path("run", f"{process}.pid").unlink(missing_ok=True)

    async def _approve(self, pool: NodePool, name: str) -> str:
        """An agent may register what somebody has approved, and offer no more than that. The zone it is in."""
        zones = [
            zone for row in await self._plane.list("regions") if row.name == self._config.region for zone in row.hot.spec.zones
        ]
        spec = NodeSpec(
            region=self._config.region, zone=min(zones, default=""), pool=pool.metadata.name, allocatable=pool.spec.node,
            max_slots=pool.spec.max_slots,
        )  # fmt: skip
        (said,) = await self._plane.submit(
            [Command(PROVIDER, Put("Node", Node(metadata=Metadata(name=name), spec=spec), "create"))]
        )
        if isinstance(said, Refused) and said.reason != "AlreadyExists":
            raise OSError(f"node {name} is not let in: {said.detail}")
        return spec.zone

    def _pair_files(self, process: str) -> tuple[Path, Path]:
        return self._layout.path("pki", f"{process}.pem"), self._layout.path("pki", f"{process}.key")

    def _write(self, pool: NodePool, name: str, zone: str) -> None:
        config, process = self._config, f"{AGENT}{name}"
        assert config.tls is not None, "a platform's servers have certificates"
        authority = Path(config.tls.authority)
        issuer = LocalAuthority(Pair(authority.read_bytes(), Hidden(Path(config.join_key).read_bytes())))
        now = datetime.fromtimestamp(self._clock.wall(), tz=UTC)
        pair = issuer.issue(Named("agent", name, region=config.region), now)
        certificate, key = self._pair_files(process)
        write(certificate, pair.certificate)
        write_private(key, pair.key.reveal_bytes())
        offered = pool.spec.node.as_quantities()
        others = [
            self._processes.agent_config(other)
            for other in self._processes.agents()
            if other.startswith(f"{AGENT}{config.region}")
        ]
        uid_range = of_provided(REGIONS.index(config.region), [other.uid_range[0] for other in others])
        made = AgentConfig(
            node=name, region=config.region, addresses=(self._address,), state=str(self._layout.path("data", "nodes", name)),
            zone=zone, pool=pool.metadata.name, cpu=offered.get("cpu", ""), memory=offered.get("memory", ""),
            max_slots=pool.spec.max_slots,
            tls=TlsFiles(str(certificate), str(key), str(authority)), renews=True, ports=PORTS,
            node_lease_s=config.node_lease_s, heartbeat_s=config.node_lease_s / 3, stop_instances=True,
            uids=all(other.uids for other in others), uid_range=uid_range,
        )  # fmt: skip
        write_private(self._layout.config_of(process), json_codec.encode(made))
