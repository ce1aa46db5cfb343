"""Which slots are worth moving so that something large fits, or a node can go: a plan of few moves, or none. Pure.

Free capacity that lies in pieces holds nothing large. A plan empties part of one node: enough for a large ask that waits, or
all of it where the pool could do with a node less. Every slot it moves fits elsewhere among nodes of the same kind, beside the
others that move, so that nothing is asked to leave for a queue. Each move costs by the class of its work, and a plan that costs
more than the policy allows is not made. Proposes only: budgets are judged when a move is asked for. What was asked in the last
hour is read from the requests themselves, which are kept as long. Used by fairlead/controllers/defragmenter.py, and by garbage.py
for how long that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from fairlead.decide.disruption import concerns, is_approved, is_open
from fairlead.decide.slots import millis
from fairlead.model.hot import BindingHot
from fairlead.model.kinds.policy import Defragmentation
from fairlead.model.kinds.work import EvictionRequest
from fairlead.model.resources import Resources

COSTS: Final[Mapping[str, int]] = {"critical": 8, "standard": 4, "batch": 2, "best-effort": 1}
REQUESTER: Final = "defragmenter"
HOUR_MS: Final = 3_600_000
DEADLINE_MS: Final = 120_000  # of a request to move
LEFT_MS: Final = 15_000  # that who was moved keeps off the node it left: half of what work that fits may wait (L1)
UNKNOWN_COST: Final = 8  # of a class that the policy does not name: as dear as the dearest


class Movable(NamedTuple):
    tenant: str
    name: str  # of the slot's objects
    requests: Resources
    cost: int


class Room(NamedTuple):
    """A node that is well and open. `kind` is equal where a slot of one may go to the other."""

    name: str
    kind: str
    free: Resources
    slots_free: int
    movable: Sequence[Movable] = ()
    fixed: int = 0  # slots on it that may not move
    may_go: bool = False  # its pool could do with a node less


Asked = tuple[Resources, frozenset[str]]  # by one slot that waits; on nodes of these kinds


class Plan(NamedTuple):
    node: str
    moves: tuple[Movable, ...]
    cost: int
    why: str


def plan(rooms: Sequence[Room], asks: Iterable[Asked], rules: Defragmentation, left: int) -> Plan | None:
    """The cheapest plan for the largest ask that waits, else for a node that may go. `left`: how many moves may still be asked
    for now."""
    most = min(rules.max_moves, left)
    for ask, kinds in sorted(set(asks), key=lambda each: (-each[0].cpu, -each[0].memory, sorted(each[1]))):
        fitting = [room for room in rooms if room.kind in kinds]
        if any(_holds(room, ask) for room in fitting):
            continue  # it fits already: placing is the scheduler's
        found = [made for room in fitting if (made := _for_ask(room, rooms, ask, rules, most)) is not None]
        if found:
            return min(found, key=_dearness)
    found = [made for room in rooms if room.may_go and (made := _emptied(room, rooms, rules, most)) is not None]
    return min(found, key=_dearness, default=None)


def stands(node: str, leaving: Sequence[Movable], rooms: Sequence[Room], asks: Iterable[Asked]) -> bool:
    """Whether a plan that was made before still does what it was made for: those that have yet to leave fit elsewhere, and when
    they have left something that waits fits there, or the node can go."""
    room = next((each for each in rooms if each.name == node), None)
    if room is None or not _fit_elsewhere(room, rooms, list(leaving)):
        return False
    for slot in leaving:
        room = room._replace(free=room.free + slot.requests, slots_free=room.slots_free + 1)
    return room.may_go or any(room.kind in kinds and _holds(room, ask) for ask, kinds in asks)


def _dearness(made: Plan) -> tuple[int, int, str]:
    return made.cost, len(made.moves), made.node


def _for_ask(room: Room, rooms: Sequence[Room], ask: Resources, rules: Defragmentation, most: int) -> Plan | None:
    """The fewest costs first: cheap and large slots leave until the ask fits. Then those stay without which it fits as well, as
    it does without one that frees only what there is enough of."""
    left = room
    leaving: list[Movable] = []
    for slot in sorted(room.movable, key=lambda each: (each.cost, -each.requests.cpu, -each.requests.memory, each.name)):
        if _holds(left, ask):
            break
        leaving.append(slot)
        left = left._replace(free=left.free + slot.requests, slots_free=left.slots_free + 1)
    if not _holds(left, ask):
        return None
    for slot in sorted(leaving, key=lambda each: (-each.cost, each.requests.cpu, each.requests.memory, each.name)):
        beside = left._replace(free=left.free - slot.requests, slots_free=left.slots_free - 1)
        if _holds(beside, ask):
            left = beside
            leaving.remove(slot)
    return _checked(room, rooms, leaving, rules, most, f"a slot that waits would fit {room.name}")


def _emptied(room: Room, rooms: Sequence[Room], rules: Defragmentation, most: int) -> Plan | None:
    if room.fixed:
        return None
    return _checked(room, rooms, list(room.movable), rules, most, f"{room.name} could go")


def _checked(
    room: Room, rooms: Sequence[Room], leaving: list[Movable], rules: Defragmentation, most: int, why: str
) -> Plan | None:
    cost = sum(slot.cost for slot in leaving)
    if not leaving or len(leaving) > most or cost > rules.max_cost or not _fit_elsewhere(room, rooms, leaving):
        return None
    return Plan(room.name, tuple(leaving), cost, why)


def _fit_elsewhere(room: Room, rooms: Sequence[Room], leaving: list[Movable]) -> bool:
    """All of them together, the large first; on nodes that are in use, or nothing is gained."""
    others = {each.name: each for each in rooms if each.name != room.name and each.kind == room.kind and _in_use(each)}
    for slot in sorted(leaving, key=lambda each: (-each.requests.cpu, -each.requests.memory)):
        place = next((each for each in others.values() if _holds(each, slot.requests)), None)
        if place is None:
            return False
        others[place.name] = place._replace(free=place.free - slot.requests, slots_free=place.slots_free - 1)
    return True


def _in_use(room: Room) -> bool:
    return bool(room.movable or room.fixed)


def _holds(room: Room, ask: Resources) -> bool:
    return not ask.exceeding(room.free) and room.slots_free > 0


# --- what was asked before ---------------------------------------------------------------------------------------------------


def asked_ms(request: EvictionRequest) -> int:
    """When defragmentation asked for it; 0: somebody else did. Not when the object was made: one that is kept is written anew."""
    return max(0, millis(request.spec.deadline_time) - DEADLINE_MS) if request.spec.requester == REQUESTER else 0


def is_let_go(request: EvictionRequest) -> bool:
    """It was granted: the slot has left its node, or is on its way out. That may take minutes after the request has ended."""
    return not is_open(request) and any(each.type == "Done" and each.reason == "Evicted" for each in request.status.conditions)


def made_room(request: EvictionRequest | None, hot: BindingHot) -> bool:
    """This life of the slot, which has ended, was let go because defragmentation asked for it. Its process may be gone before the
    request says that it is done."""
    if request is None or request.spec.requester != REQUESTER or not concerns(request, hot):
        return False
    return is_let_go(request) or (is_open(request) and is_approved(request))


def has_moved(request: EvictionRequest, now_ms: int) -> bool:
    """Within the hour: whatever sent the slot where it is, it is not sent on again so soon."""
    return is_let_go(request) and asked_ms(request) > now_ms - HOUR_MS
