"""The best victims on one node: lowest highest rank, then fewest, then youngest, then smallest. Pure.

Small nodes are searched exhaustively, in order of the number of victims; where that would take too long, everything that may go
leaves in thought and as much as possible is given back. Called by the planner for the few nodes that are worth a close look.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec

from fairlead.decide.devices import pick_devices
from fairlead.decide.fit import Need, Row
from fairlead.decide.preempt_index import Evictable, Placed
from fairlead.decide.preempt_rules import VICTIMS_MAX, Evictor, breaches
from fairlead.model.resources import SHARE_WHOLE, Device, DeviceHold

STEPS_MAX: Final = 1000  # of the search on one node before it takes the short way: about a millisecond
NOBODY: Final = -(1 << 62)  # the rank of an empty set of victims: below every rank

Key = tuple[int, int, int, int, int, int]  # breaks budgets, highest rank, how many, minus the oldest's minute, size, row


class Found(msgspec.Struct, frozen=True, gc=False):
    """The best that one node offers."""

    key: Key
    victims: tuple[Placed, ...]
    broken: tuple[str, ...]  # workloads whose disruption budget breaks
    asked: tuple[tuple[str, int], ...]  # budgets looked at and what was left: when one changes, this is out of date


class Blocked(msgspec.Struct, frozen=True, gc=False):
    """Nothing on this node helps, as long as these workloads' budgets stand; by devices alone when it names none."""

    asked: tuple[tuple[str, int], ...]


class Shortfall(NamedTuple):
    """By how much a need exceeds a node, dimension by dimension; only what is short."""

    dimensions: tuple[str, ...]
    amounts: tuple[int, ...]


class Relieved:
    """A row as it will be when some uses are gone. Whatever else a gate reads, it reads from the row itself."""

    def __init__(self, row: Row, devices: tuple[Device, ...] = (), device_used: Mapping[str, int] | None = None) -> None:
        self._row = row
        self.cpu_free, self.memory_free, self.slots_free = row.cpu_free, row.memory_free, row.slots_free
        self.cpu_unlent, self.memory_unlent = row.cpu_unlent, row.memory_unlent
        self._scalars: dict[str, tuple[int, int]] = {}  # name -> gain of what is free, of what is unlent
        self._devices = devices
        self.device_used: dict[str, int] = dict(device_used or {})

    def __getattr__(self, name: str) -> Any:
        return getattr(self._row, name)

    def credit(self, evictable: Evictable, row: int, *, rare: bool) -> None:
        """What claims in flight count twice; `rare`: scalars and devices too."""
        own = evictable.cells
        self.cpu_free += own["cpu_free"][row]
        self.memory_free += own["memory_free"][row]
        self.cpu_unlent += own["cpu_unlent"][row]
        self.memory_unlent += own["memory_unlent"][row]
        self.slots_free += own["slots"][row]
        for given in evictable.credits(row) if rare else ():
            for name, free, unlent in given.scalars:
                self._gain(name, free, unlent)
            self._release(given.devices)

    def remove(self, victim: Placed) -> None:
        requests = victim.requests
        self.cpu_unlent += requests.cpu
        self.memory_unlent += requests.memory
        self.slots_free += 1
        if not victim.borrowed:
            self.cpu_free += requests.cpu
            self.memory_free += requests.memory
        for name, amount in requests.scalars:
            self._gain(name, 0 if victim.borrowed else amount, amount)
        self._release(victim.devices)

    def _gain(self, name: str, free: int, unlent: int) -> None:
        had_free, had_unlent = self._scalars.get(name, (0, 0))
        self._scalars[name] = (had_free + free, had_unlent + unlent)

    def _release(self, holds: Iterable[DeviceHold]) -> None:
        for hold in holds:
            self.device_used[hold.id] = self.device_used.get(hold.id, 0) - hold.thousandths

    def scalar_free(self, name: str) -> Any:
        return self._row.scalar_free(name) + self._scalars.get(name, (0, 0))[0]

    def scalar_unlent(self, name: str) -> Any:
        return self._row.scalar_unlent(name) + self._scalars.get(name, (0, 0))[1]

    def _fitting(self, resource: str, models: tuple[str, ...]) -> list[str]:
        return [d.id for d in self._devices if d.resource == resource and (not models or d.model in models)]

    def devices_whole(self, resource: str, models: tuple[str, ...]) -> int:
        return sum(1 for device in self._fitting(resource, models) if not self.device_used.get(device))

    def devices_share(self, resource: str, models: tuple[str, ...]) -> int:
        rooms = (SHARE_WHOLE - self.device_used.get(device, 0) for device in self._fitting(resource, models))
        return max(rooms, default=0)


