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
    name: str
    value: int
    preempts: bool = False
    may_break_disruption_budgets: bool = False


class WorkloadClass(Record, frozen=True):
    name: str
    priority_class_name: str = ""
    strategy: Literal["cycle", "probe", "gang"] = "cycle"
    may_borrow: bool = False  # best-effort work may use held recovery capacity
    local_autonomy: bool = False  # may be placed while the region is cut off


class ResidencyRule(Record, frozen=True):
    """Tenants or labels to the areas their work may run in. A workload may narrow it, never widen it."""

    tenants: tuple[str, ...] = ()
    labels: tuple[LabelExpression, ...] = ()
    areas: tuple[str, ...] = ()


class SchedulerPolicySpec(Record, frozen=True):
    revision: int
    gates: tuple[str, ...] = ()
    scores: tuple[ScoreWeight, ...] = ()
    priority_classes: tuple[PriorityClass, ...] = ()
    workload_classes: tuple[WorkloadClass, ...] = ()
    residency: tuple[ResidencyRule, ...] = ()
    max_observation_age_seconds: float = 30.0
    packing: Literal["Pack", "Balance"] = "Pack"


class SchedulerPolicyStatus(Record, frozen=True):
    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()


class SchedulerPolicy(Record, frozen=True):
    """One immutable revision."""

    metadata: Metadata
    spec: SchedulerPolicySpec
    status: SchedulerPolicyStatus = SchedulerPolicyStatus()


class Canary(Record, frozen=True):
    revision: int
    tenants: tuple[str, ...] = ()
    share_percent: int = 0


class PolicyChannelSpec(Record, frozen=True):
    """Which revision decides. One channel a plane, named `default`."""

    current: int
    canary: Canary | None = None
    history: tuple[int, ...] = ()


class PolicyChannelStatus(Record, frozen=True):
    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()


class PolicyChannel(Record, frozen=True):
    metadata: Metadata
    spec: PolicyChannelSpec
    status: PolicyChannelStatus = PolicyChannelStatus()


class OverrideScope(Record, frozen=True):
    tenants: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()


class OverrideSpec(Record, frozen=True):
    kind: Literal["recovery", "zone-avoidance", "autoscaler-pause", "repair-approval", "emergency-quota", "freeze", "hold"]
    reason: str
    ttl_seconds: int
    requester: str = ""
    approver: str = ""
    scope: OverrideScope = OverrideScope()
    parameters: dict[str, str] = {}


class OverrideStatus(Record, frozen=True):
    observed_generation: int = 0
    expiry_time: datetime | None = None
    conditions: tuple[Condition, ...] = ()


class Override(Record, frozen=True):
    metadata: Metadata
    spec: OverrideSpec
    status: OverrideStatus = OverrideStatus()
