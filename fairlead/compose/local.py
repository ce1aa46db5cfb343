"""The local platform: a global plane, three regions and their agents, each a process of its own, on one machine.

Starts what layout.py has written, watches over it, stops it in the right order. What a process prints goes into a file under
`logs`. Called by `fairlead up` and `fairlead down`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import aiohttp

from fairlead.compose.layout import REGIONS, Layout
from fairlead.ports import Clock
from fairlead.security.tls import client_context

PLANES = ("global", *REGIONS)
STOP_S = 10.0


class Local:
    def __init__(self, layout: Layout, clock: Clock) -> None:
        self._layout = layout
        self._clock = clock
        self.processes: dict[str, asyncio.subprocess.Process] = {}

    def agents(self) -> list[str]:
        return sorted(path.stem for path in self._layout.path("config").glob("agent-*.json"))

    async def start(self) -> None:
        """Planes first, then agents; returns when every plane says that it is ready."""
        for plane in PLANES:
            await self.start_one(plane, "server")
        for plane in PLANES:
            await self._wait_ready(plane)
        for agent in self.agents():
            await self.start_one(agent, "agent")

    async def start_one(self, name: str, program: str) -> None:
        log = self._layout.path("logs", f"{name}.log").open("ab")
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "fairlead.main", program, "--config", str(self._layout.config_of(name)),
                stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        finally:
            log.close()
        self.processes[name] = process
        pid_file(self._layout, name).write_text(f"{process.pid}\n")

    async def _wait_ready(self, plane: str) -> None:
        process = self.processes[plane]
        authority, address = self._layout.path("pki", "ca.pem"), self._layout.address_of(plane)
        for _ in range(600):
            if process.returncode is not None:
                raise StartFailed(plane, self._layout.path("logs", f"{plane}.log"))
            if await is_ready(address, authority):
                return
            await self._clock.sleep(0.05)
        raise StartFailed(plane, self._layout.path("logs", f"{plane}.log"))

    async def stop(self) -> None:
        """Agents first, with what they run; then the planes, so that they see it go."""
        for names in (self.agents(), REGIONS, ("global",)):
            await self._stop(names)

    async def _stop(self, names: Sequence[str]) -> None:
        running = [self.processes[name] for name in names if name in self.processes]
        for process in running:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        for process in running:
            try:
                async with asyncio.timeout(STOP_S):
                    await process.wait()
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        for name in names:
            pid_file(self._layout, name).unlink(missing_ok=True)


async def is_ready(address: str, authority: Path) -> bool:
    async with aiohttp.ClientSession() as session:
        try:
            async with session.get(f"{address}/readyz", ssl=client_context(authority)) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False


class StartFailed(Exception):
    def __init__(self, name: str, log: Path) -> None:
        tail = log.read_text(errors="replace").strip().splitlines()[-5:] if log.exists() else []
        super().__init__(f"{name} did not start; its log {log} ends with:\n  " + "\n  ".join(tail))


def pid_file(layout: Layout, name: str) -> Path:
    return layout.path("run", f"{name}.pid")


def is_running(layout: Layout, name: str) -> bool:
    try:
        os.kill(int(pid_file(layout, name).read_text()), 0)
    except (OSError, ValueError):
        return False
    return True
