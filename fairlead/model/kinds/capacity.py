"""Who may use how much, and what is held back: grants, recovery budgets, reservations, nodes and their pools."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from fairlead.model.kinds.quota import GrantOffer
from fairlead.model.kinds.slot import SlotRef, Token, Transition
from fairlead.model.kinds.work import Marks
from fairlead.model.meta import Condition, Metadata, Record
from fairlead.model.resources import NOTHING, Device, DeviceHold, Resources


class GrantSpec(Record, frozen=True):
    """An offer (P13): until the lease ends the region may use `during`, then `after`. Made by the quota controller where the
    tenant has a Quota; made by hand it has no lease, and holds as it is written."""

    region: str
    version: int
    during: Resources = NOTHING
    after: Resources = NOTHING
    lease_end_time: datetime | None = None  # of one made by hand; None: without end
    lease_seconds: int = 0  # above 0: leased by the region's GrantTerm, and used only once the region has taken it
    offers: tuple[GrantOffer, ...] = ()  # superseded ones that the region may still stand on
    emergency: Resources = NOTHING  # the part of both limits that an emergency quota gives
    emergency_end_time: datetime | None = None  # from then on it gives nothing; the global plane's time


class GrantStatus(Record, frozen=True):
    """What the region says: the offer it stands on, and how it uses it."""

    observed_generation: int = 0
    accepted_version: int = 0
    during: Resources = NOTHING  # of the offer it stands on
    after: Resources = NOTHING
    emergency: Resources = NOTHING  # of the same
    emergency_end_time: datetime | None = None  # in the region's own time
    lease_end_time: datetime | None = None  # where its lease ends before the term's, because a newer offer was made
    incarnation: int = 0  # of the region's plane that took it; in another one it counts for nothing
    heard: int = 0  # the incarnation of the global plane this was said to
    told: Resources = NOTHING  # what it could use when it first spoke to that incarnation
    told_after: Resources = NOTHING  # and what of it stays when its lease ends
    used: Resources = NOTHING
    waiting: Resources = NOTHING  # asked for by slots that wait for quota
    conditions: tuple[Condition, ...] = ()
    firm: Resources = NOTHING  # what may run on when its lease has ended, where that is more than stays of the offer
    as_of: int = 0  # in the global plane: the revision of the region's plane that this was said at; 0 in the region itself


class Grant(Record, frozen=True):
    """The part of a quota that one region may use by itself."""

    metadata: Metadata
    spec: GrantSpec
    status: GrantStatus = GrantStatus()


class BudgetShape(Record, frozen=True):
    requests: Resources
    count: int = 1


class RecoveryBudgetSpec(Record, frozen=True):
    regions: tuple[str, ...] = ()  # where room is held; empty: in every region
    shapes: tuple[BudgetShape, ...] = ()  # how much, in each of them
    expiry_time: datetime | None = None  # from then on nothing is held
    workload_class: str = "critical"  # of the work it is for: pools may be for some classes only


class HeldShape(Record, frozen=True):
    """How much of one shape a region holds: free to be claimed, claimed by slots that run, and not placed yet."""

    requests: Resources
    held: int = 0
    claimed: int = 0
    waiting: int = 0
    silent: int = 0  # held where nothing may be placed now (nodes not heard, zones avoided): worth nothing meanwhile
    lent: int = 0  # of `held`: borrowers run in these until they are claimed
    nodes: tuple[int, ...] = ()  # of `held`: how many nodes have at least one of these, how many at least two, and so on
    zones: tuple[int, ...] = ()  # of `held`: how many each zone that takes work has, the most first; 0: it has none


class BudgetInRegion(Record, frozen=True):
    region: str
    shapes: tuple[HeldShape, ...] = ()


class RecoveryBudgetStatus(Record, frozen=True):
    """`regions` is added up from what each region says of its own part."""

    observed_generation: int = 0
    regions: tuple[BudgetInRegion, ...] = ()
    conditions: tuple[Condition, ...] = ()


class RecoveryBudget(Record, frozen=True):
    """Room that is held on nodes of healthy regions for work of a region that is lost."""

    metadata: Metadata
    spec: RecoveryBudgetSpec = RecoveryBudgetSpec()
    status: RecoveryBudgetStatus = RecoveryBudgetStatus()


class HoldingSpec(Record, frozen=True):
    """What one region is to hold of a recovery budget. Named BUDGET.REGION, as an Assignment is: none speaks for another."""

    budget: str
    budget_uid: str
    region: str
    shapes: tuple[BudgetShape, ...] = ()
    expiry_time: datetime | None = None
    workload_class: str = "critical"


class HoldingStatus(Record, frozen=True):
    observed_generation: int = 0
    shapes: tuple[HeldShape, ...] = ()
    conditions: tuple[Condition, ...] = ()
    as_of: int = 0  # in the global plane: the revision of the region's plane that this was said at; 0 in the region itself


class Holding(Record, frozen=True):
    """What one region is to hold of a recovery budget, and what it says of it."""

    metadata: Metadata
    spec: HoldingSpec
    status: HoldingStatus = HoldingStatus()


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
    claimer: str = ""  # of a standing one: the slot that took part of it. This is the rest, held until that slot is gone


class ReservationStatus(Record, frozen=True):
    conditions: tuple[Condition, ...] = ()
    last_transition: Transition | None = None


class Reservation(Record, frozen=True):
    """Capacity of a node that is promised to a slot for a short time, or held for recovery."""

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
    region: str = ""  # in which it lies
    zone: str = ""  # what may fail together
    pool: str = ""  # its NodePool; empty: none
    allocatable: Resources = NOTHING  # the most it may offer to slots
    max_slots: int = 110  # that may run on it at once
    devices: tuple[Device, ...] = ()  # one by one, such as GPUs
    taints: tuple[Taint, ...] = ()  # keep away whoever does not tolerate them
    unschedulable: bool = False  # cordoned: nothing new is placed on it
    address: str = ""  # by which clients reach what runs on it
    hourly_cost_millis: int = 0  # what it costs, in thousandths
    drain: DrainOrder | None = None  # ordered by `fairlead drain`; absent: none


class NodeStatus(Record, frozen=True):
    """`schedulable` turns true only after the inventory handshake of the present session (P10). `incarnation` is that of the
    region's plane in which it was made last; 0: by an agent that does not say."""

    observed_generation: int = 0
    session: int = 0
    schedulable: bool = False
    health: Literal["", "Ready", "Unknown", "Lost"] = ""
    images: tuple[str, ...] = ()
    flaps: int = 0  # how often it fell silent soon after it came back
    conditions: tuple[Condition, ...] = ()
    incarnation: int = 0


