"""Slots that find no place in their region for a while go to another one, and the old region gives them up first. Pure.

Owns when a region is asked, for how many, and what keeps slots from going back and forth; in the region, which of them it gives
up. A slot that is bound or reserved is never asked for. What was given up is a slot less there: assigning.py then gives one more
to a region that is not full, under a number of that region's own block, so no number is ever used in two places (ADR 0025).
Called by the workload controller (global plane) and, through wanting.py, by the assignment and repair controllers (regions).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from msgspec.structs import replace

from fairlead.decide.slots import Slots, grouped, instant, millis
from fairlead.decide.spans import Spans, index_set, spans_of
from fairlead.model.kinds.work import Assignment, AssignmentSpec, AssignmentStatus, Overflow
from fairlead.model.lifecycle import SlotState
from fairlead.model.resources import Resources

# Why a slot waits that another region may cure. Not: what people or a policy hold, residency, and what the region has not tried.
CURABLE: Final = frozenset({"NoMatchingCapacity", "WaitingForCapacity", "TopologyBlocked", "WaitingForQuota", "ExceedsMaxQuota"})
AT_ONCE: Final = 16  # slots of one workload on their way: the next go when the other region has placed these
COOL_DOWN_MS: Final = 600_000  # who gave takes nothing for so long
TURNS_MAX: Final = 1  # the cool-down doubles with the first turn, and no further: nobody would wait for longer beside free room
CALM_MS: Final = 86_400_000  # after a day without a move the turns are forgotten
UNHEARD_MS: Final = 30_000  # a region that was asked, has heard it, and gives nothing
AGAIN_MS: Final = 300_000  # is asked again after this
SOON_MS: Final = 30_000  # one whose ask was taken back, because room elsewhere was gone, after this: it may have given some


# --- in the global plane -------------------------------------------------------------------------------------------------------


class Seen(NamedTuple):
    """One region, as the global plane sees it for one workload."""

    name: str
    own: int  # slots, without what was given up and without those that stand in for a lost region's
    floor: int = 0  # of these it keeps so many: `perRegionMinimum`
    waiting: int = 0  # of what it said: slots that wait for what another region may have
    pending: int = 0  # all that wait
    since_ms: int = 0  # when it was first seen to wait
    current: bool = True  # what it said is about the order that stands
    asked: int = 0
    past: Overflow = Overflow()
    room: int = 0  # slots its tenant's grant could still hold there
    heard: bool = True
    may: bool = True  # allowed, within its areas, and with a grant
    crowded: bool = False  # something no larger waits for capacity there
    mixed: bool = False  # it has slots that stand in for others: nobody can tell who waits


class Plan(NamedTuple):
    asks: dict[str, int]  # region -> how many it is asked to give up; nought for all others
    wake_ms: int | None = None
    taken_back: frozenset[str] = frozenset()  # asks that have no point, because no other region has room any more


def waiting(status: AssignmentStatus) -> int:
    return sum(why.count for why in status.pending if why.reason in CURABLE)


def own_waiting(status: AssignmentStatus, own: int) -> int:
    """Of those, the ones that have numbers of the region's own and can be given up: not what waits as the surge of a rollout,
    beside all of its own that have a place."""
    return min(waiting(status), max(0, own - status.replicas.bound))


def oldest_ms(status: AssignmentStatus) -> int:
    """Since when, by the region's own clock: good for telling whether the oldest is still the same one."""
    return min((millis(why.since_time) for why in status.pending if why.reason in CURABLE), default=0)


def is_current(assignment: Assignment) -> bool:
    return assignment.status.observed_generation == assignment.metadata.generation


def given_up(assignment: Assignment) -> Spans:
    """What the region says it holds no longer. Only an answer to the order that stands counts: after any later one it may have
    queued them again."""
    if not assignment.spec.give_up or not is_current(assignment):
        return ()
    return spans_of(index_set(assignment.status.given_up) & index_set(assignment.spec.slots))


def cool_down_ms(past: Overflow, now_ms: int) -> int:
    last_ms = max(millis(past.gave_time), millis(past.took_time))
    turns = past.turns if now_ms - last_ms < CALM_MS else 0
    return COOL_DOWN_MS << min(turns, TURNS_MAX)


