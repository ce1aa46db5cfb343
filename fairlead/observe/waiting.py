"""L1 asked of a region's objects: work that waits although a node has room for it is bound within its bound.

Its own sums over nodes and grants, nothing of the scheduler's. It knows isolation and pools, and no affinity, residency or
overrides: whoever feeds it keeps those out of the work, as the simulator does once it has healed. Where it says that no node has
room, that waiting is proven and needs no excuse. Called by the simulator after healing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fairlead.model.lifecycle import HOLDS_CAPACITY
from fairlead.model.resources import NOTHING, Resources
from fairlead.observe.escrow import in_use, spendable

BOUND_S: Final = 30.0  # L1

Objects = Mapping[str, Mapping[tuple[str, str], Any]]


def room_for(request: Any, objects: Objects, incarnation: int, now_ms: int) -> str:
    """The first node that could take it; empty: none."""
    ask, tenant = request.spec.ask, request.metadata.namespace
    grants = [grant for (owner, _), grant in objects.get("grants", {}).items() if owner == tenant]
    term = next(iter(objects.get("grantterms", {}).values()), None)
    limit = spendable(grants[0], term, incarnation, now_ms) if len(grants) == 1 else NOTHING
    if (in_use(objects, tenant) + ask.requests).exceeding(limit):
        return ""
    uses: dict[str, tuple[Resources, int, int]] = {}
    for plural in ("bindings", "reservations"):
        for use in objects.get(plural, {}).values():
            if plural == "reservations" or use.status.state in HOLDS_CAPACITY:
                used, slots, devices = uses.get(use.spec.node, (NOTHING, 0, 0))
                uses[use.spec.node] = (used + use.spec.requests, slots + 1, devices + len(use.spec.devices))
    closed = _closed_to(tenant, ask.isolation, objects) | _pooled_for_others(tenant, ask.workload_class, objects)
    wanted = sum(asked.count for asked in ask.devices)
    for (_, name), node in sorted(objects.get("nodes", {}).items()):
        used, slots, devices = uses.get(name, (NOTHING, 0, 0))
        open_to_it = node.status.schedulable and not node.spec.unschedulable and node.spec.drain is None and not node.spec.taints
        fits = not (used + ask.requests).exceeding(node.spec.allocatable) and slots < node.spec.max_slots
        if (
            open_to_it
            and name not in closed
            and node.status.health == "Ready"
            and fits
            and devices + wanted <= len(node.spec.devices)
        ):
            return name
    return ""


def _closed_to(tenant: str, isolation: str, objects: Objects) -> set[str]:
    """Nodes with others' work that is by itself; and with any of others', for what is by itself."""
    out = set()
    for plural in ("bindings", "reservations"):
        for (owner, _), use in objects.get(plural, {}).items():
            there = plural == "reservations" or use.status.state in HOLDS_CAPACITY
            alone = isolation == "TenantExclusive" or (
                use.spec.marks is not None and use.spec.marks.isolation == "TenantExclusive"
            )
            if there and owner != tenant and alone:
                out.add(use.spec.node)
    return out


def _pooled_for_others(tenant: str, workload_class: str, objects: Objects) -> set[str]:
    """Nodes of pools that are open to other tenants or classes only."""
    shut = set()
    for (_, name), pool in objects.get("nodepools", {}).items():
        tenants, classes = pool.spec.allowed_tenants, pool.spec.allowed_classes
        if (tenants and tenant not in tenants) or (classes and workload_class not in classes):
            shut.add(name)
    return {name for (_, name), node in objects.get("nodes", {}).items() if node.spec.pool in shut}


class WaitingChecker:
    """Look every second or so; it remembers since when each could have been bound."""

    def __init__(self) -> None:
        self.checked = 0
        self._since_s: dict[tuple[str, str, str], float] = {}

    def look(self, now_s: float, region: str, objects: Objects, incarnation: int, now_ms: int) -> list[str]:
        out, waiting = [], set()
        for (tenant, name), request in objects.get("schedulingrequests", {}).items():
            simple = not (request.spec.suspend or request.spec.gang or request.spec.standing or request.spec.budget_name)
            node = room_for(request, objects, incarnation, now_ms) if simple else ""
            if not node:
                continue
            key = (region, tenant, name)
            waiting.add(key)
            self.checked += 1
            waits_s = now_s - self._since_s.setdefault(key, now_s)
            if waits_s > BOUND_S:
                out.append(f"{tenant}/{name} in {region} has waited {waits_s:.0f} s, and {node} has room for it")
        self._since_s = {key: since for key, since in self._since_s.items() if key in waiting or key[0] != region}
        return out
