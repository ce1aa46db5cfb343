"""A scheduler at work on a plane in this process, and how a test waits for what it does."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fairlead.authority.hot import BindingHot
from fairlead.authority.local import LocalPlane
from fairlead.client.plane import Plane
from fairlead.model.commands import Caller, Move, Put, Report
from fairlead.model.kinds.policy import PolicyChannel, PolicyChannelSpec, SchedulerPolicy, SchedulerPolicySpec
from fairlead.model.kinds.work import SchedulingRequest
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from fairlead.ports import Tasks
from fairlead.scheduler.scheduler import Scheduler, SchedulerSettings
from tests.authority.planes import OPERATOR, PlaneForTest, agent_of, ok, running_plane

WAIT_S = 60.0  # for a condition that comes within milliseconds; the machine may be busy


class Rig:
    """A plane with callers in the roles a test plays, and its schedulers."""

    def __init__(self, plane: PlaneForTest, tasks: Tasks, roles: dict[Role, Caller]) -> None:
        self.plane = plane
        self.tasks = tasks
        self.roles = roles
        self.local = LocalPlane(plane.authority, plane.clock)
        self.schedulers: list[Scheduler] = []

    async def schedule(self, name: str = "scheduler-0", *, plane: Plane | None = None, seed: int = 1, **fields: Any) -> Scheduler:
        settings = SchedulerSettings(name=name, **{"hear_s": 0.02, "renew_s": 0.05, **fields})
        made = Scheduler(plane or self.local, self.plane.clock, random.Random(seed), settings)
        self.schedulers.append(made)
        self.tasks.start(made.run(), name)
        await made.wait_serving()
        return made

    async def until(self, condition: Callable[[], Any], what: str = "") -> None:
        clock = self.plane.clock
        end = clock.monotonic() + WAIT_S
        while not condition():
            assert clock.monotonic() < end, what or f"this never came: {condition}"
            await clock.sleep(0.002)

    # --- what the plane says ---------------------------------------------------------------------------------------------

    def binding(self, name: str, tenant: str = "risk") -> BindingHot | None:
        rec = self.plane.authority.view().get("bindings", tenant, name)
        return rec.hot if rec is not None and rec.raw is not None else None

    def request(self, name: str, tenant: str = "risk") -> SchedulingRequest | None:
        rec = self.plane.authority.view().get("schedulingrequests", tenant, name)
        return rec.hot if rec is not None and rec.raw is not None else None

    def node_of(self, name: str, tenant: str = "risk") -> str:
        found = self.binding(name, tenant)
        return found.node if found is not None else ""

    def reason(self, name: str, tenant: str = "risk") -> str:
        found = self.request(name, tenant)
        return found.status.reason if found is not None else ""

    async def bound(self, *names: str, tenant: str = "risk") -> None:
        """Bound, and every scheduler has heard so: the plane shows a binding before its proposer has the answer."""
        await self.until(
            lambda: all(self.binding(name, tenant) for name in names) and all(s.settled for s in self.schedulers),
            f"{names} were never bound",
        )

    async def waits(self, name: str, reason: str, tenant: str = "risk") -> SchedulingRequest:
        await self.until(lambda: self.reason(name, tenant) == reason, f"{name} never waited for {reason}")
        found = self.request(name, tenant)
        assert found is not None
        return found

    # --- what others do ----------------------------------------------------------------------------------------------------

    async def ask(self, workload: str, index: int = 0, tenant: str = "risk", **spec: Any) -> str:
        spec = {"priority": 500, **spec}
        ok(await self.plane.request(tenant, workload, index, self.roles[Role.ASSIGNMENT], **spec))
        return f"{workload}-{index}"

    async def promote(self, revision: int, **spec: object) -> None:
        policy = SchedulerPolicy(metadata=Metadata(name=f"r{revision}"), spec=SchedulerPolicySpec(revision=revision, **spec))  # type: ignore[arg-type]
        ok(await self.plane.send(OPERATOR, Put("SchedulerPolicy", policy)))
        channel = PolicyChannel(metadata=Metadata(name="default"), spec=PolicyChannelSpec(current=revision))
        ok(await self.plane.send(OPERATOR, Put("PolicyChannel", channel)))

    async def end(self, name: str, tenant: str = "risk") -> None:
        """Its process fails and is cleared away."""
        placed = self.binding(name, tenant)
        assert placed is not None
        ok(await self.plane.send(agent_of(placed.node), Report(tenant, name, placed.token, SlotState.FAILED)))
        ok(await self.plane.send(self.roles[Role.REPAIR], Move(tenant, name, placed.token, SlotState.RELEASED)))


@asynccontextmanager
async def rig(*, plane: PlaneForTest | None = None, **of_plane: Any) -> AsyncIterator[Rig]:
    """Ends with its schedulers stopped, as they would stop by themselves."""
    async with running_plane(**of_plane) as made, Tasks() as tasks:
        roles = {role: await made.as_role(role) for role in (Role.ASSIGNMENT, Role.REPAIR, Role.DISRUPTION)}
        await made.grant("risk")
        found = Rig(made, tasks, roles)
        yield found
        for scheduler in found.schedulers:
            scheduler.stop()