def is_closed(past: Overflow, now_ms: int) -> bool:
    """It gave slots away not long ago: none come back to it."""
    return past.gave_time is not None and now_ms < millis(past.gave_time) + cool_down_ms(past, now_ms)


def takes(region: Seen, now_ms: int) -> bool:
    """Whether slots of others may come here now: nothing of the workload waits here, nor anything that is no larger."""
    well = region.may and region.heard and not region.crowded and not is_closed(region.past, now_ms)
    return well and region.room > 0 and not region.pending and not region.asked and (region.current or not region.own)


def is_full(region: Seen, after_ms: int, now_ms: int) -> bool:
    """New slots had better go elsewhere."""
    return bool(region.asked) or is_closed(region.past, now_ms) or (region.waiting > 0 and now_ms >= region.since_ms + after_ms)


def plan(regions: Sequence[Seen], after_ms: int, now_ms: int) -> Plan:
    """Whom to ask, one region at a time. An ask stands until it is answered, or until it has no point any more."""
    room = sum(region.room for region in regions if takes(region, now_ms))
    asked = [region for region in regions if region.asked]
    if asked:
        kept = {r.name: r.asked for r in asked[:1] if _stands(r, room, now_ms)}
        early = frozenset(r.name for r in asked if r.name not in kept and not room and not _is_late(r, now_ms))
        return Plan(kept, millis(asked[0].past.asked_time) + UNHEARD_MS + 1 if kept and asked[0].current else None, early)
    wake: list[int] = []
    for region in sorted(regions, key=lambda r: (r.since_ms, r.name)):
        if not region.waiting or not region.current or not region.heard or region.mixed or region.own <= region.floor:
            continue
        ready_ms = max(region.since_ms + after_ms, _gives_from_ms(region.past))
        if now_ms < ready_ms:
            wake.append(ready_ms)
        elif room:
            return Plan({region.name: min(region.waiting, region.own - region.floor, room, AT_ONCE)})
    return Plan({}, min(wake, default=None))


def _stands(region: Seen, room: int, now_ms: int) -> bool:
    if not region.heard:
        return False
    if not region.current:
        return True  # it has not heard of it: what is taken back now would cross with its answer, which is safe, and for nothing
    return bool(region.waiting and room) and not _is_late(region, now_ms)


def _is_late(region: Seen, now_ms: int) -> bool:
    """It had the time to answer."""
    return now_ms >= millis(region.past.asked_time) + UNHEARD_MS


def _gives_from_ms(past: Overflow) -> int:
    """An ask that brought nothing is not repeated at once. What came by overflow and finds no place may go on when it has waited
    as long as anything else: where it came from takes nothing back so soon, and where there is room nobody has tried."""
    asked = past.asked_time
    if asked is None or (past.gave_time is not None and past.gave_time >= asked):
        return 0
    back = past.taken_back_time
    return millis(back) + SOON_MS if back is not None and back >= asked else millis(asked) + AGAIN_MS


def noted(
    past: Overflow, now_ms: int, *, asked: bool = False, taken_back: bool = False, gave: bool = False, took: bool = False
) -> Overflow:  # fmt: skip
    """What is remembered of a move, in the Assignment, so that a new leader knows it too."""
    now = instant(now_ms)
    if asked:
        past = replace(past, asked_time=now)
    if taken_back:
        past = replace(past, taken_back_time=now)
    if not (gave or took):
        return past
    turns = past.turns if cool_down_ms(past, now_ms) == COOL_DOWN_MS << min(past.turns, TURNS_MAX) else 0
    other = past.took_time if gave else past.gave_time
    same = past.gave_time if gave else past.took_time
    turned = other is not None and other > (same or _NEVER)
    past = replace(past, turns=turns + turned)
    return replace(past, gave_time=now) if gave else replace(past, took_time=now)


_NEVER: Final[datetime] = instant(0)


