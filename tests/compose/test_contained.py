"""Whatever one part of a server raises ends neither the server nor the others."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.client.remote import RemotePlane
from fairlead.compose.config import Peer, PlaneConfig
from fairlead.compose.plane import PlaneServer
from fairlead.ports import SystemClock, SystemIds, Tasks
from fairlead.scheduler.cycle import Cycle, Run
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import FakeClock
from tests.scheduler.running import rig


async def test_a_part_that_fails_begins_again_later_each_time_until_it_ends() -> None:
    began, pauses = 0, list[float]()

    class Clock(FakeClock):
        async def sleep(self, seconds: float) -> None:
            pauses.append(seconds)

    class Failing:
        async def run(self) -> None:
            nonlocal began
            began += 1
            if began < 5:
                raise ZeroDivisionError(f"attempt {began}")

        def stop(self) -> None: ...

    server: Any = SimpleNamespace(_clock=Clock(), config=SimpleNamespace(name="server-0"))
    await PlaneServer._keep(server, Failing())
    assert (began, len(pauses)) == (5, 4)
    assert pauses == sorted(pauses)
    assert pauses[0] > 0


async def test_a_line_to_another_plane_that_raises_ends_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began = asyncio.Event()

    async def run(self: RemotePlane) -> None:
        began.set()
        raise ZeroDivisionError("a planted mistake")

    monkeypatch.setattr(RemotePlane, "run", run)
    peers = (Peer(region="eu", addresses=("http://127.0.0.1:1",)),)
    config = PlaneConfig(plane="global", store="memory:", data=str(tmp_path), peers=peers)
    server = PlaneServer(config, MemoryStore(MemoryDisk()), SystemClock(), SystemIds(), random.Random(1))
    async with Tasks() as tasks, asyncio.timeout(60):
        running = tasks.start(server.run(), "server")
        await began.wait()
        await server.authority.wait_leading()
        assert not running.done()
        server.stop()


async def test_a_scheduler_that_raises_starts_over_and_its_lease_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig() as r:
        await r.plane.add_node("n1")
        scheduler = await r.schedule()
        real = Cycle.decide_run
        raised: list[Run] = []

        def decide_run(self: Cycle, run: Run) -> None:
            if not raised:
                raised.append(run)
                raise ZeroDivisionError("a planted mistake")
            real(self, run)

        monkeypatch.setattr(Cycle, "decide_run", decide_run)
        await r.bound(await r.ask("api"))
        assert scheduler.meters.restarts_total == 1
        assert "a planted mistake" in scheduler.health().last_error