def shortfall(need: Need, row: Relieved | Row) -> Shortfall:
    short = [
        ("cpu_firm", need.firm_cpu - row.cpu_free),
        ("cpu", need.cpu - row.cpu_unlent),
        ("memory_firm", need.firm_memory - row.memory_free),
        ("memory", need.memory - row.memory_unlent),
        ("slots", need.slots - row.slots_free),
    ]
    for name, amount in need.scalars:
        short.append((f"firm:{name}", amount * (1 - need.borrows) - row.scalar_free(name)))
        short.append((f"all:{name}", amount - row.scalar_unlent(name)))
    short = [part for part in short if part[1] > 0]
    return Shortfall(tuple(name for name, _ in short), tuple(amount for _, amount in short))


def gain(placed: Placed, dimension: str) -> int:
    """How much of one dimension comes free when this victim leaves."""
    match dimension:
        case "cpu":
            return placed.requests.cpu
        case "cpu_firm":
            return 0 if placed.borrowed else placed.requests.cpu
        case "memory":
            return placed.requests.memory
        case "memory_firm":
            return 0 if placed.borrowed else placed.requests.memory
        case "slots":
            return 1
    kind, _, name = dimension.partition(":")
    return 0 if kind == "firm" and placed.borrowed else dict(placed.requests.scalars).get(name, 0)


class _Group(NamedTuple):
    """Slots between which only their age decides, youngest first."""

    members: list[Placed]
    gains: tuple[int, ...]


