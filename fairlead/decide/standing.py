"""Which rooms a recovery budget should have in a region, and what brings the region there. Pure; used by the standing controller.

Each shape of a budget numbers its rooms in a block of its own, so that an index says its shape. A room that a slot has claimed is
there: it is held again when that slot is released, and what the slot leaves of it is kept until then. A room on a node that is
lost, closed or leaves is given up and placed elsewhere; one on a node that is merely silent, or in a zone to be avoided for a
while, is kept, and counts for nothing meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from fairlead.decide.spans import spans_of
from fairlead.model.commands import Body, Delete, Enqueue, ReleaseReservation
from fairlead.model.kinds.capacity import HeldShape, Holding, Reservation
from fairlead.model.kinds.intent import Placement, SpreadRule
from fairlead.model.kinds.slot import STANDING, SlotRef
from fairlead.model.kinds.work import Ask, SchedulingRequest, SchedulingRequestSpec
from fairlead.model.meta import Metadata
from fairlead.model.resources import NOTHING, Resources

BLOCK: Final = 10_000  # rooms of one shape, at most
ENQUEUE_MAX: Final = 256
ZONES_MAX: Final = 64  # of more of them nothing is said
PRIORITY: Final = 900  # behind critical work that wants to run, ahead of everything else

# One lost node or zone should take as little of a budget with it as can be; where that cannot be, held is better than not.
_SPREAD: Final = (
    SpreadRule(topology_key="zone", when_unsatisfiable="ScheduleAnyway"),
    SpreadRule(topology_key="hostname", when_unsatisfiable="ScheduleAnyway"),
)


class Here(NamedTuple):
    """What there is of a budget in this region."""

    rooms: Iterable[Reservation]
    waiting: Iterable[SchedulingRequest]
    claimed: frozenset[int]  # indices whose room a live slot has taken
    gone: frozenset[str]  # nodes that are lost, unknown here, closed, or on their way out
    silent: frozenset[str]  # nodes of which nobody knows, or where nothing may be placed for a while
    lent: frozenset[int] = frozenset()  # indices of rooms that borrowers run in
    zones: Mapping[str, str] = MappingProxyType({})  # of the nodes that have rooms, their zones; empty: in none
    open_zones: frozenset[str] = frozenset()  # those with a node that takes work: what a spread is measured over (ADR 0012)


def wanted(holding: Holding | None, now_ms: int) -> dict[int, Resources]:
    """Index -> how much room. None where the budget is over."""
    if holding is None or _is_over(holding, now_ms):
        return {}
    shapes = holding.spec.shapes
    return {block * BLOCK + number: shape.requests for block, shape in enumerate(shapes) for number in range(shape.count)}


def _is_over(holding: Holding, now_ms: int) -> bool:
    ends = holding.spec.expiry_time
    return holding.metadata.deletion_time is not None or (ends is not None and now_ms >= ends.timestamp() * 1000)


def shape_at(holding: Holding | None, index: int, now_ms: int) -> Resources | None:
    """How large the room of this index is to be; None where there is to be none."""
    if holding is None or _is_over(holding, now_ms):
        return None
    block, number = divmod(index, BLOCK)
    shapes = holding.spec.shapes
    return shapes[block].requests if block < len(shapes) and number < shapes[block].count else None


def request_for(holding: Holding, index: int, requests: Resources) -> SchedulingRequest:
    spec = holding.spec
    slot = SlotRef(workload=f"{STANDING}{spec.budget}", uid=spec.budget_uid, index=index)
    ask = Ask(requests=requests, workload_class=spec.workload_class, placement=Placement(spread=_SPREAD))
    return SchedulingRequest(
        metadata=Metadata(name=slot.object_name, namespace=holding.metadata.namespace),
        spec=SchedulingRequestSpec(slot=slot, ask=ask, priority=PRIORITY, budget_name=spec.budget, standing=True),
    )


def bodies(holding: Holding | None, want: Mapping[int, Resources], here: Here) -> list[Body]:
    """Rooms that should not be are given up, those that are missing are asked for."""
    out: list[Body] = []
    there = set(here.claimed)
    for room in here.rooms:
        spec, meta = room.spec, room.metadata
        if spec.claimer:
            stays = spec.index in here.claimed and spec.index in want
        else:
            stays = spec.index not in there and want.get(spec.index) == spec.requests
        if not stays or spec.node in here.gone:
            assert spec.token is not None, "a standing reservation has a token"
            out.append(ReleaseReservation(meta.namespace, meta.name, spec.token))
        there.add(spec.index)  # one that is given up is asked for again once it is gone
    for request in here.waiting:
        index = request.spec.slot.index
        if index in there or want.get(index) != request.spec.ask.requests:
            out.append(Delete("SchedulingRequest", request.metadata.namespace, request.metadata.name))
        there.add(index)
    missing = [index for index in want if index not in there]
    if holding is not None:
        for span in spans_of(missing):
            out += _enqueues(holding, want, span.first, span.last)
    return out


def _enqueues(holding: Holding, want: Mapping[int, Resources], first: int, last: int) -> list[Body]:
    out: list[Body] = []
    while first <= last:
        block_end = min(last, first // BLOCK * BLOCK + BLOCK - 1, first + ENQUEUE_MAX - 1)
        out.append(Enqueue(request_for(holding, first, want[first]), block_end - first + 1))
        first = block_end + 1
    return out


def shapes_of(holding: Holding, want: Mapping[int, Resources], here: Here) -> tuple[HeldShape, ...]:
    """What the region says of it: how many rooms of each shape are free, lent, claimed, silent and still to be found."""
    found: dict[int, list[int]] = {}  # block -> held, claimed, silent, lent
    on_node: dict[int, Counter[str]] = {}  # block -> held, by node
    for index in here.claimed:
        found.setdefault(index // BLOCK, [0, 0, 0, 0])[1] += 1
    for room in here.rooms:
        if room.spec.claimer:
            continue  # the rest of one that is counted as claimed
        if want.get(room.spec.index) == room.spec.requests and room.spec.node not in here.gone:
            counted = found.setdefault(room.spec.index // BLOCK, [0, 0, 0, 0])
            counted[2 if room.spec.node in here.silent else 0] += 1
            if room.spec.node not in here.silent:
                counted[3] += room.spec.index in here.lent
                on_node.setdefault(room.spec.index // BLOCK, Counter())[room.spec.node] += 1
    counts: dict[int, int] = {}
    for index in want:
        counts[index // BLOCK] = counts.get(index // BLOCK, 0) + 1
    shapes = []
    for block, count in counts.items():
        held, claimed, silent, lent = found.get(block, (0, 0, 0, 0))
        shape = holding.spec.shapes[block].requests
        waiting = max(0, count - held - claimed - silent)
        on = on_node.get(block, Counter())
        shapes.append(HeldShape(shape, held, claimed, waiting, silent, lent, _at_least(on.values()), _by_zone(on, here)))
    return tuple(shapes)


def _at_least(counts: Collection[int]) -> tuple[int, ...]:
    """How many of them are one or more, two or more, and so on. The sum of the first n is what is left with n of each at most."""
    return tuple(sum(count >= least for count in counts) for least in range(1, max(counts, default=0) + 1))


def _by_zone(on_node: Mapping[str, int], here: Here) -> tuple[int, ...]:
    """How many rooms each open zone has, the most first, down to those that have none. Nothing where none has any."""
    found = Counter(dict.fromkeys(here.open_zones, 0))
    for node, count in on_node.items():
        if zone := here.zones.get(node, ""):
            found[zone] += count
    return tuple(sorted(found.values(), reverse=True)) if any(found.values()) and len(found) <= ZONES_MAX else ()


def lent_of(rooms: Iterable[Reservation], borrowed: Iterable[Resources]) -> list[Reservation]:
    """Of all rooms on one node, of whichever budget: those that its borrowers run in, in the order of their names. Nobody says
    which room a borrower is in: one after the other is counted as far as what is borrowed goes."""
    left = NOTHING
    for each in borrowed:
        left += each
    out = []
    for room in sorted(rooms, key=lambda each: (each.metadata.namespace, each.metadata.name)):
        amounts = left.amounts()
        if not any(amounts.get(name, 0) > 0 for name, amount in room.spec.requests.amounts().items() if amount):
            continue
        out.append(room)
        left -= room.spec.requests
    return out
