"""What is placed where, as far as rules about neighbours ask: counters that both the authority and the scheduler feed.

Owns who occupies each node and how many slots of each workload lie on it; makes the counters of a rule when the rule is first
asked for, from workloads, never from single slots, and keeps them up to date from then on. Never decides: topology_need.py turns
an ask's rules into checks over these counters. Fed by the authority's ledger and the scheduler's snapshot, each with node numbers
of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from fairlead.decide.classes import Classes
from fairlead.decide.domains import HOSTNAME, Counts, Dense, Domains, Nodes
from fairlead.decide.label_index import Labelled, Labels, Match, Selectors, fits
from fairlead.model.kinds.work import Ask, Marks

COUNTS_MAX = 20_000  # rules come and go with workloads; beyond this all are forgotten, and made again as they are asked for

Occupied = Callable[[int, int, int], None]  # number, used_by, exclusive_to


class Group(msgspec.Struct, gc=False, eq=False):
    """The placed slots of one workload that bear the same marks. Nearly every workload is one group."""

    tenant: str
    tenant_number: int
    uid: str
    marks: Marks | None
    counts: dict[int, int]  # slots by node number
    feeds: tuple[Counts, ...] = ()
    next: Group | None = None  # the workload's slots with other marks


class Repeller(NamedTuple):
    """A required anti-affinity rule of slots that are placed, and where they are: it holds in both directions."""

    key: str
    match: Match
    counts: Counts


class TenantRules:
    """Affinity looks at the workloads of one tenant only."""

    __slots__ = ("asked", "marked", "number", "of_match", "repellers", "repelling", "selectors")

    def __init__(self, number: int) -> None:
        self.number = number
        self.marked: Labelled[Group] = Labelled()
        self.forget()

    def forget(self) -> None:
        self.of_match: dict[Match, dict[str, Counts]] = {}
        self.selectors: Selectors[Match] = Selectors()  # of the same
        self.repellers: dict[tuple[str, Match], Repeller] = {}
        self.repelling: Selectors[Repeller] = Selectors()  # of the same
        self.asked: Labelled[Labels] = Labelled()  # for which repellers were asked: a new one may concern them


class Topology:
    def __init__(self, classes: Classes, occupied: Occupied | None = None) -> None:
        self.classes = classes
        self.version = 0  # grows when needs compiled before may miss a rule
        self.nodes = Nodes()
        self._occupied = occupied
        self._groups: dict[str, Group] = {}
        self._tenants: dict[str, TenantRules] = {}
        self._on_node: list[dict[int, int]] = []  # slots by tenant number
        self._exclusive: dict[int, dict[int, int]] = {}  # TenantExclusive slots by node and tenant number
        self._domains: dict[str, Domains] = {}
        self._of_workload: dict[str, dict[str, Counts]] = {}
        self._of_port: dict[int, Counts] = {}
        self._made: list[Counts] = []
        self._dense = Dense()

    def stamp(self) -> int:
        """Grows when a need compiled before must be compiled again: a rule appeared, or its tables are no longer kept."""
        return self.version + self.classes.version

    # --- what happens ------------------------------------------------------------------------------------------------

    def node_changed(self, number: int, name: str, node_class: int, is_open: bool, known: bool) -> None:
        """`is_open`: healthy, schedulable and not cordoned. A node that is not known lies in no domain."""
        if number >= len(self._on_node):
            self._grow(number)
        before, after = self.nodes.class_of[number], node_class if known else -1
        if before != after and self._on_node[number]:
            for domains in self._domains.values():
                domains.version += domains[before] != domains[after]
        self.nodes.set(number, after, is_open and known)

    def placed(self, number: int, tenant: str, uid: str, marks: Marks | None, sign: int) -> None:
        """A slot of this workload is on this node now (sign 1), or no longer (-1)."""
        if number >= len(self._on_node):
            self._grow(number)
        group = self._groups.get(uid)
        while group is not None and group.marks is not marks and group.marks != marks:
            group = group.next
        if group is None:
            group = self._new_group(tenant, uid, marks)
        counts = group.counts
        slots = counts.get(number, 0) + sign
        if slots:
            counts[number] = slots
        else:
            del counts[number]
        if group.feeds:
            for feed in group.feeds:
                feed.add(number, sign)
        if not counts:
            self._drop_group(group)
        there, tenant_number = self._on_node[number], group.tenant_number
        slots = there.get(tenant_number, 0) + sign
        if slots:
            there[tenant_number] = slots
        else:
            del there[tenant_number]
        if marks is not None and marks.isolation == "TenantExclusive":
            self._exclude(number, tenant_number, sign)
        elif slots == 0 or slots == sign:
            self._tell(number)

    def _exclude(self, number: int, tenant: int, sign: int) -> None:
        there = self._exclusive.setdefault(number, {})
        there[tenant] = there.get(tenant, 0) + sign
        if not there[tenant]:
            del there[tenant]
        if not there:
            del self._exclusive[number]
        self._tell(number)

    def _tell(self, number: int) -> None:
        if self._occupied is not None:
            self._occupied(number, *self.occupants(number))

    def occupants(self, number: int) -> tuple[int, int]:
        """A row's `used_by` and `exclusive_to`."""
        there, exclusive = self._on_node[number], self._exclusive.get(number)
        return _only(there) if there else 0, _only(exclusive) if exclusive else 0

    def tenant_number(self, tenant: str) -> int:
        found = self._tenants.get(tenant)
        return found.number if found is not None else self._tenant(tenant).number

    def _tenant(self, tenant: str) -> TenantRules:
        found = self._tenants.get(tenant)
        if found is None:
            found = self._tenants[tenant] = TenantRules(len(self._tenants) + 1)
        return found

    def _grow(self, number: int) -> None:
        for _ in range(len(self._on_node), number + 1):
            self._on_node.append({})
            self.nodes.class_of.append(-1)
            self.nodes.open_of.append(-1)

    # --- groups ------------------------------------------------------------------------------------------------------

    def _new_group(self, tenant: str, uid: str, marks: Marks | None) -> Group:
        rules = self._tenant(tenant)
        group = self._groups[uid] = Group(tenant, rules.number, uid, marks, {}, next=self._groups.get(uid))
        if marks is not None:
            rules.marked.add(marks.labels, group)
        self._attach(group, rules)
        return group

    def _attach(self, group: Group, rules: TenantRules) -> None:
        """Every counter this group's slots belong to."""
        feeds = list(self._of_workload.get(group.uid, {}).values())
        marks = group.marks
        if marks is not None:
            feeds += [self.of_port(port) for port in dict.fromkeys(marks.ports)]
            repels = dict.fromkeys((rule.topology_key, rule.match) for rule in marks.repels)
            feeds += [self._repeller(rules, key, match) for key, match in repels]
        for match in rules.selectors.matching(_labels(marks)):
            feeds += rules.of_match[match].values()
        group.feeds = tuple(feeds)
        for counts in feeds:
            counts.join(group)

    def _drop_group(self, group: Group) -> None:
        for counts in group.feeds:
            del counts.sources[group]
        group.feeds = ()
        self._tenants[group.tenant].marked.discard(group)
        chain = [other for other in self._chain(group.uid) if other is not group]
        for one, after in zip(chain, [*chain[1:], None], strict=False):
            one.next = after
        if chain:
            self._groups[group.uid] = chain[0]
        else:
            del self._groups[group.uid]

    def _chain(self, uid: str) -> Iterator[Group]:
        group = self._groups.get(uid)
        while group is not None:
            yield group
            group = group.next

    # --- what rules count --------------------------------------------------------------------------------------------

    def of_workload(self, uid: str, key: str) -> Counts:
        """The slots of one workload."""
        by_key = self._of_workload.setdefault(uid, {})
        return by_key.get(key) or self._feed(by_key, key, self._chain(uid))

    def of_match(self, tenant: str, match: Match, key: str) -> Counts:
        """The slots of a tenant's workloads whose labels match."""
        rules = self._tenant(tenant)
        by_key = rules.of_match.get(match)
        if by_key is None:
            by_key = rules.of_match[match] = {}
            rules.selectors.add(match, match)
        return by_key.get(key) or self._feed(by_key, key, self._matching(tenant, rules, match))

    def of_port(self, port: int) -> Counts:
        """The slots that use a port of their node."""
        found = self._of_port.get(port)
        if found is None:
            found = self._of_port[port] = self._counts(HOSTNAME)
        return found

    def repelling(self, tenant: str, labels: Labels) -> list[Repeller]:
        """The rules of placed slots that keep workloads with these labels away."""
        rules = self._tenant(tenant)
        if len(rules.asked) >= COUNTS_MAX:
            rules.asked = Labelled()
            self.version += 1
        rules.asked.add(labels, labels)
        return rules.repelling.matching(labels)

    def repels(self, tenant: str, key: str, match: Match) -> None:
        """A slot with this rule may be placed soon. Said beforehand, its own need does not go out of date by it."""
        self._repeller(self._tenant(tenant), key, match)

    def make_room(self) -> None:
        """Before a need is compiled: forgets every counter when there are too many. Earlier needs are out of date then."""
        if len(self._made) < COUNTS_MAX:
            return
        for counts in self._made:
            for group in counts.sources:
                group.feeds = ()
        self._made.clear()
        self._dense.clear()
        self._of_workload.clear()
        self._of_port.clear()
        for rules in self._tenants.values():
            rules.forget()
        for rules in self._tenants.values():
            for group in rules.marked:
                self._attach(group, rules)
        self.version += 1

    def domains(self, key: str) -> Domains | None:
        """None for hostname: each node is its own domain."""
        if key == HOSTNAME:
            return None
        found = self._domains.get(key)
        if found is None:
            found = self._domains[key] = Domains(key, self.classes)
        return found

    def _counts(self, key: str) -> Counts:
        made = Counts(self.domains(key), self.nodes, self._dense)
        self._made.append(made)
        return made

    def _feed(self, by_key: dict[str, Counts], key: str, groups: Iterator[Group]) -> Counts:
        made = by_key[key] = self._counts(key)
        for group in groups:
            group.feeds = (*group.feeds, made)
            made.join(group)
        return made

    def _matching(self, tenant: str, rules: TenantRules, match: Match) -> Iterator[Group]:
        yield from rules.marked.matching(match)
        if fits(match, ()):  # a rule that names labels only to exclude them also means the workloads without any
            for uid in list(self._groups):
                yield from (group for group in self._chain(uid) if group.marks is None and group.tenant == tenant)

    def _repeller(self, rules: TenantRules, key: str, match: Match) -> Counts:
        found = rules.repellers.get((key, match))
        if found is None:
            found = rules.repellers[key, match] = Repeller(key, match, self._counts(key))
            rules.repelling.add(match, found)
            self.version += any(True for _ in rules.asked.matching(match))
        return found.counts


def marks_of(ask: Ask) -> Marks | None:
    """What a slot with this ask bears once it is placed; None where neighbours need not know."""
    repels = tuple(rule for rule in ask.placement.anti_affinity if rule.required)
    keeps = ask if any(rule.after_failure == "Repair" for rule in ask.placement.spread) else None
    if ask.labels or ask.ports or repels or keeps or ask.isolation != "Shared":
        return Marks(labels=ask.labels, ports=ask.ports, repels=repels, isolation=ask.isolation, keeps=keeps)
    return None


def _labels(marks: Marks | None) -> Labels:
    return marks.labels if marks is not None else ()


def _only(tenants: dict[int, int]) -> int:
    return next(iter(tenants)) if len(tenants) == 1 else -1
