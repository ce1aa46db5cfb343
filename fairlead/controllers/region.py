"""Owns the health of regions: Healthy, Unknown when a region's lease on the global plane has run out, Lost after that.

The lease is the one under which a region reports upward (mirror-up): while it is renewed, the region's plane leads, its store
answers it, and it reaches us. Judges all regions at once (fairlead/decide/regions.py), so that it can tell their silence from
its own deafness. Of one that is heard it says what is missing: most nodes, a zone, its sight (fairlead/decide/partial.py).
Moves nothing: what follows from a loss is the workload controller's, and later recovery's. Runs in the global plane.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from msgspec.structs import replace

from fairlead.controllers.cache import Indexes, Item, Name
from fairlead.controllers.contract import Result, View
from fairlead.controllers.gathering import condition
from fairlead.controllers.mirror import UP
from fairlead.controllers.silence import Heard, conditions_of
from fairlead.decide.partial import Part, judge_part, untaken
from fairlead.decide.regions import RegionFacts, RegionRules, RegionVerdict, is_deaf, judge_regions
from fairlead.decide.slots import instant, millis
from fairlead.model.commands import PutStatus
from fairlead.model.kinds.intent import Region, RegionStatus
from fairlead.model.kinds.ledger import Lease
from fairlead.model.meta import Condition, set_condition

LOOK_MS: Final = 1000
COUNTS_MS: Final = 30_000  # counts that mean nothing new are written so often: everybody who places looks at a changed Region
WHOLE: Final = "Whole"
_ALL: Final[Name] = ("", "all")  # regions are judged together


class RegionController:
    name = "region"
    follows = ("regions", "leases", "grantterms")
    follows_other: tuple[str, ...] = ()
    indexes: Indexes = {}
    indexes_other: Indexes = {}
    hears = False
    for_many = True  # regions
    judges_silence = True  # of regions, by the leases they renew

    def __init__(self, rules: RegionRules | None = None) -> None:
        self._rules = rules or RegionRules()
        self._deaf_ms = 0  # when no region at all was heard last; soft
        self._counted_ms: dict[str, int] = {}  # when a region's nodes were written down last; soft
        self._untaken: dict[str, tuple[int, int]] = {}  # region -> an answer it has not seen, and since when; soft

    def keys(self, view: View, item: Item, other: bool) -> Iterable[Name]:
        if item.plural == "grantterms":  # what is not taken is looked at by the clock
            return ()
        return (_ALL,) if item.plural == "regions" or item.name.startswith(UP) else ()

    def resync(self, view: View) -> Iterable[Name]:
        return (_ALL,)

    def reconcile(self, key: Name, view: View, now_ms: int) -> Result:
        items = {item.name: item for item in view.cache.all("regions")}
        facts = [_facts(item.hot, view.cache.get("leases", "", f"{UP}{name}")) for name, item in items.items()]
        if is_deaf(facts, view.since_ms, now_ms, self._rules):
            self._deaf_ms = now_ms
        bodies = []
        for verdict in judge_regions(facts, view.since_ms, now_ms, self._rules, self._deaf_ms):
            item = items[verdict.name]
            status = self._with_part(_status(item.hot, verdict, now_ms), verdict, view, now_ms)
            if status != item.hot.status:
                bodies.append(PutStatus("Region", "", verdict.name, status, expected_revision=view.revision(item)))
        return Result(bodies, now_ms + LOOK_MS)

    def _with_part(self, status: RegionStatus, verdict: RegionVerdict, view: View, now_ms: int) -> RegionStatus:
        """What is missing of a region that is heard. Of one that is not nobody knows; the nodes of one that says nothing of them
        are as before, and whether it is behind is asked all the same."""
        name = verdict.name
        before = condition(status.conditions, "Partial")
        if verdict.health != "Healthy":
            known = before is not None and before.status == "True"
            return _said(status, Part("Silent", "it is not heard"), "Unknown", now_ms) if known else status
        lease: Lease | None = view.cache.get("leases", "", f"{UP}{name}")
        zones = lease.status.zones if lease is not None else ()
        behind_s = self._behind_s(name, view, now_ms)
        if not zones and not behind_s and (before is None or before.status == "False"):
            return status
        part = judge_part(zones or status.zones, behind_s)
        now: Literal["True", "False"] = "True" if part.reason else "False"
        if before is None or (before.status, before.reason) != (now, part.reason or WHOLE):
            status = _said(status, part, now, now_ms)
        elif not zones or zones == status.zones or now_ms - self._counted_ms.get(name, 0) < COUNTS_MS:
            return status
        self._counted_ms[name] = now_ms
        return replace(_said(status, part, now, now_ms), zones=zones or status.zones)

    def _behind_s(self, name: str, view: View, now_ms: int) -> float:
        """For how long an answer has lain here for it that it has not said to have seen. Counted from when it was seen here."""
        answer = untaken(view.cache.get("grantterms", "", name))
        known, since_ms = self._untaken.get(name, (0, now_ms))
        if answer != known:
            since_ms = now_ms
        self._untaken[name] = (answer, since_ms)
        return (now_ms - max(since_ms, view.since_ms)) / 1000 if answer else 0.0


def _said(status: RegionStatus, part: Part, is_partial: Literal["True", "False", "Unknown"], now_ms: int) -> RegionStatus:
    said = Condition(
        type="Partial", status=is_partial, reason=part.reason or WHOLE, message=part.why, last_transition_time=instant(now_ms)
    )
    return replace(status, conditions=set_condition(status.conditions, said))


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
