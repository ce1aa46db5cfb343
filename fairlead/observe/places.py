"""S6 asked of a journal: every slot that was reserved or bound was allowed where it was put, by its own limits, by the pool's, by
the residency rules of the revision in force, and by what other tenants there were promised. What it asks of its node and of its
neighbours is asked by suited.py.

Owns its own reading of the rules and shares nothing with the judge but the model. Fed by JournalChecker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairlead.model.kinds.capacity import Node, NodePool
from fairlead.model.kinds.intent import Region
from fairlead.model.kinds.policy import PolicyChannel, ResidencyRule, SchedulerPolicy
from fairlead.model.kinds.work import Ask
from fairlead.model.lifecycle import HOLDS_CAPACITY
from fairlead.observe.going import going
from fairlead.observe.shares import in_force
from fairlead.observe.suited import SuitChecker, matches

Found = Callable[[str, str], None]
Objects = dict[str, dict[tuple[str, str], Any]]


class PlaceChecker:
    """Tell it of every change of a request, reservation or binding, before it is applied, and of the nodes an entry raised."""

    def __init__(
        self, objects: Objects, on_node: dict[str, dict[tuple[str, str, str], Any]], suits: SuitChecker, found: Found
    ) -> None:
        self._objects = objects
        self._on_node = on_node
        self._suits = suits  # is told what was asked
        self._found = found
        self._asks: dict[tuple[str, str], Ask] = {}  # of slots that wait, or did until this entry

    def changed(self, plural: str, old: Any, new: Any) -> bool:
        """True where a place was judged."""
        if new is None:
            return False
        slot = (new.metadata.namespace, new.metadata.name)
        if plural == "schedulingrequests":
            self._asks[slot] = new.spec.ask
        is_placement = plural == "bindings" or (plural == "reservations" and new.spec.slot is not None)
        if not is_placement or (old is not None and old.spec.token == new.spec.token):
            return False
        ask = self._asks.get(slot)
        if ask is None:
            self._found("S6", f"{slot} was placed and nobody had asked for it")
            return False
        for detail in self._faults(new, ask):
            self._found("S6", f"{new.metadata.name} on {new.spec.node}: {detail}")
        self._suits.placed(new, ask)
        if plural == "bindings":
            del self._asks[slot]
        return True

    def _faults(self, placed: Any, ask: Ask) -> list[str]:
        node: Node | None = self._objects["nodes"].get(("", placed.spec.node))
        if node is None:
            return ["there is no such node"]
        tenant, place = placed.metadata.namespace, ask.placement
        pool: NodePool | None = self._objects["nodepools"].get(("", node.spec.pool))
        out = []
        if place.regions.allowed and node.spec.region not in place.regions.allowed:
            out.append(f"region {node.spec.region!r} is not in {place.regions.allowed}")
        if place.zones and node.spec.zone not in place.zones:
            out.append(f"zone {node.spec.zone!r} is not in {place.zones}")
        if pool is not None and pool.spec.allowed_tenants and tenant not in pool.spec.allowed_tenants:
            out.append(f"pool {node.spec.pool} is not for {tenant}")
        if pool is not None and pool.spec.allowed_classes and ask.workload_class not in pool.spec.allowed_classes:
            out.append(f"pool {node.spec.pool} is not for class {ask.workload_class}")
        if ask.isolation != (placed.spec.marks.isolation if placed.spec.marks is not None else "Shared"):
            out.append(f"it asked for isolation {ask.isolation}, and its marks do not say so")
        return out + self._residency_faults(placed, ask, node)

    def _residency_faults(self, placed: Any, ask: Ask, node: Node) -> list[str]:
        bounds = [set(ask.placement.residency.areas)] if ask.placement.residency.enforcement == "Required" else []
        bounds = [areas for areas in bounds if areas]
        revision = placed.spec.policy_revision
        channel: PolicyChannel | None = self._objects["policychannels"].get(("", "default"))
        decides = in_force(channel.spec, placed.metadata.namespace, node.spec.region) if channel is not None else 0
        if revision != decides:
            return [f"it was placed under policy revision {revision}; in force for it is {decides}"]
        policy: SchedulerPolicy | None = self._objects["schedulerpolicies"].get(("", f"r{revision}"))
        if policy is not None:
            rules = (rule for rule in policy.spec.residency if _binds(rule, placed.metadata.namespace, dict(ask.labels)))
            bounds += [set(rule.areas) for rule in rules]
        if not bounds:
            return []
        region: Region | None = self._objects["regions"].get(("", node.spec.region))
        have = set(region.spec.areas) if region is not None else set()
        allowed = set.intersection(*bounds)
        return [] if have & allowed else [f"it may run in {sorted(allowed)}, region {node.spec.region!r} lies in {sorted(have)}"]

    def entry_ended(self, nodes: set[str]) -> None:
        """Whoever has a node to itself has it to itself; victims that are leaving no longer count."""
        for name in sorted(nodes):
            uses = self._on_node[name]
            goes = going(uses)
            tenants, alone = set(), set()
            for (plural, tenant, object_name), use in uses.items():
                if plural == "bindings":
                    if (plural, tenant, object_name) in goes or use.status.state not in HOLDS_CAPACITY:
                        continue
                elif use.spec.slot is None:
                    continue
                tenants.add(tenant)
                if use.spec.marks is not None and use.spec.marks.isolation == "TenantExclusive":
                    alone.add(tenant)
            if alone and len(tenants) > 1:
                self._found("S6", f"{name}: {sorted(alone)} asked to be alone, {sorted(tenants)} are there")


def _binds(rule: ResidencyRule, tenant: str, labels: dict[str, str]) -> bool:
    return (not rule.tenants or tenant in rule.tenants) and all(matches(e, labels) for e in rule.labels)
