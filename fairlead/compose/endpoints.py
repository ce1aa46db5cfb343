"""The program that tells clients where workloads are: one directory over the Endpoints of all regions, told by DNS and as files.

Decides nothing and writes to no plane; nothing needs it to run. Started by `fairlead endpoints` and by the local platform.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import msgspec

from fairlead.client.dial import Dialer
from fairlead.client.remote import RemotePlane
from fairlead.compose.config import Peer, TlsFiles, read_config
from fairlead.compose.program import log_to_stderr, stop_on_signals
from fairlead.ports import Clock, Random, Tasks, system_random
from fairlead.security.tls import ClientTls
from fairlead.serving.directory import Directory
from fairlead.serving.dns import DnsServer, DnsSettings
from fairlead.serving.dns_zone import Zone, ZoneSettings
from fairlead.serving.feed import Files

log = logging.getLogger(__name__)


class EndpointsConfig(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    regions: tuple[Peer, ...]  # whose Endpoints are told
    dns: str = "127.0.0.1:5300"  # HOST:PORT, on UDP and TCP
    networks: tuple[str, ...] = ()  # who else may ask; needed where DNS does not listen on loopback
    tenants: tuple[str, ...] = ()  # only these are told by DNS; empty: all
    zone: str = "svc.fairlead.local"  # names end with it
    files: str = ""  # a directory for the endpoints documents; empty: none
    identity: TlsFiles | None = None  # by which it speaks to the regions

    def settings(self) -> DnsSettings:
        host, _, port = self.dns.rpartition(":")
        if not host or not port.isdecimal():
            raise ValueError(f"dns: {self.dns!r} is not HOST:PORT")
        return DnsSettings(host=host.strip("[]"), port=int(port), networks=self.networks)


class EndpointsProgram:
    def __init__(self, config: EndpointsConfig, clock: Clock, random: Random) -> None:
        files = config.identity
        self._dialer = Dialer(
            None if files is None else ClientTls(Path(files.authority), Path(files.certificate), Path(files.key))
        )
        self._planes = {
            peer.region: RemotePlane(peer.addresses, self._dialer.dial, clock, random, f"endpoints of {peer.region}")
            for peer in config.regions
        }
        self.directory = Directory(self._planes, clock, random)
        zone = Zone(self.directory, random, ZoneSettings(zone=config.zone, tenants=frozenset(config.tenants)))
        self.dns = DnsServer(zone, clock, config.settings())
        self._files = Files(self.directory, Path(config.files), clock) if config.files else None
        self._stop = asyncio.Event()

    def stop(self) -> None:
        self._stop.set()

    async def run(self) -> None:
        """Until stopped. Raises OSError where the DNS port is taken."""
        try:
            await self.dns.start()
            log.info("DNS answers at %s:%d", self.dns.settings.host, self.dns.port)
            async with Tasks() as tasks:
                for region, plane in self._planes.items():
                    tasks.start(plane.run(), f"plane {region}")
                tasks.start(self.directory.run(), "directory")
                if self._files is not None:
                    tasks.start(self._files.run(), "files")
                await self._stop.wait()
                tasks.cancel()
        finally:
            await self.dns.close()
            await self._dialer.close()


async def run_endpoints(path: Path, clock: Clock) -> None:
    """From its configuration file to its end."""
    log_to_stderr(program="endpoints")
    program = EndpointsProgram(read_config(path, EndpointsConfig), clock, system_random())
    stop_on_signals(program.stop)
    await program.run()
