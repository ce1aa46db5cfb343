"""S6 asked of what a slot wants of its node and of its neighbours: labels, taints, cordons, ports, the most of a workload on one
node, required spread, affinity and anti-affinity (also that of those who are there already).

Owns its own reading of these rules and its own sums over who lies where; shares nothing with the gates but the model. Scalars are
amounts: S2 asks for them with cpu and memory (checkers.py). Fed by PlaceChecker and JournalChecker; waiting.py asks it for L1.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from fairlead.model.kinds.capacity import Node, NodePool, Taint
from fairlead.model.kinds.intent import AffinityRule, LabelExpression, SpreadRule, Toleration
from fairlead.model.kinds.work import Ask, Binding, Marks
from fairlead.model.lifecycle import HOLDS_CAPACITY

NODE: Final = "hostname"  # the topology key by which each node is a domain of its own

Found = Callable[[str, str], None]
Objects = Mapping[str, Mapping[tuple[str, str], Any]]
Labels = tuple[tuple[str, str], ...]


class Alike(NamedTuple):
    """Placed slots of one workload that bear the same marks."""

    uid: str
    marks: Marks | None

    @property
    def labels(self) -> Labels:
        return self.marks.labels if self.marks is not None else ()


class Neighbours:
    """How many slots lie on which node: those that are bound and not gone, and those that have their place reserved."""

    def __init__(self) -> None:
        self._slots: dict[str, dict[Alike, Counter[str]]] = defaultdict(dict)  # by tenant
        self._repelling: dict[str, dict[Alike, None]] = defaultdict(dict)  # by tenant: those that keep others away
        self._ports: Counter[tuple[str, int]] = Counter()  # by node

    @classmethod
    def of(cls, objects: Objects) -> Neighbours:
        made = cls()
        for plural in ("bindings", "reservations"):
            for (tenant, _), use in objects.get(plural, {}).items():
                made.changed(tenant, None, use)
        return made

    def changed(self, tenant: str, old: Any, new: Any) -> None:
        before, after = _lies(old), _lies(new)
        if before == after:
            return
        if before is not None:
            self._count(tenant, *before, -1)
        if after is not None:
            self._count(tenant, *after, 1)

    def _count(self, tenant: str, alike: Alike, node: str, sign: int) -> None:
        nodes = self._slots[tenant].setdefault(alike, Counter())
        nodes[node] += sign
        if not nodes[node]:
            del nodes[node]
        if not nodes:
            del self._slots[tenant][alike]
        for port in alike.marks.ports if alike.marks is not None else ():
            self._ports[node, port] += sign
        if alike.marks is not None and alike.marks.repels:
            self._repelling[tenant][alike] = None
            if not nodes:
                del self._repelling[tenant][alike]

    @contextmanager
    def without(self, leaving: list[Binding]) -> Iterator[None]:
        """Whoever claims a place is judged as if those had left who must leave for it."""
        for binding in leaving:
            self.changed(binding.metadata.namespace, binding, None)
        try:
            yield
        finally:
            for binding in leaving:
                self.changed(binding.metadata.namespace, None, binding)

    def uses_port(self, node: str, port: int) -> bool:
        return self._ports[node, port] > 0

    def lying(self, tenant: str, meant: Callable[[Alike], bool]) -> Counter[str]:
        """Slots by node."""
        out: Counter[str] = Counter()
        for alike, nodes in self._slots.get(tenant, {}).items():
            if meant(alike):
                out.update(nodes)
        return out

    def repelling(self, tenant: str, labels: Labels) -> Iterator[tuple[str, Counter[str]]]:
        """By which key, and from where, others keep away a slot with these labels."""
        for alike in self._repelling.get(tenant, {}):
            for rule in alike.marks.repels if alike.marks is not None else ():
                if is_meant(rule.match, labels):
                    yield rule.topology_key, self._slots[tenant][alike]


def _lies(use: Any) -> tuple[Alike, str] | None:
    """What lies where; a room that is held for a budget is no slot."""
    if use is None or use.spec.slot is None or (isinstance(use, Binding) and use.status.state not in HOLDS_CAPACITY):
        return None
    return Alike(use.spec.slot.uid, use.spec.marks), use.spec.node


class SuitChecker:
    """Tell it of each placement before it is applied, with what was asked, and of each binding and reservation as it changes."""

    def __init__(self, objects: dict[str, dict[tuple[str, str], Any]], found: Found, checked: dict[str, int]) -> None:
        self._objects = objects
        self._found = found
        self._checked = checked
        self._neighbours = Neighbours()
        self._reserved: dict[tuple[str, str], tuple[Any, str]] = {}  # slot -> under which token, and where

    def changed(self, tenant: str, old: Any, new: Any) -> None:
        self._neighbours.changed(tenant, old, new)

    def placed(self, placed: Any, ask: Ask) -> None:
        """What was reserved is among the neighbours already: when it is bound there, its node alone is asked again."""
        node: Node | None = self._objects["nodes"].get(("", placed.spec.node))
        slot, life = (placed.metadata.namespace, placed.metadata.name), (placed.spec.token, placed.spec.node)
        is_binding = isinstance(placed, Binding)
        was_reserved = is_binding and self._reserved.pop(slot, None) == life
        if not is_binding:
            self._reserved[slot] = life
        if node is None:  # places.py says so
            return
        self._checked["S6/rules"] += has_rules(ask) or bool(node.spec.taints)
        faults = node_faults(ask, node)
        if not was_reserved:
            with self._neighbours.without(self._leaving_for(placed)):
                faults += neighbour_faults(ask, slot[0], placed.spec.slot.uid, node, self._objects, self._neighbours)
        for detail in faults:
            self._found("S6", f"{slot[1]} on {placed.spec.node}: {detail}")

    def _leaving_for(self, placed: Any) -> list[Binding]:
        names = (name.partition("/") for name in getattr(placed.spec, "start_after", ()))
        there = (self._objects["bindings"].get((tenant, name)) for tenant, _, name in names)
        return [binding for binding in there if binding is not None]


def has_rules(ask: Ask) -> bool:
    place = ask.placement
    return bool(
        place.node_labels or place.tolerations or place.spread or place.affinity or place.anti_affinity or place.max_per_node
        or ask.ports
    )  # fmt: skip


# --- the rules -------------------------------------------------------------------------------------------------------------


def node_faults(ask: Ask, node: Node) -> list[str]:
    """What of the node itself keeps the slot away."""
    labels, place = dict(node.metadata.labels), ask.placement
    out = [f"its labels {labels} are not {rule}" for rule in place.node_labels if not matches(rule, labels)]
    out += [f"taint {taint.key} is not tolerated" for taint in node.spec.taints if _keeps_away(taint, place.tolerations)]
    return out + ["it is cordoned"] * node.spec.unschedulable


def neighbour_faults(
    ask: Ask, tenant: str, uid: str, node: Node, objects: Objects, neighbours: Neighbours
) -> list[str]:  # fmt: skip
    """What of those who lie there and elsewhere does."""
    name, place = node.metadata.name, ask.placement
    out = [f"port {port} is in use" for port in ask.ports if neighbours.uses_port(name, port)]
    hard = [rule for rule in place.spread if rule.when_unsatisfiable == "DoNotSchedule"]
    if hard or place.max_per_node:
        own = neighbours.lying(tenant, lambda alike: alike.uid == uid)
        if place.max_per_node and own[name] >= place.max_per_node:
            out.append(f"{own[name]} slots of its workload are there, {place.max_per_node} at most")
        out += [detail for rule in hard for detail in _uneven(rule, own, ask, tenant, node, objects)]
    for rule in place.affinity:
        if rule.required:
            out += _far(rule, _matching(neighbours, tenant, rule), ask, node, objects)
    for rule in place.anti_affinity:
        if rule.required and _beside(rule.topology_key, _matching(neighbours, tenant, rule), node, objects):
            out.append(f"it keeps away by {rule.topology_key} from what is there")
    for key, nodes in neighbours.repelling(tenant, ask.labels):
        if _beside(key, nodes, node, objects):
            out.append(f"what is there keeps it away by {key}")
    return out


def _matching(neighbours: Neighbours, tenant: str, rule: AffinityRule) -> Counter[str]:
    return neighbours.lying(tenant, lambda alike: is_meant(rule.match, alike.labels))


def _uneven(rule: SpreadRule, own: Counter[str], ask: Ask, tenant: str, node: Node, objects: Objects) -> list[str]:
    """Of domains those count that have a node which takes work, and which the workload may be on."""
    key, there = rule.topology_key, domain_of(rule.topology_key, node)
    if not there:
        return [f"it lies in no {key}, by which its workload is spread"]
    slots = _by_domain(key, own, objects)
    open_to_it = [one for one in objects["nodes"].values() if _takes(one) and _may_be_on(ask, tenant, one, objects)]
    least = min((slots[domain] for domain in {domain_of(key, one): None for one in open_to_it} if domain), default=0)
    if slots[there] < least + rule.max_skew:
        return []
    return [f"{key} {there} has {slots[there]} of its workload and another one {least}, {rule.max_skew} more are allowed"]


def _takes(node: Node) -> bool:
    is_ready = node.status.schedulable and node.status.health == "Ready"
    return is_ready and not node.spec.unschedulable and node.metadata.deletion_time is None


def _may_be_on(ask: Ask, tenant: str, node: Node, objects: Objects) -> bool:
    """By what is the same for all nodes of its kind. A region's nodes lie in the same areas."""
    place, labels = ask.placement, dict(node.metadata.labels)
    pool: NodePool | None = objects["nodepools"].get(("", node.spec.pool))
    tenants, classes = (pool.spec.allowed_tenants, pool.spec.allowed_classes) if pool is not None else ((), ())
    return (
        (not place.regions.allowed or node.spec.region in place.regions.allowed)
        and (not place.zones or node.spec.zone in place.zones)
        and (not tenants or tenant in tenants)
        and (not classes or ask.workload_class in classes)
        and is_meant(place.node_labels, tuple(labels.items()))
        and not any(_keeps_away(taint, place.tolerations) for taint in node.spec.taints)
    )


