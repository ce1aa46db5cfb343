"""Records for tests: `filled` makes one in which no field has its default, `valid` one of each kind that admission accepts.

Fields added later are filled without being named here, so a codec test cannot forget them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
from msgspec import inspect
from msgspec.structs import replace

from fairlead.model.kinds import access, capacity, intent, ledger, policy, quota, recovery, repair, work
from fairlead.model.kinds.slot import SlotRef, Token
from fairlead.model.meta import FieldsV1, Metadata, Record
from fairlead.model.resources import Resources

T = TypeVar("T")


def filled(wanted: type[T], seed: int = 1) -> T:
    """A value with every field set to something other than its default."""
    made: T = _fill(inspect.type_info(wanted), seed)
    return made


def _fill(info: inspect.Type, seed: int) -> Any:
    match info:
        case inspect.StructType():
            return info.cls(**{field.name: _fill(field.type, seed + n) for n, field in enumerate(info.fields)})
        case inspect.VarTupleType():
            return tuple(_fill(info.item_type, seed + n) for n in range(2))
        case inspect.TupleType():
            return tuple(_fill(item, seed + n) for n, item in enumerate(info.item_types))
        case inspect.DictType():
            return {f"key-{seed + n}": _fill(info.value_type, seed + n) for n in range(2)}
        case inspect.UnionType():
            return _fill(next(t for t in info.types if not isinstance(t, inspect.NoneType)), seed)
        case inspect.LiteralType():
            return info.values[-1 if seed % 2 else 0]
        case inspect.EnumType():
            return list(info.cls)[seed % len(info.cls)]
    return _fill_leaf(info, seed)


def _fill_leaf(info: inspect.Type, seed: int) -> Any:
    match info:
        case inspect.StrType():
            return f"text-{seed}"
        case inspect.BoolType():
            return True
        case inspect.IntType():
            return 1_000_000 + seed
        case inspect.FloatType():
            return 0.5 + seed
        case inspect.DateTimeType():
            return datetime(2026, 1, 31, 12, 0, seed % 60, 250_000, tzinfo=UTC)
        case inspect.CustomType(cls=cls) if cls is Resources:
            return Resources(cpu=1500 + seed, memory=(4 << 30) + seed, scalars=[("gpu", seed + 1)])
        case inspect.CustomType(cls=cls) if cls is FieldsV1:
            return FieldsV1(f'{{"f:key-{seed}":{{}}}}')
    raise AssertionError(f"no example for {info}")


def _named(kind: str, spec: Any, *, name: str, namespace: str = "") -> Record:
    record: type[Any] = _RECORDS[kind]
    made: Record = record(metadata=Metadata(name=name, namespace=namespace), spec=spec)
    return made


_RECORDS: dict[str, type[Any]] = {
    name: value
    for module in (access, capacity, intent, ledger, policy, quota, recovery, repair, work)
    for name, value in vars(module).items()
    if isinstance(value, type) and issubclass(value, msgspec.Struct) and "metadata" in value.__struct_fields__
}

SLOT = SlotRef(workload="api", uid="uid-api", index=3)
TOKEN = Token(1, 1, 1)
SMALL = Resources(cpu=500, memory=1 << 30)


def workload(**spec: Any) -> intent.Workload:
    base = intent.WorkloadSpec(
        replicas=3,
        template=intent.Template(command=("/bin/api",)),
        resources=intent.ResourceSpec(requests=SMALL),
    )
    return intent.Workload(metadata=Metadata(name="api", namespace="risk"), spec=replace(base, **spec))


def valid() -> dict[str, Record]:
    """One object of each kind with nothing wrong, by kind."""
    risk = {"namespace": "risk"}
    rows = [
        _named("Tenant", intent.TenantSpec(), name="risk"),
        _named("Quota", intent.QuotaSpec(limits=SMALL), name="default", **risk),
        _named("Autoscaler", intent.AutoscalerSpec(workload="api", max_replicas=9), name="api", **risk),
        _named("Region", intent.RegionSpec(areas=("eu",), zones=("a", "b")), name="eu-west"),
        workload(),
        _named("Config", intent.ConfigSpec(data={"colour": "blue"}), name="app", **risk),
        _named("Secret", intent.SecretSpec(data={"key": "hush"}), name="app", **risk),
        _named("SchedulerPolicy", policy.SchedulerPolicySpec(revision=7), name="r7"),
        _named("PolicyChannel", policy.PolicyChannelSpec(current=7), name="default"),
        _named("Override", _override(), name="flood", **risk),
        _named("RecoveryBudget", capacity.RecoveryBudgetSpec(regions=("eu-west",)), name="eu-critical", **risk),
        _named("Holding", _holding(), name="eu-critical.eu-west", **risk),
        _named("RecoveryOrder", _order(), name="api", **risk),
        _named("RegionOutlook", recovery.RegionOutlookSpec(region="eu-west", ready=2), name="eu-west"),
        _named("Repair", repair.RepairSpec(problem="OverQuota", regarding="quotas/risk/default"), name="overquota-1"),
        _named("Grant", capacity.GrantSpec(region="eu-west", version=1, during=SMALL), name="risk", **risk),
        _named("GrantTerm", quota.GrantTermSpec(region="eu-west", answered=3, floors={"risk": 2}), name="eu-west"),
        _named("Assignment", _assignment(), name="api", **risk),
        _named("Revision", _revision(), name="api.g3", **risk),
        _named("EvictionRequest", work.EvictionRequestSpec(slot=SLOT, reason="drain"), name="api-3", **risk),
        _named("Node", capacity.NodeSpec(region="eu-west", zone="a", allocatable=SMALL), name="node-1.eu-west"),
        _named("NodePool", capacity.NodePoolSpec(max_nodes=3), name="general"),
        _named("SchedulingRequest", _request(), name="api-3", **risk),
        _named("Reservation", capacity.ReservationSpec(node="node-1", requests=SMALL), name="api-3", **risk),
        _named("Binding", work.BindingSpec(slot=SLOT, node="node-1", token=TOKEN), name="api-3", **risk),
        _named("Instance", work.InstanceSpec(node="node-1", token=TOKEN), name="api-3", **risk),
        _named("Endpoints", _endpoints(), name="api", **risk),
        _named("AccessRole", access.AccessRoleSpec(rules=(_rule(),)), name="deployer"),
        _named("AccessBinding", _access_binding(), name="ci-deploys"),
        _named("ServiceAccount", access.ServiceAccountSpec(description="the pipeline"), name="ci", **risk),
        _named("Token", _token(), name="a1b2c3d4", **risk),
        _named("Lease", ledger.LeaseSpec(), name="scheduler"),
        _named("Event", ledger.EventSpec(regarding="workloads/risk/api", reason="Bound"), name="api.1", **risk),
        _named("Decision", ledger.DecisionSpec(slot="api-3", outcome="Bound"), name="api-3.1", **risk),
        _named("Plane", ledger.PlaneSpec(), name="plane"),
    ]
    return {type(row).__name__: row for row in rows}


def _rule() -> access.AccessRule:
    return access.AccessRule(verbs=("get", "update"), kinds=("workloads", "workloads/scale"))


def _access_binding() -> access.AccessBindingSpec:
    return access.AccessBindingSpec(role="deployer", subjects=(_service(),), tenants=("risk",))


def _service() -> access.Subject:
    return access.Subject(kind="ServiceAccount", name="ci", tenant="risk")


def _token() -> access.TokenSpec:
    expiry = datetime(2027, 1, 1, tzinfo=UTC)
    return access.TokenSpec(hash="sha256:" + "0" * 64, subject=_service(), expiry_time=expiry)


def _override() -> policy.OverrideSpec:
    scope = policy.OverrideScope(zones=("a",))
    return policy.OverrideSpec(kind="zone-avoidance", reason="water in the hall", ttl_seconds=3600, scope=scope)


def _revision() -> work.RevisionSpec:
    return work.RevisionSpec(workload="api", workload_uid="u-1", generation=3, ask=work.Ask(requests=SMALL))


def _assignment() -> work.AssignmentSpec:
    spans = (work.SlotRange(first=0, last=4), work.SlotRange(first=5, last=5, epoch=2))
    return work.AssignmentSpec(workload="api", workload_uid="uid-api", generation=1, region="eu-west", slots=spans)


def _request() -> work.SchedulingRequestSpec:
    return work.SchedulingRequestSpec(slot=SLOT, ask=work.Ask(requests=SMALL))


def _holding() -> capacity.HoldingSpec:
    return capacity.HoldingSpec(budget="eu-critical", budget_uid="u-2", region="eu-west")


def _order() -> recovery.RecoveryOrderSpec:
    return recovery.RecoveryOrderSpec(workload="api", workload_uid="u-1", regions={"eu-west": 2}, lost=("us-east",))


def _endpoints() -> work.EndpointsSpec:
    return work.EndpointsSpec(endpoints=(work.Endpoint(slot=3, node="node-1", address="10.0.0.1", ports={"http": 8080}),))
