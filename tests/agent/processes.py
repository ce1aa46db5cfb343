"""A process driver in a directory of its own, small programs for it to run, and how a test waits for what becomes of them."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fairlead.agent.drivers.contract import Exit, InstanceId, Launch, Started
from fairlead.agent.drivers.process import ProcessDriver, ProcessSettings
from fairlead.model.kinds.slot import Token
from fairlead.ports import SystemClock

WAIT_S = 60.0  # for what comes within milliseconds; the machine may be busy
SH = "/bin/sh"


def instance(name: str = "api-0", attempt: int = 1, tenant: str = "risk") -> InstanceId:
    return InstanceId(tenant, name, Token(1, 1, attempt))


def sh(script: str, **fields: Any) -> Launch:
    id = fields.pop("id", instance())
    return Launch(id, (SH, "-c", script), fields.pop("env", {}), **fields)


def alive(pid: int) -> bool:
    """A zombie is not alive: it runs nothing any more."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


async def until(condition: Callable[[], Any], what: str = "") -> Any:
    async with asyncio.timeout(WAIT_S):
        while not (found := condition()):
            await SystemClock().sleep(0.005)
    return found


class Driven:
    """A driver and what it said of the ends of runs."""

    def __init__(self, driver: ProcessDriver, folder: Path) -> None:
        self.driver = driver
        self.folder = folder
        self.ends: list[tuple[InstanceId, int, Exit]] = []

    def ended(self, id: InstanceId, run: int, exit: Exit) -> None:
        self.ends.append((id, run, exit))

    async def start(self, launch: Launch) -> Started | Exit:
        """An Exit, noted among the ends, if it was started and ended before the driver looked."""
        got = await self.driver.start(launch)
        if isinstance(got, Exit):
            assert got.cause in ("exited", "signalled", "fenced"), got
            self.ended(launch.id, launch.run, got)
        return got

    async def end(self, count: int = 1) -> Exit:
        await until(lambda: len(self.ends) >= count)
        return self.ends[count - 1][2]

    async def output(self, id: InstanceId | None = None, wanted: bytes = b"\n") -> str:
        id = id or instance()
        async with asyncio.timeout(WAIT_S):
            while True:
                with contextlib.suppress(FileNotFoundError):
                    found = (await self.driver.logs(id, "stdout", 0, 1 << 20)).data
                    if wanted in found:
                        return found.decode()
                await SystemClock().sleep(0.005)

    def work(self, id: InstanceId | None = None) -> Path:
        return self.folder / "instances" / (id or instance()).text / "work"


def settings_of(folder: Path, **fields: Any) -> ProcessSettings:
    return ProcessSettings(state_dir=folder, fence_file=folder / "fence", **fields)


@asynccontextmanager
async def driven(folder: Path, **fields: Any) -> AsyncIterator[Driven]:
    """Ends with every instance killed."""
    driver = ProcessDriver(settings_of(folder, **fields), SystemClock())
    made = Driven(driver, folder)
    await driver.adopt(made.ended)
    try:
        yield made
    finally:
        running = [id for id in list(driver._kept) if driver.status(id) == "running"]
        for id in running:
            await driver.kill(id, "stopped")
        await until(lambda: all(driver.status(id) == "gone" for id in running))
        for id in list(driver._kept):
            await driver.forget(id)
        await driver.close()


def as_root() -> bool:
    return os.getuid() == 0
