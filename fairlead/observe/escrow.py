"""Quota over several planes (S5), and what a region may use of a grant (S4), asked of objects with sums of their own.

Shares no code with the controllers or the judge that keep the promise. At any true moment, what runs in all regions of a tenant,
or could be placed there without asking anybody, is no more than its quota; an emergency quota adds to what may be placed until
it ends, and to what still runs until its drain must be over. A journal of the global plane shows one half of it: that no offer
was made beyond what the other regions may still stand on. Fed by the simulator's world and by checkers.py; says what is broken
and mends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from math import inf
from typing import Any, Final, NamedTuple

from fairlead.model.kinds.capacity import Grant
from fairlead.model.kinds.intent import Quota
from fairlead.model.kinds.policy import Override
from fairlead.model.kinds.quota import GrantTerm
from fairlead.model.lifecycle import HOLDS_CAPACITY, SlotState
from fairlead.model.resources import NOTHING, Resources

DRAINED_MS: Final = 300_000  # after the end of an emergency quota, what it allowed is gone
LATE_MS: Final = 20_000  # beyond that: the grace of whoever leaves, and clocks that run 1 % wrong
APPROVED_MS: Final = 2_000  # so much later it is seen in the simulator, which looks each second
RATE: Final = 1.01  # of two clocks that both may run wrong
SEEN_MS: Final = 60_000  # an offer may have been decided on a quota as it was before; L3 has a change seen within 35 s
EVERYONE: Final = "*"
_FOREVER: Final = 1 << 62

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
    behind: bool = False  # its store lost history, and nobody has begun to lead on what is left: that will be another incarnation


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


def in_use(objects: Objects, tenant: str, runs: Runs = _always, incarnation: int = 0) -> Resources:
    """What is charged to a tenant: its bindings that hold capacity, and its reservations. A binding that is provisional, or that
    drains, and whose agent has ended it uses nothing, though its region may not have heard of that, or has lost it; nor does one
    of an earlier incarnation that does not run, on a node that has not said yet what it runs in this one: it is not begun."""
    used, nodes = NOTHING, objects.get("nodes", {})
    for (owner, name), binding in objects.get("bindings", {}).items():
        if owner != tenant or binding.status.state not in HOLDS_CAPACITY:
            continue
        stays = binding.spec.provisional_until_time is None and binding.status.state is not SlotState.DRAINING
        if stays and binding.spec.token.incarnation < incarnation:
            node = nodes.get(("", binding.spec.node))
            stays = node is not None and node.status.incarnation >= incarnation
        if stays or runs(binding.spec.node, owner, name):
            used += binding.spec.requests
    for (owner, _), reservation in objects.get("reservations", {}).items():
        if owner == tenant:
            used += reservation.spec.requests
    return used


class Limits:
    """The limits of each tenant, and those before they were lowered: for `kept_ms`, or for ever, because a quota that is lowered
    leaves what was promised until it is given up. Emergency quotas count until what they allowed must be gone."""

    def __init__(self, kept_ms: int | None = None) -> None:
        self._kept_ms = kept_ms
        self._limits: dict[str, Resources] = {}
        self._before: dict[str, list[tuple[int, Resources]]] = {}  # until when it counts
        self._emergencies: dict[str, tuple[Override, int]] = {}  # by uid, agreed to by a second person; and when each ends
        self._truly_ms: dict[str, float] = {}  # by uid: when each is over in true time, wherever plane time has gone since

    def tenants(self) -> Iterable[str]:
        return self._limits

    def quota(self, tenant: str, quota: Quota, now_ms: int = 0) -> None:
        old = self._limits.get(tenant, NOTHING)
        if self._kept_ms is None:
            self._limits[tenant] = _most(old, quota.spec.limits)
        elif old != quota.spec.limits:
            self._limits[tenant] = quota.spec.limits
            lately = [each for each in self._before.get(tenant, ()) if now_ms < each[0]]
            self._before[tenant] = [*lately, (now_ms + self._kept_ms, old)]

    def override(self, override: Override, true_ms: int = 0) -> None:
        if override.spec.kind == "emergency-quota" and override.spec.approver:
            made = override.metadata.creation_time
            end_ms = (_ms(made) if made is not None else 0) + override.spec.ttl_seconds * 1000
            uid, ttl_ms = override.metadata.uid, override.spec.ttl_seconds * 1000
            self._emergencies[uid] = (override, end_ms)
            self._truly_ms.setdefault(uid, true_ms + ttl_ms * RATE + APPROVED_MS)

    def of(self, tenant: str, now_ms: int, true_ms: float = inf) -> Resources:
        """What may be used or placed on. `now_ms`: the global plane's time; `true_ms`: as it is told when overrides are."""
        return self._with_emergencies(tenant, now_ms, true_ms, DRAINED_MS + LATE_MS)

    def placing(self, tenant: str, now_ms: int, true_ms: float) -> Resources:
        """What may be placed on."""
        return self._with_emergencies(tenant, now_ms, true_ms, 0)

    def _with_emergencies(self, tenant: str, now_ms: int, true_ms: float, late_ms: int) -> Resources:
        """An emergency adds to it until it ends by the global plane's time and truly, whichever is later: regions count it on
        their own clocks, and the global plane's may leap or stand still."""
        total = self.without(tenant, now_ms)
        for uid, (override, end_ms) in self._emergencies.items():
            if (now_ms < end_ms + late_ms or true_ms < self._truly_ms[uid] + late_ms) and _concerns(override, tenant):
                total += Resources.parse(override.spec.parameters)
        return total

    def without(self, tenant: str, now_ms: int) -> Resources:
        """Without emergencies."""
        total = self._limits.get(tenant, NOTHING)
        for until_ms, before in self._before.get(tenant, ()):
            total = _most(total, before) if now_ms < until_ms else total
        return total


