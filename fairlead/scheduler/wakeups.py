"""What changed, and which waiting units it may help. The index is by what blocked them, so no change looks at all of them.

Owns the kinds of change and the index. A unit is registered under each topic that its failed gates belong to; a gate nobody here
knows belongs to all of them. A change readies no more than the capacity it brings could take, the most urgent first; the others
keep their timers. Entries of units that have left are void and are dropped when they come up. Called by the queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple, assert_never

from fairlead.model.kinds.intent import AffinityRule
from fairlead.model.kinds.work import Ask
from fairlead.scheduler.moved import has_left
from fairlead.scheduler.units import WAITING, Amounts, LazyHeap, Unit


class NodeFreed(NamedTuple):
    """A binding or reservation on the node has gone. `free` is what the node has free now, by dimension; unnamed is none.
    `slots`, if named, is how many more units it takes."""

    node: str
    free: Mapping[str, int]


class NodeOpened(NamedTuple):
    """The node is new, healthy again, uncordoned, heard again, or has other labels, taints or size."""

    node: str
    free: Mapping[str, int]


class ReservationEnded(NamedTuple):
    """A reservation was released or ran out; as NodeFreed, and it may be what a unit waited for by name."""

    node: str
    free: Mapping[str, int]
    tenant: str = ""
    name: str = ""


class GrantGrew(NamedTuple):
    """`room` is what the tenant may still use, by dimension; None if that is not known."""

    tenant: str
    room: Mapping[str, int] | None = None


class PolicyPromoted(NamedTuple):
    revision: int = 0


class PlacementsChanged(NamedTuple):
    """A slot of that workload went or moved. `repels`: it carries anti-affinity, which holds in both directions."""

    uid: str
    labels: tuple[tuple[str, str], ...] = ()
    repels: bool = False


class SlotsCame(NamedTuple):
    """Slots of that workload are where none of them were: its emptiest domain may have one more, and others may be near to it."""

    uid: str
    labels: tuple[tuple[str, str], ...] = ()


class PlaneReached(NamedTuple):
    """The global plane answers again: policy, residency and quota can be checked."""


Change = NodeFreed | NodeOpened | ReservationEnded | GrantGrew | PolicyPromoted | PlacementsChanged | SlotsCame | PlaneReached

CAPACITY, NODES, QUOTA, POLICY, PLACEMENTS, PLANE = "capacity", "nodes", "quota", "policy", "placements", "plane"
ARRIVALS = "arrivals"
TOPICS: Final = (CAPACITY, NODES, QUOTA, POLICY, PLACEMENTS, ARRIVALS, PLANE)

# By the names that fairlead/decide/gates gives them.
TOPICS_OF_GATE: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("cpu", "memory", "slots", "scalars", "devices", "capacity"), (CAPACITY,)),
    **dict.fromkeys(("regions", "zones", "labels", "taints", "cordon", "health", "handshake", "observation"), (NODES,)),
    "tenancy": (NODES, POLICY),
    **dict.fromkeys(("grant", "quota"), (QUOTA,)),
    **dict.fromkeys(("residency", "policy"), (POLICY, PLANE)),
    "anti-affinity": (PLACEMENTS,),
    **dict.fromkeys(("spread", "affinity", "topology"), (PLACEMENTS, ARRIVALS)),
    # Freed together with capacity by a neighbour, or by a slot of the same workload.
    **dict.fromkeys(("ports", "max-per-node", "isolation"), (CAPACITY, PLACEMENTS)),
}

# Where a reason is given without gates, these are what may end it.
TOPICS_OF_REASON: Final[dict[str, tuple[str, ...]]] = {
    "NoMatchingCapacity": (NODES,),
    "ResidencyBlocked": (POLICY, PLANE),
    "PolicyAuthorityUnreachable": (PLANE, POLICY),
    "ExceedsMaxQuota": (QUOTA,),
    "WaitingForQuota": (QUOTA,),
    "WaitingForCapacity": (CAPACITY, NODES),
    "TopologyBlocked": (PLACEMENTS, ARRIVALS, NODES),
    "WaitingForVictims": (CAPACITY,),
}

_MISFITS_MAX = 2  # of one bucket, looked at and passed over for one change; then the bucket's others keep their timers
_MISFITS_OF_A_LIST_MAX = 16  # a list is not sorted into sizes, so more of its heads may be too large
_ARRIVALS_WAKE_MAX = 64  # of one workload's arrivals; each of these that finds a place is an arrival and wakes others
_SHAPES_MAX = 50_000
_ANY_LABELS, _REPELLED = "any-labels", "repelled"

Floor = tuple[int, int, tuple[str, ...]]
Waiting = tuple[int, int, int, Unit]  # (-priority, created, stay, unit)


def _is_valid(entry: Waiting) -> bool:
    return entry[3].stay == entry[2] and entry[3].state == WAITING


@lru_cache(maxsize=4096)
def topics_of(reason: str, gates: tuple[str, ...]) -> tuple[str, ...]:
    """In a fixed order, so that a run repeats."""
    if not gates:
        return TOPICS_OF_REASON.get(reason, ())
    found = {topic for gate in gates for topic in TOPICS_OF_GATE.get(gate, TOPICS)}
    return tuple(topic for topic in TOPICS if topic in found)


class Bucket(LazyHeap):
    """Units of about one size: cpu and memory from their floor to the next, and the other dimensions they ask for. A freed
    amount passes over a bucket whose floor is above it without looking inside."""

    __slots__ = ("floor",)

    def __init__(self, floor: Floor) -> None:
        super().__init__(_is_valid)
        self.floor = floor


class Wakeups:
    def __init__(self) -> None:
        self._lists: dict[tuple[str, ...], LazyHeap] = {}
        self._buckets: dict[Floor, Bucket] = {}
        self._bucket_of: dict[Amounts, Bucket] = {}
        self.awaits_arrivals = False  # whether anything ever did: where no rule asks for neighbours, no bind need be told

    def add(self, unit: Unit, topics: tuple[str, ...], ask: Ask | None) -> None:
        """Its `stay` is that of this wait."""
        entry = (-unit.priority, unit.created_ms, unit.stay, unit)
        for topic in topics:
            if topic == CAPACITY:
                self._bucket(unit.least).push(entry)
            elif topic == QUOTA:
                self._list(QUOTA, unit.tenant).push(entry)
            elif topic == PLACEMENTS:
                for key in _placement_keys(unit, ask):
                    self._list(*key).push(entry)
            elif topic == ARRIVALS:
                self.awaits_arrivals = True
                for key in _arrival_keys(unit, ask):
                    self._list(*key).push(entry)
            else:
                self._list(topic).push(entry)
        if unit.reason == "WaitingForVictims":
            self._list("name", unit.tenant, unit.name).push(entry)

    def woken_by(self, change: Change, limit: int) -> list[Unit]:
        """The units to make ready. They stay registered until they are: the caller gives each a new `stay`."""
        match change:
            case NodeFreed(node=node, free=free):
                return self._fitting(self._buckets_within(free), free, limit, node)
            case NodeOpened(free=free):
                nodes = self._lists.get((NODES,))
                return self._fitting([*self._buckets_within(free), *([nodes] if nodes is not None else ())], free, limit)
            case ReservationEnded(free=free, tenant=tenant, name=name):
                named = self._first([("name", tenant, name)], limit) if name else []
                found = self._fitting(self._buckets_within(free), free, limit)
                return [*named, *(unit for unit in found if unit not in named)]
            case GrantGrew(tenant=tenant, room=room):
                waiting = self._lists.get((QUOTA, tenant))
                if waiting is None:
                    return []
                return self._first([(QUOTA, tenant)], limit) if room is None else self._fitting([waiting], room, limit)
            case PolicyPromoted():
                return self._first([(POLICY,)], limit)
            case PlacementsChanged(uid=uid, labels=labels, repels=repels):
                keys = [(PLACEMENTS, uid), *((PLACEMENTS, *pair) for pair in labels), (PLACEMENTS, _ANY_LABELS, "")]
                return self._first([*keys, (PLACEMENTS, _REPELLED, "")] if repels else keys, limit)
            case SlotsCame(uid=uid, labels=labels):
                keys = [(ARRIVALS, uid), *((ARRIVALS, *pair) for pair in labels), (ARRIVALS, _ANY_LABELS, "")]
                return self._first(keys, min(limit, _ARRIVALS_WAKE_MAX))
            case PlaneReached():
                return self._first([(PLANE,)], limit)
            case _:
                assert_never(change)

    # --- looking ----------------------------------------------------------------------------------------------------

    def _buckets_within(self, free: Mapping[str, int]) -> list[LazyHeap]:
        return [bucket for bucket in self._buckets.values() if bucket.heap and _may_hold(bucket.floor, free)]

    def _first(self, keys: list[tuple[str, ...]], limit: int) -> list[Unit]:
        """The most urgent of several lists, each unit once."""
        heaps = [found for key in keys if (found := self._lists.get(key))]
        return self._fitting(heaps, None, limit)

    def _fitting(self, heaps: list[LazyHeap], free: Mapping[str, int] | None, limit: int, node: str = "") -> list[Unit]:
        """The most urgent first, as long as they fit what is left. None: nothing limits them but their number. Who was moved off
        the node to make room takes nothing of it from those it was made for."""
        left = None if free is None else dict(free)
        heads: list[tuple[Waiting, int]] = []
        for number, waiting in enumerate(heaps):
            _offer(heads, waiting, number)
        out: list[Unit] = []
        seen: set[int] = set()  # stays: a unit may be in several lists
        misfits: list[tuple[LazyHeap, Waiting]] = []
        passed = [0] * len(heaps)
        while heads and len(out) < limit:
            entry, number = heappop(heads)
            waiting = heaps[number]
            if left is not None and isinstance(waiting, Bucket) and not _may_hold(waiting.floor, left):
                continue
            heappop(waiting.heap)
            unit = entry[3]
            if unit.stay in seen:
                pass
            elif left is None or _fits(unit.least, left):
                out.append(unit)
                seen.add(unit.stay)
                if left is not None and not has_left(unit, node) and _use_up(unit.least, left):
                    break
            else:
                misfits.append((waiting, entry))
                passed[number] += 1
                if passed[number] >= (_MISFITS_MAX if isinstance(waiting, Bucket) else _MISFITS_OF_A_LIST_MAX):
                    continue
            _offer(heads, waiting, number)
        for waiting, entry in misfits:
            heappush(waiting.heap, entry)
        return out

    # --- the lists --------------------------------------------------------------------------------------------------

    def _list(self, *key: str) -> LazyHeap:
        found = self._lists.get(key)
        if found is None:
            if len(self._lists) > 1_024 and len(self._lists).bit_count() == 1:  # at each doubling: workloads come and go
                self._lists = {k: waiting for k, waiting in self._lists.items() if any(map(_is_valid, waiting.heap))}
            found = self._lists[key] = LazyHeap(_is_valid)
        return found

    def _bucket(self, least: Amounts) -> Bucket:
        found = self._bucket_of.get(least)
        if found is None:
            sizes = dict(least)
            floor = (_floor(sizes.pop("cpu", 0)), _floor(sizes.pop("memory", 0)), tuple(sizes))
            found = self._buckets.get(floor)
            if found is None:
                found = self._buckets[floor] = Bucket(floor)
            if len(self._bucket_of) > _SHAPES_MAX:
                self._bucket_of.clear()
            self._bucket_of[least] = found
        return found


def _floor(amount: int) -> int:
    """Rounded down to its two highest bits, so that 1, 1.5, 2, 3, 4, 6 of anything stand in buckets of their own size."""
    shift = max(0, amount.bit_length() - 2)
    return amount >> shift << shift


def _may_hold(floor: Floor, free: Mapping[str, int]) -> bool:
    cpu, memory, others = floor
    if cpu > free.get("cpu", 0) or memory > free.get("memory", 0):
        return False
    return all(free.get(name, 0) > 0 for name in others)


def _offer(heads: list[Any], waiting: LazyHeap, number: int) -> None:
    heap = waiting.heap
    while heap:
        if _is_valid(heap[0]):
            heappush(heads, (heap[0], number))
            return
        heappop(heap)


def _fits(least: Amounts, left: Mapping[str, int]) -> bool:
    return left.get("slots", 1) > 0 and all(amount <= left.get(name, 0) for name, amount in least)


def _use_up(least: Amounts, left: dict[str, int]) -> bool:
    """Whether nothing is left after it."""
    for name, amount in least:
        left[name] -= amount
    if "slots" in left:  # a node's own limit, which no request names
        left["slots"] -= 1
        if left["slots"] <= 0:
            return True
    return max((amount for name, amount in left.items() if name != "slots"), default=0) <= 0


def _placement_keys(unit: Unit, ask: Ask | None) -> list[tuple[str, ...]]:
    """Its own workload's slots, those its rules name, and those that may repel it."""
    keys: list[tuple[str, ...]] = [(PLACEMENTS, unit.uid), (PLACEMENTS, _REPELLED, "")]
    place = ask.placement if ask is not None else None
    for rule in (*place.affinity, *place.anti_affinity) if place is not None else ():
        keys += _named(PLACEMENTS, rule)
    return list(dict.fromkeys(keys))


def _arrival_keys(unit: Unit, ask: Ask | None) -> list[tuple[str, ...]]:
    """Its own workload's slots, which level its spread, and those it is to be near to. Who keeps away is helped by no arrival."""
    keys: list[tuple[str, ...]] = [(ARRIVALS, unit.uid)]
    for rule in ask.placement.affinity if ask is not None else ():
        keys += _named(ARRIVALS, rule)
    return list(dict.fromkeys(keys))


def _named(topic: str, rule: AffinityRule) -> list[tuple[str, ...]]:
    pairs: list[tuple[str, ...]] = [(topic, e.key, value) for e in rule.match if e.operator == "In" for value in e.values]
    return pairs or [(topic, _ANY_LABELS, "")]
