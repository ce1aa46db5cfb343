"""A region plane with a scheduler, controllers and an agent that starts what it is given, all in this process."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace

from fairlead.authority.hot import BindingHot
from fairlead.authority.judge import Settings
from fairlead.authority.local import LocalPlane
from fairlead.client.plane import Plane
from fairlead.controllers.assignment import AssignmentController
from fairlead.controllers.cache import Cache
from fairlead.controllers.contract import Controller
from fairlead.controllers.disruption import DisruptionController
from fairlead.controllers.garbage import GarbageController
from fairlead.controllers.gathering import SLOT_INDEXES
from fairlead.controllers.job import JobController
from fairlead.controllers.node import NodeController
from fairlead.controllers.repair import RepairController
from fairlead.controllers.rollout import RolloutController
from fairlead.controllers.runtime import Runtime, RuntimeSettings
from fairlead.decide.assigning import spare_in
from fairlead.decide.nodes import NodeRules
from fairlead.decide.queueing import first_epoch
from fairlead.model.commands import Caller, Command, Put, PutStatus, Report
from fairlead.model.kinds.intent import RolloutRule, Template
from fairlead.model.kinds.work import (
    Ask,
    Assignment,
    AssignmentSpec,
    AssignmentStatus,
    Binding,
    Endpoints,
    InstanceStatus,
    Revision,
    RevisionSpec,
    SlotRange,
)
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Condition, Metadata
from fairlead.model.resources import Resources
from fairlead.ports import Tasks
from fairlead.scheduler.scheduler import Scheduler, SchedulerSettings
from tests.authority.planes import GI, REGION, PlaneForTest, agent_of, ok, running_plane

WAIT_S = 60.0  # for what comes within a second; the machine may be busy
_S = SlotState
WRITTEN = ("assignments", "bindings", "endpoints", "evictionrequests", "instances", "nodes", "schedulingrequests")
RULES = NodeRules(lease_s=0.6, lost_after_s=0.4, loss_period_s=0.3, steady_s=0.1)


def all_controllers() -> list[Controller]:
    return [
        AssignmentController(REGION), RolloutController(), JobController(REGION), NodeController(RULES), RepairController(REGION),
        DisruptionController(), GarbageController(),
    ]  # fmt: skip


class FakeAgent:
    """Every node's agent: starts what is bound, reports it ready, stops what drains. A dead node says nothing any more."""

    def __init__(self, rig: RegionRig) -> None:
        self._rig = rig
        self.dead: set[str] = set()
        self.broken: set[int] = set()  # generations that start and never become ready
        self.crashing: set[str] = set()  # slots that fail when started
        self.short_lived: set[int] = set()  # generations that die as soon as they serve
        self.finishing = False  # a job's process ends well as soon as it is ready
        self.stopped = False
        self.starts: list[tuple[str, int]] = []  # (slot, generation) in the order they were started
        self.holds_stops = False  # processes that do not end when asked
        self.slow: set[str] = set()  # slots whose processes do not

    async def run(self) -> None:
        plane = self._rig.plane
        while not self.stopped:
            nodes = [rec for rec in (await self._rig.local.list("nodes")) if rec.name not in self.dead]
            plane.authority.heartbeat([(rec.name, 1) for rec in nodes])
            reports = []
            for rec in await self._rig.local.list("bindings"):
                if rec.hot.node not in self.dead:
                    reports += self._reports(rec.tenant, rec.name, rec.hot)
            for start in range(0, len(reports), 500):
                await self._rig.local.submit(reports[start : start + 500])
            await plane.clock.sleep(0.005)

    def _reports(self, tenant: str, name: str, hot: BindingHot) -> list[Command]:
        caller = agent_of(hot.node)

        def report(to: SlotState, **status: Any) -> Command:
            return Command(caller, Report(tenant, name, hot.token, to, InstanceStatus(**status) if status else None))

        match hot.state:
            case _S.BOUND:
                self.starts.append((name, hot.generation))
                return [report(_S.STARTING)]
            case _S.STARTING if name in self.crashing:
                return [report(_S.FAILED, exit_code=1)]
            case _S.STARTING if hot.generation not in self.broken:
                return [report(_S.READY, ready=True, ports={"http": 8000})]
            case _S.READY if self.finishing:
                return [report(_S.SUCCEEDED, exit_code=0)]
            case _S.SERVING if hot.generation in self.short_lived:
                return [report(_S.FAILED, exit_code=1)]
            case _S.DRAINING if not self.holds_stops and name not in self.slow:
                return [report(_S.RELEASED)]
            case _:
                return []


