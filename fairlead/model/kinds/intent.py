"""What people want: tenants, quotas, regions and workloads. All live on the global plane."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from fairlead.model.kinds.ledger import ZoneNodes
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
    """For whom work runs. A tenant is a namespace, and has quotas of its own."""

    metadata: Metadata
    spec: TenantSpec = TenantSpec()
    status: TenantStatus = TenantStatus()


class QuotaSpec(Record, frozen=True):
    limits: Resources = NOTHING  # the most of each resource; what is not named may not be used at all
    protected: dict[str, Resources] = {}  # region -> what no rebalancing may take below


class QuotaStatus(Record, frozen=True):
    observed_generation: int = 0
    exposed: Resources = NOTHING  # sum over regions of the largest limit each may still use (P13)
    used: Resources = NOTHING
    conditions: tuple[Condition, ...] = ()


class Quota(Record, frozen=True):
    """The most that a tenant may use in all regions together."""

    metadata: Metadata
    spec: QuotaSpec = QuotaSpec()
    status: QuotaStatus = QuotaStatus()


class RegionSpec(Record, frozen=True):
    areas: tuple[str, ...] = ()  # residency areas this region lies in
    zones: tuple[str, ...] = ()  # in which its nodes lie
    endpoint: str = ""


class RegionStatus(Record, frozen=True):
    observed_generation: int = 0
    health: Literal["", "Healthy", "Unknown", "Lost"] = ""
    incarnation: int = 0
    conditions: tuple[Condition, ...] = ()
    zones: tuple[ZoneNodes, ...] = ()  # its nodes, as it said last; not told more often than every half minute


class Region(Record, frozen=True):
    """A region: in which areas its data lies, which zones it has, and whether it is heard."""

    metadata: Metadata
    spec: RegionSpec = RegionSpec()
    status: RegionStatus = RegionStatus()


class LabelExpression(Record, frozen=True):
    key: str  # of the label
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"] = "In"  # how it is compared
    values: tuple[str, ...] = ()  # what the label is compared with


class Toleration(Record, frozen=True):
    key: str = ""  # of the taint; empty with Exists: every taint
    operator: Literal["Equal", "Exists"] = "Equal"  # Equal compares the value, Exists does not
    value: str = ""  # of the taint
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""  # of the taint; empty: every effect


class SpreadRule(Record, frozen=True):
    topology_key: str = "zone"  # over what: zone, region, hostname or a label of nodes
    max_skew: int = 1  # how many more one domain may hold than the emptiest
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = "DoNotSchedule"  # hard, or a preference
    after_failure: Literal["Keep", "Repair"] = "Keep"  # Repair: moved back into balance once a failure is over


class AffinityRule(Record, frozen=True):
    """Near to (or, as anti-affinity, away from) the workloads that match, within one domain of the topology."""

    topology_key: str = "hostname"  # near or away within what: hostname, zone or region
    match: tuple[LabelExpression, ...] = ()  # labels of the workloads meant
    required: bool = True  # hard; else a preference of that weight
    weight: int = 0  # of a preference


class RegionRule(Record, frozen=True):
    allowed: tuple[str, ...] = ()  # where it may run; empty: everywhere
    per_region_minimum: int = 0  # at least so many replicas in each of them


class Residency(Record, frozen=True):
    areas: tuple[str, ...] = ()  # where its data may be, such as eu; which regions lie there, a Region says; empty: anywhere
    enforcement: Literal["Required", "Preferred"] = "Required"  # Required: hard, and closed where nobody knows


class Locality(Record, frozen=True):
    regions: tuple[str, ...] = ()  # preferred ones
    zones: tuple[str, ...] = ()  # preferred ones


class Preference(Record, frozen=True):
    weight: int  # against the other preferences
    locality: Locality | None = None  # regions or zones it would rather be in
    labels: tuple[LabelExpression, ...] = ()  # of nodes it would rather be on


class Placement(Record, frozen=True, cache_hash=True):
    regions: RegionRule = RegionRule()  # in which regions, and how many at least in each
    residency: Residency = Residency()  # in which areas its data may be
    zones: tuple[str, ...] = ()  # only these; empty: all
    node_labels: tuple[LabelExpression, ...] = ()  # only nodes whose labels match
    tolerations: tuple[Toleration, ...] = ()  # taints of nodes that it bears
    spread: tuple[SpreadRule, ...] = ()  # how evenly over zones, hosts or other domains
    affinity: tuple[AffinityRule, ...] = ()  # which workloads it must or would rather be near to
    anti_affinity: tuple[AffinityRule, ...] = ()  # which ones it must or would rather be away from
    max_per_node: int = 0  # replicas on one node; 0: any number
    preferences: tuple[Preference, ...] = ()  # what would be nicer, by weight
    overflow: bool = True  # slots that find no place in their region for a while may go to another one


class EnvVar(Record, frozen=True):
    name: str  # of the variable
    value: str = ""  # as text; $(NAME) is the value of one that stands before it, or that the agent gives


class Port(Record, frozen=True):
    name: str = ""  # by which probes and endpoints know it
    port: int = 0  # 0: the agent picks one from its range
    protocol: Literal["TCP", "UDP"] = "TCP"  # what is spoken there


class HttpGet(Record, frozen=True):
    path: str = "/"  # of the request; any answer below 400 passes
    port: str = ""  # by name or number; empty: the first one


class TcpSocket(Record, frozen=True):
    port: str = ""  # by name or number; empty: the first one


class Exec(Record, frozen=True):
    command: tuple[str, ...] = ()  # ends with 0 where all is well; $(NAME) as in the template's own


class Probe(Record, frozen=True):
    http_get: HttpGet | None = None  # passes when a request is answered
    tcp_socket: TcpSocket | None = None  # passes when a connection is taken
    exec: Exec | None = None  # passes when a command ends with 0
    initial_delay_seconds: float = 0.0  # before the first try
    period_seconds: float = 2.0  # between two tries
    timeout_seconds: float = 1.0  # of one try
    success_threshold: int = 1  # tries in a row that make it pass
    failure_threshold: int = 3  # tries in a row that make it fail


class Probes(Record, frozen=True):
    startup: Probe | None = None  # the others wait until this one has passed
    readiness: Probe | None = None  # while it fails, no requests are sent
    liveness: Probe | None = None  # when it fails, the process is started again


class FileMount(Record, frozen=True):
    """The keys of one Config or Secret as files in a directory below the instance's own."""

    path: str  # of the directory
    config: str = ""  # the Config whose keys these are
    secret: str = ""  # or the Secret


