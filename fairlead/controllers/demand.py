"""What the assignments of each tenant use and wait for in a region, added up change by change: a tenant may have thousands.

Owns sums and nothing else; asks no ledger. Kept in step by the grant controller's cache, read by the grant controller alone.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from fairlead.controllers.cache import Cache, Item, Name, workload_in_spec
from fairlead.model.kinds.work import Assignment, Revision
from fairlead.model.resources import NOTHING, SHARE_WHOLE, Resources

WAITS: Final = frozenset({"WaitingForQuota", "ExceedsMaxQuota"})
UNPLACED: Final = frozenset({"WaitingForCapacity", "NoMatchingCapacity", "TopologyBlocked"})


class Part(NamedTuple):
    slots: int = 0  # that hold something
    used: Resources = NOTHING  # by those. Tells when it is worth asking the ledger again; the ledger's figure is what counts
    waiting: Resources = NOTHING  # for quota
    unplaced: Resources = NOTHING  # for room on a node


class Demand:
    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._parts: dict[Name, Part] = {}
        self._totals: dict[str, Part] = {}
        for item in cache.all("assignments"):
            self._count(item.key, item)

    def told(self, old: Item | None, new: Item | None) -> None:
        item = new or old
        assert item is not None, "something has changed"
        if item.plural == "assignments":
            self._count(item.key, new)
        elif item.plural == "revisions":  # what a slot is charged may be known only now
            for each in self._cache.by("assignments", "workload", workload_in_spec(item)):
                self._count(each.key, each)

    def of(self, tenant: str) -> Part:
        return self._totals.get(tenant, Part())

    def _count(self, key: Name, item: Item | None) -> None:
        part = self._part(item.hot) if item is not None else Part()
        before, total = self._parts.pop(key, Part()), self.of(key[0])
        if item is not None:
            self._parts[key] = part
        self._totals[key[0]] = Part(
            total.slots - before.slots + part.slots,
            total.used - before.used + part.used,
            total.waiting - before.waiting + part.waiting,
            total.unplaced - before.unplaced + part.unplaced,
        )

    def _part(self, assignment: Assignment) -> Part:
        count = assignment.status.replicas
        slots = count.reserved + count.bound + count.draining + count.unknown
        waits, unplaced = (
            sum(why.count for why in assignment.status.pending if why.reason in reasons) for reasons in (WAITS, UNPLACED)
        )
        if not slots and not waits and not unplaced:
            return Part()
        one = self._of_one(assignment)
        return Part(slots, one.times(slots), one.times(waits), one.times(unplaced))

    def _of_one(self, assignment: Assignment) -> Resources:
        """What one slot is charged, devices as whole ones."""
        spec = assignment.spec
        name = f"{spec.workload}.g{spec.generation}"
        revision: Revision | None = self._cache.get("revisions", assignment.metadata.namespace, name)
        if revision is None:
            return spec.requests
        ask = revision.spec.ask
        devices = [(each.resource, -(-each.count * each.share_thousandths // SHARE_WHOLE)) for each in ask.devices]
        return ask.requests + Resources(0, 0, devices)


def kept(unplaced: Resources, limit: Resources, used: Resources) -> Resources:
    """What waits for room keeps the quota it was given for as long as it waits: taken back at once it would be asked for again at
    once. It is no reason to be given more."""
    has, uses = limit.amounts(), used.amounts()
    spare = {name: min(amount, max(0, has.get(name, 0) - uses.get(name, 0))) for name, amount in unplaced.amounts().items()}
    return Resources(spare.pop("cpu", 0), spare.pop("memory", 0), spare.items())


def demand_of(cache: Cache) -> Demand:
    demand = cache.derived
    if not isinstance(demand, Demand):
        demand = cache.derived = Demand(cache)
    return demand
