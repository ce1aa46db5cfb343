"""Work on its way: assignments, the durable queue, bindings, instances, evictions and endpoints. Regional planes."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from fairlead.model.kinds.intent import AffinityRule, JobRule, PendingReason, Placement, RolloutRule, StageCounts, Template
from fairlead.model.kinds.slot import SlotRef, Token, Transition
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Condition, Metadata, Record
from fairlead.model.resources import NOTHING, DeviceAsk, DeviceHold, Resources


class SlotRange(Record, frozen=True):
    """Slots first..last at one epoch. An assignment holds ranges, and exceptions as ranges of one."""

    first: int
    last: int
    epoch: int = 1


class Overflow(Record, frozen=True):
    """When slots of a workload last left a region for another, or came to it, so that they do not go back and forth."""

    asked_time: datetime | None = None  # when the region was last asked to give some up
    gave_time: datetime | None = None
    took_time: datetime | None = None
    turns: int = 0  # how often it gave after it took, or took after it gave
    taken_back_time: datetime | None = None  # when an ask was last taken back, because no other region had room any more


class Successor(Record, frozen=True):
    """A slot that stands in for one of another region which may never run beside it."""

    index: int
    supersedes: str  # which slots it does, the nearest first, as REGION/SLOT@EPOCH: the epoch of the slot lease that was taken


class AssignmentSpec(Record, frozen=True):
    workload: str
    workload_uid: str
    generation: int
    region: str
    slots: tuple[SlotRange, ...] = ()
    template: Template = Template()
    priority: int = 0
    budget_name: str = ""  # the RecoveryBudget whose standing reservations its `recovery` slots claim
    workload_generation: int = 0  # what it was decided on; `generation` names the Revision, which an undo may go back to
    spare: SlotRange | None = None  # indices of no region's own, for the surge of a rollout here
    rollout: RolloutRule = RolloutRule()
    job: JobRule | None = None
    suspend: bool = False
    gang: bool = False
    may_borrow: bool = False
    min_serving: int = 0  # this region's part of the workload's disruption budget
    drain_timeout_seconds: int = 600
    requests: Resources = NOTHING  # of one slot, for whoever adds up what a region was given
    recovery: SlotRange | None = None  # those of `slots` that stand in for a lost region's
    execution: Literal["Replicated", "Exclusive"] = "Replicated"  # Exclusive: none of its slots has another beside it for a while
    leaving: tuple[SlotRange, ...] = ()  # of an Exclusive service: its own that were taken from it and may run here still
    exclusive: Literal["", "global"] = ""  # its slots run under the region's slot lease (P11)
    successors: tuple[Successor, ...] = ()  # of `recovery`, where it is exclusive everywhere: what each stands in for
    ordered: str = ""  # where it is exclusive everywhere: the RecoveryOrder it was decided on, as UID/GENERATION
    superseded: tuple[SlotRange, ...] = ()  # this region's own that another one stands in for: they start here no more
    give_up: int = 0  # how many slots that find no place here are to be given up, for another region
    overflow: Overflow = Overflow()
    gang_timeout_seconds: float = 60.0  # of a gang: how long it may wait for its members, by the policy in force
    policy_revision: int = 0  # of the SchedulerPolicy that decided it; one that decides the same later does not write it


class AssignmentStatus(Record, frozen=True):
    observed_generation: int = 0
    generation: int = 0  # the Revision these counts were taken under
    replicas: StageCounts = StageCounts()
    pending: tuple[PendingReason, ...] = ()
    generations: tuple[int, ...] = ()  # Revisions that some slot here still names
    epoch_floor: int = 0  # no slot ended here above this epoch and was forgotten: new ones begin above it
    completed: tuple[SlotRange, ...] = ()  # of a job: slots that succeeded, with their bindings gone or going
    failed: tuple[SlotRange, ...] = ()  # of a job: the last failed life of each slot that was counted
    failures: int = 0
    unwanted: int = 0  # slots that are not wanted here any more, and may still run or start
    conditions: tuple[Condition, ...] = ()
    stood_in: int = 0  # of those that serve, recovery slots: they stand in for another region's
    given_up: tuple[SlotRange, ...] = ()  # for `giveUp`: neither queued nor bound here, and not queued again under this order
    as_of: int = 0  # in the global plane: the revision of the region's plane that this was said at; 0 in the region itself


class Assignment(Record, frozen=True):
    """Named WORKLOAD.REGION. Kept, without slots, where a workload has left: its epochs must not begin anew."""

    metadata: Metadata
    spec: AssignmentSpec
    status: AssignmentStatus = AssignmentStatus()


class Ask(Record, frozen=True, cache_hash=True):
    """Everything about a slot that decides where it may go. Equal asks share one score vector in the scheduler."""

    requests: Resources = NOTHING
    devices: tuple[DeviceAsk, ...] = ()
    placement: Placement = Placement()
    isolation: Literal["Shared", "TenantExclusive"] = "Shared"
    workload_class: str = "standard"
    ports: tuple[int, ...] = ()
    max_observation_age_seconds: float = 0.0
    labels: tuple[tuple[str, str], ...] = ()  # of the workload, in order of key: what affinity and residency rules match
    image: str = ""  # what a node should have fetched already


class RevisionSpec(Record, frozen=True):
    """One generation of a workload as it is carried out: what every slot of that generation asks for and runs."""

    workload: str
    workload_uid: str
    generation: int
    template: Template = Template()
    ask: Ask = Ask()
    execution: Literal["Replicated", "Exclusive"] = "Replicated"
    exclusive: Literal["region", "global"] = "region"
    priority: int = 0
    start_target_seconds: float = 0.0
    min_serving: int = 0


class RevisionStatus(Record, frozen=True):
    conditions: tuple[Condition, ...] = ()


class Revision(Record, frozen=True):
    """Immutable, named WORKLOAD.gGENERATION. Agents read the one their binding's generation names; undo goes back to one."""

    metadata: Metadata
    spec: RevisionSpec
    status: RevisionStatus = RevisionStatus()


