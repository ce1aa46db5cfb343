"""L6: what is there and has no reason to be, of any kind, is said; and so is what is being deleted still."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from fairlead.model.kinds.capacity import Holding, HoldingSpec, RecoveryBudget
from fairlead.model.kinds.intent import Tenant, TenantSpec, Workload
from fairlead.model.kinds.policy import Override, OverrideSpec
from fairlead.model.kinds.slot import Token
from fairlead.model.kinds.work import Assignment, AssignmentSpec, Endpoints, EndpointsSpec, Instance, InstanceSpec
from fairlead.observe.agreement import differences
from fairlead.observe.differing import Difference
from fairlead.observe.intervals import Interval
from fairlead.observe.orphans import BOUND_S, OrphanChecker, orphans
from tests.observe.forging import TOKEN, binding, named, node, reservation

NOW = datetime(2026, 1, 1, tzinfo=UTC)
Table = dict[str, dict[tuple[str, str], Any]]


def table(**kinds: Any) -> Table:
    """Of each plural one object, or several."""
    several = {plural: one if isinstance(one, list) else [one] for plural, one in kinds.items()}
    return {plural: {(one.metadata.namespace, one.metadata.name): one for one in objects} for plural, objects in several.items()}


def told(top: Table, region: Table, *, lost: bool = False) -> list[str]:
    return [one.detail for one in orphans(top, {"r": region}, lost=lost)]


def going(one: Any) -> Any:
    return replace(one, metadata=replace(one.metadata, deletion_time=NOW, finalizers=("x",)))


API = Workload(named("api", "risk", "u"))
ORDER = Assignment(named("api.r", "risk"), AssignmentSpec(workload="api", workload_uid="u", region="r", generation=1))
RUNS = Instance(named("api-0", "risk"), InstanceSpec(node="n1", token=TOKEN))
HOLDING = Holding(named("b.r", "risk"), HoldingSpec(budget="b", budget_uid="b", region="r"))


def test_what_has_its_reason_is_no_orphan() -> None:
    top = table(workloads=API, assignments=ORDER, recoverybudgets=RecoveryBudget(named("b", "risk")), holdings=HOLDING)
    region = table(
        assignments=ORDER, bindings=binding()[1], instances=RUNS, holdings=HOLDING, reservations=reservation(1, budget="b")[1],
        endpoints=Endpoints(named("api", "risk"), EndpointsSpec(workload_uid="u")), nodes=node("n1")[1],
    )  # fmt: skip
    assert told(top, region) == []


def test_whatever_is_being_deleted_still_is_said_of_any_kind() -> None:
    top, region = table(tenants=going(Tenant(named("risk"), TenantSpec()))), table(nodes=going(node("n1")[1]))
    assert told(top, region) == [
        "tenants /risk in global is being deleted still, and waits for x",
        "nodes /n1 in r is being deleted still, and waits for x",
    ]
    assert len(differences(top, {"r": region}, [])) == 2, "which is what L4 asks"
    assert len(told(top, region, lost=True)) == 1, "what waits for a region that is lost is not asked for above"


def test_an_emergency_quota_goes_when_what_it_allowed_is_gone() -> None:
    spec = OverrideSpec(kind="emergency-quota", requester="ada", reason="x", ttl_seconds=60)
    assert told({}, table(overrides=going(Override(named("o", "risk"), spec)))) == []
    assert len(told({}, table(overrides=going(Override(named("o", "risk"), replace(spec, kind="freeze")))))) == 1


def test_an_instance_without_its_binding_is_said() -> None:
    workloads = table(workloads=API)
    assert told(workloads, table(instances=RUNS)) == ["instance risk/api-0 in r is on n1 and has no binding there"]
    another = replace(RUNS, spec=InstanceSpec(node="n1", token=Token(1, 2, 1)))
    assert len(told(workloads, table(instances=another, bindings=binding()[1]))) == 1, "of an earlier life"


def test_orders_and_endpoints_of_no_workload_are_said() -> None:
    ends = Endpoints(named("api", "risk"), EndpointsSpec(workload_uid="u"))
    assert told(table(assignments=ORDER), table(assignments=ORDER, endpoints=ends)) == [
        "assignments risk/api.r in global is of no workload",
        "assignments risk/api.r in r is of no workload",
        "endpoints risk/api in r is of no workload",
    ]


def test_a_room_that_is_held_for_no_budget_is_said() -> None:
    assert told({}, table(reservations=reservation(1, budget="b")[1])) == [
        "risk/api-1 in r is held for b, which holds nothing here"
    ]
    assert told(table(holdings=HOLDING), {}) == ["risk/b.r is a part of b, which is no budget"]


def test_an_orphan_that_is_there_for_longer_than_its_bound_is_found_and_the_next_of_its_name_is_another() -> None:
    def found(uid: str, *finalizers: str) -> list[Difference]:
        one = going(Tenant(named("risk", uid=uid), TenantSpec()))
        top = table(tenants=replace(one, metadata=replace(one.metadata, finalizers=finalizers)))
        return orphans(top, {})

    checker = OrphanChecker()
    assert checker.look(0.0, found("a", "x", "y")) == []
    assert checker.look(BOUND_S, found("a", "x")) == []
    (said,) = checker.look(BOUND_S + 1, found("a", "x"))
    assert "tenants /risk in global is being deleted still" in said
    assert checker.look(BOUND_S + 2, found("b", "x")) == []
    assert checker.look(BOUND_S + 3, []) == []
    assert checker.look(3 * BOUND_S, found("b", "x")) == [], "it was gone in between"
    assert checker.checked == 5


def test_whatever_runs_or_is_held_and_nobody_wants_is_an_orphan() -> None:
    run = Interval("risk", "api-1", TOKEN, "r/n1", 0.0)
    region = table(bindings=binding()[1], reservations=reservation(1)[1], nodes=node("n1")[1])
    found = differences({}, {"r": region}, [run])
    assert all(one.orphan for one in found)
    assert len(found) == 4, "what is bound for nobody and does not run, what runs unbound, what is reserved"