def _far(rule: AffinityRule, nodes: Counter[str], ask: Ask, node: Node, objects: Objects) -> list[str]:
    key, there = rule.topology_key, domain_of(rule.topology_key, node)
    slots = _by_domain(key, nodes, objects)
    is_first = not slots and is_meant(rule.match, ask.labels)  # of those that are to be near to each other
    return [] if there and (slots[there] or is_first) else [f"{key} {there!r} has none of those it must be near to"]


def _beside(key: str, nodes: Counter[str], node: Node, objects: Objects) -> bool:
    there = domain_of(key, node)
    return bool(there) and _by_domain(key, nodes, objects)[there] > 0


def _by_domain(key: str, nodes: Counter[str], objects: Objects) -> Counter[str]:
    """Slots on a node that lies in none are in none."""
    if key == NODE:
        return nodes
    out: Counter[str] = Counter()
    for name, slots in nodes.items():
        node = objects["nodes"].get(("", name))
        domain = domain_of(key, node) if node is not None else ""
        if domain:
            out[domain] += slots
    return out


def domain_of(key: str, node: Node) -> str:
    """Empty: it lies in none."""
    if key == NODE:
        return node.metadata.name
    named = {"zone": node.spec.zone, "region": node.spec.region}
    return named[key] if key in named else node.metadata.labels.get(key, "")


def _keeps_away(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    return taint.effect != "PreferNoSchedule" and not any(_bears(one, taint) for one in tolerations)


def _bears(one: Toleration, taint: Taint) -> bool:
    of_key = one.key == taint.key or (one.operator == "Exists" and not one.key)
    return of_key and one.effect in ("", taint.effect) and (one.operator == "Exists" or one.value == taint.value)


def is_meant(match: tuple[LabelExpression, ...], labels: Labels) -> bool:
    have = dict(labels)
    return all(matches(expression, have) for expression in match)


def matches(expression: LabelExpression, labels: dict[str, str]) -> bool:
    value = labels.get(expression.key)
    if expression.operator in ("Gt", "Lt"):
        if value is None or not value.lstrip("-").isdigit():
            return False
        have, bound = int(value), int(expression.values[0])
        return have > bound if expression.operator == "Gt" else have < bound
    return {
        "In": value in expression.values,
        "NotIn": value not in expression.values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }[expression.operator]