def _concerns(override: Override, tenant: str) -> bool:
    about = override.spec.scope.tenants or (override.metadata.namespace,)
    return tenant in about or EVERYONE in about


class _Offered:
    """What a region was offered of one tenant's quota and may still stand on, as it was written when it was: what later books
    leave out, or say to end sooner, it was told all the same."""

    def __init__(self) -> None:
        self.accepted = 0  # the newest that the region said it stands on: a late word changes nothing
        self.newest = 0
        self._made: dict[int, tuple[Resources, Resources, int]] = {}  # by version: during, after, and until when it is leased

    def wrote(self, grant: Grant, leased_ms: int, forgets: bool) -> None:
        """`leased_ms`: when the last lease that the region was given ends; a later answer may prolong this one (`answered`).
        `forgets`: this is all it may use."""
        spec = grant.spec
        if forgets or not spec.lease_seconds:
            self._made.clear()
        self._add(spec.version, spec.during, spec.after, leased_ms if spec.lease_seconds else _FOREVER)
        self.carried(grant)
        self.newest = spec.version
        self.accepted = max(self.accepted, _stands_on(grant))
        self._made = {version: made for version, made in self._made.items() if version >= min(self.accepted, self.newest)}

    def carried(self, grant: Grant) -> None:
        """The offers before the newest, that go along with it."""
        for offer in grant.spec.offers:
            self._add(offer.version, offer.during, offer.after, _FOREVER if offer.until_time is None else _ms(offer.until_time))

    def answered(self, floor: int, until_ms: int) -> None:
        """The leases of all offers from this version on were prolonged."""
        for version, (during, after, before_ms) in self._made.items():
            if version >= floor:
                self._made[version] = during, after, max(before_ms, until_ms)

    def _add(self, version: int, during: Resources, after: Resources, until_ms: int) -> None:
        had = self._made.get(version, (NOTHING, NOTHING, 0))
        self._made[version] = _most(had[0], during), _most(had[1], after), max(had[2], until_ms)

    def exposed(self, now_ms: int) -> Resources:
        """The most that the region may be using, now or by itself later: of the newest offer, and of each one before it that it
        may still stand on."""
        most = NOTHING
        for version, (during, after, until_ms) in self._made.items():
            if version == self.newest or version >= self.accepted:
                most = _most(most, during if version == self.newest or now_ms < until_ms else after)
        return most


