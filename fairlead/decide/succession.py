"""Who stands in for the slots of a lost region that may run only once in the world (P11). Pure.

Each stand-in is for one slot and names it, and those that stood in for it before: a chain, of which one link runs at a time. A
slot gets one only when its region's slot lease was taken from it, so that it can run there no more. A home gets its slot back
only when the one that stands in is gone: because its region says so, or because that region's lease was taken, too. So does a
third region, where the one that took over has no place. `exclusive: region` never comes here. Used by recovery.py for what is
ordered, and by the workload controller for what that means to a region.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from fairlead.decide.assigning import BLOCK, RECOVERY_FIRST, block_of
from fairlead.decide.slot_lease import slot_name
from fairlead.decide.spans import holds, index_set, size, spans_of
from fairlead.model.kinds.recovery import RecoveryOrder, StandIn
from fairlead.model.kinds.work import Assignment, AssignmentSpec, SlotRange, Successor

Home = tuple[str, int]  # region, slot


class Alone(NamedTuple):
    """A service each of whose slots runs once in the world."""

    workload: str
    homes: Mapping[str, tuple[int, ...]]  # its own slots by region, also those that others stand in for
    stand_ins: tuple[StandIn, ...]
    taken: Mapping[str, int]  # regions that can run none of them, and the epoch under which their slot lease was taken
    gone: frozenset[StandIn] = frozenset()  # of the stand-ins that leave, those of which nothing is left
    blocks: Mapping[str, int] = {}  # of the numbers of its slots, by region
    wanted: bool = True  # whether it is to be recovered at all, as it is now


class Areas(NamedTuple):
    """Regions by how they are."""

    lost: frozenset[str]
    settled: frozenset[str]  # healthy for so long that what stands in for them may go
    able: tuple[str, ...]  # those that may carry a stand-in now
    stuck: frozenset[str] = frozenset()  # those whose stand-ins have had no place for so long that they go elsewhere


class Found(NamedTuple):
    stand_ins: tuple[StandIn, ...]
    region: str = ""  # where new ones are
    new: int = 0
    missing: int = 0


def kept(alone: Alone, areas: Areas) -> tuple[list[StandIn], dict[Home, tuple[str, ...]]]:
    """The stand-ins that stay, or still leave; and the chains of those whose own region was lost: somebody comes after them."""
    stay: list[StandIn] = []
    broken: dict[Home, tuple[str, ...]] = {}
    for one in alone.stand_ins:
        dead = one.region in alone.taken
        needed = _is_needed(alone, areas, one)
        if dead and needed:
            index = alone.blocks.get(one.region, 0) * BLOCK + RECOVERY_FIRST + one.ordinal
            name = slot_name(one.region, alone.workload, index, alone.taken[one.region])
            broken[one.home, one.slot] = (name, *one.supersedes)
        elif not dead and one not in alone.gone:
            leaves = one.leaving or not needed or one.region in areas.stuck
            stay.append(replace(one, leaving=True) if leaves else one)
    return stay, broken


def _is_needed(alone: Alone, areas: Areas, one: StandIn) -> bool:
    at_home = one.home in areas.settled and one.home not in alone.taken
    return alone.wanted and one.slot in alone.homes.get(one.home, ()) and not at_home


def succeed(alone: Alone, minimum: int, areas: Areas, room: Callable[[str], int]) -> Found:
    """All stand-ins there should be. `room`: how many of them a region's budget has room for."""
    stay, broken = kept(alone, areas)
    served = {(one.home, one.slot) for one in stay}
    open_homes = [
        (region, slot)
        for region in sorted(alone.taken)
        if region in areas.lost
        for slot in alone.homes.get(region, ())
        if (region, slot) not in served
    ]
    need = min(len(open_homes), missing(alone, minimum, areas, stay)) if alone.wanted else 0
    if not need:
        return Found(tuple(stay))
    there = {one.region for one in stay}
    choices = [
        (need - min(need, room(region)), region not in there, region) for region in areas.able if region not in alone.taken
    ]
    if not choices:
        return Found(tuple(stay), missing=need)
    short, _, region = min(choices)
    fresh = [_stand_in(alone, home, region, broken) for home in open_homes[: need - short]]
    used = {one.ordinal for one in stay if one.region == region}
    free = (number for number in range(len(used) + len(fresh)) if number not in used)
    placed = [replace(one, ordinal=number) for one, number in zip(fresh, free, strict=False)]
    return Found((*stay, *placed), region, len(placed), short)


