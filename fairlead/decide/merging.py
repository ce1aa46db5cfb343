"""What a region decided while it had no word from the global plane, counted once it has one again. Pure; used by the region's
grant controller, and read by people: `fairlead get grantterms -o yaml`.

A report says what was placed apart, what of it stays because it is within what the offers leave, what is leaving, and for every
tenant that more is used than its offer allows: none, or quota was sold twice.
"""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.decide import escrow
from fairlead.decide.granting import in_force
from fairlead.decide.grants import limits_of
from fairlead.decide.slots import instant, millis
from fairlead.model.kinds.capacity import Grant
from fairlead.model.kinds.quota import GrantTerm, MergeReport
from fairlead.model.kinds.work import Binding
from fairlead.model.lifecycle import HOLDS_CAPACITY, SlotState


def merged(
    cut_ms: int, healed_ms: int, bindings: Iterable[Binding], grants: Iterable[Grant], term: GrantTerm, incarnation: int
) -> MergeReport:
    placed = provisional = leaving = 0
    by_tenant: dict[str, int] = {}
    for binding in bindings:
        if not cut_ms <= millis(binding.metadata.creation_time) < healed_ms:  # what waited is placed in the very moment
            continue
        placed += 1
        by_tenant[binding.metadata.namespace] = by_tenant.get(binding.metadata.namespace, 0) + 1
        provisional += binding.spec.provisional_until_time is not None
        leaving += binding.status.state is SlotState.DRAINING or binding.status.state not in HOLDS_CAPACITY
    over = []
    for grant in grants:
        allowed = in_force(grant, term, incarnation, healed_ms)
        if grant.spec.lease_seconds and not escrow.within(limits_of(grant.status.used), limits_of(allowed.limit)):
            over.append(grant.metadata.namespace)
    return MergeReport(
        instant(cut_ms), instant(healed_ms), placed, provisional, placed - leaving, leaving, by_tenant, tuple(sorted(over))
    )


def words(report: MergeReport) -> str:
    over = f"; above their offers: {', '.join(report.over)}" if report.over else "; no tenant is above its offer"
    return (
        f"decided apart: {report.placed} placed, {report.provisional} of them provisionally, {report.confirmed} stay, "
        f"{report.released} leave{over}"
    )
