"""What people want: tenants, quotas, regions and workloads. All live on the global plane."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from fairlead.model.meta import Condition, Metadata, Record
from fairlead.model.resources import NOTHING, DeviceAsk, Resources


class TenantSpec(Record, frozen=True):
    display_name: str = ""
    weight: int = 1  # share in fairness between tenants of one priority
    max_pending: int = 0  # admission limit on queued slots; 0 means the policy's


class TenantStatus(Record, frozen=True):
    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()


class Tenant(Record, frozen=True):
    metadata: Metadata
    spec: TenantSpec = TenantSpec()
    status: TenantStatus = TenantStatus()


class QuotaSpec(Record, frozen=True):
    limits: Resources = NOTHING
    protected: dict[str, Resources] = {}  # region -> what no rebalancing may take below


class QuotaStatus(Record, frozen=True):
    observed_generation: int = 0
    exposed: Resources = NOTHING  # sum over regions of the largest limit each may still use (P13)
    used: Resources = NOTHING
    conditions: tuple[Condition, ...] = ()


class Quota(Record, frozen=True):
    metadata: Metadata
    spec: QuotaSpec = QuotaSpec()
    status: QuotaStatus = QuotaStatus()


class RegionSpec(Record, frozen=True):
    areas: tuple[str, ...] = ()  # residency areas this region lies in
    zones: tuple[str, ...] = ()
    endpoint: str = ""


class RegionStatus(Record, frozen=True):
    observed_generation: int = 0
    health: Literal["", "Healthy", "Unknown", "Lost"] = ""
    incarnation: int = 0
    conditions: tuple[Condition, ...] = ()


class Region(Record, frozen=True):
    metadata: Metadata
    spec: RegionSpec = RegionSpec()
    status: RegionStatus = RegionStatus()


class LabelExpression(Record, frozen=True):
    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"] = "In"
    values: tuple[str, ...] = ()


class Toleration(Record, frozen=True):
    key: str = ""
    operator: Literal["Equal", "Exists"] = "Equal"
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""


class SpreadRule(Record, frozen=True):
    topology_key: str = "zone"
    max_skew: int = 1
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = "DoNotSchedule"
    after_failure: Literal["Keep", "Repair"] = "Keep"


class AffinityRule(Record, frozen=True):
    """Near to (or, as anti-affinity, away from) the workloads that match, within one domain of the topology."""

    topology_key: str = "hostname"
    match: tuple[LabelExpression, ...] = ()
    required: bool = True
    weight: int = 0


class RegionRule(Record, frozen=True):
    allowed: tuple[str, ...] = ()
    per_region_minimum: int = 0


class Residency(Record, frozen=True):
    areas: tuple[str, ...] = ()
    enforcement: Literal["Required", "Preferred"] = "Required"


class Locality(Record, frozen=True):
    regions: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()


class Preference(Record, frozen=True):
    weight: int
    locality: Locality | None = None
    labels: tuple[LabelExpression, ...] = ()


class Placement(Record, frozen=True, cache_hash=True):
    regions: RegionRule = RegionRule()
    residency: Residency = Residency()
    zones: tuple[str, ...] = ()
    node_labels: tuple[LabelExpression, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    spread: tuple[SpreadRule, ...] = ()
    affinity: tuple[AffinityRule, ...] = ()
    anti_affinity: tuple[AffinityRule, ...] = ()
    max_per_node: int = 0
    preferences: tuple[Preference, ...] = ()


class EnvVar(Record, frozen=True):
    name: str
    value: str = ""


class Port(Record, frozen=True):
    name: str = ""
    port: int = 0  # 0: the agent picks one from its range
    protocol: Literal["TCP", "UDP"] = "TCP"


class HttpGet(Record, frozen=True):
    path: str = "/"
    port: str = ""


class TcpSocket(Record, frozen=True):
    port: str = ""


class Exec(Record, frozen=True):
    command: tuple[str, ...] = ()


class Probe(Record, frozen=True):
    http_get: HttpGet | None = None
    tcp_socket: TcpSocket | None = None
    exec: Exec | None = None
    initial_delay_seconds: float = 0.0
    period_seconds: float = 2.0
    timeout_seconds: float = 1.0
    success_threshold: int = 1
    failure_threshold: int = 3


class Probes(Record, frozen=True):
    startup: Probe | None = None
    readiness: Probe | None = None
    liveness: Probe | None = None


class FileMount(Record, frozen=True):
    """The keys of one Config or Secret as files in a directory below the instance's own."""

    path: str
    config: str = ""
    secret: str = ""


