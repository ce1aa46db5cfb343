"""S10, S17, L1: each checker finds what it is for in a history made by hand, and nothing where all is well."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from typing import Any, Literal

from msgspec.structs import replace

from fairlead.model.ids import Uid
from fairlead.model.kinds.capacity import Grant, GrantSpec, Node, NodeSpec, NodeStatus, Reservation, ReservationSpec
from fairlead.model.kinds.intent import Workload, WorkloadSpec
from fairlead.model.kinds.slot import SlotRef, Token
from fairlead.model.kinds.work import (
    Ask,
    Assignment,
    AssignmentSpec,
    Binding,
    BindingSpec,
    Marks,
    SchedulingRequest,
    SchedulingRequestSpec,
)
from fairlead.model.meta import Metadata
from fairlead.model.resources import NOTHING, Resources
from fairlead.observe.leftovers import LeftoverChecker
from fairlead.observe.reads import ReadChecker
from fairlead.observe.waiting import WaitingChecker, room_for

Objects = dict[str, dict[tuple[str, str], Any]]


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, tz=UTC)


# --- S10 -----------------------------------------------------------------------------------------------------------------------


def leftovers(objects: Objects, *moments_s: int) -> list[str]:
    found: list[str] = []
    checker = LeftoverChecker(
        defaultdict(dict, objects), lambda invariant, detail: found.append(f"{invariant} {detail}"), defaultdict(int)
    )
    for moment_s in moments_s:
        checker.batch_ended(moment_s * 1000)
    return found


def reserved(expiry_s: float | None, budget: str = "") -> Objects:
    spec = ReservationSpec(node="n1", requests=NOTHING, expiry_time=at(expiry_s) if expiry_s is not None else None, budget=budget)
    return {"reservations": {("risk", "r"): Reservation(Metadata(name="r", namespace="risk", uid=Uid("u")), spec)}}


def test_a_reservation_that_outlives_its_expiry_by_more_than_90_seconds_is_found_once() -> None:
    assert leftovers(reserved(100), *range(100, 260, 5)) == ["S10 reservation risk/r has had no owner for 95 s"]
    assert not leftovers(reserved(100), *range(100, 190, 5))
    assert leftovers(reserved(None), *range(0, 900, 5)), "a slot's own has an expiry"
    assert not leftovers(reserved(100, "lost-region"), *range(100, 400, 5)), "one of a budget is held on purpose"


def test_time_in_which_nobody_could_write_does_not_count() -> None:
    assert not leftovers(reserved(100), 100, 105, 400, 405, 410)
    assert leftovers(reserved(100), 100, *range(400, 500, 5))


def going(assigned: bool, deleted: bool = True) -> Objects:
    meta = Metadata(name="api", namespace="risk", uid=Uid("w1"), deletion_time=at(1) if deleted else None, finalizers=("f",))
    spec = AssignmentSpec(workload="api", workload_uid="w1", generation=1, region="us")
    left = {("risk", "api-us"): Assignment(Metadata(name="api-us", namespace="risk"), spec)} if assigned else {}
    return {"workloads": {("risk", "api"): Workload(meta, WorkloadSpec())}, "assignments": left}


def test_a_finalizer_that_nothing_waits_for_is_found() -> None:
    assert leftovers(going(assigned=False), *range(10, 120, 5)) == [
        "S10 a finalizer of workload risk/api has had no owner for 95 s"
    ]
    assert not leftovers(going(assigned=True), *range(10, 300, 5)), "a region has something of it still"
    assert not leftovers(going(assigned=False, deleted=False), *range(10, 300, 5))


# --- S17 -----------------------------------------------------------------------------------------------------------------------


def shown(plural: str, answer: dict[str, Any]) -> list[str]:
    found: list[str] = []
    ReadChecker(lambda invariant, detail: found.append(f"{invariant} {detail}")).answered("ada", ("risk",), plural, answer)
    return found


def one(tenant: str, name: str = "api") -> dict[str, Any]:
    return {"kind": "Workload", "metadata": {"namespace": tenant, "name": name}}


def test_an_object_of_another_tenant_in_an_answer_is_found_however_it_came() -> None:
    assert shown("workloads", {"items": [one("risk"), one("search")]}) == ["S17 ada of ['risk'] was shown workloads search/api"]
    assert shown("workloads", one("search"))
    assert shown("workloads", one("risk-2")), "a name that begins alike is another tenant"
    assert shown("workloads", {"type": "ADDED", "object": one("search")})
    assert shown("tenants", one("", "search"))
    assert shown("nodes", one("", "n1")), "what belongs to no tenant is not for everybody"


def test_what_is_his_own_or_everybodys_is_right() -> None:
    assert not shown("workloads", {"items": [one("risk")]})
    assert not shown("workloads", {"items": None})
    assert not shown("tenants", one("", "risk"))
    assert not shown("regions", {"items": [one("", "us-east")]})
    assert not shown("workloads", {"kind": "Status", "metadata": {}})


# --- L1 ------------------------------------------------------------------------------------------------------------------------


def region(*, room: int = 1000, granted: int = 10_000, used: int = 0, **node: Any) -> Objects:
    spec = NodeSpec(region="us", allocatable=Resources(room, 1 << 30), max_slots=2, unschedulable=node.get("cordoned", False))
    status = NodeStatus(schedulable=True, health=node.get("health", "Ready"))
    limit = Resources(granted, 1 << 40)
    slot = SlotRef(uid="w1", workload="api", index=0)
    wants = SchedulingRequestSpec(slot=slot, ask=Ask(requests=Resources(500, 1)))
    objects: Objects = {
        "nodes": {("", "n1"): Node(Metadata(name="n1"), spec, status)},
        "grants": {("risk", "us"): Grant(Metadata(name="us", namespace="risk"), GrantSpec("us", 1, limit, limit))},
        "schedulingrequests": {("risk", "api-0"): SchedulingRequest(Metadata(name="api-0", namespace="risk"), wants)},
    }
    if used:
        bound = BindingSpec(slot=slot, node="n1", token=Token(1, 1, 1), requests=Resources(used, 1))
        objects["bindings"] = {("risk", "other-0"): Binding(Metadata(name="other-0", namespace="risk"), bound)}
    return objects


def waited(objects: Objects, *seconds: float) -> list[str]:
    checker = WaitingChecker()
    return [detail for now in seconds for detail in checker.look(now, "us", objects, 1, 0)]


def test_work_that_waits_beyond_its_bound_while_a_node_has_room_is_found() -> None:
    assert waited(region(), 0, 10, 31) == ["risk/api-0 in us has waited 31 s, and n1 has room for it"]
    assert not waited(region(), 0, 10, 29)


def test_work_that_has_no_place_to_go_waits_rightly() -> None:
    (request,) = region()["schedulingrequests"].values()
    for objects in (region(room=400), region(used=600), region(granted=400), region(cordoned=True), region(health="Lost")):
        assert room_for(request, objects, 1, 0) == ""
        assert not waited(objects, 0, 40)
    assert room_for(request, region(used=500), 1, 0) == "n1"


def beside(tenant: str, isolation: Literal["Shared", "TenantExclusive"]) -> Objects:
    objects = region()
    marks = Marks(isolation=isolation)
    bound = BindingSpec(slot=SlotRef(uid="w2", workload="x", index=0), node="n1", token=Token(1, 1, 1), marks=marks)
    objects["bindings"] = {(tenant, "x-0"): Binding(Metadata(name="x-0", namespace=tenant), bound)}
    return objects


def test_a_node_where_another_tenant_is_by_itself_is_no_place_to_go() -> None:
    (shared,) = region()["schedulingrequests"].values()
    alone = replace(shared, spec=replace(shared.spec, ask=replace(shared.spec.ask, isolation="TenantExclusive")))
    assert room_for(shared, beside("search", "TenantExclusive"), 1, 0) == ""
    assert room_for(shared, beside("search", "Shared"), 1, 0) == "n1"
    assert room_for(alone, beside("search", "Shared"), 1, 0) == ""
    assert room_for(alone, beside("risk", "TenantExclusive"), 1, 0) == "n1"
