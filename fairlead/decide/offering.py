"""Why a region is offered another part of a quota, in words: kept on the Grant, where `audit budgets` reads it. Pure; used by the
quota controller, which decides nothing by it.
"""

from __future__ import annotations

from typing import Final

from fairlead.decide import escrow
from fairlead.decide.escrow import Amounts, Offer
from fairlead.model.kinds.capacity import Grant
from fairlead.model.meta import Metadata

REASON: Final = "fairlead.dev/reason"  # an annotation: why whoever wrote it last did; people write it on quotas and budgets

UNKNOWN: Final = "restored: asks what the region holds"
TOLD: Final = "restored: as the region told it"
ENDS: Final = "emergency: the same, with another end of what an emergency quota gave"


def why_offered(grant: Grant | None, before: Offer, after: Offer, limits: Amounts, exposed: Amounts) -> str:
    """`limits` of the quota now, `exposed`: what all regions may have been using of it before."""
    if grant is None:
        return "first share of the quota"
    status = grant.status
    more, less = _above(after.during, before.during), _above(before.during, after.during)
    said = []
    if more:
        waits = [name for name in more if status.waiting.amounts().get(name, 0)]
        said.append(f"demand: {_list(waits)} is waited for" if waits else f"transfer: {_list(more)} was free")
    if less:
        lowered = [name for name in less if exposed.get(name, 0) > limits.get(name, 0)]
        said.append(f"shrink: the limit of {_list(lowered)} is lower" if lowered else f"transfer: {_list(less)} goes to others")
    if not said and not escrow.same(before.after, after.after):
        said.append("floor: what stays after the lease follows what is used")
    return "; ".join(said) or "leased anew: the same as before"


def with_reason(meta: Metadata, reason: str) -> dict[str, str]:
    return {**meta.annotations, REASON: reason}


def _above(one: Amounts, other: Amounts) -> list[str]:
    return sorted(name for name, amount in one.items() if amount > other.get(name, 0))


def _list(names: list[str]) -> str:
    return " and ".join(names)
