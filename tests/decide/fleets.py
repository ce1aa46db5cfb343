"""Small fleets and their naive recount: what the topology's counters must agree with."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from fairlead.decide.classes import Classes, matches
from fairlead.decide.compiling import compile_need
from fairlead.decide.need import Need
from fairlead.decide.topology import Topology, marks_of
from fairlead.model.kinds.capacity import Node, NodeSpec
from fairlead.model.kinds.intent import LabelExpression
from fairlead.model.kinds.work import Ask
from fairlead.model.meta import Metadata


class View:
    now_ms = 0


NOW = View()


class Row:
    """One node, or a column of them, as far as topology reads it."""

    def __init__(self, number: Any, node_class: Any) -> None:
        self.number = number
        self.node_class = node_class


class Slot(NamedTuple):
    number: int
    tenant: str
    uid: str
    ask: Ask


class Fleet:
    """A topology and, beside it, plain lists of nodes and slots that are counted anew for every question."""

    def __init__(self, classes: list[dict[str, Any]]) -> None:
        self.classes = Classes()
        for spec in classes:
            labels = spec.pop("labels", {})
            self.classes.number_of(Node(metadata=Metadata(name="x", labels=labels), spec=NodeSpec(**spec)), None)
        self.used_by: dict[int, int] = {}
        self.exclusive_to: dict[int, int] = {}
        self.topology = Topology(self.classes, self._occupied)
        self.nodes: dict[int, tuple[int, bool, bool]] = {}  # class, open, known
        self.slots: list[Slot] = []

    def _occupied(self, number: int, used_by: int, exclusive_to: int) -> None:
        self.used_by[number], self.exclusive_to[number] = used_by, exclusive_to

    def node(self, number: int, node_class: int, *, is_open: bool = True, known: bool = True) -> None:
        self.nodes[number] = (node_class, is_open, known)
        self.topology.node_changed(number, f"n{number}", node_class, is_open, known)

    def place(self, number: int, tenant: str, uid: str, ask: Ask) -> None:
        self.slots.append(Slot(number, tenant, uid, ask))
        self.topology.placed(number, tenant, uid, marks_of(ask), 1)

    def remove(self, slot: Slot) -> None:
        self.slots.remove(slot)
        self.topology.placed(slot.number, slot.tenant, slot.uid, marks_of(slot.ask), -1)

    def need(self, ask: Ask, tenant: str, uid: str) -> Need:
        return compile_need(ask, tenant, uid, self.topology, borrows=False, max_age_s=10.0, areas=None)

    def row(self, number: int) -> Row:
        node_class, _, known = self.nodes[number]
        return Row(number, node_class if known else -1)

    def columns(self) -> Row:
        rows = [self.row(number) for number in sorted(self.nodes)]
        return Row(np.array([row.number for row in rows]), np.array([row.node_class for row in rows]))

    # --- the naive answers -------------------------------------------------------------------------------------------

    def domain(self, number: int, key: str) -> str | int | None:
        if key == "hostname":
            return number
        node_class, _, known = self.nodes.get(number, (0, False, False))
        if not known:
            return None
        found = self.classes[node_class]
        return {"zone": found.zone, "region": found.region}.get(key, dict(found.labels).get(key, "")) or None

    def count(self, key: str, slots: list[Slot]) -> Counter[str | int]:
        where = (self.domain(slot.number, key) for slot in slots)
        return Counter(domain for domain in where if domain is not None)

    def lowest(self, key: str, counts: Counter[str | int], need: Need) -> int:
        """Over the domains that have an open node of a class the need allows."""
        allowed = need.classes.allowed
        open_nodes = [n for n, (c, is_open, known) in self.nodes.items() if is_open and known and allowed[c]]
        return min((counts[d] for d in {self.domain(n, key) for n in open_nodes} if d is not None), default=0)

    def matching(self, tenant: str, match: tuple[LabelExpression, ...]) -> list[Slot]:
        return [s for s in self.slots if s.tenant == tenant and all(matches(e, dict(s.ask.labels)) for e in match)]

    def verdict(self, need: Need, ask: Ask, tenant: str, uid: str, number: int) -> dict[str, bool]:
        """By gate, from the slots alone."""
        place = ask.placement
        mine = [s for s in self.slots if s.uid == uid]
        spread = affinity = anti = True
        for rule in place.spread:
            if rule.when_unsatisfiable == "DoNotSchedule":
                counts, at = self.count(rule.topology_key, mine), self.domain(number, rule.topology_key)
                spread &= at is not None and counts[at] + 1 - self.lowest(rule.topology_key, counts, need) <= rule.max_skew
        for near in (rule for rule in place.affinity if rule.required):
            counts, at = self.count(near.topology_key, self.matching(tenant, near.match)), self.domain(number, near.topology_key)
            first = not counts and all(matches(e, dict(ask.labels)) for e in near.match)
            affinity &= at is not None and (counts[at] > 0 or first)
        for away in (rule for rule in place.anti_affinity if rule.required):
            counts, at = self.count(away.topology_key, self.matching(tenant, away.match)), self.domain(number, away.topology_key)
            anti &= at is None or counts[at] == 0
        for slot in (s for s in self.slots if s.tenant == tenant):
            for rule_of in (rule for rule in slot.ask.placement.anti_affinity if rule.required):
                at = self.domain(number, rule_of.topology_key)
                same = at is not None and at == self.domain(slot.number, rule_of.topology_key)
                anti &= not (same and all(matches(e, dict(ask.labels)) for e in rule_of.match))
        here = [s for s in self.slots if s.number == number]
        return {
            "spread": spread,
            "affinity": affinity,
            "anti-affinity": anti,
            "max-per-node": not place.max_per_node or sum(s.uid == uid for s in here) < place.max_per_node,
            "ports": not any(set(s.ask.ports) & set(ask.ports) for s in here),
        }

    def occupants(self, number: int) -> tuple[int, int]:
        here = [s for s in self.slots if s.number == number]
        used = {self.topology.tenant_number(s.tenant) for s in here}
        alone = {self.topology.tenant_number(s.tenant) for s in here if s.ask.isolation == "TenantExclusive"}
        return tuple(0 if not who else who.pop() if len(who) == 1 else -1 for who in (used, alone))  # type: ignore[return-value]
