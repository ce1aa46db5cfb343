"""Owns the health of regions: Healthy, Unknown when a region's lease on the global plane has run out, Lost after that.

The lease is the one under which a region reports upward (mirror-up): while it is renewed, the region's plane leads, its store
answers it, and it reaches us. Judges all regions at once (fairlead/decide/regions.py), so that it can tell their silence from
its own deafness. Moves nothing: what follows from a loss is the workload controller's, and later recovery's.
Runs in the global plane.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from fairlead.controllers.cache import Indexes, Item, Name
from fairlead.controllers.contract import Result, View
from fairlead.controllers.mirror import UP
from fairlead.controllers.silence import Heard, conditions_of
from fairlead.decide.regions import RegionFacts, RegionRules, RegionVerdict, judge_regions
from fairlead.decide.slots import millis
from fairlead.model.commands import PutStatus
from fairlead.model.kinds.intent import Region, RegionStatus
from fairlead.model.kinds.ledger import Lease

LOOK_MS: Final = 1000
_ALL: Final[Name] = ("", "all")  # regions are judged together


class RegionController:
    name = "region"
    follows = ("regions", "leases")
    follows_other: tuple[str, ...] = ()
    indexes: Indexes = {}
    indexes_other: Indexes = {}
    hears = False
    judges_silence = True  # of regions, by the leases they renew

    def __init__(self, rules: RegionRules | None = None) -> None:
        self._rules = rules or RegionRules()

    def keys(self, view: View, item: Item, other: bool) -> Iterable[Name]:
        return (_ALL,) if item.plural == "regions" or item.name.startswith(UP) else ()

    def resync(self, view: View) -> Iterable[Name]:
        return (_ALL,)

    def reconcile(self, key: Name, view: View, now_ms: int) -> Result:
        items = {item.name: item for item in view.cache.all("regions")}
        facts = [_facts(item.hot, view.cache.get("leases", "", f"{UP}{name}")) for name, item in items.items()]
        bodies = []
        for verdict in judge_regions(facts, view.since_ms, now_ms, self._rules):
            item = items[verdict.name]
            status = _status(item.hot, verdict, now_ms)
            if status != item.hot.status:
                bodies.append(PutStatus("Region", "", verdict.name, status, expected_revision=view.revision(item)))
        return Result(bodies, now_ms + LOOK_MS)


def _facts(region: Region, lease: Lease | None) -> RegionFacts:
    name, health = region.metadata.name, region.status.health
    if lease is None or lease.spec.renewed_time is None:
        return RegionFacts(name, health, 0, 0.0)
    return RegionFacts(name, health, millis(lease.spec.renewed_time), lease.spec.ttl_seconds)


def _status(region: Region, verdict: RegionVerdict, now_ms: int) -> RegionStatus:
    """The region's status after a verdict; equal to the one before where nothing changed."""
    status, generation = region.status, region.metadata.generation
    heard = Heard(verdict.health == "Healthy", verdict.health == "Lost", verdict.mass_silence, verdict.why)
    changed = verdict.health != status.health
    conditions = conditions_of(status.conditions, heard, "MassSilence", changed=changed, generation=generation, now_ms=now_ms)
    return replace(status, health=verdict.health, conditions=conditions, observed_generation=generation)
