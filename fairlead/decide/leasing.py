"""Policy and residency, leased to regions with versions (P14): until when a region may judge by what it has installed, and from
when on nobody judges by anything older. Pure.

Rides on the one question a region asks for its grants (granting.py): an answer names the versions the global plane stands on, and
leases them and whatever is newer. A region that has installed something older keeps the lease it had for it, which ends when it
would have. A version grows with every change of what it counts, also when that is deleted and made again, and over restores.
Used by the judge, the scheduler, the mirror, and the controllers quota, grant and policy.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec.structs import replace

from fairlead.decide.apart import answered
from fairlead.decide.granting import FOREVER, taken_answer
from fairlead.decide.slots import instant, millis
from fairlead.model.ids import born_at, born_in, revision
from fairlead.model.kinds.policy import RegionPolicy
from fairlead.model.kinds.quota import GrantTerm, GrantTermSpec, GrantTermStatus
from fairlead.model.meta import Metadata

VERSION: Final = "fairlead.dev/mirrored-version"  # on a region's copy of the channel and of its own Region
VERSIONED: Final = frozenset({"policychannels", "regions"})


class Versions(NamedTuple):
    """Of the channel, which names revisions that never change; and of the Region, which says in what areas it lies."""

    policy: int = 0
    residency: int = 0

    def reach(self, floor: Versions) -> bool:
        return self.policy >= floor.policy and self.residency >= floor.residency


def version_of(meta: Metadata, incarnation: int) -> int:
    """Of an original in the global plane. A generation takes a position of its own at least, so what is made again after it was
    deleted is above all that it was before; what a restored plane says is above all that was said before it."""
    born = born_at(meta.uid) if born_in(meta.uid) == incarnation else 0
    return revision(incarnation, born) + meta.generation


def stands(channel: Metadata | None, region: Metadata | None, incarnation: int) -> Versions:
    """What the global plane stands on, for one region. Without a channel no residency rule of a policy holds."""
    return Versions(
        version_of(channel, incarnation) if channel is not None else 0,
        version_of(region, incarnation) if region is not None else 0,
    )


def installed(channel: Metadata | None, region: Metadata | None) -> Versions:
    """What a region has, by the marks of its copies. What bears none is nobody's copy, and no answer is about it."""
    return Versions(*(int(meta.annotations.get(VERSION, "0")) if meta is not None else 0 for meta in (channel, region)))


# --- the region's side ---------------------------------------------------------------------------------------------------


def policy_end_ms(term: GrantTerm | None, have: Versions, incarnation: int) -> int:
    """From when on nothing may be placed by what is installed, in the region's time. FOREVER: this plane has nobody to ask."""
    if term is None:  # and no copies either: whoever has some was given them by a plane that will lease them
        return 0 if any(have) else FOREVER
    status = term.status
    if status.incarnation != incarnation or not status.taken:
        return 0
    fresh = have.reach(Versions(status.leased_policy, status.leased_residency))
    return millis(status.end_time if fresh else status.before_end_time)


def said(status: GrantTermStatus, have: Versions) -> GrantTermStatus:
    return replace(status, policy=have.policy, residency=have.residency)


def taken(term: GrantTerm, have: Versions, incarnation: int, now_ms: int) -> GrantTermStatus:
    """The status with the answer taken, the cut that it ends, and until when what it does not lease any more is still leased."""
    spec, apart = term.spec, answered(term, incarnation, now_ms)
    new = replace(taken_answer(term), cut_time=apart.cut_time, healed_time=apart.healed_time)
    if not spec.lease_seconds:
        return said(new, have)
    before = policy_end_ms(term, have, incarnation)
    return replace(
        said(new, have),
        leased_policy=spec.policy,
        leased_residency=spec.residency,
        before_end_time=instant(before) if before else None,
    )


# --- the global plane's side -----------------------------------------------------------------------------------------------


def leasing(spec: GrantTermSpec, before: GrantTermSpec, now: Versions) -> GrantTermSpec:
    """An answer with what it leases of policy and residency. What earlier ones leased ends with the last of them."""
    if not spec.lease_seconds:
        return replace(spec, policy=before.policy, residency=before.residency, before_time=before.before_time)
    same = (before.policy, before.residency) == now
    ends_ms = millis(before.before_time) if same else max(millis(before.before_time), millis(before.until_time))
    return replace(spec, policy=now.policy, residency=now.residency, before_time=instant(ends_ms) if ends_ms else None)


def stand_of(region: str, term: GrantTerm | None, wanted: Versions, floor_ms: int, now_ms: int) -> RegionPolicy:
    """Whether a region still may judge by something older than `wanted`. No lease counts as ended before `floor_ms`: whoever
    judges has not watched the clock for long enough."""
    made = RegionPolicy(region, "Pending", wanted.policy, wanted.residency)
    if term is not None and Versions(term.status.policy, term.status.residency).reach(wanted):
        return replace(made, state="Accepted")
    until_ms = floor_ms
    if term is not None:
        current = (term.spec.policy, term.spec.residency) == wanted
        until_ms = max(floor_ms, millis(term.spec.before_time if current else term.spec.until_time))
    return replace(made, state="LeaseEnded") if now_ms >= until_ms else replace(made, until_time=instant(until_ms))
