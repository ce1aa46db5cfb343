"""One plane with slots placed on its nodes by name, for the tests of claims."""

from __future__ import annotations

from typing import Any

from fairlead.model.commands import Bind, Caller, Outcome, Put, Refused
from fairlead.model.kinds.policy import (
    PolicyChannel,
    PolicyChannelSpec,
    PriorityClass,
    SchedulerPolicy,
    SchedulerPolicySpec,
    WorkloadClass,
)
from fairlead.model.kinds.work import Assignment, AssignmentSpec, Binding, SlotRange
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from fairlead.observe.checkers import JournalChecker
from fairlead.store.memory import MemoryDisk
from tests.authority.planes import OPERATOR, PlaneForTest, agent_of, bind_of, ok, report_of

LOW, MID, HIGH, TOP = 0, 300, 500, 1000  # the built-in priority classes: best-effort, batch, standard, critical-service


class Stage:
    """One plane with a node or two, and slots placed on them by name."""

    def __init__(self, plane: PlaneForTest) -> None:
        self.plane = plane
        self.callers: dict[Role, Caller] = {}
        self.revision = 0

    async def furnish(self, *nodes: str, cpu: int = 2000, **spec: Any) -> None:
        for node in nodes:
            await self.plane.add_node(node, cpu=cpu, **spec)
        for tenant in ("risk", "batch"):
            await self.plane.grant(tenant, gpu=8)
        for role in (Role.ASSIGNMENT, Role.SCHEDULER, Role.DISRUPTION, Role.NODE, Role.REPAIR):
            self.callers[role] = await self.plane.as_role(role)

    async def wait(self, name: str, priority: int, tenant: str = "batch", **spec: Any) -> None:
        workload, _, index = name.rpartition("-")
        ok(await self.plane.request(tenant, workload, int(index), self.callers[Role.ASSIGNMENT], priority=priority, **spec))

    def bind(self, name: str, node: str = "n1", *claimed: str, tenant: str = "batch", **fields: Any) -> Bind:
        full = tuple(victim if "/" in victim else f"batch/{victim}" for victim in claimed)
        return bind_of(tenant, name, node, victims=full, policy_revision=self.revision, **fields)

    async def place(self, name: str, priority: int, node: str = "n1", tenant: str = "batch", **spec: Any) -> None:
        await self.wait(name, priority, tenant, **spec)
        ok(await self.send(self.bind(name, node, tenant=tenant)))

    async def order(self, workload: str, count: int, tenant: str = "batch", **spec: Any) -> None:
        """What the workload's assignment says by now."""
        mirror = await self.plane.as_role(Role.MIRROR)
        ok(await self.plane.send(mirror, Put("Assignment", order_of(tenant, workload, count, **spec))))

    async def send(self, body: Any) -> Outcome:
        return await self.plane.send(self.callers[Role.SCHEDULER], body)

    async def claim(self, name: str, *claimed: str, node: str = "n1") -> Outcome:
        return await self.send(self.bind(name, node, *claimed))

    def binding(self, name: str, tenant: str = "batch") -> Binding:
        rec = self.plane.authority.view().get("bindings", tenant, name)
        assert rec is not None, name
        binding: Binding = rec.decode()
        return binding

    async def policy(self, revision: int, *classes: PriorityClass) -> None:
        standard = WorkloadClass(name="standard", priority_class_name=classes[0].name)
        spec = SchedulerPolicySpec(revision=revision, priority_classes=classes, workload_classes=(standard,))
        ok(await self.plane.send(OPERATOR, Put("SchedulerPolicy", SchedulerPolicy(Metadata(name=f"r{revision}"), spec))))
        channel = PolicyChannel(Metadata(name="default"), PolicyChannelSpec(current=revision))
        ok(await self.plane.send(OPERATOR, Put("PolicyChannel", channel)))
        self.revision = revision

    async def gone(self, name: str, node: str = "n1") -> None:
        ok(await self.plane.send(agent_of(node), report_of("batch", name, SlotState.RELEASED)))

    def free(self, node: str = "n1") -> tuple[int, int]:
        account = self.plane.authority._ctx.ledger.node(node)
        return account.cpu_free, account.cpu_unlent


def order_of(tenant: str, workload: str, count: int, **spec: Any) -> Assignment:
    order = AssignmentSpec(
        **{
            "workload": workload,
            "workload_uid": f"u-{tenant}-{workload}",
            "generation": 1,
            "region": "local",
            "slots": (SlotRange(first=0, last=count - 1),),
            **spec,
        }
    )
    return Assignment(Metadata(name=f"{workload}.local", namespace=tenant), order)


def facts(refused: Refused, *wanted: str) -> tuple[Any, ...]:
    return tuple(refused.facts.get(name) for name in wanted)


def violations(disk: MemoryDisk) -> list[Any]:
    checker = JournalChecker()
    for entry in disk.journal:
        checker.feed(entry.batch)
    return checker.violations