class Marks(Record, frozen=True, cache_hash=True):
    """What the neighbours of a placed slot must respect: its labels, its ports, whom it repels, whether it shares its node."""

    labels: tuple[tuple[str, str], ...] = ()
    ports: tuple[int, ...] = ()
    repels: tuple[AffinityRule, ...] = ()  # required anti-affinity, which holds in both directions
    isolation: Literal["Shared", "TenantExclusive"] = "Shared"
    keeps: Ask | None = None  # all it asked for, where its spread is to be repaired after failures


class SchedulingRequestSpec(Record, frozen=True):
    slot: SlotRef
    epoch: int = 1
    generation: int = 1
    ask: Ask = Ask()
    execution: Literal["Replicated", "Exclusive"] = "Replicated"
    exclusive: Literal["region", "global"] = "region"
    priority: int = 0
    gang: str = ""
    gang_size: int = 0
    deadline_time: datetime | None = None
    may_borrow: bool = False
    supersedes: str = ""  # the slot a recovery slot stands in for (P11)
    budget_name: str = ""
    start_target_seconds: float = 0.0  # from create to serving: orders the queue like a deadline
    gang_timeout_seconds: float = 60.0  # how long a gang may wait for its members before it is reported
    suspend: bool = False  # kept in the queue, tried by nobody
    min_serving: int = 0  # its workload's disruption budget in this region
    standing: bool = False  # holds room for the budget it names instead of running anything
    left_node: str = ""  # that it was moved off to make room there: another one is proposed until the time below
    left_until_time: datetime | None = None


class SchedulingRequestStatus(Record, frozen=True):
    state: SlotState = SlotState.PENDING
    attempt: int = 0  # lives of this epoch so far; the next binding takes attempt + 1
    reason: str = "PendingEvaluation"
    detail: str = ""
    since_time: datetime | None = None
    next_owner: str = "scheduler"
    next_attempt_time: datetime | None = None
    last_transition: Transition | None = None
    conditions: tuple[Condition, ...] = ()


