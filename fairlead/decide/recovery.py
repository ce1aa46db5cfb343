"""Recovery: which new slots stand in for those of a lost region, and whether that would work if a region died now. Pure.

A critical service must have its minimum in one healthy region. What it lacks there comes as *recovery slots*: new ones, never
the lost slots again, so nothing can be bound twice. Each takes a standing reservation of the service's recovery budget. One
function answers for the recovery controller, for readiness and for `plan --lose-region` (outlooks.py): what was promised is what
is done.

Stated: services are served in order of priority, then of name. A service goes where least would be missing; among those where it
already has recovery slots; among those where it needs fewest; among those where no rollout is under way. Of its own slots in a
region where too few have served for a while only those that serve count, and among equals such a region is last. What was ordered
stays until the service is well without it: the last copy is never removed first. Nor is it ordered anew elsewhere while nobody
knows how the region is that it was ordered in: it is soon heard again, or lost. In a region that may not carry the service any
more, or has had no place for it for a while, it stays until another serves in its place: nothing goes back and forth between
regions none of which has room. So does what has a place and has not come up for a while: as many are ordered once more, on other
rooms of that region if some serve there, else in another one, and in so many regions at most, for a generation that comes up
nowhere is not to take every room there is. A service that is exclusive everywhere is the exception: its stand-ins each name one
slot, and go before it or another comes in their place (succession.py).

A room is no promise where the service's own placement may forbid it: so many slots on one node, an even spread, zones that it is
to avoid. It is ordered all the same, for it may do, and what waits is told; but a region where it is sure goes first, and
readiness counts on what is sure alone (claimable.py).

When several regions are silent at once (P15) few slots are ordered at a time, in the same order: those who are left must not be
buried under what the others carried, and it may yet be the observation that is wrong. What waits for its turn says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from fairlead.decide.claimable import Takers, evenly
from fairlead.decide.succession import Alone, Areas, succeed
from fairlead.model.kinds.recovery import StandIn
from fairlead.model.resources import Resources

ServiceKey = tuple[str, str]  # tenant, workload
Place = tuple[str, str]  # budget, region
TRIES_MAX: Final = 3  # regions in which it does not come up at once: a minute each, within the five that are promised
TURN: Final = "several regions are silent at once, so slots are ordered a few at a time: its turn comes"


class Service(NamedTuple):
    key: ServiceKey
    priority: int
    minimum: int
    shape: Resources  # of one slot
    budget: str
    regions: tuple[str, ...]  # that may carry it: allowed, inside its areas, granted
    slots: Mapping[str, int]  # its own, by region
    alive: Mapping[str, int]  # of its own, those that serve
    ordered: Mapping[str, int]  # recovery slots it has been given, by region
    stood_in: Mapping[str, int] = MappingProxyType({})  # of those, how many serve
    failing: frozenset[str] = frozenset()  # healthy regions that have had no place for its own slots for a while
    full: frozenset[str] = frozenset()  # healthy regions that have had no place for what was ordered there for a while
    restless: frozenset[str] = frozenset()  # regions that people gave up a while ago because not all of it served there
    changing: frozenset[str] = frozenset()  # regions in which one generation replaces another, and may not come up
    waits: Mapping[str, int] = MappingProxyType({})  # of what was ordered, how many find no place, by region
    alone: Alone | None = None  # its slots are exclusive everywhere
    deadline_s: float = 300.0  # within which it is to have its minimum again
    per_node: int = 0  # of its slots on one node, at most; 0: any number
    zone_skew: int = 0  # of its slots in one zone, at most so many more than in the emptiest; 0: any number
    mute: frozenset[str] = frozenset()  # healthy regions in which too few of its own have served for a while: only these count
    unsure: Mapping[str, str] = MappingProxyType({})  # regions in which no room can be promised to it, and why
    idle: Mapping[str, int] = MappingProxyType({})  # of what was ordered, how many have not served for a while, by region
    spent: frozenset[str] = frozenset()  # regions that have nothing of it now, and where what stood in did not come up
    policy_revision: int = 0  # that says its priority, and where it may be
    stays: str = ""  # why nothing of it is ordered elsewhere: only outlooks are asked about such a one


class Regions(NamedTuple):
    lost: frozenset[str]
    healthy: frozenset[str]
    settled: frozenset[str]  # healthy for so long that what stands in for them may go
    unknown: frozenset[str] = frozenset()  # not heard for a moment: neither healthy nor lost
    partial: frozenset[str] = frozenset()  # heard, and without most of their nodes, a zone, or sight
    suspect: frozenset[str] = frozenset()  # silent together with others


class Short(NamedTuple):
    missing: int
    why: str


class Plan(NamedTuple):
    orders: dict[ServiceKey, dict[str, int]]  # all recovery slots each service should have; one it is not named in has none
    short: dict[ServiceKey, Short]
    stand_ins: dict[ServiceKey, tuple[StandIn, ...]] = {}  # of those that are exclusive everywhere
    unsure: dict[ServiceKey, Short] = {}  # of what is ordered anew, what its placement may keep from the rooms there are


class Standing:
    """Standing reservations that nobody has claimed: how many of which shape, for each budget and region. Taken as they are
    given out."""

    def __init__(self, rooms: Rooms) -> None:
        self._held = {place: dict(shapes) for place, shapes in rooms.held.items()}
        self._nodes, self._zones = rooms.nodes, rooms.zones
        self._takers: dict[Place, Takers] = {}
        self.given: list[tuple[Service, str, int]] = []  # anew: to whom, where, how many

    def room(self, place: Place, ask: Resources) -> int:
        return sum(count for shape, count in self._held.get(place, {}).items() if not ask.exceeding(shape))

    def sure(self, service: Service, region: str, free: int, given: int = 0) -> int:
        """Of so many free rooms those that it can claim wherever its own slots are, and whoever claims which of the others first:
        each may be in the way of one. Of several shapes only the best counts, as rooms of two may be on one node. `given`: of
        what was taken, those that are asked about."""
        if region in service.unsure:
            return 0
        if not service.per_node and not service.zone_skew:
            return free
        fitting = [shape for shape in self._held.get((service.budget, region), ()) if not service.shape.exceeding(shape)]
        return max(0, min(free, max((self._certain(service, region, shape, given) for shape in fitting), default=0)))

    def _certain(self, service: Service, region: str, shape: Resources, given: int) -> int:
        place, key, certain = (service.budget, region), service.key, []
        nodes, zones = self._nodes.get(place, {}).get(shape, ()), self._zones.get(place, {}).get(shape, ())
        takers = self._takers.get(place) or Takers()
        mine, others, shut = _lie(service, region), takers.others(key), 0
        if service.per_node:
            certain.append(sum(nodes[: service.per_node]) - mine - others)
            shut = sum(nodes[service.per_node :]) + mine  # rooms that are none for it, in whatever zones
        if service.zone_skew:
            # Whose orders have not claimed yet is not known, only how many: those counted as its own may be another's.
            shut += max(0, takers.by(key) - given)
            in_one = takers.others(key, sum(count > 0 for count in zones))
            certain.append(evenly(zones, service.zone_skew, mine, others + shut, in_one + shut))
        return min(certain)

    def give(self, service: Service, region: str, count: int) -> None:
        """Of what was not ordered before."""
        self.take(service, region, count)
        self.given.append((service, region, count))

    def take(self, service: Service, region: str, count: int) -> None:
        """The smallest that hold the ask go first, so that the large ones are left for those who need them."""
        place, ask = (service.budget, region), service.shape
        # How even its new slots are is known only where it has no others, and may be in all zones.
        even = not _lie(service, region) and region not in service.unsure
        self._takers.setdefault(place, Takers()).add(service.key, count, service.zone_skew if even else 0)
        shapes = self._held.get(place, {})
        for shape in sorted((s for s in shapes if not ask.exceeding(s)), key=lambda s: (s.cpu, s.memory, s.scalars)):
            taken = min(count, shapes[shape])
            shapes[shape] -= taken
            count -= taken
        assert count <= 0, f"{count} more were taken from {place} than it holds"


def _lie(service: Service, region: str) -> int:
    """How many of its slots may lie there."""
    return sum(each.get(region, 0) for each in (service.slots, service.ordered))


def counted(service: Service, region: str) -> int:
    """Its own slots there that are counted on."""
    own = service.slots.get(region, 0)
    return min(own, service.alive.get(region, 0)) if region in service.mute else own


class Ration:
    """How many new slots may still be ordered in this look; None: as many as there is room for."""

    def __init__(self, slots: int | None) -> None:
        self._left = slots

    def within(self, count: int) -> int:
        return count if self._left is None else min(count, self._left)

    def take(self, count: int) -> None:
        if self._left is not None:
            assert count <= self._left, f"{count} were ordered, {self._left} might be"
            self._left -= count


class Rooms(NamedTuple):
    """What the regions say of budgets: rooms nobody has claimed, by shape, and how many were claimed. `nodes`, `zones`: where
    those of a shape are, as HeldShape says it."""

    held: Mapping[Place, Mapping[Resources, int]]
    claimed: Mapping[Place, int] = MappingProxyType({})
    nodes: Mapping[Place, Mapping[Resources, tuple[int, ...]]] = MappingProxyType({})
    zones: Mapping[Place, Mapping[Resources, tuple[int, ...]]] = MappingProxyType({})


def plan(services: Iterable[Service], regions: Regions, rooms: Rooms, at_most: int | None = None) -> Plan:
    """`at_most`: so many slots that were not ordered before."""
    ration = Ration(at_most)
    services = sorted(services, key=lambda s: (-s.priority, s.key))
    standing = Standing(rooms)
    _take_owed(services, standing, rooms.claimed)
    found = Plan({}, {}, {}, {})
    for service in services:
        if service.alone is not None:
            _succeed(service, service.alone, regions, standing, ration, found)
            continue
        kept = {region: count for region, count in service.ordered.items() if count and _stays(service, region, regions)}
        if not _is_hit(service, regions):
            if kept and not _well(service, regions):
                found.orders[service.key] = kept
            continue
        _recover(service, regions, standing, ration, kept, found)
    for service, region, new in standing.given:  # when all is given out: nobody knows who claims first
        _note_unsure(service, region, new, standing, found)
    return found


def _is_hit(service: Service, regions: Regions) -> bool:
    """Something of its own is lost; or all there is of it stands in, and that is."""
    if any(service.slots.get(region) for region in regions.lost | service.failing):
        return True
    return not any(service.slots.values()) and any(service.ordered.get(region) for region in regions.lost)


def _stays(service: Service, region: str, regions: Regions) -> bool:
    """Whether what stands in for it there goes on. Where it may not be any more, finds no place, does not come up, or is lost, it
    leaves when another serves in its place: a region that was only thought to be lost would end what it still serves with. So it
    is while nobody knows how the region is. One that was written off is none of these."""
    heard_of = regions.healthy | regions.unknown
    if region in heard_of and _is_well_placed(service, region):
        return True
    able = [r for r in service.regions if r in regions.healthy and _is_well_placed(service, r)]
    replaced = any(service.alive.get(r, 0) + service.stood_in.get(r, 0) >= service.minimum for r in able)
    return region in heard_of | regions.lost and not replaced


def _is_well_placed(service: Service, region: str) -> bool:
    """What stands in there may be there, and nothing says that it has no place, or does not come up."""
    return region in service.regions and region not in service.full and region not in service.idle


def able_regions(service: Service, regions: Regions) -> tuple[str, ...]:
    """Where it may be given slots."""
    shut = service.failing | service.full | service.spent | frozenset(r for r in service.idle if _is_exhausted(service, r))
    able = tuple(region for region in service.regions if region in regions.healthy and region not in shut)
    if len(service.idle) < TRIES_MAX:
        return able
    return tuple(region for region in able if service.ordered.get(region))


def _is_exhausted(service: Service, region: str) -> bool:
    """What does not come up there was ordered there once more already, in vain as well. Where none of it serves that is not even
    tried if it runs once in the world, or if a second region was tried in vain: it is hardly the rooms."""
    if not service.stood_in.get(region) and (service.alone is not None or len(service.idle) > 1):
        return True
    ordered, need = service.ordered.get(region, 0), max(0, service.minimum - counted(service, region))
    return ordered > need > ordered - service.idle[region]


def _succeed(
    service: Service, alone: Alone, regions: Regions, standing: Standing, ration: Ration, found: Plan
) -> None:  # fmt: skip
    able = able_regions(service, regions)
    places = {region: (service.budget, region) for region in able}

    def room(region: str) -> int:
        return standing.room(places[region], service.shape) if service.budget else 0

    most = max((room(region) for region in able if region not in alone.taken), default=0)
    areas = Areas(regions.lost, regions.settled, able, _stuck(service, alone, most))
    ordered = succeed(alone, service.minimum, areas, room)
    waits = ordered.new > ration.within(ordered.new)
    if waits:
        ordered = succeed(alone, service.minimum, areas, lambda region: ration.within(room(region)))
    if ordered.new:
        ration.take(ordered.new)
        standing.give(service, ordered.region, ordered.new)
    if ordered.stand_ins:
        found.stand_ins[service.key] = ordered.stand_ins
        counts: dict[str, int] = {}
        for one in ordered.stand_ins:
            counts[one.region] = counts.get(one.region, 0) + (not one.leaving)
        found.orders[service.key] = {region: count for region, count in counts.items() if count}
    if ordered.missing:
        found.short[service.key] = Short(ordered.missing, TURN if waits else _why(service, ordered.region))
    elif service.waits:
        found.short[service.key] = _placeless(service, sorted(service.waits))
    elif service.idle:
        found.short[service.key] = _idle(service)
    elif going := [one.region for one in ordered.stand_ins if one.leaving and one.home in regions.lost]:
        # They run nowhere until their region has said that they are gone, which may take it long.
        where = ", ".join(sorted(set(going)))
        found.short[service.key] = Short(len(going), f"{len(going)} have to leave {where} before they are ordered elsewhere")


def _stuck(service: Service, alone: Alone, most: int) -> frozenset[str]:
    """Regions none of whose stand-ins has had a place for a while, or none has come up, where another has room for all of them.
    Nobody says which of several wait, and one that serves would be ended before its next runs: so all of them, or none."""
    vain = {region: service.waits.get(region, 0) for region in service.full}
    vain |= {region: max(count, vain.get(region, 0)) for region, count in service.idle.items()}
    there = {region: sum(one.region == region and not one.leaving for one in alone.stand_ins) for region in sorted(vain)}
    return frozenset(
        region for region, count in there.items() if count <= min(most, vain[region]) and not service.stood_in.get(region)
    )


def _note_unsure(service: Service, region: str, new: int, standing: Standing, found: Plan) -> None:
    unsure = new - standing.sure(service, region, new, new)
    if not unsure:
        return
    if service.zone_skew and standing.sure(service._replace(zone_skew=0), region, new, new) == new:
        rule = f"it may have {service.zone_skew} more in one zone than in another (DoNotSchedule)"
        why = f"{rule}, and budget {service.budget!r} has too few rooms for that in some zone of {region}"
    else:
        why = f"it may have {service.per_node} on one node, and budget {service.budget!r} has too few nodes for that in {region}"
    found.unsure[service.key] = Short(unsure, service.unsure.get(region, why))


def _placeless(service: Service, where: Iterable[str]) -> Short:
    """What was ordered there and finds no place."""
    waits = {region: service.waits.get(region, 0) for region in where}
    said = ", ".join(f"{count} of those in {region}" for region, count in waits.items() if count)
    return Short(sum(waits.values()), f"{said} find no place")


def _idle(service: Service) -> Short:
    """What was ordered and has not come up."""
    said = ", ".join(f"{count} of those in {region}" for region, count in sorted(service.idle.items()))
    return Short(sum(service.idle.values()), f"{said} have not come up for a while")


def _why(service: Service, region: str) -> str:
    if not region and service.full:
        return f"{', '.join(sorted(service.full))} have no place for what was ordered there; no other may carry it"
    if not region and service.idle:
        return f"{_idle(service).why}; no other may carry it, or {TRIES_MAX} regions were tried"
    if not region:
        return f"no healthy region may carry it (it may be in {', '.join(service.regions) or 'none'})"
    budget = f"budget {service.budget!r} holds no more in {region}" if service.budget else "it names no recovery budget"
    return f"{_idle(service).why}; {budget}" if service.idle else budget


def _take_owed(services: Iterable[Service], standing: Standing, claimed: Mapping[Place, int]) -> None:
    """Slots that were ordered and have not claimed yet will: their rooms are given away already."""
    owed: dict[Place, int] = {}
    for service in services:
        for region, count in service.ordered.items():
            owed[service.budget, region] = owed.get((service.budget, region), -claimed.get((service.budget, region), 0)) + count
    for service in services:
        for region, count in service.ordered.items():
            place = (service.budget, region)
            taken = min(count, owed[place], standing.room(place, service.shape))
            if taken > 0:
                standing.take(service, region, taken)
                owed[place] -= taken


def _well(service: Service, regions: Regions) -> bool:
    """Its own slots are there again: in regions that have been healthy for a while, as many as it had, or its minimum."""
    own, settled = {region: count for region, count in service.slots.items() if count}, regions.settled - service.restless
    return bool(own) and all(
        region in settled and service.alive.get(region, 0) >= min(service.minimum, count) for region, count in own.items()
    )


def _recover(
    service: Service, regions: Regions, standing: Standing, ration: Ration, kept: dict[str, int], found: Plan
) -> None:  # fmt: skip
    silent = [region for region in regions.unknown if kept.get(region) and _is_well_placed(service, region)]
    if any(counted(service, region) + kept[region] >= service.minimum for region in silent):
        found.orders[service.key] = kept  # it stands there as far as anybody knows
        return
    candidates = able_regions(service, regions)
    if not candidates:
        vain = sorted({*service.full, *service.idle})
        there = [service.alive.get(region, 0) + service.stood_in.get(region, 0) for region in vain]
        missing = service.minimum - min(service.minimum - 1, max(there, default=0))
        found.short[service.key] = Short(missing, _why(service, ""))
        if kept:
            found.orders[service.key] = kept
        return
    choices = []
    for region in candidates:
        need = max(0, service.minimum - counted(service, region))
        idle = service.idle.get(region, 0)
        have = max(0, min(kept.get(region, 0) - idle, need))
        free = standing.room((service.budget, region), service.shape) if service.budget else 0
        more = min(need - have, free)
        # Where some of it was ordered before, what is sure is not asked again: it does not go elsewhere with the rest.
        sure = more if have else standing.sure(service, region, more)
        doubt = (region in service.mute, region in service.changing)
        bleak = idle > 0 and not service.stood_in.get(region)  # other rooms of it come after other regions
        choices.append((need - have - sure, need - have - more, bleak, not have, need, doubt, region, more))
    _, missing, _, _, _, _, region, more = min(choices)
    now = ration.within(more)  # where it goes is decided on what there is, whatever may be ordered of that in this look
    if now:
        ration.take(now)
        standing.give(service, region, now)
        kept[region] = kept.get(region, 0) + now
    if kept:
        found.orders[service.key] = kept
    if missing or now < more:
        found.short[service.key] = Short(missing + more - now, TURN if now < more else _why(service, region))
    elif service.waits.get(region):
        found.short[service.key] = _placeless(service, [region])
