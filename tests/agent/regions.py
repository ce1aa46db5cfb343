"""The region of an agent, over an authority in this process, with a switch that cuts it off; and an agent at work on it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fairlead.agent.drivers.contract import Driver
from fairlead.agent.drivers.process import ProcessDriver, ProcessSettings
from fairlead.agent.drivers.simulated import SimulatedDriver
from fairlead.agent.host import Host
from fairlead.agent.over_plane import PlaneRegion
from fairlead.agent.region import Ack, Held, Inventory
from fairlead.agent.settings import AgentSettings, NodeDeclaration
from fairlead.authority.local import LocalPlane
from fairlead.client.plane import Change, Expired, Feed
from fairlead.model.commands import Accepted, Caller, Command, Move, Outcome, Put, Refused, Unknown
from fairlead.model.ids import split_revision
from fairlead.model.kinds.capacity import Node, NodeStatus
from fairlead.model.kinds.intent import Template
from fairlead.model.kinds.slot import Token
from fairlead.model.kinds.work import Ask, Binding, Instance, Revision, RevisionSpec
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from fairlead.ports import Clock, SystemClock, Tasks
from tests.agent.processes import until
from tests.authority.planes import REGION, PlaneForTest, bind_of, ok, request_of, running_plane

GI = 1 << 30


class AuthorityPlane:
    """What an agent needs of a plane, from an authority in this process."""

    def __init__(self, plane: PlaneForTest) -> None:
        self._authority = plane.authority
        self._local = LocalPlane(plane.authority, plane.clock)
        self.submit = self._local.submit
        self.plane_ms = self._local.plane_ms
        self.follow = self._local.follow

    async def heartbeat(self, nodes: Sequence[tuple[str, int]]) -> Ack | None:
        heard = self._authority.heartbeat(list(nodes))
        if isinstance(heard, Refused):
            return None
        return Ack(heard.incarnation, heard.epoch, heard.unknown_nodes, heard.superseded_nodes, None, heard.grants)

    async def get(self, plural: str, tenant: str, name: str) -> Change | None:
        return self._authority.view().get(plural, tenant, name)

    async def bound_to(self, nodes: Sequence[str]) -> tuple[int, Sequence[Change]]:
        return self._authority.view().revision, [rec for node in nodes for rec in self._authority.bound_to(node)]

    async def named(self, plural: str, tenant: str, names: Sequence[str]) -> tuple[int, Sequence[Change]]:
        view = self._authority.view()
        return view.revision, [found for name in names if (found := view.get(plural, tenant, name)) is not None]


class CutFeed:
    """A feed that ends when the connection does."""

    def __init__(self, feed: Feed, ended: bool) -> None:
        self._feed = feed
        self.ended = ended
        self.poke, self.wait, self.close = feed.poke, feed.wait, feed.close

    def take_nowait(self) -> Sequence[Change]:
        if self.ended:
            raise Expired("the connection broke", 0)
        return self._feed.take_nowait()

    @property
    def revision(self) -> int:
        return self._feed.revision


class LocalRegion(PlaneRegion):
    """A region that can be cut off, and lets a test answer heartbeats its own way."""

    def __init__(self, plane: PlaneForTest) -> None:
        super().__init__(AuthorityPlane(plane))
        self.cut_off = False
        self.feeds: list[CutFeed] = []
        self.mutate_ack: Callable[[Ack], Ack | None] = lambda ack: ack
        self.submitted: list[Command] = []
        self.heartbeats = 0

    def cut(self) -> None:
        self.cut_off = True
        for feed in self.feeds:
            feed.ended = True
            feed.poke()

    def heal(self) -> None:
        self.cut_off = False

    def _reach(self) -> None:
        if self.cut_off:
            raise Expired("the region is cut off", 0)

    async def submit(self, commands: list[Command]) -> list[Outcome]:
        if self.cut_off:
            return [Unknown("cut off") for _ in commands]
        self.submitted += commands
        return await super().submit(commands)

    async def heartbeat(self, nodes: Sequence[tuple[str, int]]) -> Ack | None:
        if self.cut_off:
            return None
        self.heartbeats += 1
        ack = await super().heartbeat(nodes)
        return None if ack is None else self.mutate_ack(ack)

    async def get(self, plural: str, tenant: str, name: str) -> Change | None:
        self._reach()
        return await super().get(plural, tenant, name)

    async def nodes(self, names: Sequence[str]) -> tuple[int, Sequence[Change]]:
        self._reach()
        return await super().nodes(names)

    async def inventory(self, held: Sequence[Held]) -> Inventory:
        self._reach()
        return await super().inventory(held)

    def follow(self, nodes: Sequence[str], after: int) -> CutFeed:
        feed = CutFeed(super().follow(nodes, after), self.cut_off)
        self.feeds.append(feed)
        return feed


class Rig:
    """A plane, an agent on it, and whoever else acts in a test."""

    def __init__(self, plane: PlaneForTest, roles: dict[Role, Caller], tasks: Tasks) -> None:
        self.plane = plane
        self.roles = roles
        self.tasks = tasks
        self.region = LocalRegion(plane)

    def agent(self, drivers: dict[str, Driver], region: LocalRegion | None = None, *, name: str = "n1", **settings: Any) -> Host:
        declared = NodeDeclaration(name=name, region=REGION, zone="a", allocatable=Resources(16_000, 64 * GI))
        values = {
            "heartbeat_s": 0.05,
            "retry_s": 0.05,
            "report_s": 0.005,
            "drivers": tuple(drivers),
            "keep_ended_s": 0.0,
            **settings,
        }
        return Host([declared], region or self.region, drivers, self.plane.clock, random.Random(1), AgentSettings(**values))

    def start(self, host: Host) -> asyncio.Task[None]:
        return self.tasks.start(host.run(), "agent")

    # --- what others do ----------------------------------------------------------------------------------------------------

    async def place(self, workload: str, template: Template, index: int = 0, *, node: str = "n1", **fields: Any) -> str:
        """Asked for and bound, as the controllers and a scheduler would."""
        victims = fields.pop("victims", ())
        spec = RevisionSpec(
            workload=workload,
            workload_uid=f"u-risk-{workload}",
            generation=1,
            template=template,
            ask=Ask(requests=Resources(100, GI)),
        )
        revision = Revision(metadata=Metadata(name=f"{workload}.g1", namespace="risk"), spec=spec)
        ok(await self.plane.send(self.roles[Role.WORKLOAD], Put("Revision", revision)))
        request = request_of("risk", workload, index, cpu=fields.pop("cpu", 100), memory=fields.pop("memory", GI), **fields)
        ok(await self.plane.send(self.roles[Role.ASSIGNMENT], Put("SchedulingRequest", request, mode="create")))
        bind = bind_of("risk", f"{workload}-{index}", node, victims=victims, epoch=fields.get("epoch", 1))
        ok(await self.plane.send(self.roles[Role.SCHEDULER], bind))
        return f"{workload}-{index}"

    async def move(self, name: str, to: SlotState, role: Role, **fields: Any) -> None:
        ok(await self.plane.send(self.roles[role], Move("risk", name, self.token(name), to, **fields)))

    # --- what the plane says ------------------------------------------------------------------------------------------------

    def binding(self, name: str) -> Binding | None:
        rec = self.plane.authority.view().get("bindings", "risk", name)
        return rec.decode() if rec is not None and rec.raw is not None else None

    def token(self, name: str) -> Token:
        found = self.binding(name)
        assert found is not None
        return found.spec.token

    def state(self, name: str) -> str:
        found = self.binding(name)
        return found.status.state.value if found is not None else "gone"

    def instance(self, name: str) -> Instance | None:
        rec = self.plane.authority.view().get("instances", "risk", name)
        return rec.decode() if rec is not None and rec.raw is not None else None

    def node(self, name: str = "n1") -> Node | None:
        rec = self.plane.authority.view().get("nodes", "", name)
        return rec.hot if rec is not None and rec.raw is not None else None

    def node_status(self, name: str = "n1") -> NodeStatus:
        found = self.node(name)
        return found.status if found is not None else NodeStatus()

    def sessions(self, name: str = "n1") -> int:
        """How many agents have spoken for a node so far."""
        changes = [rec for rec in self.plane.authority._state.changes_since(0) if (rec.plural, rec.name) == ("nodes", name)]
        return len({rec.hot.status.session for rec in changes if rec.raw is not None} - {0})

    async def reaches(self, name: str, state: str) -> None:
        await until(lambda: self.state(name) == state, f"{name} is {self.state(name)}")

    async def schedulable(self, name: str = "n1") -> None:
        await until(lambda: self.node_status(name).schedulable)

    def steps(self, name: str) -> list[str]:
        """What the agent reported of one slot, in order."""
        bodies = [command.body for command in self.region.submitted if type(command.body).__name__ == "Report"]
        return [body.to.value for body in bodies if body.name == name and body.to is not None]  # type: ignore[union-attr]


_ROLES = (Role.WORKLOAD, Role.ASSIGNMENT, Role.SCHEDULER, Role.REPAIR, Role.DISRUPTION, Role.ROLLOUT, Role.NODE)


@asynccontextmanager
async def rig(clock: Clock | None = None, **of_plane: Any) -> AsyncIterator[Rig]:
    async with running_plane(clock=clock, **of_plane) as plane, Tasks() as tasks:
        roles = {role: await plane.as_role(role) for role in _ROLES}
        await plane.grant("risk")
        yield Rig(plane, roles, tasks)
        tasks.cancel()


def process_driver(folder: Path, **fields: Any) -> ProcessDriver:
    return ProcessDriver(ProcessSettings(state_dir=folder, fence_file=folder / "fence", **fields), SystemClock())


def files_in(folder: Path) -> dict[str, Path]:
    return {"state_file": folder / "agent", "fence_file": folder / "fence"}


def position(outcome: Outcome) -> int:
    assert isinstance(outcome, Accepted)
    return split_revision(outcome.revision)[1]


def simulated(**fields: Any) -> SimulatedDriver:
    return SimulatedDriver(**fields)
