"""What agents are told of the leases of their tenants' grants, so that what is above the limit that stays ends with its lease
where nobody leads the region, too (P13, ADR 0030). Pure.

A slot that is bound above that limit is provisional from its first moment: its binding says so. It becomes firm when all that its
tenant uses is within the limit. From then on the limit is not lowered under it, because an offer is taken only if it keeps
what stayed before, or all that is used. So what agents hold for firm never exceeds the limit, however late they hear of it.
Used by the authority and by agents.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import msgspec

from fairlead.decide import granting
from fairlead.decide.escrow import Amounts, within
from fairlead.decide.granting import is_confirmed, lease_end
from fairlead.decide.grants import limits_of
from fairlead.decide.slots import millis
from fairlead.model.kinds.capacity import Grant
from fairlead.model.kinds.quota import GrantTerm

AS_TOLD: Final = -1  # of a tenant whose offer was taken in lost history, and none since: what agents were told of it last stands


class Leases(msgspec.Struct, frozen=True, gc=False):
    """How the leases of a region stood at one position of its history."""

    position: int
    end_ms: int  # of every tenant that is not named
    ends_ms: dict[str, int]  # of those that use more than stays, or whose lease ends by itself; or AS_TOLD


class GrantWord(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The same, for agents: in seconds from when it was asked. What was bound at that position or before, of a tenant that is not
    named, stays when the lease ends. Below nought: as was said before."""

    position: int
    valid_s: float
    valid_of_s: dict[str, float]


def staying(grant: Grant, incarnation: int) -> Mapping[str, int]:
    """What of a leased grant its tenant may use when the lease has ended. What an emergency quota added does not stay."""
    return limits_of(granting.staying(grant.status)) if grant.status.incarnation == incarnation else {}


def is_settled(grant: Grant | None, term: GrantTerm | None, incarnation: int, used: Amounts) -> bool:
    """Whether all that the tenant of this grant uses now stays when leases end: from then on it is firm (see above). Without a
    lease nothing ends."""
    if grant is None or not grant.spec.lease_seconds:
        return True
    if term is None or term.status.incarnation != incarnation or term.status.end_time is None:
        return False
    return _stays(grant, incarnation, used)


def _stays(grant: Grant, incarnation: int, used: Amounts) -> bool:
    return grant.status.lease_end_time is None and within(used, staying(grant, incarnation))


def leases_at(
    position: int, grants: Mapping[str, Grant], term: GrantTerm | None, incarnation: int, used: Mapping[str, Amounts]
) -> Leases | None:
    """`grants`: the leased ones. None: in this history no lease has been given yet, and what agents were told stands."""
    if not grants:
        return Leases(position, 0, {})  # what is there stays; of what comes later, under leases perhaps, nothing is said
    if term is None or term.status.incarnation != incarnation or term.status.end_time is None:
        return None
    ends: dict[str, int] = {}
    for tenant, grant in grants.items():
        if not is_confirmed(grant, incarnation):
            ends[tenant] = AS_TOLD  # the answer that leases all others does not lease this one
        elif not _stays(grant, incarnation, used[tenant]):
            ends[tenant] = lease_end(grant, term, incarnation)
    return Leases(position, millis(term.status.end_time), ends)


def word_of(leases: Leases, now_ms: int) -> GrantWord:
    left = {
        tenant: float(AS_TOLD) if end_ms == AS_TOLD else max(0, end_ms - now_ms) / 1000
        for tenant, end_ms in leases.ends_ms.items()
    }
    return GrantWord(leases.position, max(0, leases.end_ms - now_ms) / 1000, left)


class Granted(msgspec.Struct, frozen=True, gc=False):
    """The last word as an agent has it, on the agent's clock."""

    sent: float = -math.inf  # of the heartbeat it answered
    position: int = -1
    default: float = -math.inf  # nothing was said yet
    by_tenant: dict[str, float] = {}

    def told(self, word: GrantWord, sent: float, clock_rate_error: float, kill_s: float) -> Granted:
        """A lease counts from when it was asked about, by a clock that may be slow, less the time a kill takes."""
        if sent < self.sent:
            return self

        def until(valid_s: float) -> float:
            return sent + valid_s * (1 - clock_rate_error) - kill_s

        named = {name: until(left) if left >= 0 else self.until(name) for name, left in word.valid_of_s.items()}
        return Granted(sent, word.position, until(word.valid_s), named)

    def until(self, tenant: str) -> float:
        return self.by_tenant.get(tenant, self.default)

    def is_firm(self, tenant: str, position: int) -> bool:
        """Whether a binding that changed last at that position stays."""
        return position <= self.position and tenant not in self.by_tenant
