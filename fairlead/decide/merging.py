"""What a region decided while it had no word from the global plane, counted once it has one again. Pure; used by the region's
grant controller, and read by people: `fairlead get grantterms -o yaml`.

A report says what was placed apart, what of it stays because it is within what the offers leave, what is leaving, what people
ordered in the region itself, and of every tenant with something placed what it uses of which offer: within it, or quota was
sold twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from fairlead.decide import escrow
from fairlead.decide.granting import in_force
from fairlead.decide.grants import limits_of
from fairlead.decide.overrides import AGE_MS, Where, concerns, ends_ms, starts_ms
from fairlead.decide.slots import instant, millis
from fairlead.model.kinds.capacity import Grant
from fairlead.model.kinds.policy import Override
from fairlead.model.kinds.quota import GrantTerm, MergedOverride, MergeProof, MergeReport
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
    bindings = list(bindings)
    placed = provisional = leaving = 0
    by_tenant: dict[str, int] = {}
    for binding in bindings:
        if not cut_ms <= millis(binding.metadata.creation_time) < healed_ms:  # what waited is placed in the very moment
            continue
        placed += 1
        by_tenant[binding.metadata.namespace] = by_tenant.get(binding.metadata.namespace, 0) + 1
        provisional += binding.spec.provisional_until_time is not None
        leaving += binding.status.state is SlotState.DRAINING or binding.status.state not in HOLDS_CAPACITY
    over, proof = [], []
    for grant in sorted(grants, key=lambda each: each.metadata.namespace):
        tenant, allowed = grant.metadata.namespace, in_force(grant, term, incarnation, healed_ms)
        if grant.spec.lease_seconds and not escrow.within(limits_of(grant.status.used), limits_of(allowed.limit)):
            over.append(tenant)
        if tenant in by_tenant or tenant in over:
            proof.append(MergeProof(tenant, allowed.version, grant.status.used, allowed.limit))
    return MergeReport(
        instant(cut_ms), instant(healed_ms), placed, provisional, placed - leaving, leaving, by_tenant, tuple(over),
        tuple(proof), _ordered(cut_ms, healed_ms, bindings, local, term.spec.region),
    )  # fmt: skip


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
        f"{report.released} leave{over}{f'; ordered here: {names}' if names else ''}"
    )
