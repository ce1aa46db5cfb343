"""A plane for tests: an authority over a real or in-memory store, and short words for the commands a test sends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fairlead.authority.authority import Authority
from fairlead.authority.candidate import Timing
from fairlead.authority.history import History
from fairlead.authority.judge import Settings
from fairlead.model.commands import (
    Accepted,
    Bind,
    Caller,
    Command,
    CommandId,
    LeaseAcquire,
    Move,
    Outcome,
    Put,
    PutStatus,
    Refused,
    Report,
    Reserve,
)
from fairlead.model.kinds.capacity import Grant, GrantSpec, Node, NodeSpec, NodeStatus
from fairlead.model.kinds.intent import Placement, Tenant
from fairlead.model.kinds.slot import SlotRef, Token
from fairlead.model.kinds.work import Ask, InstanceStatus, SchedulingRequest, SchedulingRequestSpec
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Evidence, Metadata
from fairlead.model.resources import Device, DeviceAsk, Resources
from fairlead.ports import Clock, SystemClock, SystemIds, Tasks
from fairlead.store.archive import Archive
from fairlead.store.contract import Store
from fairlead.store.memory import MemoryDisk, MemoryStore

GI = 1 << 30
REGION = "local"
TENANTS = ("risk",)  # that every global plane has: nothing is made in a tenant that is not there
OPERATOR = Caller("ada", Role.OPERATOR)


class FakeClock:
    """Time that tests move. Sleeping yields to the loop until somebody has moved it far enough."""

    def __init__(self) -> None:
        self._system = SystemClock()
        self.offset = 0.0

    def monotonic(self) -> float:
        return self._system.monotonic() + self.offset

    def wall(self) -> float:
        return self._system.wall() + self.offset

    async def sleep(self, seconds: float) -> None:
        until = self.monotonic() + seconds
        await self._system.sleep(0)
        while self.monotonic() < until:
            await self._system.sleep(min(0.005, seconds))


class PlaneForTest:
    """Commands in short form, each answered with its outcome."""

    def __init__(self, authority: Authority, clock: Clock) -> None:
        self.authority = authority
        self.clock = clock
        self.epochs: dict[str, int] = {}

    async def send(self, caller: Caller, body: Any, id: CommandId | None = None, evidence: Evidence | None = None) -> Outcome:
        return (await self.authority.submit([Command(caller, body, id, evidence)]))[0]

    async def as_role(self, role: Role, actor: str = "", lease: str = "") -> Caller:
        """A caller in a leased role, with a lease it has just acquired."""
        actor, lease = actor or f"{role.value}-0", lease or role.value
        got = await self.send(Caller(actor, role), LeaseAcquire(lease, role, ttl_s=10.0))
        assert isinstance(got, Accepted), got
        return Caller(actor, role, lease=lease, fencing_epoch=got.epoch)

    async def add_node(self, name: str, *, cpu: int = 16_000, memory: int = 64 * GI, **spec: Any) -> None:
        node = Node(
            metadata=Metadata(name=name, labels=spec.pop("labels", {})),
            spec=NodeSpec(region=REGION, zone=spec.pop("zone", "a"), allocatable=Resources(cpu, memory), **spec),
        )
        ok(await self.send(OPERATOR, Put("Node", node)))
        agent = Caller(f"agent-{name}", Role.AGENT, node=name)
        ok(await self.send(agent, PutStatus("Node", "", name, NodeStatus(schedulable=True, health="Ready", session=1))))
        self.authority.heartbeat([(name, 1)])

    async def grant(
        self, tenant: str, version: int = 1, *, cpu: int = 1_000_000, memory: int = 4000 * GI, **scalars: int
    ) -> None:
        limit = Resources(cpu, memory, scalars.items())
        spec = GrantSpec(region=REGION, version=version, during=limit, after=limit)
        ok(await self.send(OPERATOR, Put("Grant", Grant(metadata=Metadata(name=REGION, namespace=tenant), spec=spec))))

    async def request(self, tenant: str, workload: str, index: int, caller: Caller, **spec: Any) -> Outcome:
        return await self.send(caller, Put("SchedulingRequest", request_of(tenant, workload, index, **spec), mode="create"))


def request_of(
    tenant: str,
    workload: str,
    index: int,
    *,
    cpu: int = 1000,
    memory: int = GI,
    devices: tuple[DeviceAsk, ...] = (),
    placement: Placement | None = None,
    **spec: Any,
) -> SchedulingRequest:
    ask = Ask(requests=Resources(cpu, memory), devices=devices, placement=placement or Placement())
    slot = SlotRef(workload=workload, uid=f"u-{tenant}-{workload}", index=index)
    return SchedulingRequest(
        metadata=Metadata(name=slot.object_name, namespace=tenant), spec=SchedulingRequestSpec(slot=slot, ask=ask, **spec)
    )


def bind_of(tenant: str, name: str, node: str, **fields: Any) -> Bind:
    values: dict[str, Any] = {"epoch": 1, "generation": 1, "policy_revision": 0, "grant_version": 1, **fields}
    return Bind(tenant, name, node=node, **values)


def reserve_of(tenant: str, name: str, node: str, **fields: Any) -> Reserve:
    values: dict[str, Any] = {"epoch": 1, "generation": 1, "policy_revision": 0, "grant_version": 1, **fields}
    return Reserve(tenant, name, node=node, **values)


def token(epoch: int = 1, attempt: int = 1, incarnation: int = 1) -> Token:
    return Token(incarnation=incarnation, epoch=epoch, attempt=attempt)


def agent_of(node: str) -> Caller:
    return Caller(f"agent-{node}", Role.AGENT, node=node)


def report_of(tenant: str, name: str, to: SlotState | None, **status: Any) -> Report:
    return Report(tenant, name, token(), to, InstanceStatus(**status) if status else None)


def move_of(tenant: str, name: str, to: SlotState, **fields: Any) -> Move:
    return Move(tenant, name, fields.pop("token", token()), to, **fields)


def ok(outcome: Outcome) -> Accepted:
    assert isinstance(outcome, Accepted), outcome
    return outcome


def no(outcome: Outcome, reason: str) -> Refused:
    assert isinstance(outcome, Refused), outcome
    assert outcome.reason == reason, outcome
    return outcome


def gpu(device_id: str, model: str = "a100") -> Device:
    return Device(id=device_id, model=model)


@asynccontextmanager
async def running_plane(
    store: Store | None = None,
    clock: Clock | None = None,
    settings: Settings | None = None,
    timing: Timing | None = None,
    archive: Path | None = None,
) -> AsyncIterator[PlaneForTest]:
    clock = clock or SystemClock()
    store = store or MemoryStore(MemoryDisk())
    timing = timing or Timing(lease_ttl_s=20.0, renew_s=0.5, poll_s=0.02)  # long: a machine that stands still loses nothing
    history = History(Archive(archive), store, clock) if archive is not None else None
    settings = settings or Settings(region=REGION)
    authority = Authority(store, clock, SystemIds(), settings, timing=timing, history=history)
    async with Tasks() as tasks:
        task = tasks.start(authority.run(), "authority")
        await authority.wait_leading()
        plane = PlaneForTest(authority, clock)
        for name in TENANTS if settings.plane == "global" else ():
            ok(await plane.send(OPERATOR, Put("Tenant", Tenant(metadata=Metadata(name=name)))))
        yield plane
        authority.stop()
        await task
    await store.close()