class SchedulingRequest(Record, frozen=True):
    """A slot that waits for a node, and why it waits."""

    metadata: Metadata
    spec: SchedulingRequestSpec
    status: SchedulingRequestStatus = SchedulingRequestStatus()


class BindingSpec(Record, frozen=True):
    slot: SlotRef
    node: str
    token: Token
    generation: int = 1
    requests: Resources = NOTHING
    devices: tuple[DeviceHold, ...] = ()
    execution: Literal["Replicated", "Exclusive"] = "Replicated"
    exclusive: Literal["region", "global"] = "region"
    priority: int = 0
    policy_revision: int = 0
    grant_version: int = 0
    borrowed: bool = False  # lent capacity: evicted at once when its holder claims it (P12)
    start_after: tuple[str, ...] = ()  # bindings whose processes must be gone before this one starts
    provisional_until_time: datetime | None = None
    decision: str = ""  # hash of the decision record; its body lies in the archive
    supersedes: str = ""
    marks: Marks | None = None  # None: plain, as most are
    min_serving: int = 0
    claimed: str = ""  # the standing reservation whose room it took: held again when it is released (P12)


class BindingStatus(Record, frozen=True):
    state: SlotState = SlotState.BOUND
    last_transition: Transition | None = None
    before_unknown: SlotState | None = None
    drain_deadline_time: datetime | None = None
    conditions: tuple[Condition, ...] = ()


class Binding(Record, frozen=True):
    """The committed placement of a slot on a node, and how far the slot has come there."""

    metadata: Metadata
    spec: BindingSpec
    status: BindingStatus = BindingStatus()


class InstanceSpec(Record, frozen=True):
    node: str
    token: Token


class InstanceStatus(Record, frozen=True):
    ready: bool = False
    restarts: int = 0
    exit_code: int | None = None
    ports: dict[str, int] = {}
    started_time: datetime | None = None
    ready_time: datetime | None = None
    message: str = ""
    conditions: tuple[Condition, ...] = ()


class Instance(Record, frozen=True):
    """What the agent says of the process behind the binding of the same name."""

    metadata: Metadata
    spec: InstanceSpec
    status: InstanceStatus = InstanceStatus()


class EvictionRequestSpec(Record, frozen=True):
    slot: SlotRef
    reason: str
    requester: str = ""
    deadline_time: datetime | None = None
    epoch: int = 0  # of the life it is about; 0: whichever
    policy_revision: int = 0  # of the SchedulerPolicy whose rules ask for it; 0: none does


class EvictionRequestStatus(Record, frozen=True):
    """Conditions: Approved (traffic may be withdrawn, then it drains), Done (how it ended)."""

    observed_generation: int = 0
    blocked_by: str = ""  # what keeps it from being approved
    conditions: tuple[Condition, ...] = ()


class EvictionRequest(Record, frozen=True):
    """A slot is asked to leave its node, if its disruption budget allows it."""

    metadata: Metadata
    spec: EvictionRequestSpec
    status: EvictionRequestStatus = EvictionRequestStatus()


class Endpoint(Record, frozen=True):
    slot: int
    node: str
    address: str
    ports: dict[str, int] = {}


class EndpointsSpec(Record, frozen=True):
    workload_uid: str = ""
    version: int = 0
    endpoints: tuple[Endpoint, ...] = ()


class EndpointsStatus(Record, frozen=True):
    """How far the rollout is that these endpoints belong to."""

    generation: int = 0  # the Revision being rolled out
    updated: int = 0  # slots of it that serve
    remaining: int = 0  # slots still to be replaced or to come to serve
    progress_time: datetime | None = None  # when one of these last became better
    conditions: tuple[Condition, ...] = ()


class Endpoints(Record, frozen=True):
    """Where the serving slots of a workload are reached in one region."""

    metadata: Metadata
    spec: EndpointsSpec = EndpointsSpec()
    status: EndpointsStatus = EndpointsStatus()
