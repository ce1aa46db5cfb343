"""How decisions are made: scheduler policy revisions, the channel that selects one, and people's overrides. Global plane."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from fairlead.model.kinds.intent import LabelExpression
from fairlead.model.meta import Condition, Metadata, Record


class ScoreWeight(Record, frozen=True):
    name: str
    weight: int = 1


class PriorityClass(Record, frozen=True):
    """A rank, and what it may do to lower ones. Bindings carry the value alone, so no two classes may have the same."""

    name: str
    value: int
    preempts: bool = False
    preemptible: bool = True
    preempts_only: tuple[str, ...] = ()  # the classes it may evict; empty: every lower one that is preemptible
    may_break_disruption_budgets: bool = False


class WorkloadClass(Record, frozen=True):
    """What `workloadClass` on a workload means. Where a field is left out, the policy's own holds."""

    name: str
    priority_class_name: str = ""
    strategy: Literal["cycle", "probe", "gang"] = "cycle"
    may_borrow: bool = False  # best-effort work may use held recovery capacity
    local_autonomy: bool = False  # may be placed while the region is cut off
    packing: Literal["", "Pack", "Balance"] = ""
    spread: Literal["", "Off", "Node", "Zone", "NodeAndZone"] = ""
    probe_size: int = 0  # how many nodes the strategy probe samples
    scores: tuple[ScoreWeight, ...] = ()  # other weights than the policy's, by name; 0 leaves a score out
    max_observation_age_seconds: float = 0.0
    overflow_after_seconds: float = 60.0  # slots that wait so long for a place may go to another region; 0: never


class ResidencyRule(Record, frozen=True):
    """Tenants and labels to the areas their work may run in. It binds whoever matches all it names; of several rules that bind,
    the common areas remain. A workload may narrow it, never widen it."""

    tenants: tuple[str, ...] = ()
    labels: tuple[LabelExpression, ...] = ()
    areas: tuple[str, ...] = ()


class Defragmentation(Record, frozen=True):
    """Moves of running slots so that something large fits, or a node can go. A policy without one asks for none."""

    max_moves: int = 2  # under way at once
    per_hour: int = 20
    max_cost: int = 16  # of one plan: the sum over its moves
    costs: dict[str, int] = {}  # of moving one slot, by workload class, where it is not the built-in one


class SchedulerPolicySpec(Record, frozen=True):
    """Where scores, priority classes or workload classes are left out, the built-in ones hold (fairlead/decide/policy.py).

    A name with a dot is a plug-in's, one without is built in. The built-in gates always hold; they may be listed, not dropped.
    """

    revision: int
    gates: tuple[str, ...] = ()
    scores: tuple[ScoreWeight, ...] = ()
    extensions: tuple[str, ...] = ()
    priority_classes: tuple[PriorityClass, ...] = ()
    workload_classes: tuple[WorkloadClass, ...] = ()
    residency: tuple[ResidencyRule, ...] = ()
    max_observation_age_seconds: float = 30.0
    max_pending_per_tenant: int = 100_000  # slots queued at once, where the tenant has no limit of its own
    gang_timeout_seconds: float = 60.0
    packing: Literal["Pack", "Balance"] = "Pack"  # which of the scores packing and balance counts
    spread: Literal["Off", "Node", "Zone", "NodeAndZone"] = "Off"  # preferred for work that states no spread of its own
    probe_size: int = 4
    defragmentation: Defragmentation | None = None  # off, where it is left out
    max_override_ttl_seconds: int = 14_400  # the longest that an override about its tenants may be asked for


class SchedulerPolicyStatus(Record, frozen=True):
    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()


class SchedulerPolicy(Record, frozen=True):
    """One immutable revision."""

    metadata: Metadata
    spec: SchedulerPolicySpec
    status: SchedulerPolicyStatus = SchedulerPolicyStatus()


class Canary(Record, frozen=True):
    """A revision on trial: for the tenants named and a share of the others, in the regions named, where any are. Whatever is left
    out does not narrow it. Ended by the policy controller when nobody promoted it in time."""

    revision: int
    tenants: tuple[str, ...] = ()
    share_percent: int = 0
    regions: tuple[str, ...] = ()
    ttl_seconds: int = 14_400  # from when it was first seen so; however it is changed, at most four hours from its first order


class PolicyChannelSpec(Record, frozen=True):
    """Which revision decides. One channel a plane, named `default`."""

    current: int
    canary: Canary | None = None
    history: tuple[int, ...] = ()


class RegionPolicy(Record, frozen=True):
    """Whether a region may still judge by something older than the channel and its Region say (P14)."""

    region: str
    state: Literal["Pending", "Accepted", "LeaseEnded"]
    policy: int = 0  # versions of the channel and of the Region that this is about
    residency: int = 0
    until_time: datetime | None = None  # where it is pending: when its lease on older ones has ended at the latest


class PolicyChannelStatus(Record, frozen=True):
    observed_generation: int = 0
    canary_revision: int = 0  # on trial; 0: none
    canary_start_time: datetime | None = None
    canary_end_time: datetime | None = None  # from here on it is taken back
    conditions: tuple[Condition, ...] = ()
    regions: tuple[RegionPolicy, ...] = ()  # by name
    canary: Canary | None = None  # as it was ordered when its end was set


class PolicyChannel(Record, frozen=True):
    """Which SchedulerPolicy revision decides, and which one is tried on a part."""

    metadata: Metadata
    spec: PolicyChannelSpec
    status: PolicyChannelStatus = PolicyChannelStatus()


class OverrideScope(Record, frozen=True):
    tenants: tuple[str, ...] = ()  # whose work it is about; * is everybody's
    workloads: tuple[str, ...] = ()  # only these, by name
    regions: tuple[str, ...] = ()  # only there
    zones: tuple[str, ...] = ()  # the ones to be avoided


class OverrideSpec(Record, frozen=True):
    kind: Literal["recovery", "zone-avoidance", "autoscaler-pause", "repair-approval", "emergency-quota", "freeze", "hold"]
    reason: str  # why: kept, and shown to whoever waits because of it
    ttl_seconds: int  # after which it has no effect
    requester: str = ""  # who ordered it; set by the server
    approver: str = ""  # the second person, where the kind needs one
    scope: OverrideScope = OverrideScope()  # whom and where it is about
    parameters: dict[str, str] = {}  # how much, for emergency-quota


class OverrideStatus(Record, frozen=True):
    observed_generation: int = 0
    expiry_time: datetime | None = None
    conditions: tuple[Condition, ...] = ()


class Override(Record, frozen=True):
    """An exception that a person orders, with scope, reason and an end; without effect from its end on."""

    metadata: Metadata
    spec: OverrideSpec
    status: OverrideStatus = OverrideStatus()
