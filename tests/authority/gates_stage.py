"""One plane with nodes in zones, and asks that gates have something to say about, for the tests of gates at commit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace

from fairlead.authority.judge import Settings
from fairlead.model.commands import Caller, Outcome, Put
from fairlead.model.kinds.capacity import Node
from fairlead.model.kinds.intent import AffinityRule, LabelExpression, Placement, Region, RegionSpec, SpreadRule
from fairlead.model.kinds.policy import PolicyChannel, PolicyChannelSpec, ResidencyRule, SchedulerPolicy, SchedulerPolicySpec
from fairlead.model.kinds.slot import SlotRef
from fairlead.model.kinds.work import Ask, Binding, SchedulingRequest, SchedulingRequestSpec
from fairlead.model.lifecycle import HOLDS_CAPACITY, Role
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from fairlead.observe.checkers import JournalChecker
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import GI, OPERATOR, REGION, PlaneForTest, bind_of, gpu, no, ok, reserve_of, running_plane


def ask_of(
    labels: dict[str, str] | None = None, ports: tuple[int, ...] = (), isolation: Any = "Shared", cpu: int = 100, **place: Any
) -> Ask:
    devices = place.pop("devices", ())
    return Ask(
        requests=Resources(cpu, GI), labels=tuple(sorted((labels or {}).items())), ports=ports, isolation=isolation,
        devices=devices, placement=Placement(**place),
    )  # fmt: skip


def app(name: str) -> tuple[LabelExpression, ...]:
    return (LabelExpression(key="app", values=(name,)),)


API, CACHE = {"app": "api"}, {"app": "cache"}
PLAIN, ALONE = ask_of(), ask_of(isolation="TenantExclusive")
SPREAD = ask_of(spread=(SpreadRule(topology_key="zone"),))
SHUNS_API = ask_of(anti_affinity=(AffinityRule(topology_key="zone", match=app("api")),))
NEAR_CACHE = ask_of(affinity=(AffinityRule(topology_key="zone", match=app("cache")),))
WITH_ITSELF = ask_of(API, affinity=(AffinityRule(topology_key="zone", match=app("api")),))


class Stage:
    """One plane: a1 and a2 in zone a, b1 in zone b; tenants risk and shop. A slot is named TENANT/WORKLOAD-INDEX."""

    def __init__(self, plane: PlaneForTest) -> None:
        self.plane = plane
        self.callers: dict[Role, Caller] = {}
        self.revision = 0

    async def furnish(self) -> None:
        for node, zone in (("a1", "a"), ("a2", "a"), ("b1", "b")):
            await self.plane.add_node(node, zone=zone, pool=f"pool-{node}", labels={"disk": node}, devices=(gpu("g0"), gpu("g1")))
        for tenant in ("risk", "shop"):
            await self.plane.grant(tenant, gpu=9)
        await self.act()

    async def act(self) -> None:
        for role in (Role.ASSIGNMENT, Role.SCHEDULER, Role.DISRUPTION):
            self.callers[role] = await self.plane.as_role(role)

    async def wait(self, slot: str, ask: Ask, **spec: Any) -> None:
        tenant, name = slot.split("/")
        workload, _, index = name.rpartition("-")
        ref = SlotRef(workload=workload, uid=f"u-{tenant}-{workload}", index=int(index))
        request = SchedulingRequest(
            metadata=Metadata(name=name, namespace=tenant), spec=SchedulingRequestSpec(slot=ref, ask=ask, **spec)
        )
        ok(await self.plane.send(self.callers[Role.ASSIGNMENT], Put("SchedulingRequest", request, mode="create")))

    def proposal(self, slot: str, node: str, **fields: Any) -> Any:
        tenant, name = slot.split("/")
        return bind_of(tenant, name, node, policy_revision=self.revision, **fields)

    async def bind(self, slot: str, node: str, **fields: Any) -> Outcome:
        return await self.plane.send(self.callers[Role.SCHEDULER], self.proposal(slot, node, **fields))

    async def reserve(self, slot: str, node: str) -> Outcome:
        tenant, name = slot.split("/")
        body = reserve_of(tenant, name, node, policy_revision=self.revision)
        return await self.plane.send(self.callers[Role.SCHEDULER], body)

    async def place(self, slot: str, node: str, ask: Ask, **spec: Any) -> None:
        await self.wait(slot, ask, **spec)
        ok(await self.bind(slot, node))

    async def policy(self, revision: int, *rules: ResidencyRule, **spec: Any) -> None:
        made = SchedulerPolicySpec(revision=revision, residency=rules, **spec)
        ok(
            await self.plane.send(
                OPERATOR, Put("SchedulerPolicy", SchedulerPolicy(metadata=Metadata(name=f"r{revision}"), spec=made))
            )
        )
        await self.select(revision)

    async def select(self, revision: int) -> None:
        channel = PolicyChannel(metadata=Metadata(name="default"), spec=PolicyChannelSpec(current=revision))
        ok(await self.plane.send(OPERATOR, Put("PolicyChannel", channel)))
        self.revision = revision

    async def region(self, *areas: str) -> None:
        ok(await self.plane.send(OPERATOR, Put("Region", Region(metadata=Metadata(name=REGION), spec=RegionSpec(areas=areas)))))

    async def alter(self, name: str, labels: dict[str, str] | None = None, **spec: Any) -> None:
        """As an operator does, to a node that is there."""
        rec = self.plane.authority.view().get("nodes", "", name)
        assert rec is not None, name
        node: Node = rec.decode()
        metadata = replace(node.metadata, labels=labels or node.metadata.labels)
        ok(await self.plane.send(OPERATOR, Put("Node", replace(node, metadata=metadata, spec=replace(node.spec, **spec)))))

    def binding(self, slot: str) -> Binding:
        rec = self.plane.authority.view().get("bindings", *slot.split("/"))
        assert rec is not None, slot
        found: Binding = rec.decode()
        return found

    def recounted(self) -> tuple[Any, Any]:
        """Slots by workload and node: as the topology has them, and as the plane's objects say."""
        state, ledger = self.plane.authority._ctx.state, self.plane.authority._ctx.ledger
        wanted: dict[Any, int] = {}
        for rec in state.live("bindings"):
            if rec.hot.state in HOLDS_CAPACITY:
                key = (rec.hot.workload_uid, rec.hot.marks, rec.hot.node)
                wanted[key] = wanted.get(key, 0) + 1
        for rec in state.live("reservations"):
            key = (rec.hot.spec.slot.uid, rec.hot.spec.marks, rec.hot.spec.node)
            wanted[key] = wanted.get(key, 0) + 1
        names = {account.number: name for name, account in ledger.nodes.items()}
        topology = ledger.topology
        groups = (group for uid in topology._groups for group in topology._chain(uid))
        return {(g.uid, g.marks, names[n]): count for g in groups for n, count in g.counts.items()}, wanted


def refused_by(outcome: Outcome) -> set[str]:
    return set(no(outcome, "NoFit").facts["reasons"])


@asynccontextmanager
async def staged(settings: Settings | None = None, disk: MemoryDisk | None = None) -> AsyncIterator[Stage]:
    disk = disk or MemoryDisk()
    async with running_plane(MemoryStore(disk), settings=settings) as plane:
        stage = Stage(plane)
        await stage.furnish()
        yield stage
        counted, wanted = stage.recounted()
        assert counted == wanted
    assert violations(disk) == []


def violations(disk: MemoryDisk) -> list[Any]:
    checker = JournalChecker()
    for entry in disk.journal:
        checker.feed(entry.batch)
    assert checker.checked["S6"] >= len(checker._objects["bindings"])
    return checker.violations
