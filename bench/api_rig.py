"""The processes of `fairlead bench api` and `recovery`: a global plane, regions and hosts of simulated nodes, on SQLite, with
certificates, tokens and TLS as in production. Owns how they are set up, started, killed and counted; measures nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp

from bench.api_fleet import HEARD, FleetConfig
from fairlead.compose.config import Peer, PlaneConfig, TlsFiles
from fairlead.decide.access_roles import FRONT_DOOR, PLANE_SERVER
from fairlead.model.kinds.access import SYSTEM_TENANT, AccessBinding, AccessBindingSpec, Subject, Token, TokenSpec
from fairlead.model.kinds.capacity import Grant, GrantSpec
from fairlead.model.kinds.intent import Region, RegionSpec, Tenant, TenantSpec
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.model.registry import BY_KIND
from fairlead.model.resources import Resources
from fairlead.ports import SystemIds
from fairlead.security import tokens
from fairlead.security.certificates import LocalAuthority, Named
from fairlead.security.files import write, write_private
from fairlead.security.tls import client_context
from fairlead.wire import json_codec
from fairlead.wire.yaml_codec import encode_yaml

REGION = "eu-central"
TENANTS = 50
FREE = "free"  # the tenant whose grant nothing reaches
START_S = 60.0
_HOSTS = ("127.0.0.1", "localhost")
_HUGE = Resources(10**12, 1 << 52)


class Rig:
    def __init__(
        self, folder: Path, nodes: int, hosts: int, regions: tuple[str, ...] = (REGION,), more: Sequence[Any] = ()
    ) -> None:
        """`nodes` and `hosts` of each region; `more`: what the global plane is born with beside tenants and their grants."""
        self.folder = folder
        self.nodes = nodes
        self.regions = regions
        self._more = more
        self._hosts = max(1, hosts)
        self._now = datetime.now(UTC) - timedelta(minutes=1)
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._past_cpu_s: dict[str, float] = {}  # of processes that were killed
        (folder / "pki").mkdir()
        pair = LocalAuthority.create("fairlead bench", self._now)
        self.authority = folder / "pki" / "ca.pem"
        write(self.authority, pair.certificate)
        self._signer = LocalAuthority(pair)
        self._ports = dict(zip(("global", *regions), _free_ports(1 + len(regions)), strict=True))
        minted = tokens.mint(SystemIds(), SYSTEM_TENANT)
        self.token = minted.text.reveal()
        self._minted = minted
        self._write_seeds()
        for plane in ("global", *regions):
            self._write_plane(plane)
        for number in range(self._hosts * len(regions)):
            self._write_fleet(number)

    def address(self, plane: str) -> str:
        return f"https://127.0.0.1:{self._ports[plane]}"

    def tls(self) -> ssl.SSLContext:
        return client_context(self.authority)

    # --- files -----------------------------------------------------------------------------------------------------------

    def _pair(self, name: str, named: Named, hosts: tuple[str, ...] = ()) -> TlsFiles:
        pair = self._signer.issue(named, self._now, hosts=hosts)
        certificate, key = self.folder / "pki" / f"{name}.pem", self.folder / "pki" / f"{name}.key"
        write(certificate, pair.certificate)
        write_private(key, pair.key.reveal_bytes())
        return TlsFiles(str(certificate), str(key), str(self.authority))

    def _write_plane(self, plane: str) -> None:
        above = plane == "global"
        role = FRONT_DOOR if above else Role.MIRROR.value
        component = Named("component", f"{plane}-server", (role, PLANE_SERVER), "" if above else plane)
        config = PlaneConfig(
            plane="global" if above else "region",
            region="" if above else plane,
            name=f"{plane}-server",
            store=f"sqlite:{self.folder / f'{plane}.db'}",
            data=str(self.folder / f"{plane}-data"),
            listen=f"127.0.0.1:{self._ports[plane]}",
            tls=self._pair(f"{plane}-server", Named("server", f"{plane}-server"), _HOSTS),
            identity=self._pair(f"{plane}-component", component),
            peers=tuple(Peer(r, (self.address(r),)) for r in self.regions) if above else (Peer("", (self.address("global"),)),),
            seed=str(self.folder / "seed" / plane),
        )
        write(self.folder / f"{plane}.json", json_codec.encode(config))

    def _write_fleet(self, number: int) -> None:
        """A host of simulated nodes speaks for many of them, so it shows a server's certificate and not an agent's."""
        region = self.region_of(number)
        named = Named("component", f"fleet-{number}", (PLANE_SERVER,), region)
        share = [n for n in range(self.nodes) if n % self._hosts == number % self._hosts]
        config = FleetConfig(
            name=f"fleet-{number}",
            region=region,
            addresses=(self.address(region),),
            tls=self._pair(f"fleet-{number}", named),
            numbers=tuple(share),
        )
        write(self.folder / f"fleet-{number}.json", json_codec.encode(config))

    def region_of(self, host: int) -> str:
        return self.regions[host // self._hosts]

    def _write_seeds(self) -> None:
        subject = Subject(name="bench")
        spec = TokenSpec(hash=self._minted.hash, subject=subject, expiry_time=self._now + timedelta(days=1))
        access: list[Any] = [
            Token(metadata=Metadata(name=self._minted.name, namespace=SYSTEM_TENANT), spec=spec),
            AccessBinding(
                metadata=Metadata(name="bench"), spec=AccessBindingSpec(role="admin", subjects=(subject,), tenants=("*",))
            ),
        ]
        shared: list[Any] = [
            Region(metadata=Metadata(name=name), spec=RegionSpec(areas=("eu",), zones=("zone-a", "zone-b", "zone-c")))
            for name in self.regions
        ]
        for tenant in (FREE, *(f"t{n}" for n in range(TENANTS))):
            limit = _HUGE if tenant == FREE else self._limit()
            shared.append(Tenant(metadata=Metadata(name=tenant), spec=TenantSpec(weight=2)))
            for name in self.regions:
                grant = GrantSpec(region=name, version=1, during=limit, after=limit)
                shared.append(Grant(metadata=Metadata(name=name, namespace=tenant), spec=grant))
        self._write_seed("global", [*access, *shared, *self._more])
        for name in self.regions:
            self._write_seed(name, access)

    def _limit(self) -> Resources:
        """A grant one can reach: a tenant's even part of the fleet, in three dimensions."""
        part = -(-self.nodes // TENANTS)
        return Resources(64_000 * part, part << 38, scalars=(("gpu", 8),))

    def _write_seed(self, plane: str, records: list[Any]) -> None:
        texts = [encode_yaml(json_codec.plain_object(BY_KIND[type(record).__name__], record)) for record in records]
        (self.folder / "seed" / plane).mkdir(parents=True)
        write_private(self.folder / "seed" / plane / "00.yaml", "---\n".join(texts).encode())

    # --- processes -------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        for plane in ("global", *self.regions):
            await self.start_plane(plane)
        for plane in ("global", *self.regions):
            await self.wait_ready(plane)
        for number in range(self._hosts * len(self.regions)):
            name = f"fleet-{number}"
            await self._start(name, "bench.api_fleet", str(self.folder / f"{name}.json"))

    async def start_plane(self, plane: str) -> None:
        await self._start(plane, "fairlead.main", "server", "--config", str(self.folder / f"{plane}.json"))

    async def _start(self, name: str, module: str, *words: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = await asyncio.create_subprocess_exec(
                sys.executable, "-m", module, *words,
                stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, cwd=Path(__file__).parent.parent,
            )  # fmt: skip

    async def wait_ready(self, plane: str) -> None:
        async with aiohttp.ClientSession() as session:
            async with asyncio.timeout(START_S):
                while not await self._is_ready(session, plane):
                    if self._processes[plane].returncode is not None:
                        raise RuntimeError(f"{plane} ended: {self.log_of(plane)}")
                    await asyncio.sleep(0.02)

    async def _is_ready(self, session: aiohttp.ClientSession, plane: str) -> bool:
        """It leads, and knows whom it may believe."""
        who = {"Authorization": f"Bearer {self.token}"}
        known = f"{self.address(plane)}/apis/fairlead.dev/v1alpha1/tenants?limit=1"
        try:
            async with session.get(f"{self.address(plane)}/readyz", ssl=self.tls()) as answer:
                if answer.status != 200:
                    return False
            async with session.get(known, ssl=self.tls(), headers=who) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    def log_of(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace")[-2000:] if path.exists() else ""

    async def wait_heard(self, since: float, seconds: float) -> bool:
        """Every host's nodes are through their handshake and were acknowledged, after that time. They say so in their logs."""
        try:
            async with asyncio.timeout(seconds):
                for number in range(self._hosts * len(self.regions)):
                    while (said := HEARD.findall(self.log_of(f"fleet-{number}"))) == [] or float(said[-1]) < since:  # noqa: ASYNC110
                        await asyncio.sleep(0.02)
        except TimeoutError:
            return False
        return True

    async def kill(self, name: str) -> None:
        process = self._processes.pop(name)
        self._past_cpu_s[name] = self._past_cpu_s.get(name, 0.0) + _cpu_s(process.pid)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()

    async def lose(self, region: str) -> None:
        """A whole region at once: its plane and its machines."""
        hosts = [f"fleet-{n}" for n in range(self._hosts * len(self.regions)) if self.region_of(n) == region]
        for name in (region, *hosts):
            self._processes[name].kill()
        for name in (region, *hosts):
            await self.kill(name)

    async def stop(self) -> None:
        for names in ([n for n in self._processes if n.startswith("fleet")], list(self._processes)):
            for name in names:
                process = self._processes.pop(name, None)
                if process is None:
                    continue
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGTERM)
                try:
                    async with asyncio.timeout(10.0):
                        await process.wait()
                except TimeoutError:
                    process.kill()
                    await process.wait()

    def cpu_s(self) -> dict[str, float]:
        """Of every process so far, this one among them."""
        used = dict(self._past_cpu_s)
        for name, process in self._processes.items():
            used[name] = used.get(name, 0.0) + _cpu_s(process.pid)
        own = os.times()
        used["client"] = own.user + own.system
        return used

    def pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self._processes.items()}


def _cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _free_ports(count: int) -> list[int]:
    import socket

    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


@asynccontextmanager
async def open_rig(
    folder: Path, nodes: int, hosts: int, regions: tuple[str, ...] = (REGION,), more: Sequence[Any] = ()
) -> AsyncIterator[Rig]:
    rig = Rig(folder, nodes, hosts, regions, more)
    try:
        await rig.start()
        yield rig
    finally:
        await rig.stop()
