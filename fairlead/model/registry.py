"""Every kind and every side effect as data: who owns it, what is authoritative, how it is cleaned up, by when, and which test
shows it. docs/reference/objects.md is generated from KINDS; tests/model/test_registry.py fails on a kind or effect not listed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple, get_type_hints

from fairlead.model.kinds import access, capacity, intent, ledger, policy, quota, recovery, repair, work
from fairlead.model.lifecycle import Role

GLOBAL: Final = "global"
REGION: Final = "region"

_PEOPLE: Final = frozenset({Role.USER, Role.OPERATOR, Role.BREAK_GLASS})
_OPERATORS: Final = frozenset({Role.OPERATOR, Role.BREAK_GLASS})


class KindInfo(NamedTuple):
    kind: str
    plural: str
    record: type[Any]
    planes: frozenset[str]
    spec_owners: frozenset[Role]
    status_owners: frozenset[Role]
    clean_up: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    finalizers: tuple[str, ...] = ()
    immutable: bool = False
    # Too many to keep decoded: memory holds the encoded bytes and a few hot fields (P17).
    many: bool = False
    # Written only by commands of their own (bind, report, lease), never by a plain put.
    commands_only: bool = False

    @property
    def spec_fields(self) -> tuple[str, ...]:
        return tuple(_part_of(self.record, "spec").__struct_encode_fields__)

    @property
    def status_fields(self) -> tuple[str, ...]:
        return tuple(self.status_record.__struct_encode_fields__)

    @property
    def status_record(self) -> type[Any]:
        return _part_of(self.record, "status")


def _part_of(record: type[Any], part: str) -> type[Any]:
    found: type[Any] = _hints_of(record)[part]  # type: ignore[arg-type]  # classes are hashable
    return found


@cache  # reading them costs a third of a millisecond, and every change of a status asks
def _hints_of(record: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(record)


def _access_kinds(both: frozenset[str]) -> list[KindInfo]:
    return [
        KindInfo("AccessRole", "accessroles", access.AccessRole, both, _OPERATORS | {Role.MIRROR}, frozenset(),
                 "by an operator; bindings to it then give nothing", namespaced=False),
        KindInfo("AccessBinding", "accessbindings", access.AccessBinding, both, _OPERATORS | {Role.MIRROR}, frozenset(),
                 "by an operator; effective at once", namespaced=False),
        KindInfo("ServiceAccount", "serviceaccounts", access.ServiceAccount, both, _PEOPLE | {Role.MIRROR}, frozenset(),
                 "by whoever made it; its tokens are refused from then on", short_names=("sa",)),
        KindInfo("Token", "tokens", access.Token, both, _PEOPLE | {Role.MIRROR}, frozenset({Role.OPERATOR}),
                 "by whoever made it; expired ones are refused, and may be deleted"),
    ]  # fmt: skip


def _scaled_kinds(glo: frozenset[str], reg: frozenset[str]) -> list[KindInfo]:
    return [
        KindInfo("Autoscaler", "autoscalers", intent.Autoscaler, glo, _PEOPLE, frozenset({Role.AUTOSCALER}),
                 "by whoever made it; the workload keeps its replicas"),
        KindInfo("NodePool", "nodepools", capacity.NodePool, reg, _OPERATORS, frozenset({Role.AUTOSCALER}),
                 "deletion is refused while nodes are in it: drain, then deregister", namespaced=False),
    ]  # fmt: skip


def _quota_kinds(glo: frozenset[str], both: frozenset[str]) -> list[KindInfo]:
    r = Role
    return [
        KindInfo("Tenant", "tenants", intent.Tenant, both, _OPERATORS | {r.MIRROR}, frozenset({r.QUOTA}),
                 "deletion is refused while anything is charged to it, or is left that people made in it", namespaced=False),
        KindInfo("Quota", "quotas", intent.Quota, glo, _OPERATORS, frozenset({r.QUOTA}),
                 "deletion is refused while a grant is exposed"),
        KindInfo("Grant", "grants", capacity.Grant, both, _OPERATORS | {r.QUOTA, r.MIRROR},
                 frozenset({r.AUTHORITY, r.QUOTA, r.MIRROR}),
                 "expiry or return"),
        KindInfo("GrantTerm", "grantterms", quota.GrantTerm, both, frozenset({r.QUOTA, r.MIRROR}), frozenset({r.QUOTA, r.MIRROR}),
                 "with its region", namespaced=False),
    ]  # fmt: skip


def _recovery_kinds(glo: frozenset[str], both: frozenset[str]) -> list[KindInfo]:
    r = Role
    return [
        KindInfo("RecoveryBudget", "recoverybudgets", capacity.RecoveryBudget, glo, _OPERATORS, frozenset({r.RECOVERY}),
                 "expiry; its rooms are given up with it"),
        KindInfo("RecoveryOrder", "recoveryorders", recovery.RecoveryOrder, glo, frozenset({r.RECOVERY}), frozenset({r.RECOVERY}),
                 "when the workload is well without it"),
        KindInfo("RegionOutlook", "regionoutlooks", recovery.RegionOutlook, glo, frozenset({r.RECOVERY}),
                 frozenset({r.RECOVERY}), "with its region", namespaced=False),
        KindInfo("Holding", "holdings", capacity.Holding, both, frozenset({r.RECOVERY, r.MIRROR}),
                 frozenset({r.RECOVERY, r.MIRROR}), "with its budget"),
    ]  # fmt: skip


def _repair_kind(both: frozenset[str]) -> KindInfo:
    mends = frozenset({Role.REPAIR})
    return KindInfo("Repair", "repairs", repair.Repair, both, mends, mends, "an hour after it was mended", namespaced=False)


def _kinds() -> dict[str, KindInfo]:
    glo, reg, both = frozenset({GLOBAL}), frozenset({REGION}), frozenset({GLOBAL, REGION})
    r = Role
    rows = [
        KindInfo("Region", "regions", intent.Region, both, _OPERATORS | {r.MIRROR}, frozenset({r.REGION_HEALTH}),
                 "by an operator: when nothing is ordered or left there, or when it is lost and written off", namespaced=False),
        *_scaled_kinds(glo, reg),
        KindInfo("Workload", "workloads", intent.Workload, both, _PEOPLE | {r.AUTOSCALER}, frozenset({r.WORKLOAD}),
                 "finalizer until all slots are released", short_names=("wl",),
                 finalizers=("fairlead.dev/slots-released",)),
        KindInfo("Config", "configs", intent.Config, both, _PEOPLE | {r.MIRROR}, frozenset(),
                 "by whoever made it; instances keep what they were given"),
        KindInfo("Secret", "secrets", intent.Secret, both, _PEOPLE | {r.MIRROR}, frozenset(),
                 "by whoever made it; instances keep what they were given"),
        KindInfo("SchedulerPolicy", "schedulerpolicies", policy.SchedulerPolicy, both, _OPERATORS | {r.MIRROR},
                 frozenset({r.POLICY}), "retired when no channel and no binding names it", namespaced=False, immutable=True),
        KindInfo("PolicyChannel", "policychannels", policy.PolicyChannel, both, _OPERATORS | {r.POLICY, r.MIRROR},
                 frozenset({r.POLICY}), "never: one a plane", namespaced=False),
        KindInfo("Override", "overrides", policy.Override, both, _OPERATORS | {r.MIRROR}, frozenset({r.OVERRIDE}),
                 "expires by itself and undoes its effect", finalizers=("fairlead.dev/override-undone",)),
        KindInfo("Assignment", "assignments", work.Assignment, both, frozenset({r.WORKLOAD, r.RECOVERY, r.MIRROR}),
                 frozenset({r.ASSIGNMENT, r.JOB, r.MIRROR}), "slots released", finalizers=("fairlead.dev/region-released",)),
        KindInfo("Revision", "revisions", work.Revision, both, frozenset({r.WORKLOAD, r.MIRROR}), frozenset({r.WORKLOAD}),
                 "when no slot runs it and history is full", immutable=True, short_names=("rev",)),
        KindInfo("EvictionRequest", "evictionrequests", work.EvictionRequest, reg,
                 _PEOPLE | {r.ROLLOUT, r.REPAIR, r.AUTOSCALER, r.NODE, r.SCHEDULER, r.JOB, r.DISRUPTION},
                 frozenset({r.DISRUPTION}), "done, refused or expired"),
        KindInfo("Node", "nodes", capacity.Node, reg, _OPERATORS | {r.AGENT, r.AUTOSCALER},
                 frozenset({r.NODE, r.AGENT, r.DISRUPTION}), "drain, then deregister", namespaced=False, short_names=("no",)),
        KindInfo("SchedulingRequest", "schedulingrequests", work.SchedulingRequest, reg,
                 frozenset({r.ASSIGNMENT, r.REPAIR, r.RECOVERY}), frozenset({r.SCHEDULER}), "bound, withdrawn or expired",
                 short_names=("sr",)),
        KindInfo("Reservation", "reservations", capacity.Reservation, reg, frozenset({r.SCHEDULER}),
                 frozenset({r.AUTHORITY}), "bind, release, or repair at expiry", commands_only=True),
        KindInfo("Binding", "bindings", work.Binding, reg, frozenset({r.SCHEDULER}), frozenset({r.AUTHORITY}),
                 "release after stop or fence", many=True, commands_only=True),
        KindInfo("Instance", "instances", work.Instance, reg, frozenset({r.AGENT}), frozenset({r.AGENT}),
                 "with its binding", many=True, commands_only=True),
        KindInfo("Endpoints", "endpoints", work.Endpoints, reg, frozenset({r.ROLLOUT}), frozenset({r.ROLLOUT}),
                 "with its workload", short_names=("ep",)),
        KindInfo("Lease", "leases", ledger.Lease, both, frozenset(Role) - _PEOPLE, frozenset(), "expiry",
                 namespaced=False, commands_only=True),
        KindInfo("Event", "events", ledger.Event, both, frozenset(Role) - {r.USER}, frozenset(), "retention, 30 days",
                 many=True, short_names=("ev",)),
        KindInfo("Decision", "decisions", ledger.Decision, both, frozenset({r.SCHEDULER}), frozenset(),
                 "retention, 30 days", many=True),
        KindInfo("Plane", "planes", ledger.Plane, both, frozenset({r.AUTHORITY}), frozenset({r.AUTHORITY}),
                 "never: one a plane", namespaced=False, commands_only=True),
        *_access_kinds(both),
        *_quota_kinds(glo, both),
        *_recovery_kinds(glo, both),
        _repair_kind(both),
    ]  # fmt: skip
    return {row.plural: row for row in rows}


KINDS: Final = _kinds()
BY_KIND: Final = {info.kind: info for info in KINDS.values()}


class SideEffect(NamedTuple):
    """Something the control plane leaves in the world. Nothing unsafe without an owner, a deadline and a repair."""

    name: str
    repair: str
    owner: Role
    deadline_s: float
    test: str  # the test that shows the repair; tests/model/test_registry.py checks that it exists once it is built


PLANNED: Final = "planned"  # The capability that makes this effect does not exist yet, so nothing can leak.

SIDE_EFFECTS: Final = (
    SideEffect("reservation", "released by the authority at expiry; swept by repair", Role.REPAIR, 90.0,
               "tests/authority/test_reservations.py::test_an_expired_reservation_is_ended_by_the_authority_exactly_once"),
    SideEffect("binding", "released by repair once its node is lost and its fence time has passed", Role.REPAIR, 90.0,
               "tests/authority/test_slots.py::test_repair_releases_an_unknown_slot_only_after_its_fence_time"),
    SideEffect("process", "the agent stops it on contact, or by itself before its fence time", Role.AGENT, 60.0,
               "tests/agent/test_agent_contact.py::test_a_returning_node_stops_what_was_superseded_before_it_takes_work"),
    SideEffect("port", "freed with the process", Role.AGENT, 60.0,
               "tests/agent/test_real.py::test_ports_come_from_the_range_and_are_free_again_afterwards"),
    SideEffect("endpoint", "withdrawn when readiness is lost", Role.ROLLOUT, 35.0,
               "tests/controllers/test_region.py::test_a_slot_that_loses_readiness_gets_no_traffic_until_it_is_ready_again"),
    SideEffect("grant", "expires with its lease; what is above what stays is stopped by the authority", Role.QUOTA, 600.0,
               "tests/controllers/test_quota.py::test_a_region_that_is_cut_off_places_what_its_class_allows_and_gives_back_in_time"),
    SideEffect("standing reservation", "returned when its budget is gone; swept by repair", Role.REPAIR, 90.0,
               "tests/decide/test_leftovers.py::test_a_room_leaks_when_its_budget_is_gone_and_never_by_time"),
    SideEffect("cordon", "an override with a deadline, or an operator's choice shown in `get nodes`", Role.OPERATOR, 14400.0,
               "tests/cli/test_real_door.py::test_nodes_of_two_regions_are_listed_cordoned_and_chosen_by_region"),
    SideEffect("scaled-up node", "scaled down after its cool-down", Role.AUTOSCALER, 3600.0,
               "tests/controllers/test_node_pool.py::"
               "test_a_scaled_up_node_is_scaled_down_after_its_cool_down_when_it_is_empty"),
    SideEffect("canary", "rolled back at its deadline", Role.POLICY, 14400.0,
               "tests/controllers/test_overrides.py::test_a_canary_is_rolled_back_at_its_deadline_by_the_policy_controller"),
    SideEffect("override", "without effect from its expiry on; undone by its finalizer", Role.OVERRIDE, 14400.0,
               "tests/authority/test_overrides.py::"
               "test_an_override_has_no_effect_from_its_expiry_on_though_nobody_cleaned_up"),
)  # fmt: skip


class Finalizer(NamedTuple):
    """A registered finalizer: who removes it, and after how long its absence of progress is escalated."""

    name: str
    owner: Role
    deadline_s: float


FINALIZERS: Final = {
    f.name: f
    for f in (
        Finalizer("fairlead.dev/slots-released", Role.WORKLOAD, 900.0),
        Finalizer("fairlead.dev/region-released", Role.MIRROR, 900.0),
        Finalizer("fairlead.dev/override-undone", Role.OVERRIDE, 60.0),
        Finalizer("foregroundDeletion", Role.GARBAGE, 600.0),
        Finalizer("orphan", Role.GARBAGE, 600.0),
    )
}
