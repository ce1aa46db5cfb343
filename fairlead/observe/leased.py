"""S6's leases asked of journals (P14): nothing is placed by a policy, or by areas of a region, whose lease has ended; nothing is
called effective while some region may still judge by what was before.

Owns its own reading of questions and answers, and its own list of the leases they made; shares nothing with the judge but the
model. Fed by JournalChecker with every change, before it is applied, and by the simulator's world.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from fairlead.model.kinds.policy import PolicyChannel
from fairlead.model.kinds.quota import GrantTerm

Found = Callable[[str, str], None]
Objects = Mapping[str, Mapping[tuple[str, str], Any]]

_VERSION: Final = "fairlead.dev/mirrored-version"
_SLOWEST_PERMILLE: Final = 990  # of its lease: what a clock that may be slow by one per cent may count


class _Leased(NamedTuple):
    """An answer that was taken: from which versions on, and until when in the region's time."""

    policy: int
    residency: int
    end_ms: int


class LeaseChecker:
    """The leases of one region's plane."""

    def __init__(self, objects: Objects, found: Found) -> None:
        self._objects = objects
        self._found = found
        self._incarnation = 0
        self._leases: list[_Leased] = []

    def begun(self) -> None:
        """After the state at which a history begins: which leases were taken before the newest is not known, so until that one
        ends there may be one for everything."""
        self._leases = [each._replace(policy=0, residency=0) for each in self._leases]

    def changed(self, plural: str, old: Any, new: Any, now_ms: int, incarnation: int, by_scheduler: bool) -> bool:
        """True where a placement was judged."""
        if plural == "grantterms" and new is not None:
            self._taken(old, new)
        placed = plural == "bindings" or (plural == "reservations" and new is not None and new.spec.slot is not None)
        if not placed or not by_scheduler or new is None or (old is not None and old.spec.token == new.spec.token):
            return False
        if not any(self.installed()):
            return False  # nobody leases it anything: this plane stands alone, or it wrote this before there were such leases
        if not self.may_judge(now_ms, incarnation):
            have = self.installed()
            self._found("S6", f"{new.metadata.name} was placed by policy and residency {have}, whose lease had ended")
        return True

    def _taken(self, old: GrantTerm | None, new: GrantTerm) -> None:
        status = new.status
        if status.incarnation != self._incarnation:
            self._incarnation, self._leases = status.incarnation, []
        if status.end_time is None:  # the region believes in none of them any more
            self._leases = []
        if not status.taken or (
            old is not None and old.status.taken == status.taken and old.status.incarnation == status.incarnation
        ):
            return
        if status.asked_time is not None and new.spec.lease_seconds:
            end_ms = _ms(status.asked_time) + new.spec.lease_seconds * _SLOWEST_PERMILLE
            self._leases = [
                each for each in self._leases if each.end_ms > end_ms or each[:2] != (new.spec.policy, new.spec.residency)
            ]
            self._leases.append(_Leased(new.spec.policy, new.spec.residency, end_ms))

    def installed(self) -> tuple[int, int]:
        term = next(iter(self._objects["grantterms"].values()), None)
        region = term.spec.region if term is not None else ""
        copies = (self._objects["policychannels"].get(("", "default")), self._objects["regions"].get(("", region)))
        return _version(copies[0]), _version(copies[1])

    def may_judge(self, now_ms: int, incarnation: int) -> bool:
        have = self.installed()
        return self._incarnation == incarnation and any(
            each.policy <= have[0] and each.residency <= have[1] and now_ms < each.end_ms for each in self._leases
        )


class RegionLeases(NamedTuple):
    name: str
    leases: LeaseChecker
    incarnation: int
    now_ms: int | None  # None: nobody leads it, and nothing can be placed


class EffectiveChecker:
    """What the global plane calls effective, held against what every region could do at this true moment."""

    def __init__(self) -> None:
        self.checked = 0
        self._told: set[tuple[str, int, int]] = set()

    def look(self, above: Objects, regions: Iterable[RegionLeases]) -> list[str]:
        channel: PolicyChannel | None = above.get("policychannels", {}).get(("", "default"))
        if channel is None:
            return []
        said = {each.region: each for each in channel.status.regions if each.state != "Pending"}
        out = []
        for region in regions:
            stand = said.get(region.name)
            if stand is None:
                continue
            self.checked += 1
            have, wanted = region.leases.installed(), (stand.policy, stand.residency)
            behind = have[0] < wanted[0] or have[1] < wanted[1]
            key = (region.name, *wanted)
            if not behind or region.now_ms is None or key in self._told:
                continue
            if region.leases.may_judge(region.now_ms, region.incarnation):
                self._told.add(key)
                out.append(f"{wanted} is called {stand.state} in {region.name}, which may still judge by {have}")
        return out


def _version(copy: Any) -> int:
    return int(copy.metadata.annotations.get(_VERSION, "0")) if copy is not None else 0


def _ms(when: datetime) -> int:
    return round(when.timestamp() * 1000)