class NodeSearch:
    """One node, one need, one evictor."""

    def __init__(self, need: Need, evictor: Evictor, row: Relieved, fleet: tuple[Device, ...], live: Mapping[str, int]) -> None:
        self._need = need
        self._evictor = evictor
        self._row = row
        self._fleet = fleet
        self._live = live
        self._short = shortfall(need, row)
        self._protected: frozenset[str] = frozenset()  # workloads whose budget must hold

    def best(self, candidates: list[Placed], row: int) -> Found | Blocked:
        """`candidates`: whoever on this node the evictor may evict."""
        protected = sorted({p.uid for p in candidates if p.min_serving})
        asked = tuple([(uid, self._live.get(uid, 0)) for uid in protected])
        self._protected = frozenset(protected)
        victims = self._victims(candidates)
        if victims is None and protected and self._evictor.may_break_budgets:
            self._protected = frozenset()
            victims = self._victims(candidates)
        if victims is None:
            return Blocked(asked)
        broken = tuple(breach.uid for breach in breaches(victims, self._live, self._evictor)) if protected else ()
        rank = max([p.rank for p in victims], default=NOBODY)
        minute = min([p.minute for p in victims], default=0)
        key = (int(bool(broken)), rank, len(victims), -minute, sum([p.size for p in victims]), row)
        return Found(key, victims, broken, asked)

    def _victims(self, candidates: list[Placed]) -> tuple[Placed, ...] | None:
        if not self._short.amounts and self._devices_fit(()):
            return ()
        ranks = {p.rank for p in candidates}
        pool: list[Placed] = []
        for rank in sorted(ranks):
            pool += [p for p in candidates if p.rank == rank] if len(ranks) > 1 else candidates
            groups = self._groups(pool)
            if not self._could_fit(groups):
                continue
            found = self._search(pool, groups)
            if found is not None:
                return found
        return None

    def _could_fit(self, groups: list[_Group]) -> bool:
        """Whether all of them together would do, budgets and devices apart: the cheap question before the search."""
        for number, ask in enumerate(self._short.amounts):
            if sum([len(group.members) * group.gains[number] for group in groups]) < ask:
                return False
        return True

    # --- what a set of victims must satisfy ----------------------------------------------------------------------------

    def _devices_fit(self, victims: Sequence[Placed]) -> bool:
        if not self._need.devices:
            return True
        used = dict(self._row.device_used)
        for victim in victims:
            for hold in victim.devices:
                used[hold.id] = used.get(hold.id, 0) - hold.thousandths
        return pick_devices(self._need.devices, self._fleet, used) is not None

    def _budgets_hold(self, victims: Sequence[Placed]) -> bool:
        return not self._protected or not breaches(victims, self._live, self._evictor)

    def _fits(self, victims: Sequence[Placed]) -> bool:
        short = self._short
        enough = all(
            sum(gain(p, name) for p in victims) >= ask for name, ask in zip(short.dimensions, short.amounts, strict=True)
        )
        return enough and self._devices_fit(victims)

    # --- looking for the best set --------------------------------------------------------------------------------------

    def _search(self, pool: list[Placed], groups: list[_Group]) -> tuple[Placed, ...] | None:
        at_least = self._at_least(groups)
        if len(groups) == 1 and at_least <= VICTIMS_MAX:  # as most nodes are: the youngest, as many as it takes
            victims = tuple(groups[0].members[:at_least])
            if self._budgets_hold(victims) and self._devices_fit(victims):
                return victims
        steps = _Steps(STEPS_MAX)
        for count in range(at_least, min(len(pool), VICTIMS_MAX) + 1):
            best: tuple[tuple[int, int], tuple[Placed, ...]] | None = None
            for victims in _sets(groups, 0, count, self._short.amounts, steps):
                cost = (-min([p.minute for p in victims], default=0), sum([p.size for p in victims]))
                if best is not None and best[0] <= cost:
                    continue
                if self._budgets_hold(victims) and self._devices_fit(victims):
                    best = (cost, victims)
            if steps.left < 0:
                return self._give_back(pool)
            if best is not None:
                return best[1]
        return None

    def _groups(self, pool: list[Placed]) -> list[_Group]:
        protected = self._protected
        by_devices = bool(self._need.devices)
        groups: dict[tuple[Any, ...], list[Placed]] = {}
        plain = not (by_devices or protected)
        for p in pool:
            asks = p.requests
            same: tuple[Any, ...] = (asks.cpu, asks.memory, asks.scalars, p.borrowed, p.size)  # cheaper than the whole record
            if not plain:
                same += (p.devices if by_devices else (), p.uid in protected and (p.uid, p.min_serving))
            found = groups.get(same)
            if found is None:
                groups[same] = [p]
            else:
                found.append(p)
        out = []
        for members in groups.values():
            if len(members) > 1:
                members.sort(key=_age)
            out.append(_Group(members, tuple([gain(members[0], name) for name in self._short.dimensions])))
        if len(out) > 1:
            out.sort(key=lambda group: group.members[0].key)  # whatever order the slots came in, the same set is found first
        return out

    def _at_least(self, groups: list[_Group]) -> int:
        """No fewer victims than this can do, whichever they are."""
        count = 0
        for number, ask in enumerate(self._short.amounts):
            most = max([group.gains[number] for group in groups])
            if most == 0:
                return VICTIMS_MAX + 1
            count = max(count, -(-ask // most))
        return count

    def _give_back(self, pool: list[Placed]) -> tuple[Placed, ...] | None:
        """Everything leaves that may, then returns as long as the need still fits: first what helps least, dearest first."""
        chosen: list[Placed] = []
        for p in sorted(pool, key=lambda p: (-p.minute, p.size, p.key)):
            if p.uid not in self._protected or self._budgets_hold([*chosen, p]):
                chosen.append(p)
        if not self._fits(chosen):
            return None
        for p in sorted(chosen, key=lambda p: (self._help(p), p.minute, -p.size, p.key)):
            rest = [other for other in chosen if other is not p]
            if self._fits(rest):
                chosen = rest
        return tuple(chosen) if len(chosen) <= VICTIMS_MAX else None

    def _help(self, placed: Placed) -> int:
        """How much of what is short this victim would cover, in thousandths of each dimension; devices count when asked for."""
        short = self._short
        parts = [min(1000 * gain(placed, n) // ask, 1000) for n, ask in zip(short.dimensions, short.amounts, strict=True)]
        return sum(parts) + (sum(hold.thousandths for hold in placed.devices) if self._need.devices else 0)


_age = attrgetter("age")


class _Steps:
    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


def _sets(groups: list[_Group], start: int, count: int, short: tuple[int, ...], steps: _Steps) -> Iterator[tuple[Placed, ...]]:
    """Every set of `count` that covers what is short, taking the youngest of each group first, until the steps are spent."""
    steps.left -= 1
    if steps.left < 0:
        return
    if count == 0:
        if max(short, default=0) <= 0:
            yield ()
        return
    if start == len(groups):
        return
    group = groups[start]
    for taken in range(min(count, len(group.members)), -1, -1):
        left = tuple([ask - taken * gained for ask, gained in zip(short, group.gains, strict=True)])
        for rest in _sets(groups, start + 1, count - taken, left, steps):
            yield (*group.members[:taken], *rest)
