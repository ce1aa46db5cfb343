"""Probes one instance: HTTP, TCP or a program; startup first, then readiness and liveness side by side.

Owns how one question is put and how long an answer may take. What many answers come to is fairlead/decide/probing.py; what
follows from it is the agent's. Called by fairlead/agent/host.py, one watcher a run.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, NamedTuple

from fairlead.agent.drivers.contract import Driver, InstanceId
from fairlead.decide.probing import Streak, observe
from fairlead.model.kinds.intent import HttpGet, Probe, Probes
from fairlead.ports import Clock, Tasks

HEAD_BYTES_MAX: Final = 16 << 10
EXEC_MORE_S: Final = 5.0  # for a program's shim to start, and to end what took too long: it keeps the probe's time itself


class Answer(NamedTuple):
    success: bool
    detail: str = ""


class Target(NamedTuple):
    """Where an instance is reached. Never an address it chose itself."""

    id: InstanceId
    address: str
    ports: dict[str, int]  # by name and by number

    def port(self, wanted: str) -> int:
        return self.ports[wanted] if wanted else next(iter(self.ports.values()))


class Verdict(NamedTuple):
    """What a watcher tells the agent when it changes."""

    kind: str  # startup, readiness, liveness
    passing: bool
    detail: str


async def ask(probe: Probe, target: Target, driver: Driver) -> Answer:
    """One question, answered within the probe's timeout."""
    limit_s = probe.timeout_seconds + (EXEC_MORE_S if probe.exec is not None else 0.0)
    try:
        async with asyncio.timeout(limit_s):
            if probe.http_get is not None:
                return await _ask_http(target.address, target.port(probe.http_get.port), probe.http_get)
            if probe.tcp_socket is not None:
                _, writer = await asyncio.open_connection(target.address, target.port(probe.tcp_socket.port))
                writer.close()
                return Answer(True)
            assert probe.exec is not None, "a probe asks in one of three ways"
            end = await driver.execute(target.id, probe.exec.command, probe.timeout_seconds)
            if end.cause == "timeout":
                raise TimeoutError
            return Answer(end.code == 0 and end.cause == "exited", f"exit code {end.code} ({end.cause})")
    except TimeoutError:
        return Answer(False, f"no answer within {probe.timeout_seconds:g} s")
    except (OSError, KeyError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        return Answer(False, f"{type(error).__name__}: {error}"[:200])


async def _ask_http(address: str, port: int, get: HttpGet) -> Answer:
    reader, writer = await asyncio.open_connection(address, port, limit=HEAD_BYTES_MAX)
    try:
        path = get.path.replace("\r", "").replace("\n", "").replace(" ", "%20")
        host = f"[{address}]" if ":" in address else address
        lines = (f"GET {path} HTTP/1.1", f"Host: {host}:{port}", "User-Agent: fairlead-probe", "Accept: */*", "Connection: close")
        writer.write("".join(f"{line}\r\n" for line in (*lines, "")).encode("utf-8", "replace"))
        await writer.drain()
        line = await reader.readuntil(b"\n")
        version, _, rest = line.decode("latin-1").strip().partition(" ")
        status = int(rest[:3]) if version.startswith("HTTP/1.") and rest[:3].isdigit() else 0
        return Answer(200 <= status < 400, f"HTTP {status}" if status else "no HTTP answer")
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            writer.transport.abort()  # nothing of the body is wanted


async def watch(
    probes: Probes, target: Target, driver: Driver, clock: Clock, tell: Callable[[Verdict], None], started: bool
) -> None:
    """Until cancelled. `started`: an adopted instance that was ready before needs no startup probe again."""
    if probes.startup is not None and not started:
        await _repeat("startup", probes.startup, target, driver, clock, tell, once=True)
    async with Tasks() as tasks:
        for kind, probe in (("readiness", probes.readiness), ("liveness", probes.liveness)):
            if probe is not None:
                tasks.start(_repeat(kind, probe, target, driver, clock, tell), f"{kind} of {target.id.text}")


async def _repeat(
    kind: str, probe: Probe, target: Target, driver: Driver, clock: Clock, tell: Callable[[Verdict], None], once: bool = False
) -> None:
    """Asks at a steady pace and tells each change of the verdict. With `once`, until it first passes."""
    streak = Streak()
    await clock.sleep(probe.initial_delay_seconds)
    while True:
        asked = clock.monotonic()
        answer = await ask(probe, target, driver)
        before, streak = streak.passing, observe(streak, probe, answer.success)
        if streak.passing is not None and streak.passing is not before:
            tell(Verdict(kind, streak.passing, answer.detail))
            if once and streak.passing:
                return
        await clock.sleep(max(0.0, asked + probe.period_seconds - clock.monotonic()))