class OfferChecker:
    """S5 in the journal of a global plane: whenever a Grant is written, what all regions may use of the tenant's quota, now or by
    themselves later, is no more than it, in any dimension in which that write made it more."""

    def __init__(self, objects: Objects, found: Callable[[str, str], None]) -> None:
        self._objects = objects
        self._found = found
        self._limits = Limits(SEEN_MS)
        self._offered: dict[str, dict[str, _Offered]] = {}  # tenant -> region
        self._leased_ms: dict[str, int] = {}  # region -> when the last lease it was given ends, at the latest
        self._incarnation = 0

    def changed(self, plural: str, tenant: str, name: str, old: Any, new: Any, now_ms: int, incarnation: int) -> bool:
        """True where an offer was looked at."""
        if plural == "quotas" and new is not None:
            self._limits.quota(tenant, new, now_ms)
        elif plural == "overrides" and new is not None:
            self._limits.override(new)
        elif plural == "grantterms" and new is not None and (old is None or old.spec != new.spec):
            self._answered(name, new)
        return plural == "grants" and self._granted(tenant, name, old, new, now_ms, incarnation)

    def _answered(self, region: str, term: GrantTerm) -> None:
        spec = term.spec
        if not spec.lease_seconds or spec.until_time is None:
            return
        until_ms = _ms(spec.until_time)
        self._leased_ms[region] = max(self._leased_ms.get(region, 0), until_ms)
        for tenant, table in self._offered.items():
            if region in table:
                table[region].answered(spec.floors.get(tenant, 0), until_ms)

    def _granted(self, tenant: str, region: str, old: Grant | None, new: Grant | None, now_ms: int, incarnation: int) -> bool:
        table = self._offered.setdefault(tenant, {})
        if incarnation != self._incarnation:
            self._incarnation = incarnation
            for offered in (each for regions in self._offered.values() for each in regions.values()):
                offered.accepted = 0
        if new is None:
            table.pop(region, None)
            return False
        asked = tenant in self._limits.tenants() and new.spec.lease_seconds > 0 and (old is None or old.spec != new.spec)
        if old is not None and region in table:
            table[region].carried(old)  # nobody offers anything by writing again what is there; another history may count it anew
        before = self._exposed(tenant, now_ms) if asked else NOTHING
        is_told = _is_told(new, incarnation)
        table.setdefault(region, _Offered()).wrote(new, self._leased_ms.get(region, 0), is_told and asked)
        if asked and not is_told:
            limits, parts = self._limits.of(tenant, now_ms), self._parts(tenant, now_ms)
            total = self._exposed(tenant, now_ms)
            raised = {name for name, amount, _ in total.exceeding(before)}
            for name, amount, limit in total.exceeding(limits):
                if name in raised:
                    self._found("S5", f"tenant {tenant} was offered {amount} {name} of {limit}: {parts}")
        return asked

    def _exposed(self, tenant: str, now_ms: int) -> Resources:
        total = NOTHING
        for part in self._parts(tenant, now_ms).values():
            total += part
        return total

    def _parts(self, tenant: str, now_ms: int) -> dict[str, Resources]:
        """By region. Those of regions that were written off are nobody's."""
        regions = self._objects.get("regions", {})
        return {
            region: offered.exposed(now_ms)
            for region, offered in self._offered.get(tenant, {}).items()
            if ("", region) in regions or not regions
        }


def _stands_on(grant: Grant) -> int:
    said = grant.status.accepted_version
    return said if said <= grant.spec.version else 0  # of books that were lost


def _is_told(grant: Grant, incarnation: int) -> bool:
    """A restored plane writes down what a region told it that it holds: nobody offers anything by that."""
    return incarnation > 1 and grant.status.heard == incarnation and grant.spec.during == grant.status.told


class EscrowChecker:
    """What all regions together use or could use, at one true moment."""

    def __init__(self) -> None:
        self.checked = 0
        self.above = 0  # looks at which more was used than quotas have, while an emergency added to them
        self._limits = Limits()
        self._told: set[str] = set()

    def look(self, above: Objects, regions: Iterable[RegionNow], now_ms: int = 0, true_ms: int = 0) -> list[str]:
        """`now_ms`: the global plane's time."""
        regions = list(regions)
        for (tenant, _), quota in above.get("quotas", {}).items():
            self._limits.quota(tenant, quota)
        for override in above.get("overrides", {}).values():
            self._limits.override(override, true_ms)
        out = []
        for tenant in self._limits.tenants():
            self.checked += 1
            found = self._of_tenant(tenant, regions, now_ms, true_ms)
            if found and tenant not in self._told:
                self._told.add(tenant)
                out.append(found)
        return out

    def _of_tenant(self, tenant: str, regions: list[RegionNow], now_ms: int, true_ms: int) -> str:
        uses, places, parts = NOTHING, NOTHING, {}
        most, free = NOTHING, dict[str, Resources]()
        for region in regions:
            grant: Grant | None = region.objects.get("grants", {}).get((tenant, region.name))
            may = NOTHING
            if grant is not None and region.now_ms is not None:
                term = region.objects.get("grantterms", {}).get(("", region.name))
                may = spendable(grant, term, region.incarnation, region.now_ms)
            used = in_use(region.objects, tenant, region.runs, region.incarnation + region.behind)
            parts[region.name], free[region.name] = _most(used, may), may
            uses, places, most = uses + used, places + may, most + parts[region.name]
        base, limits = self._limits.without(tenant, now_ms), self._limits.placing(tenant, now_ms, true_ms)
        self.above += limits != base and bool(uses.exceeding(base))
        for name, amount, limit in most.exceeding(self._limits.of(tenant, now_ms, true_ms)):
            return f"tenant {tenant} uses or could use {amount} {name} of {limit}: {parts}"
        for name, amount, limit in places.exceeding(limits):
            return f"tenant {tenant} could place {amount} {name} of {limit}: {free}"
        return ""


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
