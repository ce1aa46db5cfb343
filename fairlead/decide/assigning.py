"""Which regions carry a workload, and how many of its slots each. Pure: the first choice, and what changes after it.

Stated: a region may carry it if the workload allows it, the areas it must stay in include one of the region's, and its tenant
has a grant there. A job or a gang lies in one region: of those with room the one it would rather be in (`preferences`), then the
one with the most room. A service first gets `perRegionMinimum` in each region, in order of name; the rest goes to whichever
region has fewest, the one it would rather be in first, within what grants have room for, and beyond that evenly all the same: a
region says better than we do what it waits for. What lies somewhere stays; only what is too many, or no longer allowed, leaves,
from lost regions first: a service that is made smaller during an outage keeps what it has left. Used by the workload controller,
and by the judge of a region's end.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Mapping
from typing import Final, NamedTuple

from fairlead.decide.spans import Spans, index_set, size, spans_of
from fairlead.model.kinds.intent import WorkloadSpec
from fairlead.model.kinds.work import Assignment, AssignmentSpec, SlotRange
from fairlead.model.resources import Resources


class RegionFacts(NamedTuple):
    name: str
    areas: frozenset[str]
    granted: bool
    room: int  # slots of this workload that the grant could hold beside what others were given
    lost: bool = False
    full: bool = False  # what it has of this workload finds no place there: new slots go elsewhere if they can


class Choice(NamedTuple):
    counts: dict[str, int]  # region -> slots; only regions that may carry it
    reason: str = ""  # why none may, in the words of pending reasons
    detail: str = ""


def room_for(limit: Resources, given: Resources, ask: Resources) -> int:
    """How many slots of this ask fit into a limit beside what was given to others."""
    most, taken = limit.amounts(), given.amounts()
    left = [(most.get(name, 0) - taken.get(name, 0)) // amount for name, amount in ask.amounts().items()]
    return max(0, min(left, default=1 << 31))


def may_carry(spec: WorkloadSpec, areas: frozenset[str] | None, regions: Mapping[str, RegionFacts]) -> list[str]:
    """The regions it is allowed in, that lie in its areas, and where its tenant has a grant."""
    allowed = spec.placement.regions.allowed
    return [
        name
        for name, r in sorted(regions.items())
        if (not allowed or name in allowed) and (areas is None or r.areas & areas) and r.granted
    ]


def choose(
    spec: WorkloadSpec, slots: int, areas: frozenset[str] | None, regions: Mapping[str, RegionFacts], now: Mapping[str, int]
) -> Choice:
    """`areas` are those residency leaves (None: no rule); `now` is what each region carries already."""
    allowed = [
        r for name, r in sorted(regions.items()) if not spec.placement.regions.allowed or name in spec.placement.regions.allowed
    ]
    if not allowed:
        known = ", ".join(sorted(regions)) or "none"
        wanted = ", ".join(spec.placement.regions.allowed)
        return Choice({}, "Misconfigured", f"placement.regions.allowed names {wanted or 'none'}; there are {known}")
    inside = [r for r in allowed if areas is None or r.areas & areas]
    if not inside or (all(r.lost for r in inside) and areas is not None):
        where = ", ".join(sorted(areas or ())) or "nowhere"
        gone = ", ".join(r.name for r in inside)
        detail = f"must stay in {where}; " + (
            f"{gone} is lost" if gone else f"none of {', '.join(r.name for r in allowed)} lies there"
        )
        return Choice({r.name: now.get(r.name, 0) for r in inside if now.get(r.name)}, "ResidencyBlocked", detail)
    able = [r for r in inside if r.granted]
    if not able:
        return Choice({}, "WaitingForQuota", f"no grant in {', '.join(r.name for r in inside)}")
    wished = {r.name: _wished(spec, r.name) for r in able}
    if spec.job is not None or spec.gang:
        return Choice({_single(able, slots, wished, now): slots})
    return Choice(_spread(able, slots, spec.placement.regions.per_region_minimum, wished, now))


def _wished(spec: WorkloadSpec, region: str) -> int:
    """How much it would rather be there than elsewhere."""
    found = spec.placement.preferences
    return sum(each.weight for each in found if each.locality is not None and region in each.locality.regions)


def _single(able: list[RegionFacts], slots: int, wished: Mapping[str, int], now: Mapping[str, int]) -> str:
    stays = [r for r in able if now.get(r.name)]

    def rank(region: RegionFacts) -> tuple[bool, int, int, list[int]]:
        has_room = region.room >= slots
        return not region.lost, wished[region.name] if has_room else 0, region.room, [-ord(c) for c in region.name]

    return max(stays or able, key=rank).name


def _spread(able: list[RegionFacts], slots: int, least: int, wished: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    counts = {r.name: now.get(r.name, 0) for r in able}
    room = {r.name: max(r.room, 0) for r in able}
    floors = dict.fromkeys(counts, 0)
    left = slots
    for name in counts:
        floors[name] = min(least, left)
        left -= floors[name]
    for name, floor in floors.items():
        counts[name] = max(counts[name], floor)
    lost = {r.name: r.lost for r in able}
    while sum(counts.values()) > slots:  # too many: what is lost before what runs, then from the fullest, never below its floor
        name = max((n for n in counts if counts[n] > floors[n]), key=lambda n: (lost[n], counts[n], n))
        counts[name] -= 1
    there = [r.name for r in able if not r.lost and not r.full] or [r.name for r in able if not r.lost] or list(counts)
    while sum(counts.values()) < slots:  # too few: to the emptiest that is there and has room, else to the emptiest that is there
        open_ones = [n for n in there if counts[n] < room[n]] or there
        name = min(open_ones, key=lambda n: (counts[n], -wished[n], n))
        counts[name] += 1
    return counts


# Each region numbers a workload's slots in a block of its own: an index never moves, so it can never run in two places. The first
# half is for replicas (at most 10,000 a workload), the second for the surge of rollouts.
BLOCK: Final = 20_000
# Blocks that one incarnation gives out, more than anybody has regions; and after how many incarnations they begin anew: an index
# has room for so many (COUNT_MAX).
BLOCKS: Final = 64
INCARNATIONS: Final = 1_600
SPARE_FIRST: Final = 10_000


RECOVERY_FIRST: Final = 15_000  # of the second half, what stands in for other regions


def own_slots(order: AssignmentSpec) -> int:
    """How many slots it has in its own right, without those that stand in for a lost region's, with its own that others stand in
    for."""
    stands_in = order.recovery
    own = [span for span in order.slots if stands_in is None or not stands_in.first <= span.first <= stands_in.last]
    return size((*own, *order.superseded))


def recovery_in(block: int, count: int) -> SlotRange:
    first = block * BLOCK + RECOVERY_FIRST
    return SlotRange(first=first, last=first + count - 1)


def next_block(taken: Container[int], incarnation: int) -> int:
    """Of a region that has none of this workload yet. A plane that was restored does not know which ones were given out since the
    backup, and a region that is cut off goes on with its own: so those of an earlier incarnation are left alone."""
    return next(block for block in itertools.count((incarnation - 1) % INCARNATIONS * BLOCKS) if block not in taken)


def block_of(spare: SlotRange) -> int:
    """The number of the block that this spare range belongs to."""
    return spare.first // BLOCK


def slots_kept(block: int, had: Spans, gone: Spans, count: int) -> Spans:
    """So many slots of a block: of those it had, without what is gone, the lowest; then the lowest that are free."""
    first = block * BLOCK
    own = tuple(span for span in had if first <= span.first < first + SPARE_FIRST)
    if not gone and (not own or (len(own) == 1 and own[0].first == first)):
        return slots_in(block, count)  # as nearly always
    kept = sorted(index_set(own) - index_set(gone))[:count]
    taken = set(kept)
    free = (index for index in range(first, first + SPARE_FIRST) if index not in taken)
    return spans_of([*kept, *(next(free) for _ in range(count - len(kept)))])


def slots_in(block: int, count: int) -> Spans:
    return (SlotRange(first=block * BLOCK, last=block * BLOCK + count - 1),) if count else ()


def spare_in(block: int, max_surge: int) -> SlotRange:
    first = block * BLOCK + SPARE_FIRST
    return SlotRange(first=first, last=first + max(max_surge, 1) - 1)


def is_unsettled(assignment: Assignment) -> bool:
    """Something of it may still run: it has slots, or its region has not said that none are left."""
    here = assignment.status
    told = here.observed_generation == assignment.metadata.generation
    there = here.replicas.bound + here.replicas.reserved + here.replicas.pending
    return bool(assignment.spec.slots) or not told or there + here.unwanted > 0
