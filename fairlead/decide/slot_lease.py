"""Who may run a region's globally exclusive slots: the region, under a lease of the global plane; or nobody, once recovery has
taken the lease away (P11). Pure.

One lease a region, `slots-REGION`, for all of its slots. The region counts it from when it asked, with a clock that may be slow;
the global plane from when it answered, with one that may be fast, and a margin. Taken by recovery it does not run out: it is
given back once the region's assignments say what it may still run. A region that gets the lease, for the first time or again,
first makes sure that it runs nothing that was superseded. Used by the authority, the recovery controller, and the region's side.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from fairlead.decide.slots import millis
from fairlead.model.kinds.ledger import LeaseSpec
from fairlead.model.lifecycle import Role

PREFIX: Final = "slots-"
TTL_S: Final = 60.0  # longer than a global plane needs to find a new leader: that must stop nothing
RHO: Final = 0.01
MARGIN_S: Final = 5.0  # for processes that take their time to end
NEVER_MS: Final = 1 << 62


def lease_of(region: str) -> str:
    return f"{PREFIX}{region}"


def is_slot_lease(name: str) -> bool:
    return name.startswith(PREFIX)


def held_until(sent: float, ttl_s: float) -> float:
    """Until when whoever asked at `sent` may count on it, on its own clock."""
    return sent + ttl_s * (1 - RHO)


def honoured_ms(ttl_s: float) -> int:
    """For how long after its last renewal a lease may still be counted on by whoever had it."""
    return round((ttl_s * (1 + RHO) + MARGIN_S) * 1000)


def free_ms(lease: LeaseSpec | None, role: Role, ttl_s: float, incarnation: int, since_ms: int) -> int:
    """From when on this role may take the lease. `since_ms`: whoever judges has not seen what was renewed before. In a history
    that was restored nobody knows what was renewed, nor by whom, before a whole lease has passed: `ttl_s`, the longest that any
    region has."""
    ours = lease is not None and lease.incarnation == incarnation
    if lease is not None and lease.holder and lease.role == Role.RECOVERY.value and role is not Role.RECOVERY:
        return NEVER_MS  # until it is given back
    if not ours:
        return since_ms + honoured_ms(ttl_s) if lease is not None or incarnation > 1 else 0
    assert lease is not None
    if not lease.holder or lease.role == role.value:
        return 0  # another server of the same side: who had it before has promised nothing beyond what this one will
    return max(millis(lease.renewed_time), since_ms) + honoured_ms(lease.ttl_seconds)


def taken_from(leases: Mapping[str, LeaseSpec], incarnation: int) -> dict[str, int]:
    """Regions that may run none of these slots, and the epoch under which their lease was taken."""
    return {
        region: lease.epoch
        for region, lease in leases.items()
        if lease.role == Role.RECOVERY.value and lease.holder and lease.incarnation == incarnation
    }


def left_behind(leases: Mapping[str, LeaseSpec], incarnation: int) -> frozenset[str]:
    """Regions whose lease was taken in another history of the global plane. Nobody gives those back: they are taken anew first,
    and given back as any other."""
    return frozenset(
        region
        for region, lease in leases.items()
        if lease.role == Role.RECOVERY.value and lease.holder and lease.incarnation != incarnation
    )


class Copy(NamedTuple):
    """One assignment of globally exclusive slots, as a region has it."""

    uid: str  # of the original it was made of
    generation: int  # of that original
    current: bool  # what is said of it is about the copy as it is
    unwanted: int  # slots that are not wanted any more, and may still run or start
    released: bool  # it is going, and nothing of it is left


def caught_up(above: Mapping[str, tuple[str, int]], here: Mapping[str, Copy]) -> bool:
    """Whether a region runs and starts nothing that the global plane does not want of it. `above`: uid and generation of each
    assignment as it stood when the region had its lease, or later, without those that are being deleted."""
    for key, (uid, generation) in above.items():
        copy = here.get(key)
        if copy is None or (copy.uid, copy.generation) != (uid, generation) or not copy.current or copy.unwanted:
            return False
    return all(copy.released for key, copy in here.items() if key not in above)


def slot_name(region: str, workload: str, index: int, epoch: int) -> str:
    """How one that is superseded is named: the slot, and the epoch of the slot lease that was taken from its region."""
    return f"{region}/{workload}-{index}@{epoch}"
