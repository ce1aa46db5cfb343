"""What nobody looks after any more: each kind of leftover told from the objects of one look. Pure; nothing here acts.

`fairlead/decide/repairs.py` says what is done about a finding; the authority judges every step of it again on the present state.
Used by fairlead/controllers/leftovers.py, which reads the lists.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from msgspec.structs import replace

from fairlead.decide.escrow import within
from fairlead.decide.granting import EMERGENCY_DRAIN_MS, in_force, is_confirmed
from fairlead.decide.grants import limits_of
from fairlead.decide.overrides import ends_ms
from fairlead.decide.repairs import Finding
from fairlead.decide.slots import millis
from fairlead.model.commands import Delete, Put, ReleaseReservation
from fairlead.model.ids import key
from fairlead.model.kinds.capacity import Grant, Reservation
from fairlead.model.kinds.intent import Quota, Workload
from fairlead.model.kinds.policy import Override
from fairlead.model.kinds.quota import GrantTerm
from fairlead.model.kinds.repair import Problem
from fairlead.model.lifecycle import HOLDS_CAPACITY, Role, SlotState
from fairlead.model.registry import FINALIZERS, KINDS

LATE_MS: Final = 10_000  # the authority ends reservations within a second, and tries again after five
ALLOWED_S: Final = 90.0  # S10: nothing without an owner is older than this
BARE_MS: Final = 30_000  # a finalizer whose work is done is its owner's for this long
OVER_S: Final = EMERGENCY_DRAIN_MS / 1000  # as long as use above a lowered limit may last
SLOTS: Final = "fairlead.dev/slots-released"
UNDONE: Final = "fairlead.dev/override-undone"
RELEASED: Final = "fairlead.dev/region-released"
OF_SLOTS: Final[frozenset[Problem]] = frozenset({"OrphanedBinding", "StuckSlot", "OrphanedInstance"})  # as `told_of_slots` has it


class Row(Protocol):
    """Of a list."""

    @property
    def tenant(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def hot(self) -> Any: ...


class Drift(NamedTuple):
    """The authority's ledger says one thing of a node or tenant, the sum of its objects another."""

    regarding: str
    detail: str


def leaked_reservations(reservations: Iterable[Reservation], holdings: Collection[tuple[str, str]], now_ms: int) -> list[Finding]:
    """Those that ran out and are still there, and rooms whose budget is gone. `holdings`: (tenant, budget) of those there are."""
    out = []
    for each in reservations:
        meta, spec = each.metadata, each.spec
        if spec.token is None:
            continue
        if spec.budget:
            if (meta.namespace, spec.budget) in holdings:
                continue
            why = f"budget {spec.budget}, which it is held for, is gone"
        elif spec.expiry_time is not None and now_ms >= millis(spec.expiry_time) + LATE_MS:
            why = f"it ran out {(now_ms - millis(spec.expiry_time)) // 1000} s ago"
        else:
            continue
        fix = ReleaseReservation(meta.namespace, meta.name, spec.token)
        regarding = key("reservations", meta.namespace, meta.name)
        workload = spec.slot.workload if spec.slot is not None else ""
        out.append(Finding("LeakedReservation", regarding, meta.uid, Role.REPAIR, ALLOWED_S, f"on {spec.node}: {why}", fix,
                           workload=workload))  # fmt: skip
    return out


def stale_finalizers(
    plural: str, objects: Iterable[Any], owned: Collection[str], now_ms: int, bare_ms: int = BARE_MS
) -> list[Finding]:
    """Finalizers of objects that are going: those whose work is proven done are taken off; those that are merely late wait for
    their owner, and are told. `owned`: uids of workloads of which some region still has an Assignment."""
    out = []
    for each in objects:
        meta = each.metadata
        going_ms = now_ms - millis(meta.deletion_time)
        over_ms = now_ms - ends_ms(each) if isinstance(each, Override) else 0
        if meta.deletion_time is None and over_ms <= 0:
            continue
        for name in meta.finalizers:
            known = FINALIZERS.get(name)
            if known is None:
                continue
            since_ms = going_ms if meta.deletion_time is not None else over_ms
            done = _is_done(name, each, owned)
            if since_ms < (bare_ms if done else known.deadline_s * 1000):
                continue
            left = tuple(f for f in meta.finalizers if f != name)
            fix = Put(KINDS[plural].kind, replace(each, metadata=replace(meta, finalizers=left))) if done else None
            problem, why = ("ExpiredOverride", "it ended") if name == UNDONE else ("StaleFinalizer", "it is being deleted")
            told = f"{name} is still on it {since_ms // 1000} s after {why}" + (
                "; nothing is left that it waits for" if done else ""
            )
            workload = meta.name if plural == "workloads" else str(getattr(each.spec, "workload", ""))
            out.append(Finding(problem, key(plural, meta.namespace, meta.name), meta.uid, known.owner,  # type: ignore[arg-type]
                               ALLOWED_S if done else 0.0, told, fix, workload=workload))  # fmt: skip
    return out


