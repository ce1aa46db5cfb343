"""Where nodes lie and how many slots lie there: the counters under the topology rules, each kept up to date slot by slot.

A domain is a zone, a region, the nodes that share a label's value, or (key `hostname`) one node. Coarse keys, all but hostname,
map node classes to domains, so what they decide is a function of the class. Everything here is indexed by one int, as the
authority does, or by a column of them, as the scheduler does. Used by topology.py and topology_need.py; knows no rules.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fairlead.decide.classes import Classes, NodeClass

HOSTNAME = "hostname"
DENSE_CELLS_MAX = 64_000_000  # of all per-node columns together: a quarter of a gigabyte, then the oldest is dropped


class Nodes:
    """The facts about nodes that counting needs, by their numbers. A class of -1 is a node that is not there."""

    __slots__ = ("class_of", "class_version", "open_in_class", "open_of", "version")

    def __init__(self) -> None:
        self.class_of: list[int] = []
        self.open_of: list[int] = []  # the class again where the node is open for work, else -1
        self.open_in_class: list[int] = []
        self.version = 0  # grows when any node opens or closes
        self.class_version = 0  # grows when the first node of a class opens or the last one closes

    def set(self, number: int, node_class: int, is_open: bool) -> None:
        self.class_of[number] = node_class
        before, after = self.open_of[number], node_class if is_open else -1
        if before == after:
            return
        self.open_of[number] = after
        self.version += 1
        for one, sign in ((before, -1), (after, 1)):
            if one >= 0:
                self.open_in_class.extend(0 for _ in range(len(self.open_in_class), one + 1))
                self.open_in_class[one] += sign
                self.class_version += self.open_in_class[one] == (sign > 0)


class Domains:
    """The domains of one coarse key, numbered from 1. A class without a value for the key lies in none, which is 0."""

    __slots__ = ("_classes", "_numbers", "_of_class", "_wide", "key", "names", "version")

    def __init__(self, key: str, classes: Classes) -> None:
        self.key = key
        self.names = [""]
        self.version = 0  # grows when slots changed domain because their node changed its class
        self._classes = classes
        self._numbers = {"": 0}
        self._of_class: list[int] = []
        self._wide: Any = np.zeros(1, dtype=np.int64)

    def __getitem__(self, node_class: Any) -> Any:
        if len(self._of_class) < len(self._classes):
            self._grow()
        if type(node_class) is int:
            return self._of_class[node_class] if node_class >= 0 else 0
        return self._wide[node_class]

    def _grow(self) -> None:
        for number in range(len(self._of_class), len(self._classes)):
            name = domain_name(self.key, self._classes[number])
            if name not in self._numbers:
                self._numbers[name] = len(self.names)
                self.names.append(name)
            self._of_class.append(self._numbers[name])
        self._wide = np.array([*self._of_class, 0], dtype=np.int64)  # the last is for -1


def domain_name(key: str, node_class: NodeClass) -> str:
    match key:
        case "zone":
            return node_class.zone
        case "region":
            return node_class.region
        case _:
            return dict(node_class.labels).get(key, "")


class Dense:
    """Which counters have a column of their own, oldest first. Per-node columns are large, so there is a bound on them."""

    def __init__(self) -> None:
        self._holders: dict[Counts, int] = {}
        self._cells = 0

    def admit(self, counts: Counts, cells: int) -> None:
        self._cells += cells - self._holders.pop(counts, 0)
        self._holders[counts] = cells
        while self._cells > DENSE_CELLS_MAX and len(self._holders) > 1:
            oldest = next(iter(self._holders))
            self._cells -= self._holders.pop(oldest)
            oldest.drop_column()

    def clear(self) -> None:
        self._holders.clear()
        self._cells = 0


class Counts:
    """How many slots of the groups that feed it lie in each domain. Index by a domain's number or by a column of them."""

    __slots__ = ("_by", "_dense", "_keeper", "_nodes", "_seen", "domains", "lowest", "sources", "total")

    def __init__(self, domains: Domains | None, nodes: Nodes, keeper: Dense) -> None:
        self.domains = domains  # None: each node is a domain
        self.sources: dict[Any, None] = {}  # the groups; their `counts` are slots by node number
        self.lowest: dict[int, Lowest] = {}
        self.total = 0
        self._by: dict[int, int] = {}
        self._dense: Any = None
        self._seen = -1
        self._nodes = nodes
        self._keeper = keeper
        self._rebuild()

    def __getitem__(self, where: Any) -> Any:
        if self.domains is not None and self._seen != self.domains.version:
            self._rebuild()
        if type(where) is int:
            return self._by.get(where, 0)
        return self._column()[where]

    def by_domain(self) -> dict[int, int]:
        if self.domains is not None and self._seen != self.domains.version:
            self._rebuild()
        return self._by

    def add(self, number: int, sign: int) -> None:
        """One slot more (or fewer) on this node, or several."""
        domains, where = self.domains, number
        if domains is not None:
            if self._seen != domains.version:
                return  # counted anew when it is read next
            where = domains[self._nodes.class_of[number]]
            if where == 0:
                return
        old = self._by.get(where, 0)
        new = old + sign
        if new:
            self._by[where] = new
        else:
            self._by.pop(where, None)
        self.total += sign
        if self._dense is not None and where < len(self._dense):
            self._dense[where] = new
        for lowest in self.lowest.values():
            lowest.moved(where, old, new)

    def join(self, group: Any) -> None:
        self.sources[group] = None
        for number, slots in group.counts.items():
            self.add(number, slots)

    def drop_column(self) -> None:
        self._dense = None

    def lowest_of(self, allowed: bytearray) -> Lowest:
        found = self.lowest.get(id(allowed))
        if found is None:
            found = self.lowest[id(allowed)] = Lowest(self, allowed, self._nodes)
        return found

    def _rebuild(self) -> None:
        self._by.clear()
        self._dense = None
        self.total = 0
        if self.domains is not None:
            self._seen = self.domains.version
        for group in self.sources:
            for number, slots in group.counts.items():
                self.add(number, slots)

    def _column(self) -> Any:
        cells = len(self._nodes.class_of) if self.domains is None else len(self.domains.names)
        if self._dense is None or len(self._dense) < cells:
            room = cells + (cells >> 3)  # nodes come one by one; not a new column for each
            self._dense = np.zeros(room, dtype=np.int64)
            self._dense[list(self._by)] = list(self._by.values())
            self._keeper.admit(self, room)
        return self._dense


