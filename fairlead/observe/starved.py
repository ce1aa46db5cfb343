"""L1 asked of several planes: no slot waits for quota alone while its tenant's quota has room that nobody uses or needs.

A region may place what it was granted and no more, so a grant that is never made larger proves every wait. What docs/quota.md
promises where all regions are heard: quota goes first to what is used, then to what is protected, then to what waits. So where
all of that together is within the limits, each slot that waits gets its part. Whatever waits counts as needed, also what has no
node: it keeps what it was given. Its own sums, nothing of the quota controllers'. Called by the simulator after healing, where
no region stays lost: one that is not heard keeps its part until its lease has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from fairlead.model.resources import NOTHING, Resources
from fairlead.observe.escrow import Objects, RegionNow, in_use
from fairlead.observe.waiting import is_granted, node_for

BOUND_S: Final = 60.0  # L4's: a region gives up, the global plane hears of it and offers, the other takes it, and binds (L1)


class StarvedChecker:
    """Look every second or so; it remembers since when each waits for quota that is there."""

    def __init__(self) -> None:
        self.checked = 0
        self._since_s: dict[tuple[str, str, str], float] = {}

    def look(self, now_s: float, above: Objects, regions: Sequence[RegionNow]) -> list[str]:
        out, since_s = [], dict[tuple[str, str, str], float]()
        for tenant in {tenant: None for each in regions for tenant, _ in each.objects.get("schedulingrequests", {})}:
            waits = [(each, request) for each in regions for request in _short(each, tenant)]
            if not waits or not _has_room(above, tenant, regions):
                continue
            for each, request in waits:
                self.checked += 1
                key = (each.name, tenant, request.metadata.name)
                since_s[key] = self._since_s.get(key, now_s)
                if now_s - since_s[key] > BOUND_S:
                    waited = f"{tenant}/{request.metadata.name} in {each.name} has waited {now_s - since_s[key]:.0f} s for quota"
                    out.append(f"{waited}, and what {tenant} uses and needs everywhere is within its limits")
        self._since_s = since_s
        return out


def _short(region: RegionNow, tenant: str) -> list[Any]:
    """What waits there for quota alone. A gang waits whole, for as much at once."""
    if region.now_ms is None:
        return []
    return [
        request
        for request in _waiting(region, tenant)
        if not request.spec.gang
        and not is_granted(request, region.objects, region.incarnation, region.now_ms)
        and node_for(request, region.objects)
    ]


def _waiting(region: RegionNow, tenant: str) -> Iterable[Any]:
    requests = region.objects.get("schedulingrequests", {}).items()
    return (request for (owner, _), request in requests if owner == tenant and not request.spec.suspend)


def _has_room(above: Objects, tenant: str, regions: Sequence[RegionNow]) -> bool:
    """Whether all that is used and needed is within each Quota that it has; without one its grants are people's."""
    limits = [quota.spec.limits for (owner, _), quota in above.get("quotas", {}).items() if owner == tenant]
    needed = _needed(above, tenant, regions) if limits else NOTHING
    return bool(limits) and not any(needed.exceeding(limit) for limit in limits)


def _needed(above: Objects, tenant: str, regions: Sequence[RegionNow]) -> Resources:
    total = NOTHING
    for region in regions:
        here = in_use(region.objects, tenant)
        for request in _waiting(region, tenant):
            here += request.spec.ask.requests
        for (owner, _), holding in region.objects.get("holdings", {}).items():
            for shape in holding.spec.shapes if owner == tenant else ():
                here += shape.requests.times(shape.count)
        for (owner, _), quota in above.get("quotas", {}).items():
            if owner == tenant and region.name in quota.spec.protected:
                here += quota.spec.protected[region.name]
        total += here
    return total
