"""The local platform's node provider: a region's server starts real agents for a pool, stops them again, and forgets none."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.compose.config import PlaneConfig, TlsFiles
from fairlead.compose.layout import Layout, read_config
from fairlead.compose.plane import PlaneServer
from fairlead.compose.processes import Processes
from fairlead.controllers.node_pool import NodePoolController
from fairlead.model.commands import Caller, Command, Put, Refused
from fairlead.model.kinds.capacity import NodePool, NodePoolSpec
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from fairlead.ports import SystemClock, SystemIds, Tasks
from fairlead.store.memory import MemoryDisk, MemoryStore

REGION = "us-west"
NAME = f"{REGION}-burst-1"
AGENT = f"agent-{NAME}"
WAIT_S = 60.0
SPEC = NodePoolSpec(provider="local", min_nodes=1, max_nodes=1, node=Resources(1000, 1 << 30), idle_seconds=1.0)
CLOCK = SystemClock()


class Site:
    """A region of a platform's directory, its server in this process, and agents that are processes."""

    def __init__(self, state: Path) -> None:
        self.layout = Layout(state, sys.executable)
        self.layout.write(datetime.fromtimestamp(CLOCK.wall(), tz=UTC), SystemIds(), {}, 6.0)
        self.processes = Processes(self.layout, CLOCK)
        self._disk = MemoryDisk()
        self.server: PlaneServer | None = None

    @asynccontextmanager
    async def served(self) -> AsyncIterator[PlaneServer]:
        config: PlaneConfig = read_config(self.layout.config_of(REGION), PlaneConfig)
        config = replace(config, seed="", peers=(), lease_ttl_s=2.0)
        server = self.server = PlaneServer(config, MemoryStore(self._disk), CLOCK, SystemIds(), random.Random(1))
        async with Tasks() as tasks:
            running = tasks.start(server.run(), "server")
            try:
                yield server
            finally:
                server.stop()
                await running

    async def order(self, spec: NodePoolSpec) -> None:
        assert self.server is not None
        pool = NodePool(metadata=Metadata(name="burst"), spec=spec)

        async def put() -> bool:
            assert self.server is not None
            (said,) = await self.server.authority.submit([Command(Caller("ada", Role.OPERATOR), Put("NodePool", pool))])
            return not isinstance(said, Refused)

        end = CLOCK.monotonic() + WAIT_S
        while not await put():
            assert CLOCK.monotonic() < end, "the pool was never taken"
            await CLOCK.sleep(0.1)

    def node(self) -> Any:
        assert self.server is not None
        rec = self.server.authority.view().get("nodes", "", NAME) if self.server.authority.ready else None
        return rec.hot if rec is not None and rec.raw is not None else None

    def is_ready(self) -> bool:
        node = self.node()
        return node is not None and node.status.health == "Ready" and node.status.schedulable


async def until(condition: Callable[[], Any], what: str) -> None:
    end = CLOCK.monotonic() + WAIT_S
    while not condition():
        assert CLOCK.monotonic() < end, f"{what} never came"
        await CLOCK.sleep(0.1)


async def test_a_pool_gets_real_agents_that_outlive_their_server_come_back_when_they_die_and_go_when_none_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NodePoolController, "sweep_s", 0.5)
    site = Site(tmp_path / "state")
    try:
        async with site.served():
            await site.order(SPEC)
            await until(site.is_ready, "a node that takes work")
            pid = site.processes.pid(AGENT)
            assert pid is not None
            assert site.node().spec.pool == "burst"
        assert site.processes.pid(AGENT) == pid, "its server went, it did not"
        async with site.served():
            await until(site.is_ready, "the node, heard again")
            assert site.processes.pid(AGENT) == pid, "and was not started twice"
            os.kill(pid, signal.SIGKILL)
            await until(lambda: site.processes.pid(AGENT) not in (None, pid), "another agent in its place")
            await until(site.is_ready, "the node, heard again")
            await site.order(replace(SPEC, min_nodes=0, max_nodes=0))
            await until(lambda: site.node() is None or site.node().spec.unschedulable, "a node that is closed")
            await until(lambda: site.processes.pid(AGENT) is None, "the end of its agent")
            await until(lambda: not site.layout.config_of(AGENT).exists(), "nothing left of it")
    finally:
        site.processes.kill([AGENT])


@pytest.mark.parametrize("fields", [{"plane": "global", "region": ""}, {"join_key": ""}, {"tls": None}])
def test_a_server_that_could_not_let_agents_in_is_not_to_start_any(fields: dict[str, Any]) -> None:
    config = PlaneConfig(
        plane="region", region="r", store="s", data="d", join_key="k", local_nodes="x", tls=TlsFiles("a", "b", "c")
    )
    assert config.faults() == []
    assert any("localNodes" in fault for fault in replace(config, **fields).faults())
