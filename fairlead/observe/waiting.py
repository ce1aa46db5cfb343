"""L1 asked of a region's objects: work that waits although a node has room for it is bound within its bound.

Its own sums over nodes and grants, nothing of the scheduler's. It knows isolation, pools, borrowers, who must leave for whom,
what must wait until a silent node is given up, and the rules of nodes and neighbours (suited.py; those who would leave count as
if they stayed). It knows no residency and no overrides: whoever feeds it keeps those out of the work, as the simulator does once
it has healed. Where it says that no node has room, that waiting is proven and needs no excuse. Called by the simulator then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from fairlead.model.kinds.capacity import Reservation, ReservationSpec
from fairlead.model.kinds.work import Marks
from fairlead.model.lifecycle import HOLDS_CAPACITY
from fairlead.model.resources import NOTHING, Resources
from fairlead.observe.escrow import in_use, spendable
from fairlead.observe.evicting import Evictor
from fairlead.observe.suited import Neighbours, neighbour_faults, node_faults

BOUND_S: Final = 30.0  # L1
RATE_ERROR, MARGIN_S = 0.01, 2.0  # INVARIANTS' defaults: how wrong clocks may run, and what a fence waits on top

Objects = Mapping[str, Mapping[tuple[str, str], Any]]


def room_for(request: Any, objects: Objects, incarnation: int, now_ms: int) -> str:
    """The first node that could take it, if need be when those have left who must; empty: none. Of a gang that is complete: if
    there is one for each of its members."""
    fellows = _fellows(request, objects)
    if not fellows:
        return _room_alone(request, objects, incarnation, now_ms)
    tenant, first = request.metadata.namespace, ""
    reservations = dict(objects.get("reservations", {}))
    for member in fellows:
        ask = member.spec.ask
        node = _room_alone(member, {**objects, "reservations": reservations}, incarnation, now_ms) if not ask.devices else ""
        if not node:
            return ""
        first = first or node
        repels = tuple(rule for rule in ask.placement.anti_affinity if rule.required)
        marks = Marks(labels=ask.labels, ports=ask.ports, repels=repels, isolation=ask.isolation)
        taken = ReservationSpec(node=node, requests=ask.requests, slot=member.spec.slot, marks=marks)
        reservations[tenant, f" {member.metadata.name}"] = Reservation(member.metadata, taken)
    return first


def _fellows(request: Any, objects: Objects) -> list[Any]:
    """All members of a gang that is complete, and waits."""
    gang, tenant = request.spec.gang, request.metadata.namespace
    if not gang:
        return []
    waiting = objects.get("schedulingrequests", {}).items()
    members = [one for (owner, _), one in waiting if owner == tenant and one.spec.gang == gang]
    return members if len(members) == request.spec.gang_size else []


def _room_alone(request: Any, objects: Objects, incarnation: int, now_ms: int) -> str:
    return node_for(request, objects) if is_granted(request, objects, incarnation, now_ms) else ""


def is_granted(request: Any, objects: Objects, incarnation: int, now_ms: int) -> bool:
    """Whether what its tenant may use here has room for it."""
    tenant = request.metadata.namespace
    grants = [grant for (owner, _), grant in objects.get("grants", {}).items() if owner == tenant]
    term = next(iter(objects.get("grantterms", {}).values()), None)
    limit = spendable(grants[0], term, incarnation, now_ms) if len(grants) == 1 else NOTHING
    return not (in_use(objects, tenant) + request.spec.ask.requests).exceeding(limit)


def node_for(request: Any, objects: Objects) -> str:
    """The first node with room for it, whatever its tenant may use; empty: none."""
    ask, tenant, borrows = request.spec.ask, request.metadata.namespace, request.spec.may_borrow
    uses = _uses(request, objects)
    closed = _closed_to(tenant, ask.isolation, objects) | _pooled_for_others(tenant, ask.workload_class, objects)
    wanted = sum(asked.count for asked in ask.devices)
    neighbours: Neighbours | None = None  # counted once some node has the room
    for (_, name), node in sorted(objects.get("nodes", {}).items()):
        use = uses.get(name) or _Use()
        open_to_it = node.status.schedulable and node.spec.drain is None and not node_faults(ask, node)
        beside = (use.firm + use.lent,) if borrows else (use.firm + use.held, use.firm + use.lent)
        fits = not any((used + ask.requests).exceeding(node.spec.allocatable) for used in beside)
        if (
            open_to_it
            and name not in closed
            and node.status.health == "Ready"
            and fits
            and use.slots < node.spec.max_slots
            and use.devices + wanted <= len(node.spec.devices)
        ):
            neighbours = neighbours or Neighbours.of(objects)
            if not neighbour_faults(ask, tenant, request.spec.slot.uid, node, objects, neighbours):
                return name
    return ""


class _Use(msgspec.Struct):
    """Of a node, by those who stay."""

    firm: Resources = NOTHING
    held: Resources = NOTHING  # for a budget: borrowers may have it until it is claimed
    lent: Resources = NOTHING  # to borrowers
    slots: int = 0
    devices: int = 0


def _uses(request: Any, objects: Objects) -> dict[str, _Use]:
    uses: dict[str, _Use] = defaultdict(_Use)
    for reservation in objects.get("reservations", {}).values():
        spec, use = reservation.spec, uses[reservation.spec.node]
        if spec.budget:
            use.held += spec.requests
        else:
            use.firm += spec.requests
        use.slots += 1
        use.devices += len(spec.devices)
    evictor = Evictor(request, objects)
    for binding in objects.get("bindings", {}).values():
        if binding.status.state not in HOLDS_CAPACITY or evictor.may_evict(binding):
            continue
        spec, use = binding.spec, uses[binding.spec.node]
        if spec.borrowed:
            use.lent += spec.requests
        else:
            use.firm += spec.requests
        use.slots += 1
        use.devices += len(spec.devices)
    return uses


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


def _fenced(request: Any, objects: Objects, incarnation: int, now_ms: int) -> bool:
    """History was lost, and a node of which nothing is heard, or that is forgotten with it, may run what is to run once: until it
    is given up nobody can tell (P6, P10)."""
    if request.spec.execution != "Exclusive" or incarnation <= 1:
        return False
    plane = objects.get("planes", {}).get(("", "self"))
    if plane is not None and plane.spec.incarnation_time is not None:
        fence_s = plane.spec.longest_lease_seconds * (1 + RATE_ERROR) + MARGIN_S
        if now_ms < plane.spec.incarnation_time.timestamp() * 1000 + fence_s * 1000:
            return True
    return any(node.status.health == "Unknown" for node in objects.get("nodes", {}).values())


class WaitingChecker:
    """Look every second or so; it remembers since when each could have been bound."""

    def __init__(self) -> None:
        self.checked = 0
        self._since_s: dict[tuple[str, str, str], float] = {}

    def look(self, now_s: float, region: str, objects: Objects, incarnation: int, now_ms: int) -> list[str]:
        out, waiting = [], set()
        for (tenant, name), request in objects.get("schedulingrequests", {}).items():
            spec = request.spec
            asked = (
                not spec.suspend
                and (not spec.gang or _fellows(request, objects))
                and not _fenced(request, objects, incarnation, now_ms)
            )
            node = room_for(request, objects, incarnation, now_ms) if asked else ""
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
