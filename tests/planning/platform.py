"""A whole platform in this process: a global plane, two regions with every production controller, pretended agents, a real door.

It runs on a thread of its own, so that the command line can talk to it as it does to any server. Made once for all tests here.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from fairlead.api.app import make_app
from fairlead.api.frontdoor import FrontDoor
from fairlead.authority.judge import Settings
from fairlead.client.plane import Plane
from fairlead.compose.config import PlaneConfig
from fairlead.compose.controllers import Placed, controllers_of, tried_on
from fairlead.controllers.runtime import Runtime, RuntimeSettings
from fairlead.model.commands import Caller, Delete, Put, PutStatus
from fairlead.model.kinds.capacity import Node, NodeSpec, NodeStatus
from fairlead.model.kinds.intent import Quota, QuotaSpec, Region, RegionSpec, Tenant
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.model.registry import GLOBAL
from fairlead.model.resources import Resources
from fairlead.planning.planner import TrialPlanner
from fairlead.ports import Tasks
from fairlead.scheduler.scheduler import Scheduler, SchedulerSettings
from tests.api.doors import Cuttable, Door, authenticate, listening, own_tenant_only, server_context, write_certificates
from tests.authority.planes import GI, OPERATOR, PlaneForTest, ok, running_plane
from tests.controllers.running import RegionRig

REGIONS = ("east", "west")
WAIT_S = 60.0  # for what comes within a second or two; the machine may be busy
T = TypeVar("T")


class Platform:
    def __init__(self, planes: dict[str, PlaneForTest], rigs: dict[str, RegionRig], door: Door) -> None:
        self.planes, self.rigs, self.door = planes, rigs, door
        self.loop = asyncio.get_running_loop()
        self.url, self.ca = "", Path()
        self.clock = planes[GLOBAL].clock

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """From a test, on the platform's own loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(WAIT_S + 30)

    # --- what there is -------------------------------------------------------------------------------------------------------

    async def add_node(self, region: str, name: str, cpu: int = 4000, zone: str = "a", **spec: Any) -> None:
        plane, agent = self.planes[region], Caller(f"agent-{name}", Role.AGENT, node=name)
        made = NodeSpec(region=region, zone=zone, allocatable=Resources(cpu, 64 * GI), hourly_cost_millis=cpu // 10, **spec)
        ok(await plane.send(OPERATOR, Put("Node", Node(metadata=Metadata(name=name), spec=made))))
        ok(await plane.send(agent, PutStatus("Node", "", name, NodeStatus(schedulable=True, health="Ready", session=1))))
        plane.authority.heartbeat([(name, 1)])

    async def add_tenant(self, name: str, cpu: int = 1_000_000) -> None:
        plane = self.planes[GLOBAL]
        ok(await plane.send(OPERATOR, Put("Tenant", Tenant(metadata=Metadata(name=name)))))
        limit = Resources(cpu, 4000 * GI)
        quota = Quota(metadata=Metadata(name="all", namespace=name), spec=QuotaSpec(limits=limit))
        ok(await plane.send(OPERATOR, Put("Quota", quota)))

    def get(self, plural: str, name: str, tenant: str = "risk", plane: str = GLOBAL) -> Any:
        return self.rigs[plane].get(plural, name, tenant)

    def bound(self, workload: str, tenant: str = "risk") -> dict[str, int]:
        """Slots that have a node, by region."""
        counts = {region: len(self.rigs[region].states(workload, tenant)) for region in REGIONS}
        return {region: count for region, count in counts.items() if count}

    def waits(self, workload: str, tenant: str = "risk") -> dict[tuple[str, str], int]:
        """Slots that have none, by region and reason."""
        out: dict[tuple[str, str], int] = {}
        for region in REGIONS:
            for item in self.rigs[region].seen().all("schedulingrequests"):
                if (item.tenant, item.hot.spec.slot.workload) == (tenant, workload):
                    key = (region, item.hot.status.reason)
                    out[key] = out.get(key, 0) + 1
        return out

    async def until(self, condition: Callable[[], Any], what: Callable[[], Any] = str) -> None:
        clock = self.clock
        end = clock.monotonic() + WAIT_S
        while not condition():
            assert clock.monotonic() < end, f"this never came: {what()} {[rig.told() for rig in self.rigs.values()]}"
            await clock.sleep(0.02)

    async def forget(self, *names: str, tenant: str = "risk") -> None:
        """Deletes workloads, and waits until nothing of them is left."""
        for name in names:
            await self.planes[GLOBAL].send(OPERATOR, Delete("Workload", tenant, name))
        for name in names:
            await self.until(partial(self._is_gone, name, tenant))

    def _is_gone(self, name: str, tenant: str) -> bool:
        return self.get("workloads", name, tenant) is None


@contextlib.asynccontextmanager
async def platform() -> AsyncIterator[Platform]:
    async with contextlib.AsyncExitStack() as stack:
        planes: dict[str, PlaneForTest] = {}
        for name in (GLOBAL, *REGIONS):
            settings = Settings(plane="global" if name == GLOBAL else "region", region=name)
            planes[name] = await stack.enter_async_context(running_plane(settings=settings))
        tasks = await stack.enter_async_context(Tasks())
        rigs = {name: RegionRig(plane, tasks) for name, plane in planes.items()}
        cuttable = {name: Cuttable(rigs[name].local) for name in REGIONS}
        clock = planes[GLOBAL].clock
        served: dict[str, Any] = {GLOBAL: rigs[GLOBAL].local, **cuttable}
        planner = TrialPlanner(tried_on, clock)
        app = make_app(FrontDoor(served, clock), authenticate, own_tenant_only, clock=clock, planner=planner)
        made = Platform(planes, rigs, Door(planes, cuttable, app))
        for name in REGIONS:
            ok(
                await planes[GLOBAL].send(
                    OPERATOR, Put("Region", Region(metadata=Metadata(name=name), spec=RegionSpec(areas=("eu",))))
                )
            )
        stopping = [*_started(rigs, tasks), *_scheduled(rigs, tasks)]
        agents = [tasks.start(rigs[name].agent.run(), f"agents of {name}") for name in REGIONS]
        try:
            yield made
        finally:
            for part in stopping:
                part.stop()
            for name in REGIONS:
                rigs[name].agent.stopped = True
            for task in agents:
                await task


def _started(rigs: dict[str, RegionRig], tasks: Tasks) -> Iterator[Runtime]:
    """Every controller of every plane, as the servers place them."""
    locals_: dict[str, Plane] = {name: rig.early for name, rig in rigs.items()}
    settings = RuntimeSettings(resync_s=5.0, hear_s=0.25)
    for name, rig in rigs.items():
        config = PlaneConfig(
            plane="global" if name == GLOBAL else "region", store="", data="", region="" if name == GLOBAL else name
        )
        placed: list[Placed] = controllers_of(config, locals_[name], rig.local, locals_)
        for controller, writes, other in placed:
            runtime = Runtime(controller, writes, rig.plane.clock, random.Random(1), settings, other=other)
            rig.runtimes.append(runtime)
            tasks.start(runtime.run(), f"{controller.name} of {name}")
            yield runtime


def _scheduled(rigs: dict[str, RegionRig], tasks: Tasks) -> Iterator[Scheduler]:
    for name in REGIONS:
        rig = rigs[name]
        made = Scheduler(rig.early, rig.plane.clock, random.Random(1), SchedulerSettings(region=name, hear_s=0.1))
        tasks.start(made.run(), f"scheduler of {name}")
        yield made


@contextlib.contextmanager
def on_a_thread(folder: Path) -> Iterator[Platform]:
    ca, certificate, key = write_certificates(folder)
    ready, found, stop = threading.Event(), list[Platform](), list[Callable[[], object]]()

    async def serve() -> None:
        ended = asyncio.Event()
        async with platform() as made, listening(made.door.app, server_context(str(certificate), str(key))) as server:
            made.url, made.ca = f"https://127.0.0.1:{server.port}", ca
            found.append(made)
            stop.append(lambda: made.loop.call_soon_threadsafe(ended.set))
            ready.set()
            await ended.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="platform")
    thread.start()
    try:
        assert ready.wait(WAIT_S), "the platform did not start"
        yield found[0]
    finally:
        for each in stop:
            each()
        thread.join(WAIT_S)
