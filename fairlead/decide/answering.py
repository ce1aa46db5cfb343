"""The global plane's answer to the one question that a region asks for all its tenants: which grants are leased anew, and until
when the region may count on what it was ever answered. Pure. Used by the controllers quota and policy, and by judges.
"""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.decide.granting import first_version, honoured_ms, is_reported
from fairlead.decide.slots import instant, millis
from fairlead.model.kinds.capacity import Grant
from fairlead.model.kinds.quota import GrantTerm, GrantTermSpec


def floor_of(grant: Grant, incarnation: int, asker: int, made: int) -> int:
    """From which version on an answer leases this grant; 0: whichever the region stands on. `made` is the newest version that
    was sent to be written, and may not be seen yet."""
    spec, status = grant.spec, grant.status
    if not is_reported(grant, incarnation):
        return max(first_version(incarnation), made)
    if spec.version == status.accepted_version and status.incarnation == asker and made <= spec.version:
        return 0
    return max(spec.version, made)


def longest_s(term: GrantTerm | None, lease_s: int) -> int:
    """How long a lease may last that a region was given: it was perhaps given one when leases were longer."""
    if term is None:
        return lease_s
    return max(lease_s, term.spec.longest_seconds or term.spec.lease_seconds)


def answer_spec(term: GrantTerm, incarnation: int, floors: Mapping[str, int], lease_s: int, now_ms: int) -> GrantTermSpec:
    """The answer to a region's last question. One that does not know this incarnation yet is only told of it (ADR 0016). A lease
    that an earlier answer gave for longer goes on: the region keeps the later end."""
    before, status = term.spec, term.status
    leased, until_ms = status.knows == incarnation, now_ms + honoured_ms(lease_s)
    is_last = leased and until_ms >= millis(before.until_time)
    return GrantTermSpec(
        before.region, incarnation, status.incarnation, status.asked, lease_s if leased else 0,
        instant(until_ms) if is_last else before.until_time, dict(floors) if leased else {}, answered_time=instant(now_ms),
        longest_seconds=lease_s if is_last else longest_s(term, 0),
    )  # fmt: skip


def is_asked(term: GrantTerm, incarnation: int) -> bool:
    spec, status = term.spec, term.status
    return status.asked > 0 and (spec.incarnation, spec.asker, spec.answered) != (incarnation, status.incarnation, status.asked)
