"""Who may use how much, and what is held back: grants, recovery budgets, reservations, nodes and their pools."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from fairlead.model.kinds.slot import SlotRef, Token, Transition
from fairlead.model.kinds.work import Marks
from fairlead.model.meta import Condition, Metadata, Record
from fairlead.model.resources import NOTHING, Device, DeviceHold, Resources


class GrantSpec(Record, frozen=True):
    """An offer (P13): until the lease ends the region may use `during`, then `after`. Named TENANT in its region's plane."""

    region: str
    version: int
    during: Resources = NOTHING
    after: Resources = NOTHING
    lease_end_time: datetime | None = None  # None: without a lease


class GrantStatus(Record, frozen=True):
    observed_generation: int = 0
    accepted_version: int = 0
    used: Resources = NOTHING
    conditions: tuple[Condition, ...] = ()


class Grant(Record, frozen=True):
    metadata: Metadata
    spec: GrantSpec
    status: GrantStatus = GrantStatus()


class BudgetShape(Record, frozen=True):
    requests: Resources
    count: int = 1


class RecoveryBudgetSpec(Record, frozen=True):
    regions: tuple[str, ...] = ()
    shapes: tuple[BudgetShape, ...] = ()
    expiry_time: datetime | None = None


class RecoveryBudgetStatus(Record, frozen=True):
    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()


class RecoveryBudget(Record, frozen=True):
    metadata: Metadata
    spec: RecoveryBudgetSpec = RecoveryBudgetSpec()
    status: RecoveryBudgetStatus = RecoveryBudgetStatus()


class ReservationSpec(Record, frozen=True):
    """Capacity taken on a node before a binding. A standing one (`budget` set) belongs to no slot and is held, not firm."""

    node: str
    requests: Resources
    devices: tuple[DeviceHold, ...] = ()
    slot: SlotRef | None = None
    token: Token | None = None
    owner: str = ""
    expiry_time: datetime | None = None
    budget: str = ""
    index: int = 0
    policy_revision: int = 0
    grant_version: int = 0
    marks: Marks | None = None  # as the binding will bear them: neighbours must respect a reserved place too


class ReservationStatus(Record, frozen=True):
    conditions: tuple[Condition, ...] = ()
    last_transition: Transition | None = None


class Reservation(Record, frozen=True):
    metadata: Metadata
    spec: ReservationSpec
    status: ReservationStatus = ReservationStatus()


class Taint(Record, frozen=True):
    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


class DrainOrder(Record, frozen=True):
    """Everything on this node is to leave, within budgets. An operator's; carried out by the disruption controller."""

    reason: str = ""
    requester: str = ""
    deadline_time: datetime | None = None  # after it the drain stops trying and says what blocked it


class NodeSpec(Record, frozen=True):
    region: str = ""
    zone: str = ""
    pool: str = ""
    allocatable: Resources = NOTHING
    max_slots: int = 110
    devices: tuple[Device, ...] = ()
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    address: str = ""
    hourly_cost_millis: int = 0
    drain: DrainOrder | None = None


class NodeStatus(Record, frozen=True):
    """`schedulable` turns true only after the inventory handshake of the present session (P10)."""

    observed_generation: int = 0
    session: int = 0
    schedulable: bool = False
    health: Literal["", "Ready", "Unknown", "Lost"] = ""
    images: tuple[str, ...] = ()
    flaps: int = 0  # how often it fell silent soon after it came back
    conditions: tuple[Condition, ...] = ()


class Node(Record, frozen=True):
    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class NodePoolSpec(Record, frozen=True):
    allowed_tenants: tuple[str, ...] = ()
    allowed_classes: tuple[str, ...] = ()
    min_nodes: int = 0
    max_nodes: int = 0
    provider: str = ""


class NodePoolStatus(Record, frozen=True):
    observed_generation: int = 0
    nodes: int = 0
    conditions: tuple[Condition, ...] = ()


class NodePool(Record, frozen=True):
    metadata: Metadata
    spec: NodePoolSpec = NodePoolSpec()
    status: NodePoolStatus = NodePoolStatus()