class Lowest:
    """The fewest slots that any eligible domain has. Eligible is a domain with an open node of a class the need allows, so that
    a zone that is dead, full of cordons or out of bounds does not hold back the others."""

    __slots__ = ("_allowed", "_at_lowest", "_counts", "_eligible", "_eligible_nodes", "_known", "_lowest", "_nodes", "_seen")

    def __init__(self, counts: Counts, allowed: bytearray, nodes: Nodes) -> None:
        self._counts, self._allowed, self._nodes = counts, allowed, nodes
        self._lowest = self._at_lowest = self._eligible_nodes = 0
        self._eligible: frozenset[int] = frozenset()  # of a coarse key; for hostname each node is asked
        self._known = False  # whether _lowest and _at_lowest stand
        self._seen = (-1, -1)

    def value(self) -> int:
        by, domains = self._counts.by_domain(), self._counts.domains
        nodes = self._nodes
        seen = (nodes.version, 0) if domains is None else (nodes.class_version, domains.version)
        if seen != self._seen:
            self._seen, self._known = seen, False
            opened = [c for c, n in enumerate(nodes.open_in_class) if n and self._allows(c)]
            if domains is None:
                self._eligible_nodes = sum(nodes.open_in_class[c] for c in opened)
            else:
                self._eligible = frozenset(domains[c] for c in opened) - {0}
        if domains is None and len(by) < self._eligible_nodes:
            return 0  # some node has none, whichever it is
        if not self._known:
            self._scan(by)
        return self._lowest

    def moved(self, where: int, old: int, new: int) -> None:
        """Keeps the figure without a scan; when nobody is left at the lowest, the next reader looks again."""
        if not self._known or not self._is_eligible(where):
            return
        self._at_lowest -= old == self._lowest
        if new < self._lowest:
            self._lowest, self._at_lowest = new, 1
        elif new == self._lowest:
            self._at_lowest += 1
        self._known = self._at_lowest > 0

    def _is_eligible(self, where: int) -> bool:
        if self._counts.domains is not None:
            return where in self._eligible
        node_class = self._nodes.open_of[where]
        return node_class >= 0 and self._allows(node_class)

    def _allows(self, node_class: int) -> bool:
        """A table that is no longer kept up to date (Classes.version) is shorter; whoever held it compiles its need again."""
        return node_class < len(self._allowed) and self._allowed[node_class] == 1

    def _scan(self, by: dict[int, int]) -> None:
        where = self._eligible if self._counts.domains is not None else range(len(self._nodes.open_of))
        values = [by.get(domain, 0) for domain in where if self._is_eligible(domain)]
        self._lowest = min(values, default=0)
        self._at_lowest = values.count(self._lowest)
        self._known = True
