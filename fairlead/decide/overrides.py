"""Which overrides are in force at a moment, for whom, and until when. Pure; the one answer for scheduler, authority, controllers.

An override's effect ends by evaluation: whoever acts on one asks here, with the time of the plane it acts in, and gets nothing
from the instant it ends. Nobody's clean-up is needed for that, and no word from another plane: a copy carries how old its
original was when it came, so a region that is cut off ends it by its own clock, never later than its TTL after it learnt of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any, Final, NamedTuple

import numpy as np

from fairlead.decide.admission.policy import APPROVED_KINDS, EVERYONE, person_of
from fairlead.decide.classes import Classes, NodeClass
from fairlead.decide.gates import NO_MATCH
from fairlead.decide.need import Need, Row, View
from fairlead.decide.slots import instant, millis
from fairlead.decide.tiers import Tier
from fairlead.model.kinds.policy import Override

__all__ = [
    "AGE_MS", "APPROVED_KINDS", "EVERYONE", "Avoidance", "Overrides", "Where", "all_in_force", "concerns", "ends_at", "ends_ms",
    "in_force", "is_agreed", "is_in_force", "soon_ms", "stage_of", "starts_ms", "stills_pools", "tenants_of",
    "touches", "words",
]  # fmt: skip
AGE_MS: Final = "fairlead.dev/mirrored-age-ms"  # on a copy: how old the original was, by its own plane's clock
ENDED_TOLD_MS: Final = 15 * 60_000  # an alert is seen by then, and nobody is reminded of what is over
SOON_SHARE: Final = 0.8  # of its TTL: from here on it is said to end soon


class Where(NamedTuple):
    """Of whom and where it is asked. An empty part is not asked about: no override that names one there matches it."""

    tenant: str = ""
    workload: str = ""
    region: str = ""
    zone: str = ""


def starts_ms(override: Override) -> int:
    """When its time began, on the clock of the plane this object is in."""
    meta = override.metadata
    age = meta.annotations.get(AGE_MS, "0")
    return millis(meta.creation_time) - (int(age) if age.isdecimal() else 0)


def ends_ms(override: Override) -> int:
    """From this instant on it has no effect."""
    return starts_ms(override) + override.spec.ttl_seconds * 1000


def soon_ms(override: Override) -> int:
    return starts_ms(override) + int(override.spec.ttl_seconds * 1000 * SOON_SHARE)


def ends_at(override: Override) -> datetime | None:
    return instant(ends_ms(override))


def is_agreed(override: Override) -> bool:
    """Whether a second person has agreed, where one must."""
    spec = override.spec
    return spec.kind not in APPROVED_KINDS or bool(spec.approver and person_of(spec.approver) != person_of(spec.requester))


def is_in_force(override: Override, now_ms: int) -> bool:
    """Revoking is deleting: what is being deleted has no effect any more, whatever its finalizer waits for."""
    return override.metadata.deletion_time is None and is_agreed(override) and now_ms < ends_ms(override)


def stage_of(override: Override, now_ms: int) -> str:
    """Where it is on its way, for alerts; empty: nobody need be told of it any more."""
    if override.metadata.deletion_time is not None:
        return ""
    if now_ms >= ends_ms(override):
        recent = is_agreed(override) and now_ms < ends_ms(override) + ENDED_TOLD_MS
        return "ended" if recent else ""
    if not is_agreed(override):
        return "awaiting-approval"
    return "ends-soon" if now_ms >= soon_ms(override) else "in-force"


def tenants_of(override: Override) -> tuple[str, ...]:
    """Whom it is about: those it names, else the tenant it belongs to. EVERYONE: all."""
    return override.spec.scope.tenants or (override.metadata.namespace,)


def concerns(override: Override, where: Where) -> bool:
    scope, tenants = override.spec.scope, tenants_of(override)
    return (
        (EVERYONE in tenants or where.tenant in tenants)
        and (not scope.workloads or bool({where.workload, f"{where.tenant}/{where.workload}"} & set(scope.workloads)))
        and (not scope.regions or where.region in scope.regions)
        and (not scope.zones or where.zone in scope.zones)
    )


def touches(override: Override, tenant: str, workload: str, regions: Collection[str]) -> bool:
    """Whether it is about this work in any region that it has slots in; of work that has none yet, in whichever."""
    scope = override.spec.scope
    zone = next(iter(scope.zones), "")
    return any(concerns(override, Where(tenant, workload, region, zone)) for region in sorted(regions) or scope.regions or ("",))


def stills_pools(override: Override) -> bool:
    """Of an autoscaler-pause: whether node pools stand still, and not only what waits of some work adds no node to them. Pools
    are for everybody's work."""
    return EVERYONE in tenants_of(override) and not override.spec.scope.workloads