class Template(Record, frozen=True):
    driver: str = "process"  # what runs it: process, or another that the nodes have
    image: str = ""  # for drivers that take one
    command: tuple[str, ...] = ()  # the program and its arguments; $(NAME) is a variable's value, $(PORT) for one
    env: tuple[EnvVar, ...] = ()  # variables of its environment
    working_dir: str = ""  # below the instance's own directory, or with a leading slash one of the machine's
    ports: tuple[Port, ...] = ()  # what it listens at
    probes: Probes = Probes()  # how its health is seen
    restart_policy: Literal["Always", "OnFailure", "Never"] | None = None  # when it ends; services Always, jobs OnFailure
    max_restarts: int = 5  # on one node, before the slot counts as failed
    stop_grace_seconds: float = 10.0  # between being asked to stop and being killed
    files: tuple[FileMount, ...] = ()  # Configs and Secrets it is given


class ResourceSpec(Record, frozen=True):
    requests: Resources = NOTHING  # what each replica is promised: cpu, memory and others
    devices: tuple[DeviceAsk, ...] = ()  # exclusive ones, such as GPUs


class RecoveryRule(Record, frozen=True):
    budget_name: str = ""  # the RecoveryBudget that keeps room for it
    min_serving: int = 0  # replicas to be back after a region is lost
    deadline_seconds: int = 300  # within which they are


class DisruptionRule(Record, frozen=True):
    min_serving: int = 0  # what drains, rollouts and evictions leave serving
    drain_timeout_seconds: int = 600  # how long a replica may take to stop when drained


class RolloutRule(Record, frozen=True):
    max_surge: int = 1  # replicas more than wanted while rolling out; regions take turns
    max_unavailable: int = 0  # replicas fewer than wanted while rolling out; regions take turns
    progress_deadline_seconds: int = 300  # without progress for so long, the rollout counts as stuck
    paused: bool = False  # nothing more is replaced until resumed
    min_ready_seconds: int | None = None  # a new replica counts once it has served so long; 3 without a readiness probe, else 0


class Freshness(Record, frozen=True):
    max_observation_age_seconds: float = 0.0  # 0: the policy's bound


class JobRule(Record, frozen=True):
    completions: int = 1  # how often it must succeed
    parallelism: int = 1  # how many run at once
    retries: int = 3  # failures before it is given up
    deadline_time: datetime | None = None  # after which it is given up


