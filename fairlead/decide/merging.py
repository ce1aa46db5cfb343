"""What a region decided while it had no word from the global plane, counted once it has one again. Pure; used by the region's
grant controller, and read by people: `fairlead get grantterms -o yaml`.

A report says what was placed apart, what of it stays because it is within what the offers leave, what has ended or is leaving,
what people ordered in the region itself, and of every tenant with something placed what it uses of which offer: within it, or
quota was sold twice. The global plane holds the latter against its own books when the report comes (`checked`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from fairlead.decide import escrow
from fairlead.decide.escrow import Account
from fairlead.decide.granting import account_of, in_force, is_confirmed, resources
from fairlead.decide.grants import limits_of
from fairlead.decide.lasting import is_settled
from fairlead.decide.overrides import AGE_MS, Where, concerns, ends_ms, starts_ms
from fairlead.decide.slots import instant, millis
from fairlead.model.kinds.capacity import Grant
from fairlead.model.kinds.policy import Override
from fairlead.model.kinds.quota import EndedApart, GrantTerm, MergeCheck, MergedOverride, MergeProof, MergeReport
from fairlead.model.kinds.work import Binding, SchedulingRequest
from fairlead.model.lifecycle import HOLDS_CAPACITY, SlotState


class Local(NamedTuple):
    """What of the region is looked at for what people ordered there."""

    overrides: Iterable[Override] = ()
    requests: Iterable[SchedulingRequest] = ()
    zones: Mapping[str, str] = {}  # of nodes


NOWHERE: Final = Local()


def merged(
    cut_ms: int,
    healed_ms: int,
    bindings: Iterable[Binding],
    grants: Iterable[Grant],
    term: GrantTerm,
    incarnation: int,
    local: Local = NOWHERE,
) -> MergeReport:
    bindings, grants = list(bindings), sorted(grants, key=lambda each: each.metadata.namespace)
    gone = (
        term.status.ended if term.status.ended is not None and term.status.ended.since_time == instant(cut_ms) else EndedApart()
    )
    settled = {grant.metadata.namespace for grant in grants if is_settled(grant, term, incarnation, limits_of(grant.status.used))}
    provisional, released, lasting = gone.provisional, sum(gone.tenants.values()), 0
    by_tenant = dict(gone.tenants)
    for binding in bindings:
        if not cut_ms <= millis(binding.metadata.creation_time) < healed_ms:  # what waited is placed in the very moment
            continue
        tenant, ends = binding.metadata.namespace, binding.spec.provisional_until_time is not None
        by_tenant[tenant] = by_tenant.get(tenant, 0) + 1
        provisional += ends
        if binding.status.state is SlotState.DRAINING or binding.status.state not in HOLDS_CAPACITY:
            released += 1
        elif ends and tenant not in settled:
            lasting += 1
    placed = sum(by_tenant.values())
    over, proof = [], []
    for grant in grants:
        tenant, allowed = grant.metadata.namespace, in_force(grant, term, incarnation, healed_ms)
        known = grant.spec.lease_seconds and is_confirmed(
            grant, incarnation
        )  # else it stands on nothing yet, and keeps what runs
        if known and not escrow.within(limits_of(grant.status.used), limits_of(allowed.limit)):
            over.append(tenant)
        if tenant in by_tenant or tenant in over:
            proof.append(MergeProof(tenant, allowed.version, grant.status.used, allowed.limit))
    return MergeReport(
        cut_time=instant(cut_ms), healed_time=instant(healed_ms), placed=placed, provisional=provisional,
        confirmed=placed - released - lasting, released=released, tenants=by_tenant, over=tuple(over), proof=tuple(proof),
        overrides=_ordered(cut_ms, healed_ms, bindings, local, term.spec.region), lasting=lasting, ended=gone.tenants,
    )  # fmt: skip


def held_against(report: MergeReport, grants: Mapping[str, Grant], incarnation: int, now_ms: int) -> MergeCheck:
    """The proof of a report beside what the global plane charges for the region: every offer that the region may still stand on,
    not the one it says it does. `grants`: the global plane's, by tenant. A region that has taken a newer offer since speaks of
    what is over: that says nothing."""
    charged, over = [], []
    for said in report.proof:
        grant = grants.get(said.tenant)
        account = account_of(grant, incarnation) if grant is not None else Account()
        most = escrow.exposure(account, now_ms)
        charged.append(MergeProof(said.tenant, account.newest.version, said.used, resources(most)))
        if said.version >= account.accepted and not escrow.within(limits_of(said.used), limits_of(resources(most))):
            over.append(said.tenant)
    return MergeCheck(report.healed_time, tuple(charged), tuple(over))


def _ordered(cut_ms: int, healed_ms: int, bindings: list[Binding], local: Local, region: str) -> tuple[MergedOverride, ...]:
    """What was ordered here, and not in the global plane, and held at some time in between."""
    where = [
        Where(each.metadata.namespace, each.spec.slot.workload, region, local.zones.get(each.spec.node, ""))
        for each in bindings
        if each.status.state in HOLDS_CAPACITY
    ]
    where += [Where(each.metadata.namespace, each.spec.slot.workload, region) for each in local.requests]
    out = []
    for override in local.overrides:
        meta, spec = override.metadata, override.spec
        end_ms = ends_ms(override)
        if meta.deletion_time is not None:
            end_ms = min(end_ms, millis(meta.deletion_time))
        if AGE_MS in meta.annotations or end_ms < cut_ms or starts_ms(override) > healed_ms:
            continue
        slots = sum(concerns(override, each) for each in where)
        start, end = instant(starts_ms(override)), instant(end_ms)
        out.append(MergedOverride(meta.namespace, meta.name, spec.kind, spec.requester, spec.reason, start, end, slots))
    return tuple(sorted(out, key=lambda each: (each.tenant, each.name)))


def words(report: MergeReport) -> str:
    over = f"; above their offers: {', '.join(report.over)}" if report.over else "; no tenant is above its offer"
    names = ", ".join(f"{each.kind} {each.tenant}/{each.name} by {each.requester or 'nobody'}" for each in report.overrides)
    return (
        f"decided apart: {report.placed} placed, {report.provisional} of them provisionally, {report.confirmed} stay, "
        f"{report.released} have ended or leave{f', {report.lasting} stay while leases go on' if report.lasting else ''}"
        f"{over}{f'; ordered here: {names}' if names else ''}"
    )
