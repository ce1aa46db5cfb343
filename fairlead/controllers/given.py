"""What each tenant was given in each region, kept in step with the assignments, and whom it helps when some of it is given back.

Observation only. Owned and read by the workload controller.
"""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.controllers.cache import Cache, Item, Name
from fairlead.decide.overflow import fits_in
from fairlead.decide.spans import size
from fairlead.model.kinds.capacity import Grant
from fairlead.model.kinds.work import Assignment
from fairlead.model.resources import NOTHING, Resources


class GivenTotals:
    """What each tenant was given in each region, and what waits for capacity there, kept in step with the assignments: a tenant
    may have thousands of workloads."""

    def __init__(self, cache: Cache) -> None:
        self._totals: dict[Name, Resources] = {}  # (tenant, region)
        self._short: dict[str, dict[Resources, int]] = {}  # region -> what slots that wait ask for -> in how many assignments
        self.freed: set[str] = set()  # tenants of which something was given back, or waits no longer, since somebody asked
        for item in cache.all("assignments"):
            self.told(None, item)

    def told(self, old: Item | None, new: Item | None) -> None:
        for item, by in ((old, -1), (new, 1)):
            if item is not None and item.plural == "assignments" and _waits_for_capacity(item.hot):
                here, ask = self._short.setdefault(item.hot.spec.region, {}), item.hot.spec.requests
                here[ask] = here.get(ask, 0) + by
                if not here[ask]:
                    del here[ask]
        before, after = (item if item is not None and item.plural == "assignments" else None for item in (old, new))
        if before is not None and _waits_for_capacity(before.hot) and not (after is not None and _waits_for_capacity(after.hot)):
            self.freed.add(before.tenant)
        if before is not None and after is not None and _same_gift(before.hot, after.hot):
            return  # its status, as most changes are
        for item, sign in ((before, -1), (after, 1)):
            if item is not None:
                place = (item.tenant, item.hot.spec.region)
                self._totals[place] = self._totals.get(place, NOTHING) + given_by(item.hot).times(sign)
        if before is not None and given_by(before.hot).exceeding(given_by(after.hot) if after is not None else NOTHING):
            self.freed.add(before.tenant)

    def is_crowded(self, region: str, ask: Resources, own: Assignment | None) -> bool:
        """Something else that is no larger waits for capacity there."""
        mine = own.spec.requests if own is not None and _waits_for_capacity(own) else None
        return any(count > (small == mine) and fits_in(small, ask) for small, count in self._short.get(region, {}).items())

    def beside(self, place: Name, own: Iterable[Assignment]) -> Resources:
        """Without what these were given."""
        total = self._totals.get(place, NOTHING)
        for assignment in own:
            total = total - given_by(assignment)
        return total


def _waits_for_capacity(assignment: Assignment) -> bool:
    return any(why.reason == "WaitingForCapacity" for why in assignment.status.pending)


def is_over(assignment: Assignment) -> bool:
    """Nothing of it is to run: it is suspended, or a job that has ended."""
    spec, said = assignment.spec, assignment.status.conditions
    return spec.suspend or (spec.job is not None and any(c.type in ("Complete", "Failed") and c.status == "True" for c in said))


def _same_gift(one: Assignment, other: Assignment) -> bool:
    return one.spec == other.spec and is_over(one) == is_over(other)


def given_by(assignment: Assignment) -> Resources:
    order = assignment.spec
    if is_over(assignment):
        return NOTHING
    running = min(order.job.parallelism, size(order.slots)) if order.job is not None else size(order.slots)
    return order.requests.times(running)


class Waiting:
    """Workloads that more room may help. A tenant may have thousands: no others are looked at because there is more of it."""

    def __init__(self) -> None:
        self._keys: dict[str, dict[Name, None]] = {}  # by tenant
        self._granted: dict[Name, bool] = {}  # grants, as they were seen last: whether there is anything in them

    def note(self, key: Name, waits: bool) -> None:
        if waits:
            self._keys.setdefault(key[0], {})[key] = None
        else:
            self._keys.get(key[0], {}).pop(key, None)

    def helped(self, cache: Cache, tenant: str) -> Iterable[Name]:
        """Those that wait, where another of the same tenant has given room back."""
        totals = cache.derived
        if not isinstance(totals, GivenTotals) or tenant not in totals.freed:
            return ()
        totals.freed.discard(tenant)
        return tuple(self._keys.get(tenant, ()))

    def granted(self, cache: Cache, item: Item) -> Iterable[Name]:
        """All of its tenant, where a grant has something to use now, or has it no longer; where that is more or less, those that
        wait: the others have their places, and keep them."""
        there = _has_something(cache.get("grants", *item.key))
        if self._granted.get(item.key) == there:
            return tuple(self._keys.get(item.tenant, ()))
        self._granted[item.key] = there
        return [each.key for each in cache.by("workloads", "tenant", item.tenant)]

    def has_something(self, grant: Grant | None, name: Name) -> bool:
        """Some of the quota is for this region, as it stands. All are looked at once when this begins, so what is seen first is
        no change."""
        there = _has_something(grant)
        self._granted.setdefault(name, there)
        return there


def _has_something(grant: Grant | None) -> bool:
    return grant is not None and not (grant.spec.lease_seconds and not grant.spec.during.amounts())
