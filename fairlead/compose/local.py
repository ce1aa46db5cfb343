"""The local platform: a global plane, three regions and their agents, each a process of its own, on one machine.

Starts what layout.py has written, in order, and knows when it is ready. What a process prints goes into a file under `logs`.
Called by `fairlead up` and `fairlead down`, and by chaos.py to bring back what was killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import aiohttp

from fairlead.compose.config import PlaneConfig
from fairlead.compose.endpoints import EndpointsConfig
from fairlead.compose.layout import Layout, read_config
from fairlead.compose.links import LinksConfig, read_in_force
from fairlead.compose.processes import AGENT, POLL_S, Processes
from fairlead.compose.wiring import ENDPOINTS, LINKS, PLANES, is_taken
from fairlead.ports import Clock
from fairlead.security.tls import client_context
from fairlead.wire import json_codec

START_S: Final = 120.0
NODES_S: Final = 60.0  # a busy machine starts eleven agents slowly; one that is broken is not waited for


class Local:
    def __init__(self, layout: Layout, clock: Clock) -> None:
        self._layout = layout
        self._clock = clock
        self.processes = Processes(layout, clock)

    @property
    def dns(self) -> str:
        config: EndpointsConfig = read_config(self._layout.config_of(ENDPOINTS), EndpointsConfig)
        return config.dns

    @property
    def documents(self) -> Path:
        config: EndpointsConfig = read_config(self._layout.config_of(ENDPOINTS), EndpointsConfig)
        return Path(config.files)

    def links(self) -> LinksConfig:
        config: LinksConfig = read_config(self._layout.config_of(LINKS), LinksConfig)
        return config

    # --- starting --------------------------------------------------------------------------------------------------------

    async def start(self, stop: asyncio.Event | None = None) -> None:
        """All of it, from nothing; returns when every plane says that it is ready. Raises StartFailed; PortTaken before
        anything was started; Interrupted when told to stop."""
        self._check_ports()
        Path(self.links().faults).unlink(missing_ok=True)  # what was wrong in an earlier life is over
        await self.bring(self.processes.names(), stop)

    async def bring(self, names: Sequence[str], stop: asyncio.Event | None = None) -> None:
        """Starts these, in the order of their being needed, and waits until they are there."""
        start, stop = self.processes.start, stop or asyncio.Event()
        if LINKS in names:
            Path(self.links().in_force).unlink(missing_ok=True)  # of a process that is gone
            start(LINKS)
            await self._wait(LINKS, self._relays_listen, stop)
        planes = [name for name in PLANES if name in names]
        for plane in planes:
            start(plane)
        for plane in planes:
            ready = partial(is_ready, self._layout.address_of(plane), self._layout.path("pki", "ca.pem"))
            await self._wait(plane, ready, stop)
        for name in names:
            if name not in planes and name != LINKS:
                start(name)

    def _check_ports(self) -> None:
        wanted = {f"{link.name} link": link.listen for link in self.links().links} | {"DNS server": self.dns}
        for plane in PLANES:
            config: PlaneConfig = read_config(self._layout.config_of(plane), PlaneConfig)
            wanted[f"{plane} plane"] = config.listen
        for what, address in wanted.items():
            if is_taken(address, udp=address == self.dns):
                raise PortTaken(
                    f"{address}, the address of the {what}, is taken by another process; stop that one, or remove "
                    f"{self._layout.state} so that other ports are chosen"
                )

    async def _wait(self, name: str, there: Callable[[], Awaitable[bool]], stop: asyncio.Event) -> None:
        until = self._clock.monotonic() + START_S
        while not await there():
            if stop.is_set():
                raise Interrupted(name)
            if self.processes.pid(name) is None or self._clock.monotonic() > until:
                raise StartFailed(name, self.processes.log_of(name))
            await self._clock.sleep(POLL_S)

    async def _relays_listen(self) -> bool:
        return read_in_force(Path(self.links().in_force)).number >= 0

    async def wait_nodes(self, stop: asyncio.Event) -> list[str]:
        """Until every node takes work; those that do not after a while, or when told to stop."""
        until = self._clock.monotonic() + NODES_S
        while (late := await self.late_nodes()) and not stop.is_set() and self._clock.monotonic() < until:
            await self._clock.sleep(10 * POLL_S)
        return late

    async def late_nodes(self) -> list[str]:
        """Those that the planes do not call ready and open for work yet, as an administrator sees them."""
        wanted = {name.removeprefix(AGENT) for name in self.processes.agents()}
        token = self._layout.path("run", "admin.token").read_text().strip()
        url = f"{self._layout.address_of('global')}/apis/{json_codec.API_VERSION}/nodes"
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10.0)) as session:
            try:
                tls = client_context(self._layout.path("pki", "ca.pem"))
                async with session.get(url, ssl=tls, headers={"Authorization": f"Bearer {token}"}) as answer:
                    tree = json_codec.parse_json(await answer.read())
            except (aiohttp.ClientError, OSError, TimeoutError):
                return sorted(wanted)
        items = tree.get("items", []) if isinstance(tree, dict) else []
        return sorted(wanted - {one["metadata"]["name"] for one in items if _takes_work(one.get("status", {}))})

    # --- being there -----------------------------------------------------------------------------------------------------

    async def wait_stopped(self, stop: asyncio.Event) -> bool:
        """Until told to stop, or until nothing runs any more because somebody else has stopped it (False)."""
        while not stop.is_set():
            if not self.processes.running():
                return False
            try:
                async with asyncio.timeout(1.0):
                    await stop.wait()
            except TimeoutError:
                continue
        return True


async def is_ready(address: str, authority: Path) -> bool:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5.0)) as session:
        try:
            async with session.get(f"{address}/readyz", ssl=client_context(authority)) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False


def _takes_work(status: dict[str, object]) -> bool:
    return status.get("health") == "Ready" and status.get("schedulable") is True


class StartFailed(ValueError):
    def __init__(self, name: str, log: Path) -> None:
        tail = log.read_text(errors="replace").strip().splitlines()[-5:] if log.exists() else []
        super().__init__(f"{name} did not start; its log {log} ends with:\n  " + "\n  ".join(tail))


class Interrupted(Exception):
    """Somebody wants it to stop before it is there."""


class PortTaken(ValueError):
    """An address that the platform needs is in use."""
