"""Nodes and slots for a served region, as agents and the assignment controller would bring them."""

from __future__ import annotations

from typing import Any

from fairlead.model.commands import Accepted, Caller, Command, LeaseAcquire, PutStatus, Report
from fairlead.model.kinds.capacity import Node, NodeSpec, NodeStatus
from fairlead.model.kinds.work import Ask, Assignment, AssignmentSpec, InstanceStatus, Revision, RevisionSpec, SlotRange
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from tests.observe.servers import REGION, Served


async def a_node(s: Served, name: str, cpu: int = 4000) -> None:
    spec = NodeSpec(region=REGION, zone="a", allocatable=Resources(cpu, 8 << 30), max_slots=100)
    await s.put("Node", Node(metadata=Metadata(name=name), spec=spec))
    status = NodeStatus(health="Ready", schedulable=True, session=1)
    await s.send(PutStatus("Node", "", name, status), Caller(name, Role.AGENT, node=name))
    s.server.authority.heartbeat([(name, 1)])
    s.nodes.append(name)


async def an_order(s: Served, workload: str, count: int = 1, *, cpu: int = 1000, generation: int = 1) -> None:
    """An Assignment and its Revision, under a lease of the test's own."""
    if s.mirror is None:
        ask = LeaseAcquire("test-mirror", Role.MIRROR)
        (got,) = await s.server.authority.submit([Command(Caller("test", Role.MIRROR), ask)])
        assert isinstance(got, Accepted), got
        s.mirror = Caller("test", Role.MIRROR, lease="test-mirror", fencing_epoch=got.epoch)
    uid, asked = f"u-{workload}", Ask(requests=Resources(cpu, 1 << 30))
    metadata = Metadata(name=f"{workload}.g{generation}", namespace="risk")
    spec = RevisionSpec(workload=workload, workload_uid=uid, generation=generation, ask=asked)
    await s.put("Revision", Revision(metadata=metadata, spec=spec), s.mirror)
    order = AssignmentSpec(
        workload=workload, workload_uid=uid, generation=generation, region=REGION, priority=500,
        slots=(SlotRange(first=0, last=count - 1),) if count else (),
    )  # fmt: skip
    metadata = Metadata(name=f"{workload}.{REGION}", namespace="risk", finalizers=("fairlead.dev/region-released",))
    await s.put("Assignment", Assignment(metadata=metadata, spec=order), s.mirror)


async def report(s: Served, name: str, to: SlotState, **status: Any) -> None:
    """As the agent of whichever node the slot is bound to."""
    rec = s.server.authority.view().get("bindings", "risk", name)
    assert rec is not None
    told = InstanceStatus(**status) if status else None
    await s.send(Report("risk", name, rec.hot.token, to, told), Caller(rec.hot.node, Role.AGENT, node=rec.hot.node))
