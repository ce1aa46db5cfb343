"""A look over the present state of a region, now and then, for promises that are broken: S1 to S4, asked of
objects alone, with sums of its own.

Shares nothing with the authority, whose ledger it would catch. The journal's checkers (checkers.py) ask the same of every entry
and know more; this one is cheap enough to run for ever beside a leader. What counts is what became wrong between two looks while
the limit stood still: a node that shrank under its work breaks no promise. Fed by fairlead/compose/patrolling.py; never reads a
plane itself, never mends anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

from fairlead.model.kinds.capacity import Grant, Node, Reservation
from fairlead.model.lifecycle import HOLDS_CAPACITY, SlotState
from fairlead.model.resources import SHARE_WHOLE, Resources

_LEAVING: Final = (SlotState.DRAINING, SlotState.UNKNOWN)
INVARIANTS: Final = ("S1", "S2", "S3", "S4")
SLICE: Final = 1_000  # objects between two chances to give the loop back: some two milliseconds


class Row(Protocol):
    @property
    def tenant(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def hot(self) -> Any: ...


class Seen(NamedTuple):
    """A region at one revision."""

    nodes: Sequence[Row]
    bindings: Sequence[Row]
    reservations: Sequence[Row]
    grants: Sequence[Row]


class Breach(NamedTuple):
    invariant: str
    subject: str
    detail: str


class _Sum:
    """Resources added up in place: a hundred thousand bindings are added once a minute."""

    __slots__ = ("cpu", "memory", "scalars")

    def __init__(self) -> None:
        self.cpu = self.memory = 0
        self.scalars: dict[str, int] = {}

    def add(self, more: Resources) -> None:
        self.cpu += more.cpu
        self.memory += more.memory
        for name, amount in more.scalars:
            self.scalars[name] = self.scalars.get(name, 0) + amount

    def total(self) -> Resources:
        return Resources(self.cpu, self.memory, self.scalars.items())


class _Use:
    """Of a node."""

    __slots__ = ("devices", "firm", "held", "lent", "slots")

    def __init__(self) -> None:
        self.firm, self.held, self.lent = _Sum(), _Sum(), _Sum()
        self.devices: dict[str, int] = {}
        self.slots = 0


class Patrol:
    def __init__(self) -> None:
        self.looks_total = 0
        self.breaches_total = dict.fromkeys(INVARIANTS, 0)
        self._standing: dict[tuple[str, str], Any] = {}  # (invariant, subject) that kept its limit at the last look -> the limit
        self._known: set[tuple[str, str]] = set()  # told already

    def begin(self) -> None:
        """Of what happened since the last look nothing is known: the next one only sees how things stand."""
        self._standing = {}

    def look(self, seen: Seen) -> Iterator[list[Breach]]:
        """Yields nothing at all now and then, so that whoever asks can do something else; last, what is newly broken."""
        by_node: dict[str, _Use] = {}
        by_tenant: dict[str, _Sum] = {}
        found: list[Breach] = []
        for _ in self._bound(seen.bindings, by_node, by_tenant, found):
            yield []
        for change in seen.reservations:
            spec = _reservation(change).spec
            use = by_node.setdefault(spec.node, _Use())
            if spec.budget:
                use.held.add(spec.requests)
            else:
                _add(use, spec.requests, spec.devices, lent=False)
            by_tenant.setdefault(change.tenant, _Sum()).add(spec.requests)
        standing: dict[tuple[str, str], Any] = {}
        for at, change in enumerate(seen.nodes):
            found += self._of_node(change.hot, by_node.get(change.name, _Use()), standing)
            if at % SLICE == SLICE - 1:
                yield []
        for change in seen.grants:
            found += self._of_grant(change.tenant, change.hot, by_tenant.get(change.tenant, _Sum()).total(), standing)
        yield self._told(found, standing)

    def _told(self, found: list[Breach], standing: dict[tuple[str, str], Any]) -> list[Breach]:
        """Each is told and counted once, for as long as it lasts."""
        news = [each for each in found if (each.invariant, each.subject) not in self._known]
        self._standing = standing
        self._known = {(each.invariant, each.subject) for each in found}
        for each in news:
            self.breaches_total[each.invariant] += 1
        self.looks_total += 1
        return news

    @staticmethod
    def _bound(
        bindings: Sequence[Row], by_node: dict[str, _Use], by_tenant: dict[str, _Sum], found: list[Breach]
    ) -> Iterator[None]:
        slots: dict[tuple[str, int], str] = {}
        replaced = {(victim, change.hot.node) for change in bindings for victim in change.hot.start_after}
        for at, change in enumerate(bindings):
            if at % SLICE == SLICE - 1:
                yield
            hot, name = change.hot, f"{change.tenant}/{change.name}"
            if hot.state not in HOLDS_CAPACITY:
                continue
            other = slots.setdefault((hot.workload_uid, hot.index), name)
            if other != name:
                found.append(Breach("S1", name, f"slot {hot.index} of {hot.workload_uid} is bound as {other} and as {name}"))
            if hot.state in _LEAVING and (name, hot.node) in replaced:
                continue  # its place is its evictor's already (P12), also on a node that fell silent before it had left
            use = by_node.get(hot.node)
            if use is None:
                use = by_node[hot.node] = _Use()
            _add(use, hot.requests, hot.devices, lent=hot.borrowed)
            tenant = by_tenant.get(change.tenant)
            if tenant is None:
                tenant = by_tenant[change.tenant] = _Sum()
            tenant.add(hot.requests)

    def _of_node(self, node: Node, use: _Use, standing: dict[tuple[str, str], Any]) -> list[Breach]:
        spec, name = node.spec, node.metadata.name
        firm = use.firm.total()
        over = [
            f"{what} {dimension} is {used} of {limit}"
            for total, what in ((firm + use.held.total(), "firm + held"), (firm + use.lent.total(), "firm + lent"))
            for dimension, used, limit in total.exceeding(spec.allocatable)
        ]
        if use.slots > spec.max_slots:
            over.append(f"{use.slots} slots of {spec.max_slots}")
        found = self._limit("S2", name, (spec.allocatable, spec.max_slots), over, standing)
        # A device that went while it was held is the node's loss; one that is held twice is ours.
        twice = [f"device {device} is held {n}/{SHARE_WHOLE}" for device, n in sorted(use.devices.items()) if n > SHARE_WHOLE]
        return found + [Breach("S3", name, each) for each in twice[:1]]

    def _of_grant(self, tenant: str, grant: Grant, used: Resources, standing: dict[tuple[str, str], Any]) -> list[Breach]:
        if grant.spec.lease_end_time is not None:
            return []  # what holds after its lease is less, and what is in use then stays (P13)
        leased, stands = grant.spec.lease_seconds > 0, grant.status
        limit = stands.during if leased else grant.spec.during  # of a leased one the offer that the region stands on counts
        over = [f"{dimension} is {n} of {most}" for dimension, n, most in used.exceeding(limit)]
        return self._limit("S4", tenant, (limit, stands.accepted_version) if leased else grant.spec, over, standing)

    def _limit(
        self, invariant: str, subject: str, limit: Any, over: list[str], standing: dict[tuple[str, str], Any]
    ) -> list[Breach]:
        key = (invariant, subject)
        if not over:
            standing[key] = limit
            return []
        if key in self._known or self._standing.get(key) == limit:
            return [Breach(invariant, subject, over[0])]
        return []  # it was so when we first looked, or the limit was lowered


def _add(use: _Use, requests: Resources, devices: Iterable[Any], *, lent: bool) -> None:
    use.slots += 1
    (use.lent if lent else use.firm).add(requests)
    for hold in devices:
        use.devices[hold.id] = use.devices.get(hold.id, 0) + hold.thousandths


def _reservation(change: Row) -> Reservation:
    found: Reservation = change.hot
    return found