class Template(Record, frozen=True):
    driver: str = "process"
    image: str = ""
    command: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    working_dir: str = ""
    ports: tuple[Port, ...] = ()
    probes: Probes = Probes()
    restart_policy: Literal["Always", "OnFailure", "Never"] = "Always"
    max_restarts: int = 5
    stop_grace_seconds: float = 10.0
    files: tuple[FileMount, ...] = ()


class ResourceSpec(Record, frozen=True):
    requests: Resources = NOTHING
    devices: tuple[DeviceAsk, ...] = ()


class RecoveryRule(Record, frozen=True):
    budget_name: str = ""
    min_serving: int = 0
    deadline_seconds: int = 300


class DisruptionRule(Record, frozen=True):
    min_serving: int = 0
    drain_timeout_seconds: int = 600


class RolloutRule(Record, frozen=True):
    max_surge: int = 1
    max_unavailable: int = 0
    progress_deadline_seconds: int = 300
    paused: bool = False


class Freshness(Record, frozen=True):
    max_observation_age_seconds: float = 0.0  # 0: the policy's bound


class JobRule(Record, frozen=True):
    completions: int = 1
    parallelism: int = 1
    retries: int = 3
    deadline_time: datetime | None = None


class WorkloadSpec(Record, frozen=True):
    replicas: int = 1
    execution: Literal["Replicated", "Exclusive"] | None = None  # jobs are Exclusive unless they say otherwise
    exclusive: Literal["region", "global"] = "region"
    start_target_seconds: float = 0.0
    isolation: Literal["Shared", "TenantExclusive"] = "Shared"
    workload_class: str = "standard"
    priority_class_name: str = ""
    suspend: bool = False
    gang: bool = False
    job: JobRule | None = None
    template: Template = Template()
    resources: ResourceSpec = ResourceSpec()
    placement: Placement = Placement()
    recovery: RecoveryRule = RecoveryRule()
    disruption: DisruptionRule = DisruptionRule()
    rollout: RolloutRule = RolloutRule()
    freshness: Freshness = Freshness()


class StageCounts(Record, frozen=True):
    desired: int = 0
    reserved: int = 0
    bound: int = 0
    started: int = 0
    ready: int = 0
    serving: int = 0
    unknown: int = 0
    pending: int = 0  # not bound anywhere yet
    draining: int = 0
    failed: int = 0
    succeeded: int = 0
    updated: int = 0  # of those bound, how many run the generation that is wanted


class PendingReason(Record, frozen=True):
    reason: str
    count: int
    since_time: datetime | None = None
    next_owner: str = ""
    next_attempt_time: datetime | None = None
    detail: str = ""


class RegionCounts(Record, frozen=True):
    region: str
    replicas: StageCounts = StageCounts()


class WorkloadStatus(Record, frozen=True):
    observed_generation: int = 0
    revision: str = ""  # the Revision that is wanted
    regions: tuple[RegionCounts, ...] = ()
    replicas: StageCounts = StageCounts()
    pending: tuple[PendingReason, ...] = ()
    conditions: tuple[Condition, ...] = ()


class Workload(Record, frozen=True):
    metadata: Metadata
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class ConfigSpec(Record, frozen=True):
    data: dict[str, str] = {}


class ConfigStatus(Record, frozen=True):
    conditions: tuple[Condition, ...] = ()


class Config(Record, frozen=True):
    """Text that instances are given as files, one per key."""

    metadata: Metadata
    spec: ConfigSpec = ConfigSpec()
    status: ConfigStatus = ConfigStatus()


class SecretSpec(Record, frozen=True):
    """As a Config's, and never shown: not by repr, so neither in a log nor in a failed assertion."""

    data: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"SecretSpec({len(self.data)} keys)"


class SecretStatus(Record, frozen=True):
    conditions: tuple[Condition, ...] = ()


class Secret(Record, frozen=True):
    metadata: Metadata
    spec: SecretSpec = SecretSpec()
    status: SecretStatus = SecretStatus()