class RegionRig:
    def __init__(self, plane: PlaneForTest, tasks: Tasks) -> None:
        self.plane = plane
        self.tasks = tasks
        self.local = LocalPlane(plane.authority, plane.clock)
        self.early = LocalPlane(plane.authority, plane.clock, early=True)  # as controllers and schedulers see it
        self.agent = FakeAgent(self)
        self.runtimes: list[Runtime] = []
        self.schedulers: list[Scheduler] = []
        self.mirror: Caller | None = None
        self.writes = 0  # of controllers and agents, without leases
        self._cache = Cache(SLOT_INDEXES)
        self._feed = self.local.follow(WRITTEN, self.local.revision())

    def control(
        self, controller: Controller, *, plane: Plane | None = None, other: Plane | None = None, **fields: Any
    ) -> Runtime:
        settings = RuntimeSettings(**{"renew_s": 0.2, "resync_s": 0.5, "lease_ttl_s": 20.0, "hear_s": 0.02, **fields})
        made = Runtime(controller, plane or self.early, self.plane.clock, random.Random(1), settings, other=other)
        self.runtimes.append(made)
        self.tasks.start(made.run(), made.info.name)
        return made

    def control_all(self, plane: Plane | None = None, **fields: Any) -> dict[str, Runtime]:
        return {each.name: self.control(each, plane=plane, **fields) for each in all_controllers()}

    def schedule(self) -> None:
        made = Scheduler(self.early, self.plane.clock, random.Random(1), SchedulerSettings(hear_s=0.02, renew_s=0.2))
        self.schedulers.append(made)
        self.tasks.start(made.run(), "scheduler")

    # --- what a mirror would bring -------------------------------------------------------------------------------------------

    async def order(
        self, workload: str = "api", count: int = 3, generation: int = 1, *, tenant: str = "risk", **spec: Any
    ) -> None:
        """An assignment and its revision; called again it changes them."""
        if self.mirror is None:
            self.mirror = await self.plane.as_role(Role.MIRROR, "test-mirror")
        uid = spec.pop("uid", f"u-{tenant}-{workload}")
        execution = spec.pop("execution", "Replicated")
        ask = spec.pop("ask", Ask(requests=Resources(1000, GI)))
        revision = Revision(
            metadata=Metadata(name=f"{workload}.g{generation}", namespace=tenant),
            spec=RevisionSpec(
                workload=workload, workload_uid=uid, generation=generation, execution=execution,
                template=Template(command=("serve", str(generation))), ask=ask,
            ),
        )  # fmt: skip
        ok(await self.plane.send(self.mirror, Put("Revision", revision)))
        rollout = spec.pop("rollout", RolloutRule())
        made = AssignmentSpec(
            workload=workload, workload_uid=uid, generation=generation, region=REGION, priority=500, rollout=rollout,
            slots=spec.pop("slots", (SlotRange(first=0, last=count - 1),) if count else ()),
            spare=spare_in(0, rollout.max_surge), **spec,
        )  # fmt: skip
        await self.put_order(workload, made, tenant)

    async def put_order(self, workload: str, spec: AssignmentSpec, tenant: str = "risk") -> None:
        assert self.mirror is not None
        name = f"{workload}.{REGION}"
        known = self.get("assignments", name, tenant)
        finalizers = known.metadata.finalizers if known is not None else ()
        metadata = Metadata(name=name, namespace=tenant, finalizers=finalizers)
        ok(await self.plane.send(self.mirror, Put("Assignment", Assignment(metadata=metadata, spec=spec))))

    async def set_node(self, name: str, **spec: Any) -> None:
        node = self.get("nodes", name, "")
        changed = replace(node, spec=replace(node.spec, **spec))
        ok(await self.plane.send(Caller("ada", Role.OPERATOR), Put("Node", changed)))

    async def set_status(self, name: str, **status: Any) -> None:
        node = self.get("nodes", name, "")
        ok(await self.plane.send(agent_of(name), PutStatus("Node", "", name, replace(node.status, **status))))

    # --- what the plane says ---------------------------------------------------------------------------------------------------

    def get(self, plural: str, name: str, tenant: str = "risk") -> Any:
        rec = self.plane.authority.view().get(plural, tenant, name)
        return rec.decode() if rec is not None and rec.raw is not None else None

    def slots(self, workload: str = "api", tenant: str = "risk") -> dict[int, BindingHot]:
        found = self.seen().by("bindings", "workload", (tenant, workload))
        return {item.hot.index: item.hot for item in sorted(found, key=lambda item: item.hot.index)}

    def epochs(self, workload: str = "api", tenant: str = "risk") -> dict[int, int]:
        """Of each slot, counted from 1 for the first that this assignment gave out."""
        first = self.first_epoch(workload, tenant)
        return {index: hot.token.epoch - first + 1 for index, hot in self.slots(workload, tenant).items()}

    def first_epoch(self, workload: str = "api", tenant: str = "risk") -> int:
        return first_epoch(replace(self.get("assignments", f"{workload}.{REGION}", tenant), status=AssignmentStatus()))

    def seen(self) -> Cache:
        """What the plane holds now, of the kinds controllers write."""
        for change in self._feed.take_nowait():
            self._cache.apply(change)
            self.writes += change.plural in WRITTEN
        return self._cache

    def states(self, workload: str = "api", tenant: str = "risk") -> dict[int, SlotState]:
        return {index: hot.state for index, hot in self.slots(workload, tenant).items()}

    def serving(self, workload: str = "api", tenant: str = "risk", generation: int = 0) -> list[int]:
        found = self.slots(workload, tenant).items()
        return sorted(i for i, hot in found if hot.state is _S.SERVING and generation in (0, hot.generation))

    def status(self, workload: str = "api", tenant: str = "risk") -> Any:
        return self.get("assignments", f"{workload}.{REGION}", tenant).status

    def condition(self, kind: str, workload: str = "api") -> Condition | None:
        return next((c for c in self.status(workload).conditions if c.type == kind), None)

    def endpoints(self, workload: str = "api", tenant: str = "risk") -> list[int]:
        found: Endpoints | None = self.get("endpoints", workload, tenant)
        return [e.slot for e in found.spec.endpoints] if found is not None else []

    def binding(self, name: str, tenant: str = "risk") -> Binding | None:
        found: Binding | None = self.get("bindings", name, tenant)
        return found

    async def until(self, condition: Callable[[], Any], what: str = "") -> None:
        clock = self.plane.clock
        end = clock.monotonic() + WAIT_S
        while not condition():
            assert clock.monotonic() < end, f"{what or 'this never came'}: {self.told()}"
            await clock.sleep(0.005)

    def told(self) -> str:
        errors = {r.info.name: r.meters.last_error for r in self.runtimes if r.meters.last_error}
        return f"{errors}"

    async def quiet(self, seconds: float = 1.2) -> None:
        """Nothing is written for this long but leases, with resyncs in between (L4)."""
        clock = self.plane.clock
        end, calm_since, last = clock.monotonic() + WAIT_S, clock.monotonic(), self._written()
        while clock.monotonic() - calm_since < seconds:
            assert clock.monotonic() < end, f"the controllers never come to rest: {self.told()}"
            await clock.sleep(0.02)
            now = self._written()
            if now != last:
                calm_since, last = clock.monotonic(), now

    def _written(self) -> int:
        self.seen()
        return self.writes


@asynccontextmanager
async def region(
    nodes: int = 3, *, zones: str = "abc", region_settings: Settings | None = None, grants: bool = True, **of_plane: Any
) -> AsyncIterator[RegionRig]:
    """Ends with everything stopped as it would stop by itself."""
    settings = region_settings or Settings(region=REGION, node_lease_s=0.6, fence_margin_s=0.2)
    async with running_plane(settings=settings, **of_plane) as made, Tasks() as tasks:
        if grants:
            await made.grant("risk")
        for number in range(nodes):
            await made.add_node(f"n{number}", zone=zones[number % len(zones)], address=f"10.0.0.{number}")
        rig = RegionRig(made, tasks)
        agent = tasks.start(rig.agent.run(), "agent")
        try:
            yield rig
        finally:
            for runtime in rig.runtimes:
                runtime.stop()
            for scheduler in rig.schedulers:
                scheduler.stop()
            rig.agent.stopped = True
        await agent