class WorkloadSpec(Record, frozen=True):
    replicas: int = 1  # how many are to serve; of a job see `job`
    execution: Literal["Replicated", "Exclusive"] | None = None  # jobs are Exclusive unless they say otherwise
    exclusive: Literal["region", "global"] = "region"  # of an Exclusive one: never two copies within a region, or anywhere
    start_target_seconds: float = 0.0  # from create to serving; orders the queue, and is measured; 0: none
    isolation: Literal["Shared", "TenantExclusive"] = "Shared"  # TenantExclusive: never beside another tenant's work
    workload_class: str = "standard"  # critical, standard, batch or best-effort; the policy says what each means
    priority_class_name: str = ""  # within what the policy allows; empty: the class's own
    suspend: bool = False  # kept, and not run
    gang: bool = False  # all replicas start together or none
    job: JobRule | None = None  # runs to completion; without it, a service
    template: Template = Template()  # what each replica runs
    resources: ResourceSpec = ResourceSpec()  # what each replica needs
    placement: Placement = Placement()  # where replicas may go and would rather be
    recovery: RecoveryRule = RecoveryRule()  # what comes back after a lost region, and how fast
    disruption: DisruptionRule = DisruptionRule()  # what stays serving whatever is done on purpose
    rollout: RolloutRule = RolloutRule()  # how a new generation replaces the old
    freshness: Freshness = Freshness()  # how old an observation of a node may be to be decided on


class StageCounts(Record, frozen=True):
    desired: int = 0  # replicas asked for
    reserved: int = 0  # have room kept for them
    bound: int = 0  # have a node
    started: int = 0  # have a process
    ready: int = 0  # pass their probes
    serving: int = 0  # get requests
    unknown: int = 0  # on a node that is silent
    pending: int = 0  # not bound anywhere yet
    draining: int = 0  # on their way out
    failed: int = 0  # failed, and not replaced yet
    succeeded: int = 0  # of a job: done
    updated: int = 0  # of those bound, how many run the generation that is wanted


class PendingReason(Record, frozen=True):
    reason: str  # one of the pending reasons, such as WaitingForQuota
    count: int  # of slots that wait for it
    since_time: datetime | None = None  # of the one that waits longest
    next_owner: str = ""  # who acts next
    next_attempt_time: datetime | None = None  # when at the latest; absent: when something changes
    detail: str = ""  # in words


class RegionCounts(Record, frozen=True):
    region: str
    replicas: StageCounts = StageCounts()


class WorkloadStatus(Record, frozen=True):
    observed_generation: int = 0
    revision: str = ""  # the Revision that is wanted
    policy_revision: int = 0  # of the SchedulerPolicy under which it was last looked at
    regions: tuple[RegionCounts, ...] = ()
    replicas: StageCounts = StageCounts()
    pending: tuple[PendingReason, ...] = ()
    conditions: tuple[Condition, ...] = ()


class Workload(Record, frozen=True):
    """What is to run: how many replicas, of which program, where they may go, and how fast they must be back."""

    metadata: Metadata
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class AutoscalerMetric(Record, frozen=True):
    """How every serving replica says itself how busy it is: a page over HTTP, asked every ten seconds."""

    name: str  # of a figure in Prometheus' text form; or of a field of a JSON object, with dots between the steps to it
    path: str = "/metrics"  # of the page
    port: str = ""  # by name; empty: the first one
    full: float = 1.0  # what a replica says that can take no more


class AutoscalerSpec(Record, frozen=True):
    workload: str  # whose replicas it sets
    max_replicas: int
    min_replicas: int = 1
    target_percent: int = 70  # how busy a serving replica should be
    surge: int = 1  # ordered replicas that may still be on their way while more are ordered
    up_wait_seconds: float = 30.0  # between two additions
    down_window_seconds: float = 300.0  # down only to the most that was wanted within this time
    metric: AutoscalerMetric | None = None  # None: the load is written into an annotation


class WantedThen(Record, frozen=True):
    time: datetime
    replicas: int


class AutoscalerStatus(Record, frozen=True):
    observed_generation: int = 0
    replicas: int = 0  # ordered, as it was seen last
    wanted: int = 0  # by the load alone
    busy_permille: int = 0  # of those that serve, as it was reported last
    last_up_time: datetime | None = None
    wanted_lately: tuple[WantedThen, ...] = ()
    conditions: tuple[Condition, ...] = ()


class Autoscaler(Record, frozen=True):
    """Sets a service's replicas by how busy they are: as the replicas say themselves (`metric`), or as whoever measures it writes
    into an annotation, with the time."""

    metadata: Metadata
    spec: AutoscalerSpec
    status: AutoscalerStatus = AutoscalerStatus()


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
    """Values that instances get as files. Sealed where they are stored, hidden from who may not get them."""

    metadata: Metadata
    spec: SecretSpec = SecretSpec()
    status: SecretStatus = SecretStatus()
