"""The regions as recovery sees them: lost, healthy, and well for so long that what stands in for them may go. Read from the
Region objects, and from the leases by which regions give a sign of life. Used by the recovery controller; decides nothing about
services.
"""

from __future__ import annotations

from typing import Final

from fairlead.controllers.cache import Cache
from fairlead.controllers.gathering import condition, is_true
from fairlead.controllers.mirror import UP
from fairlead.decide.recovery import Regions
from fairlead.decide.slots import millis
from fairlead.model.kinds.intent import Region
from fairlead.model.kinds.ledger import Lease

FRESH: Final = 0.5  # of its lease: a region renews three times in one, so one that has not for so long may be going


def regions_seen(cache: Cache, failback_s: float, now_ms: int) -> Regions:
    lost, healthy, settled, unknown, partial, suspect = set(), set(), set(), set(), set(), set()
    for item in cache.all("regions"):
        region: Region = item.hot
        if is_true(region.status.conditions, "MassSilence"):
            suspect.add(item.name)
        if region.status.health == "Lost":
            lost.add(item.name)
        elif region.status.health == "Healthy":
            healthy.add(item.name)
            if is_true(region.status.conditions, "Partial"):
                partial.add(item.name)
            ready = condition(region.status.conditions, "Ready")
            since_ms = millis(ready.last_transition_time) if ready is not None and ready.last_transition_time else 0
            if now_ms - since_ms >= failback_s * 1000 and _is_fresh(cache, item.name, now_ms):
                settled.add(item.name)
        else:
            unknown.add(item.name)
    found = (lost, healthy, settled, unknown, partial, suspect)
    return Regions(*(frozenset(each) for each in found))


def _is_fresh(cache: Cache, region: str, now_ms: int) -> bool:
    """Heard within the last half of its lease. It is healthy for longer than that; but what stands in for it does not go in the
    very seconds in which it may have been lost again."""
    lease: Lease | None = cache.get("leases", "", f"{UP}{region}")
    if lease is None or lease.spec.renewed_time is None:
        return True
    return now_ms - millis(lease.spec.renewed_time) <= FRESH * lease.spec.ttl_seconds * 1000