class Waits:
    """Since when slots of each workload have waited in each region, by the global plane's clock. In memory: who is new counts
    from when it first looks."""

    def __init__(self) -> None:
        # By workload and region: since when, the oldest as its region says, how many.
        self._seen: dict[tuple[str, str], dict[str, tuple[int, int, int]]] = {}

    def since_ms(self, key: tuple[str, str], region: str, status: AssignmentStatus, now_ms: int) -> int:
        """Begins anew when the oldest was placed: the region gets on."""
        count, oldest = waiting(status), oldest_ms(status)
        if not count:
            self._seen.get(key, {}).pop(region, None)
            return now_ms
        mine = self._seen.setdefault(key, {})
        since, before, many = mine.get(region, (now_ms, oldest, count))
        if oldest > before and count < many:
            since = now_ms
        mine[region] = (since, oldest, count)
        return since

    def forget(self, key: tuple[str, str]) -> None:
        self._seen.pop(key, None)


def fits_in(small: Resources, large: Resources) -> bool:
    return not small.exceeding(large)


# --- in the region -------------------------------------------------------------------------------------------------------------


class Giving(NamedTuple):
    gone: frozenset[int]  # not queued, not bound, and not to be queued: given up
    going: frozenset[int]  # still queued, to be withdrawn


NOTHING_GIVEN: Final = Giving(frozenset(), frozenset())


def giving(order: AssignmentSpec, before: AssignmentStatus, slots: Slots) -> Giving:
    """What a region gives up of what it was asked for: slots that are not there at all, then those that have waited longest."""
    if not order.give_up or order.job is not None or order.suspend:
        return NOTHING_GIVEN
    own = index_set(order.slots) - index_set((order.recovery,) if order.recovery is not None else ())
    said = index_set(before.given_up)
    absent = sorted((i for i in own if i not in slots), key=lambda i: (i not in said, -i))[: order.give_up]
    left = order.give_up - len(absent)
    longest = sorted(_curable(slots, own), key=lambda pair: (pair[0], -pair[1]))[:left] if left else []
    return Giving(frozenset(absent), frozenset(index for _, index in longest))


def _curable(slots: Slots, own: set[int]) -> Iterable[tuple[int, int]]:
    """(since when, index)"""
    for slot in grouped(slots).of(SlotState.PENDING):
        if slot.index in own and slot.request is not None and slot.request.status.reason in CURABLE:
            yield millis(slot.request.status.since_time), slot.index


def without_given(want: dict[int, int], order: AssignmentSpec, before: AssignmentStatus, slots: Slots) -> dict[int, int]:
    gone, going = giving(order, before, slots)
    return {index: generation for index, generation in want.items() if index not in gone and index not in going}


# --- shares --------------------------------------------------------------------------------------------------------------------


class Shares:
    """Slots of each class in each region: what an even split over the regions that may carry them would give, and what is bound.
    Added up as workloads are looked at; for the metric."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], tuple[str, dict[str, tuple[float, int]]]] = {}
        self._totals: dict[tuple[str, str], list[float]] = {}  # (class, region) -> wanted, bound

    def told(self, key: tuple[str, str], workload_class: str, slots: int, able: Sequence[str], bound: Mapping[str, int]) -> None:
        self.forget(key)
        even = slots / len(able) if able else 0.0
        parts = {name: (even if name in able else 0.0, bound.get(name, 0)) for name in sorted({*able, *bound})}
        self._of[key] = (workload_class, parts)
        self._add(workload_class, parts, 1)

    def forget(self, key: tuple[str, str]) -> None:
        old = self._of.pop(key, None)
        if old is not None:
            self._add(*old, -1)

    def _add(self, workload_class: str, parts: dict[str, tuple[float, int]], sign: int) -> None:
        for region, (wanted, bound) in parts.items():
            total = self._totals.setdefault((workload_class, region), [0.0, 0.0])
            total[0] += sign * wanted
            total[1] += sign * bound

    def shares(self) -> dict[tuple[str, str], tuple[float, float]]:
        """(class, region) -> the share that is wanted there, and the one that is bound there, of what is bound of the class."""
        out = {}
        for (workload_class, region), (wanted, bound) in self._totals.items():
            of_class = [each for (name, _), each in self._totals.items() if name == workload_class]
            all_wanted, all_bound = sum(each[0] for each in of_class), sum(each[1] for each in of_class)
            if all_wanted > 0.5 and all_bound > 0.5:  # sums of fractions: what is left of nothing is not quite nought
                out[workload_class, region] = (wanted / all_wanted, bound / all_bound)
        return out
