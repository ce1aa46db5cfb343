"""Small fleets and requests for tests of the scheduler's own parts."""

from __future__ import annotations

from typing import Any

from fairlead.model.kinds.capacity import Grant, GrantSpec, Node, NodeSpec, NodeStatus
from fairlead.model.kinds.intent import Placement
from fairlead.model.kinds.slot import SlotRef
from fairlead.model.kinds.work import Ask, SchedulingRequest, SchedulingRequestSpec
from fairlead.model.meta import Metadata
from fairlead.model.resources import Device, DeviceAsk, Resources
from fairlead.scheduler.snapshot import Snapshot

GI = 1 << 30
NOW_MS = 1_000_000
REGION = "local"


def node(
    name: str, *, cpu: int = 4000, memory: int = 8 * GI, zone: str = "a", slots: int = 110, devices: tuple[Device, ...] = (),
    labels: dict[str, str] | None = None, ready: bool = True, cordoned: bool = False, **spec: Any,
) -> Node:  # fmt: skip
    return Node(
        metadata=Metadata(name=name, labels=labels or {}),
        spec=NodeSpec(
            region=REGION, zone=zone, allocatable=Resources(cpu, memory), max_slots=slots, devices=devices,
            unschedulable=cordoned, **spec,
        ),
        status=NodeStatus(schedulable=True, health="Ready" if ready else "Unknown", session=1),
    )  # fmt: skip


def snapshot_of(*nodes: Node, tenants: tuple[str, ...] = ("risk", "search")) -> Snapshot:
    made = Snapshot()
    made.now_ms = NOW_MS
    for one in nodes:
        made.set_node(one.metadata.name, one)
    made.heard([(one.metadata.name, NOW_MS) for one in nodes], 0)
    for tenant in tenants:
        made.grants[tenant] = grant(tenant)
    return made


def grant(tenant: str, *, cpu: int = 1_000_000, memory: int = 4000 * GI, version: int = 1, **scalars: int) -> Grant:
    limit = Resources(cpu, memory, scalars.items())
    spec = GrantSpec(region=REGION, version=version, during=limit, after=limit)
    return Grant(metadata=Metadata(name=REGION, namespace=tenant), spec=spec)


def request(
    name: str, *, tenant: str = "risk", cpu: int = 1000, memory: int = GI, devices: tuple[DeviceAsk, ...] = (),
    placement: Placement | None = None, labels: tuple[tuple[str, str], ...] = (), workload_class: str = "standard", **spec: Any,
) -> SchedulingRequest:  # fmt: skip
    workload, _, index = name.rpartition("-")
    ask = Ask(
        requests=Resources(cpu, memory), devices=devices, placement=placement or Placement(), labels=labels,
        workload_class=workload_class,
    )  # fmt: skip
    slot = SlotRef(workload=workload, uid=f"u-{tenant}-{workload}", index=int(index))
    return SchedulingRequest(
        metadata=Metadata(name=name, namespace=tenant),
        spec=SchedulingRequestSpec(slot=slot, ask=ask, **{"priority": 500, **spec}),
    )
