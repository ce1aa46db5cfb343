"""What one need says about its neighbours, compiled: checks over the counters of topology.py, and the soft parts for scores.

What coarse domains decide is kept apart from what the node itself decides: `coarse` reads nothing of a row but its node class, so
a scheduler asks once per domain; `own` reads the row's number. Both use operators and look-ups only (P18). Compiled by
compiling.py; asked by the gates in fairlead/decide/gates/neighbours.py, by feasible() and by the scores for spread and affinity.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from fairlead.decide.classes import matches
from fairlead.decide.domains import HOSTNAME, Counts, Domains, Lowest
from fairlead.decide.need import Row, View
from fairlead.decide.topology import Topology
from fairlead.model.kinds.intent import AffinityRule
from fairlead.model.kinds.work import Ask

CROWDING_WEIGHT = 10  # ten slots above the emptiest domain weigh as much as the strongest preference of an affinity rule


class Rule(ABC):
    """One rule over one counter. `key` is the topology key; `domains` is None where each node is its own domain."""

    __slots__ = ("counts", "domains", "gate", "key")

    def __init__(self, gate: str, key: str, counts: Counts) -> None:
        self.gate = gate
        self.key = key
        self.counts = counts
        self.domains: Domains | None = counts.domains

    def where(self, row: Row) -> Any:
        return row.number if self.domains is None else self.domains[row.node_class]

    @abstractmethod
    def check(self, where: Any) -> Any:
        """Whether a slot may go there; `where` as the method of that name says it, one or many at once."""

    @abstractmethod
    def why(self, where: int) -> str:
        """Why it may not."""

    @property
    def looks_around(self) -> bool:
        """Whether what lies in one domain may decide about another."""
        return False

    def of_all(self) -> int:
        """What the verdict on each domain takes from all of them together."""
        return 0

    def place(self, where: int) -> str:
        if self.domains is None:
            return "it"
        return f"{self.key} {self.domains.names[where]}"


class Spread(Rule):
    """At most `max_skew` more slots of the workload than in the emptiest eligible domain."""

    __slots__ = ("lowest", "max_skew")

    def __init__(self, key: str, counts: Counts, lowest: Lowest, max_skew: int) -> None:
        super().__init__("spread", key, counts)
        self.lowest = lowest
        self.max_skew = max_skew

    def check(self, where: Any) -> Any:
        in_domain = where >= (0 if self.domains is None else 1)
        return (self.counts[where] < self.lowest.value() + self.max_skew) & in_domain

    @property
    def looks_around(self) -> bool:
        return True

    def of_all(self) -> int:
        return self.lowest.value()

    def above(self, where: Any) -> Any:
        """How many slots more than the emptiest domain has."""
        return self.counts[where] - self.lowest.value()

    def why(self, where: int) -> str:
        if self.domains is not None and where == 0:
            return f"it lies in no {self.key}, and its workload is spread by {self.key}"
        least, have = self.lowest.value(), self.counts[where]
        beyond = f"the emptiest {self.key} has {least}, {self.max_skew} more are allowed"
        return f"{self.place(where)} has {have} slots of this workload, {beyond}"


class Limit(Rule):
    """Fewer than `limit` counted slots in the domain."""

    __slots__ = ("limit", "text")

    def __init__(self, gate: str, key: str, counts: Counts, limit: int, text: str) -> None:
        super().__init__(gate, key, counts)
        self.limit = limit
        self.text = text

    def check(self, where: Any) -> Any:
        return self.counts[where] < self.limit

    def why(self, where: int) -> str:
        return f"{self.place(where)} {self.text}"


class Near(Rule):
    """At least one matching slot in the domain; the first of a group that is near to itself may go anywhere."""

    __slots__ = ("is_own",)

    def __init__(self, key: str, counts: Counts, is_own: bool) -> None:
        super().__init__("affinity", key, counts)
        self.is_own = is_own

    def check(self, where: Any) -> Any:
        in_domain = where >= (0 if self.domains is None else 1)
        any_yet = len(self.counts.by_domain()) > 0
        return ((self.counts[where] > 0) | (self.is_own > any_yet)) & in_domain

    @property
    def looks_around(self) -> bool:
        return self.is_own

    def of_all(self) -> int:
        return bool(self.counts.by_domain())

    def why(self, where: int) -> str:
        if self.domains is not None and where == 0:
            return f"it lies in no {self.key}, and must be near to others by {self.key}"
        return f"{self.place(where)} has no slot of a workload this one must be near to"


class Pull:
    """A preference: `weight` where the domain has a matching slot; negative for anti-affinity."""

    __slots__ = ("rule", "weight")

    def __init__(self, rule: Limit, weight: int) -> None:
        self.rule = rule
        self.weight = weight

    def rate(self, row: Row) -> Any:
        return self.weight * (self.rule.counts[self.rule.where(row)] > 0)


class TopologyNeed:
    """`keys` are the coarse keys that any part asks about; `looks_around`: what is on one node may decide about another."""

    __slots__ = ("_around", "_coarse", "_crowds", "_own", "_pulls", "keys", "looks_around")

    def __init__(self, hard: list[Rule], crowds: list[Spread], pulls: list[Pull]) -> None:
        self._coarse = tuple(rule for rule in hard if rule.domains is not None)
        self._own = tuple(rule for rule in hard if rule.domains is None)
        self._crowds = tuple(crowds)
        self._pulls = tuple(pulls)
        self._around = tuple(rule for rule in (*hard, *crowds) if rule.domains is None and rule.looks_around)
        self.looks_around = bool(self._around)
        rules: list[Rule] = [*hard, *crowds, *(pull.rule for pull in pulls)]
        self.keys = tuple(sorted({rule.key for rule in rules if rule.domains is not None}))

    def coarse(self, row: Row, view: View) -> Any:
        """May the slot go into the row's domains? Reads nothing of the row but its node class."""
        fits: Any = True
        for rule in self._coarse:
            fits = fits & rule.check(rule.where(row))
        return fits

    def own(self, row: Row, view: View) -> Any:
        """May it go onto the row's node, as far as what is on that very node decides?"""
        fits: Any = True
        for rule in self._own:
            fits = fits & rule.check(row.number)
        return fits

    def around(self) -> tuple[int, ...]:
        """What the rules by node take from all nodes together. While it is the same, only what changes on a node changes what
        `own` and the soft rules say of it."""
        return tuple([rule.of_all() for rule in self._around])

    def check(self, gate: str, row: Row, view: View) -> Any:
        """The rules of one gate, coarse and own."""
        fits: Any = True
        for rule in (*self._own, *self._coarse):
            if rule.gate == gate:
                fits = fits & rule.check(rule.where(row))
        return fits

    def why(self, gate: str, row: Row, view: View) -> str:
        rules = [rule for rule in (*self._own, *self._coarse) if rule.gate == gate]
        return "; ".join(rule.why(rule.where(row)) for rule in rules if not rule.check(rule.where(row)))

    # --- soft: for scores, higher is better except crowding --------------------------------------------------------------

    def crowding(self, row: Row, *, own: bool) -> Any:
        """Slots of the workload above the emptiest domain, over the spread rules that only prefer. Lower is better."""
        crowds = (rule for rule in self._crowds if (rule.domains is None) == own)
        return sum((rule.above(rule.where(row)) for rule in crowds), 0)

    def attraction(self, row: Row, *, own: bool) -> Any:
        """Weights of the preferred affinity that is met, less those of the anti-affinity that is not."""
        return sum((pull.rate(row) for pull in self._pulls if (pull.rule.domains is None) == own), 0)

    def preferred_coarse(self, row: Row, view: View) -> Any:
        return self.attraction(row, own=False) - CROWDING_WEIGHT * self.crowding(row, own=False)

    def preferred_own(self, row: Row, view: View) -> Any:
        return self.attraction(row, own=True) - CROWDING_WEIGHT * self.crowding(row, own=True)