def _is_done(finalizer: str, each: Any, owned: Collection[str]) -> bool:
    """Whether what the finalizer waits for has happened for certain. Of an Assignment nobody but its region can say that."""
    match finalizer:
        case "fairlead.dev/slots-released":
            return isinstance(each, Workload) and each.metadata.uid not in owned
        case "fairlead.dev/override-undone":
            return True  # an override ends where it is used: there is nothing left to undo
        case _:
            return False


class Slots(NamedTuple):
    """What a look over all slots has found; each is a finding only when the next look finds it again."""

    orphaned: dict[tuple[str, str, str], int]  # (tenant, workload, why) -> slots
    stuck: dict[tuple[str, str, str], int]
    instances: list[tuple[str, str]]


def told_of_slots(slots: Slots, before: Slots | None) -> list[Finding]:
    if before is None:
        return []
    out = []
    for problem, now, then in (("OrphanedBinding", slots.orphaned, before.orphaned), ("StuckSlot", slots.stuck, before.stuck)):
        for (tenant, workload, why), count in sorted(now.items()):
            if (tenant, workload, why) in then:
                evidence = f"{count} slots: {why}"
                out.append(Finding(problem, key("workloads", tenant, workload), "", Role.REPAIR, ALLOWED_S, evidence,  # type: ignore[arg-type]
                                   workload=workload))  # fmt: skip
    again = set(before.instances)
    for tenant, name in sorted(each for each in slots.instances if each in again):
        fix = Delete("Instance", tenant, name)
        out.append(Finding("OrphanedInstance", key("instances", tenant, name), "", Role.REPAIR, ALLOWED_S,
                           "it has no binding; its process, if there is one, is stopped by its agent", fix,
                           workload=name.rpartition("-")[0]))  # fmt: skip
    return out


def why_orphaned(row: Row, assigned: Collection[tuple[str, str]], nodes: Mapping[str, str]) -> tuple[str, str]:
    """(orphaned, stuck): in words, or empty. `nodes`: health by name."""
    hot = row.hot
    if hot.state not in HOLDS_CAPACITY:
        return "", ""
    if hot.node not in nodes:
        return f"node {hot.node} is gone", ""
    if (row.tenant, row.name.rpartition("-")[0]) not in assigned:
        return "no Assignment wants them", ""
    if hot.state is SlotState.FAILED:
        return "", "Failed, and not let go"
    lost = hot.state is SlotState.UNKNOWN and nodes[hot.node] == "Lost"
    return "", "Unknown on a lost node, and not let go" if lost else ""


def over_grants(grants: Iterable[Grant], term: GrantTerm | None, incarnation: int, now_ms: int) -> list[Finding]:
    """Use above what the global plane allows here and now. The authority stops what a lease that ends leaves no room for; a
    grant made by hand has nobody but the operator who made it."""
    out = []
    for grant in grants:
        allowed = in_force(grant, term, incarnation, now_ms)
        used, limits = grant.status.used.amounts(), limits_of(allowed.limit)
        if not allowed.version or not is_confirmed(grant, incarnation) or within(used, limits):
            continue
        end = grant.spec.lease_end_time
        ended_ms = millis(end) if end is not None else allowed.end_ms
        problem: Problem = "ExpiredGrant" if now_ms >= ended_ms else "OverGrant"
        above = ", ".join(f"{name} {n} of {limits.get(name, 0)}" for name, n in sorted(used.items()) if n > limits.get(name, 0))
        owner = Role.QUOTA if grant.spec.lease_seconds else Role.OPERATOR
        regarding = key("grants", grant.metadata.namespace, grant.metadata.name)
        evidence = f"in use above what is allowed here: {above}"
        out.append(Finding(problem, regarding, grant.metadata.uid, owner, OVER_S, evidence))
    return out


def over_quotas(quotas: Iterable[Quota], now_ms: int) -> list[Finding]:
    out = []
    for quota in quotas:
        over = next((c for c in quota.status.conditions if c.type == "OverQuota" and c.status == "True"), None)
        if over is not None:
            left_s = OVER_S - (now_ms - millis(over.last_transition_time)) / 1000
            meta = quota.metadata
            out.append(Finding("OverQuota", key("quotas", meta.namespace, meta.name), meta.uid, Role.QUOTA, max(0.0, left_s),
                               over.message))  # fmt: skip
    return out


def drifted(drifts: Iterable[Drift]) -> list[Finding]:
    return [Finding("DriftedLedger", each.regarding, "", Role.AUTHORITY, ALLOWED_S, each.detail, rebuild=True) for each in drifts]
