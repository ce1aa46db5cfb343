"""When an operator may write off a region that is lost, or silent and not called so. Pure.

A region that is lost may only be cut off: for as long as its leases run it places and keeps what it was granted, asking nobody.
So it is written off, and what it had is others', once everything has ended that it may still stand on without hearing from
anybody: its grants' and its slots' leases. What stays with it after them (`after`) is for whoever deletes it to answer for.

When no region at all is heard it is rather us, and none is called lost (P15): where there is but one it never is, however dead it
may be. That it is gone for good is for people to say, by an annotation with the Region's uid, so that a manifest which is applied
again says nothing of the next one of that name. It counts from the same moment. Used by the authority when a Region is deleted.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from fairlead.decide import granting, slot_lease

WRITE_OFF: Final = "fairlead.dev/write-off"  # on a Region: the uid of what an operator says is gone for good
SILENT_MS: Final = 600_000  # at the least: shorter silences are outages that end by themselves
RHO: Final = 0.01


class Silence(NamedTuple):
    """A region as it was last heard."""

    renewed_ms: int  # its sign of life; 0: it never gave one
    ttl_s: float  # of the lease that it renews with it
    grant_lease_s: int  # the longest that its grants have
    slot_lease_s: float


def is_silent(region: Silence, since_ms: int, now_ms: int) -> bool:
    """By whoever has listened since `since_ms`."""
    return now_ms > max(region.renewed_ms, since_ms) + region.ttl_s * (1 + RHO) * 1000


def may_be_written_off_ms(region: Silence, since_ms: int) -> int:
    """From when on. What it asked for last, it asked for while it was heard."""
    leases_ms = max(granting.honoured_ms(region.grant_lease_s), slot_lease.honoured_ms(region.slot_lease_s))
    return max(region.renewed_ms, since_ms) + max(SILENT_MS, round(region.ttl_s * (1 + RHO) * 1000) + leases_ms)