def missing(alone: Alone, minimum: int, areas: Areas, stand_ins: Iterable[StandIn]) -> int:
    """What it lacks of its minimum, counted over all regions: its slots are no copies of each other."""
    there = sum(len(slots) for region, slots in alone.homes.items() if region not in areas.lost)
    stood_in = [one for one in stand_ins if not one.leaving]
    away = sum(one.home not in areas.lost for one in stand_ins)  # its home is there again, and does not run it
    return max(0, minimum - there + away - len(stood_in))


def _stand_in(alone: Alone, home: Home, region: str, broken: Mapping[Home, tuple[str, ...]]) -> StandIn:
    chain = broken.get(home) or (slot_name(home[0], alone.workload, home[1], alone.taken[home[0]]),)
    return StandIn(home=home[0], slot=home[1], region=region, ordinal=0, supersedes=chain)


# --- what the global plane knows of it ---------------------------------------------------------------------------------------


def homes_of(order: AssignmentSpec) -> tuple[int, ...]:
    """A region's own slots, also those that another stands in for."""
    own = [
        span for span in order.slots if order.recovery is None or not order.recovery.first <= span.first <= order.recovery.last
    ]
    return tuple(sorted(index_set((*own, *order.superseded))))


def blocks_of(assignments: Iterable[Assignment]) -> dict[str, int]:
    return {a.spec.region: block_of(a.spec.spare) for a in assignments if a.spec.spare is not None}


def name_of(order: RecoveryOrder | None) -> str:
    """An order as it stands, as assignments that were decided on it name it."""
    return f"{order.metadata.uid}/{order.metadata.generation}" if order is not None else ""


def gone(order: RecoveryOrder, assignments: Mapping[str, Assignment]) -> frozenset[StandIn]:
    """Of the stand-ins that leave, those of which nothing is left: the assignments were made by this very order, so none that
    names them is still under way, and their region has said in answer that nothing is left of what is not wanted there."""
    if any(a.spec.ordered != name_of(order) for a in assignments.values()):
        return frozenset()
    return frozenset(one for one in order.spec.stand_ins if one.leaving and _left_nothing(one, assignments.get(one.region)))


def _left_nothing(one: StandIn, assignment: Assignment | None) -> bool:
    if assignment is None:
        return True
    told = assignment.status.observed_generation == assignment.metadata.generation
    return told and not holds(assignment.spec.slots, _index(one, assignment.spec)) and assignment.status.unwanted == 0


def may_give_back(region: str, orders: Iterable[Sequence[StandIn]], assignments: Iterable[Assignment | None]) -> bool:
    """Whether the assignments of a region name nothing that somebody else stands in for, and no stand-in that is none any more:
    then it may have its slot lease back. One pair for each workload that is exclusive everywhere."""
    for stand_ins, assignment in zip(orders, assignments, strict=True):
        if assignment is None:
            continue
        spec = assignment.spec
        right = {_index(one, spec) for one in stand_ins if one.region == region and not one.leaving}
        away = {one.slot for one in stand_ins if one.home == region}
        named = index_set(spec.slots)
        if named & away or {each.index for each in spec.successors} - right:
            return False
    return True


def _index(one: StandIn, spec: AssignmentSpec) -> int:
    return (block_of(spec.spare) if spec.spare is not None else 0) * BLOCK + RECOVERY_FIRST + one.ordinal


def with_successors(spec: AssignmentSpec, order: RecoveryOrder | None, budget: str) -> AssignmentSpec:
    """A region's part of a service that is exclusive everywhere: without its own slots that others stand in for, with those that
    stand in here."""
    ones = order.spec.stand_ins if order is not None else ()
    away = index_set(spec.slots) & {one.slot for one in ones if one.home == spec.region}
    here = {_index(one, spec): one for one in ones if one.region == spec.region and not one.leaving}
    own = spans_of(index_set(spec.slots) - away)
    least = min(spec.min_serving, size(own))
    spec = replace(
        spec, exclusive="global", slots=own, superseded=spans_of(away), min_serving=least, ordered=name_of(order)
    )  # fmt: skip
    if not here:
        return spec
    return replace(
        spec,
        slots=(*own, *spans_of(here)),
        recovery=SlotRange(first=min(here), last=max(here)),
        budget_name=budget,
        successors=tuple(Successor(index=index, supersedes=" ".join(one.supersedes)) for index, one in sorted(here.items())),
    )
