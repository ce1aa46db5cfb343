"""Quota over several planes (S5), and what a region may use of a grant (S4), asked of objects with sums of their own.

Shares no code with the controllers or the judge that keep the promise. At any true moment, what runs in all regions of a tenant,
or could be placed there without asking anybody, is no more than its quota; an emergency quota adds to it until it ends, and to
what still runs until its drain must be over. Fed by the simulator's world and by checkers.py; says what is broken and mends
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from fairlead.model.kinds.capacity import Grant
from fairlead.model.kinds.policy import Override
from fairlead.model.kinds.quota import GrantTerm
from fairlead.model.lifecycle import HOLDS_CAPACITY
from fairlead.model.resources import NOTHING, Resources

DRAINED_MS: Final = 300_000  # after the end of an emergency quota, what it allowed is gone
LATE_MS: Final = 20_000  # beyond that: the grace of whoever leaves, and clocks that run 1 % wrong
EVERYONE: Final = "*"

Objects = Mapping[str, Mapping[tuple[str, str], Any]]
Runs = Callable[[str, str, str], bool]  # whether anything of a slot truly runs on a node: node, tenant, slot


def _always(node: str, tenant: str, name: str) -> bool:
    """Whoever sees objects alone takes what is bound for running."""
    return True


class RegionNow(NamedTuple):
    name: str
    objects: Objects
    incarnation: int
    now_ms: int | None  # None: nobody leads it, and nothing can be placed
    runs: Runs = _always


def spendable(grant: Grant, term: GrantTerm | None, incarnation: int, now_ms: int) -> Resources:
    """The most that may be placed of this grant at that moment of the region's time."""
    spec, status = grant.spec, grant.status
    if not spec.lease_seconds:
        return spec.after if spec.lease_end_time is not None and now_ms >= _ms(spec.lease_end_time) else spec.during
    if status.incarnation != incarnation or not status.accepted_version:
        return NOTHING
    end = status.lease_end_time
    if end is None and term is not None and term.status.incarnation == incarnation:
        end = term.status.end_time
    leased = end is not None and now_ms < _ms(end)
    added_until = status.emergency_end_time
    if added_until is None or (leased and now_ms < _ms(added_until)):
        return status.during if leased else status.after
    base = _without(status.during, status.emergency)
    return base if leased else _least(base, status.after)


def in_use(objects: Objects, tenant: str, runs: Runs = _always) -> Resources:
    """What is charged to a tenant: its bindings that hold capacity, and its reservations. A provisional binding whose agent has
    ended it uses nothing, though its region may not have heard of that."""
    used = NOTHING
    for (owner, name), binding in objects.get("bindings", {}).items():
        if owner != tenant or binding.status.state not in HOLDS_CAPACITY:
            continue
        if binding.spec.provisional_until_time is None or runs(binding.spec.node, owner, name):
            used += binding.spec.requests
    for (owner, _), reservation in objects.get("reservations", {}).items():
        if owner == tenant:
            used += reservation.spec.requests
    return used


class EscrowChecker:
    """Keeps the highest limits it has seen: a quota that is lowered leaves what was promised until it is given up."""

    def __init__(self) -> None:
        self.checked = 0
        self._limits: dict[str, Resources] = {}
        self._emergencies: dict[str, tuple[Override, int]] = {}  # by uid, agreed to by a second person; and when each ends
        self._told: set[str] = set()

    def look(self, above: Objects, regions: Iterable[RegionNow], now_ms: int = 0) -> list[str]:
        """`now_ms`: the global plane's time."""
        regions = list(regions)
        for (tenant, _), quota in above.get("quotas", {}).items():
            self._limits[tenant] = _most(self._limits.get(tenant, NOTHING), quota.spec.limits)
        for override in above.get("overrides", {}).values():
            if override.spec.kind == "emergency-quota" and override.spec.approver:
                end_ms = _ms(override.metadata.creation_time) + override.spec.ttl_seconds * 1000
                self._emergencies[override.metadata.uid] = (override, end_ms)
        out = []
        for tenant, limits in self._limits.items():
            self.checked += 1
            found = self._of_tenant(tenant, limits + self._added(tenant, now_ms), regions)
            if found and tenant not in self._told:
                self._told.add(tenant)
                out.append(found)
        return out

    def _added(self, tenant: str, now_ms: int) -> Resources:
        total = NOTHING
        for override, end_ms in self._emergencies.values():
            about = override.spec.scope.tenants or (override.metadata.namespace,)
            if now_ms < end_ms + DRAINED_MS + LATE_MS and (tenant in about or EVERYONE in about):
                total += Resources.parse(override.spec.parameters)
        return total

    @staticmethod
    def _of_tenant(tenant: str, limits: Resources, regions: list[RegionNow]) -> str:
        total, parts = NOTHING, {}
        for region in regions:
            grant: Grant | None = region.objects.get("grants", {}).get((tenant, region.name))
            may = NOTHING
            if grant is not None and region.now_ms is not None:
                term = region.objects.get("grantterms", {}).get(("", region.name))
                may = spendable(grant, term, region.incarnation, region.now_ms)
            parts[region.name] = _most(in_use(region.objects, tenant, region.runs), may)
            total += parts[region.name]
        over = total.exceeding(limits)
        if not over:
            return ""
        name, amount, limit = over[0]
        return f"tenant {tenant} uses or could use {amount} {name} of {limit}: {parts}"


def _most(one: Resources, other: Resources) -> Resources:
    scalars = dict(one.scalars)
    for name, amount in other.scalars:
        scalars[name] = max(amount, scalars.get(name, 0))
    return Resources(max(one.cpu, other.cpu), max(one.memory, other.memory), scalars.items())


def _least(one: Resources, other: Resources) -> Resources:
    most = dict(other.scalars)
    scalars = [(name, min(amount, most.get(name, 0))) for name, amount in one.scalars]
    return Resources(min(one.cpu, other.cpu), min(one.memory, other.memory), scalars)


def _without(one: Resources, other: Resources) -> Resources:
    less = dict(other.scalars)
    scalars = [(name, max(0, amount - less.get(name, 0))) for name, amount in one.scalars]
    return Resources(max(0, one.cpu - other.cpu), max(0, one.memory - other.memory), scalars)


def _ms(when: datetime) -> int:
    return round(when.timestamp() * 1000)