def in_force(overrides: Iterable[Override], kind: str, now_ms: int, where: Where) -> Override | None:
    """The override of that kind that holds there now; of several, the one that lasts longest."""
    found = [each for each in overrides if each.spec.kind == kind and is_in_force(each, now_ms) and concerns(each, where)]
    return max(found, key=lambda each: (ends_ms(each), each.metadata.namespace, each.metadata.name), default=None)


def all_in_force(overrides: Iterable[Override], kind: str, now_ms: int) -> list[Override]:
    """Every override of that kind that is in force, whomever it is about; in the order of their names."""
    found = [each for each in overrides if each.spec.kind == kind and is_in_force(each, now_ms)]
    return sorted(found, key=lambda each: (each.metadata.namespace, each.metadata.name))


def words(override: Override) -> str:
    """For whoever waits because of it."""
    spec, meta = override.spec, override.metadata
    end = ends_at(override)
    until = f" until {end:%H:%M:%S} UTC" if end is not None else ""
    return f"{spec.kind} {meta.namespace}/{meta.name} by {spec.requester or 'nobody'}{until}: {spec.reason}"


class Overrides:
    """The overrides of a plane, kept for quick answers. The authority and the scheduler tell theirs of every change."""

    def __init__(self) -> None:
        self._all: dict[tuple[str, str], Override] = {}
        self._of_kind: dict[str, list[Override]] = {}
        self._avoidances: dict[Where, Avoidance | None] = {}
        self.version = 0  # grows when an answer given before may be another now

    def __iter__(self) -> Any:
        return iter(self._all.values())

    def set(self, tenant: str, name: str, override: Override | None) -> None:
        if override is None:
            self._all.pop((tenant, name), None)
        else:
            self._all[tenant, name] = override
        self._of_kind = {}
        for _, each in sorted(self._all.items()):
            self._of_kind.setdefault(each.spec.kind, []).append(each)
        self.changed()

    def changed(self) -> None:
        self._avoidances.clear()
        self.version += 1

    def has(self, kind: str) -> bool:
        """Whether there is one of that kind, in force or not."""
        return kind in self._of_kind

    def found(self, kind: str, now_ms: int, where: Where) -> Override | None:
        candidates = self._of_kind.get(kind)
        return in_force(candidates, kind, now_ms, where) if candidates else None

    def next_end_ms(self, after_ms: int) -> int | None:
        """When the next of them ends."""
        return min((end for end in map(ends_ms, self._all.values()) if end > after_ms), default=None) if self._all else None

    def tells_workloads_apart(self) -> bool:
        return any(each.spec.scope.workloads for each in self._of_kind.get("zone-avoidance", ()))

    def avoidance(self, tenant: str, workload: str, classes: Classes) -> Avoidance | None:
        """The gate that keeps this work out of zones to be avoided; None, as nearly always, where there is none."""
        candidates = self._of_kind.get("zone-avoidance")
        if not candidates:
            return None
        key = Where(tenant, workload)
        if key not in self._avoidances:
            scoped = [each for each in candidates if concerns(each, _anywhere(each, key))]
            self._avoidances[key] = Avoidance(classes, key, tuple(scoped)) if scoped else None
        return self._avoidances[key]


def _anywhere(override: Override, where: Where) -> Where:
    """A place the override would hold in: whether it is about this work at all."""
    scope = override.spec.scope
    return where._replace(region=next(iter(scope.regions), ""), zone=next(iter(scope.zones), ""))


class Avoidance:
    """A hard gate that comes with the need (P18): of each node class, until when it is avoided. Asked with the view's time, so it
    ends by itself at the scheduler and at commit."""

    name = "avoided"
    tier = Tier.INVARIANT
    reason = NO_MATCH

    def __init__(self, classes: Classes, where: Where, overrides: tuple[Override, ...]) -> None:
        self._classes = classes
        self._where = where
        self._overrides = tuple(each for each in overrides if each.metadata.deletion_time is None and is_agreed(each))
        self._until = np.zeros(0, np.int64)
        self.key = tuple((each.metadata.namespace, each.metadata.name, ends_ms(each)) for each in self._overrides)

    def check(self, need: Need, row: Row, view: View) -> Any:
        return self._table()[row.node_class] <= view.now_ms

    def why(self, need: Need, row: Row, view: View) -> str:
        node_class = self._classes[row.node_class]
        found = in_force(self._overrides, "zone-avoidance", view.now_ms, self._in(node_class))
        return f"zone {node_class.zone} is avoided: {words(found)}" if found is not None else "its zone is avoided"

    def _table(self) -> Any:
        if len(self._until) < len(self._classes):  # classes appear as nodes do
            classes = [self._classes[number] for number in range(len(self._classes))]
            self._until = np.array([self._ends(node_class) for node_class in classes], np.int64)
        return self._until

    def _ends(self, node_class: NodeClass) -> int:
        where = self._in(node_class)
        return max((ends_ms(each) for each in self._overrides if concerns(each, where)), default=0)

    def _in(self, node_class: NodeClass) -> Where:
        return self._where._replace(region=node_class.region, zone=node_class.zone)