def topology_need(topology: Topology, ask: Ask, tenant: str, uid: str, allowed: bytearray) -> TopologyNeed | None:
    """The rules that apply to this ask now; None, as for most, where there are none. Ask again when `topology.stamp` grew.

    `allowed` says of each node class whether the need may go there at all: what spread calls eligible.
    """
    topology.make_room()
    place = ask.placement
    hard: list[Rule] = []
    crowds: list[Spread] = []
    pulls: list[Pull] = []
    for rule in place.spread:
        counts = topology.of_workload(uid, rule.topology_key)
        spread = Spread(rule.topology_key, counts, counts.lowest_of(allowed), rule.max_skew)
        if rule.when_unsatisfiable == "DoNotSchedule":
            hard.append(spread)
        else:
            crowds.append(spread)
    if place.max_per_node:
        text = f"has {place.max_per_node} slots of this workload, which is the most for one node"
        hard.append(Limit("max-per-node", HOSTNAME, topology.of_workload(uid, HOSTNAME), place.max_per_node, text))
    hard += [Limit("ports", HOSTNAME, topology.of_port(port), 1, f"has port {port} in use") for port in ask.ports]
    for near in place.affinity:
        counts = topology.of_match(tenant, near.match, near.topology_key)
        if near.required:
            hard.append(Near(near.topology_key, counts, _matches_itself(near, ask)))
        else:
            pulls.append(Pull(_away(near.topology_key, counts), near.weight))
    for away in place.anti_affinity:
        if away.required:
            topology.repels(tenant, away.topology_key, away.match)
        rule_away = _away(away.topology_key, topology.of_match(tenant, away.match, away.topology_key))
        if away.required:
            hard.append(rule_away)
        else:
            pulls.append(Pull(rule_away, -away.weight))
    text = "has a slot that keeps workloads like this one away"
    hard += [Limit("anti-affinity", r.key, r.counts, 1, text) for r in topology.repelling(tenant, ask.labels)]
    return TopologyNeed(hard, crowds, pulls) if hard or crowds or pulls else None


def _away(key: str, counts: Counts) -> Limit:
    return Limit("anti-affinity", key, counts, 1, "has a slot of a workload this one keeps away from")


def _matches_itself(rule: AffinityRule, ask: Ask) -> bool:
    labels = dict(ask.labels)
    return all(matches(expression, labels) for expression in rule.match)