class Node(Record, frozen=True):
    """A machine of a region: what it offers, and whether it is heard and takes work."""

    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class NodePoolSpec(Record, frozen=True):
    allowed_tenants: tuple[str, ...] = ()
    allowed_classes: tuple[str, ...] = ()
    min_nodes: int = 0
    max_nodes: int = 0
    provider: str = ""  # who starts and stops its machines; empty: nobody, and the pool is not scaled
    node: Resources = NOTHING  # what a new one gives
    max_slots: int = 110
    start_seconds: float = 60.0  # until a new one takes work; one that has not registered after three times this is given back
    up_wait_seconds: float = 30.0  # between two additions
    idle_seconds: float = 600.0  # an empty one stays this long


class IdleSince(Record, frozen=True):
    node: str
    time: datetime


class Addition(Record, frozen=True):
    """Nodes that were ordered at one look: those numbered from `first` to before the next addition."""

    first: int
    time: datetime


class NodePoolStatus(Record, frozen=True):
    """`ordered` names the nodes that the provider is to run, beside those that people made."""

    observed_generation: int = 0
    nodes: int = 0
    ordered: tuple[str, ...] = ()
    numbered: int = 0  # of the last one ordered: names are not used twice
    last_up_time: datetime | None = None
    idle: tuple[IdleSince, ...] = ()
    conditions: tuple[Condition, ...] = ()
    additions: tuple[Addition, ...] = ()  # those whose nodes may still be on their way
    in_vain: int = 0  # additions in a row of which no node registered


class NodePool(Record, frozen=True):
    """Nodes alike: who may use them, how many there may be, and how an autoscaler gets more."""

    metadata: Metadata
    spec: NodePoolSpec = NodePoolSpec()
    status: NodePoolStatus = NodePoolStatus()
