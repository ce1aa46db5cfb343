"""The programs of the command line, each from its configuration file to its end. Called by main.py."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from fairlead.compose.agent import AgentConfig, AgentProgram
from fairlead.compose.config import PlaneConfig
from fairlead.compose.layout import Layout, read_config
from fairlead.compose.local import PLANES, Local, is_running, pid_file
from fairlead.compose.plane import PlaneServer
from fairlead.ports import Clock, Ids, system_random
from fairlead.store.contract import Store

Say = Callable[[str], None]


class OpenStore(Protocol):
    def __call__(self, url: str, *, create: bool = True) -> Store: ...


def _on_signals(stop: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    for wanted in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(wanted, stop)


def _log() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)


async def serve(path: Path, open_store: OpenStore, clock: Clock, ids: Ids) -> None:
    _log()
    config: PlaneConfig = read_config(path, PlaneConfig)
    server = PlaneServer(config, open_store(config.store), clock, ids, system_random())
    _on_signals(server.stop)
    await server.run()


async def run_agent(path: Path, clock: Clock) -> None:
    _log()
    program = AgentProgram(read_config(path, AgentConfig), clock, system_random())
    _on_signals(program.stop)
    await program.run()


async def up(state: Path, stores: dict[str, str], clock: Clock, ids: Ids, detach: bool, say: Say) -> None:
    layout = Layout(state.resolve(), sys.executable)
    if any(is_running(layout, plane) for plane in PLANES):
        raise ValueError(f"the platform in {state} runs already; `fairlead down` stops it")
    if not layout.is_ready:
        say("making certificates, tokens and configurations")
        layout.write(datetime.fromtimestamp(clock.wall(), tz=UTC), ids, stores)
    local = Local(layout, clock)
    stopped = asyncio.Event()
    _on_signals(stopped.set)
    try:
        began = clock.monotonic()
        await local.start()
        took_s, agents = clock.monotonic() - began, len(local.agents())
        say(f"ready after {took_s:.1f} s: a global plane, {len(PLANES) - 1} regions, {agents} agents")
        say(_what_next(layout))
        if detach:
            return
        await stopped.wait()
        say("stopping")
    except BaseException:
        await local.stop()
        raise
    await local.stop()


def _what_next(layout: Layout) -> str:
    kubeconfig, client = layout.path("kubeconfig"), layout.path("client.json")
    return "\n".join(
        (
            "try:",
            f"  export KUBECONFIG={kubeconfig} FAIRLEAD_CONFIG={client}",
            "  fairlead get workloads -A          kubectl get workloads -A",
            "  fairlead get nodes                 kubectl get nodes",
            "  fairlead describe wl/risk-api -n risk",
            f"what each process says: {layout.path('logs')}",
        )
    )


async def down(state: Path, clock: Clock, say: Say) -> bool:
    """Stops a platform that was detached. False: nothing ran."""
    layout = Layout(state.resolve(), sys.executable)
    names = [path.stem for path in sorted(layout.path("run").glob("*.pid"))] if layout.path("run").exists() else []
    running = [name for name in names if is_running(layout, name)]
    for name in set(names) - set(running):  # died without being asked to
        pid_file(layout, name).unlink(missing_ok=True)
    for group in ([n for n in running if n.startswith("agent-")], [n for n in running if not n.startswith("agent-")]):
        for name in group:
            os.kill(int(pid_file(layout, name).read_text()), signal.SIGTERM)
        for _ in range(300):
            if not any(is_running(layout, name) for name in group):
                break
            await clock.sleep(0.05)
        for name in group:
            pid_file(layout, name).unlink(missing_ok=True)
            say(f"stopped {name}")
    return bool(running)
