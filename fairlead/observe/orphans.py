"""L6, and what of L4 is about what should be gone: nothing is being deleted still, and nothing is there whose reason is not.

Asked of all kinds: an instance has its binding, an order its workload, endpoints their workload, a room that is held its holding,
and a holding its budget. `OrphanChecker` remembers since when each is there. Called by agreement.py, and by the simulator after
healing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from fairlead.observe.differing import Difference, Objects

# Renewed, told or only ever removed at once: nobody waits for one of these to go, and there are many.
_NOT_ASKED: Final = ("bindings", "decisions", "events", "instances", "leases", "schedulingrequests")
BOUND_S: Final = 90.0  # L6
_LASTS: Final = "emergency-quota"  # the override that is over only when what it allowed is gone, which may take minutes


class OrphanChecker:
    """Look every few seconds; it remembers since when each orphan was there."""

    def __init__(self) -> None:
        self.checked = 0
        self._since_s: dict[str, float] = {}

    def look(self, now_s: float, found: Iterable[Difference]) -> list[str]:
        """`found`: all that differs at this moment."""
        orphans = {one.orphan: one.detail for one in found if one.orphan}
        self.checked += len(orphans)
        self._since_s = {orphan: self._since_s.get(orphan, now_s) for orphan in orphans}
        late = [(orphan, now_s - since_s) for orphan, since_s in self._since_s.items() if now_s - since_s > BOUND_S]
        return [f"{orphans[orphan]}, for {for_s:.0f} s" for orphan, for_s in late]


def orphans(top: Objects, regions: Mapping[str, Objects], *, lost: bool = False) -> list[Difference]:
    """`lost`: a region is, and stays so; what waits for it in the global plane is not asked for. Workloads that are being deleted
    are agreement.py's."""
    out: list[Difference] = []
    uids = {workload.metadata.uid for workload in top.get("workloads", {}).values()}
    if not lost:
        out += _going("global", top)
        out += _unordered("global", top, uids)
        budgets = top.get("recoverybudgets", {})
        for (tenant, name), holding in top.get("holdings", {}).items():
            if (tenant, holding.spec.budget) not in budgets:
                out.append(_of(holding, f"{tenant}/{name} is a part of {holding.spec.budget}, which is no budget"))
    for region, objects in regions.items():
        out += _going(region, objects)
        out += _unordered(region, objects, uids)
        out += _unbound(region, objects)
        out += _unheld(region, objects)
    return out


def _going(plane: str, objects: Objects) -> Iterator[Difference]:
    for plural, table in objects.items():
        if plural in _NOT_ASKED or (plural, plane) == ("workloads", "global"):
            continue
        for (tenant, name), one in table.items():
            meta = one.metadata
            if meta.deletion_time is not None and not (plural == "overrides" and one.spec.kind == _LASTS):
                what = f"{plural} {tenant}/{name} in {plane}"
                detail = f"{what} is being deleted still, and waits for {', '.join(meta.finalizers) or 'nobody'}"
                yield _of(one, detail, what)


def _unordered(plane: str, objects: Objects, uids: set[str]) -> Iterator[Difference]:
    """Orders and endpoints of no workload."""
    for plural in ("assignments", "endpoints"):
        for (tenant, name), one in objects.get(plural, {}).items():
            if one.spec.workload_uid not in uids and one.metadata.deletion_time is None:
                yield _of(one, f"{plural} {tenant}/{name} in {plane} is of no workload")


def _unbound(region: str, objects: Objects) -> Iterator[Difference]:
    bindings = objects.get("bindings", {})
    for at, instance in objects.get("instances", {}).items():
        bound, spec = bindings.get(at), instance.spec
        if bound is None or (bound.spec.node, bound.spec.token) != (spec.node, spec.token):
            detail = f"instance {'/'.join(at)} in {region} is on {spec.node} and has no binding there"
            yield _of(instance, detail)


def _unheld(region: str, objects: Objects) -> Iterator[Difference]:
    holdings = objects.get("holdings", {})
    for (tenant, name), one in objects.get("reservations", {}).items():
        if one.spec.budget and (tenant, f"{one.spec.budget}.{region}") not in holdings:
            yield _of(one, f"{tenant}/{name} in {region} is held for {one.spec.budget}, which holds nothing here")


def _of(one: Any, detail: str, what: str = "") -> Difference:
    """`what`: it, where the rest of the detail changes. Whatever is made again under its name is another."""
    return Difference(detail, orphan=f"{what or detail} {one.metadata.uid}")
