"""How many rooms of a recovery budget a service can certainly claim in a region, where its placement may be in the way. Pure.

A region says of its rooms on how many nodes they are and how many are in each zone. It does not say where the service's own slots
are, nor who claims which room first: what is certain here is so wherever they are and whoever is first. Used by recovery.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from fairlead.decide.domains import HOSTNAME
from fairlead.model.kinds.intent import Placement

ZONE = "zone"


class RoomRules(NamedTuple):
    """What of a placement may be in the way of a room."""

    per_node: int = 0  # slots that one node may have at most; 0: any number
    zone_skew: int = 0  # slots that one zone may have more than the emptiest; 0: any number
    why: str = ""  # a rule that no number of rooms can promise, in words


class Takers:
    """Who is given rooms of one budget in one region: how many, and with what skew over zones they lie (0: anyhow). Those who are
    alike are counted together, for there may be hundreds."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], tuple[int, int]] = {}
        self._alike: Counter[tuple[int, int]] = Counter()

    def add(self, key: tuple[str, str], count: int, skew: int) -> None:
        before = self._of.get(key, (0, 0))
        self._alike[before] -= 1
        self._of[key] = after = (before[0] + count, skew)
        self._alike[after] += 1

    def by(self, key: tuple[str, str]) -> int:
        return self._of.get(key, (0, 0))[0]

    def others(self, key: tuple[str, str], zones: int = 0) -> int:
        """What others than this one take: of all rooms, or of those in one of so many zones that are open to all of them."""
        mine = self._of.get(key)
        return sum(
            _in_one(count, skew, zones) * (number - ((count, skew) == mine))
            for (count, skew), number in self._alike.items()
            if count
        )


def _in_one(count: int, skew: int, zones: int) -> int:
    """Of so many slots, those that may lie in one zone: with `most` there each other has `most - skew` at least."""
    return min(count, (count + (zones - 1) * skew) // zones) if skew and zones else count


def evenly(rooms: Sequence[int], skew: int, own: int = 0, taken: int = 0, in_one: int | None = None) -> int:
    """How many slots find a room if no zone may have more than `skew` more of the service's than the emptiest. `rooms`: of each
    zone that is open, also of those that have none, for these hold back the others. Without `own` and `taken` that is exact.

    `own` slots of the service may lie in any zones, however unevenly: they do where a zone was gone for a while, or where the
    slots of one were the last. `taken` rooms are claimed by others, in any zones, at most `in_one` in each.

    When nothing more fits, the emptiest zone has no rooms left: it has `level` slots at least, every other `top` or no rooms.
    A room that was taken is one less, once its zone has no more than `top`. So is an own slot, once its zone has more of them
    than rooms are missing up to `top`, and no more than `top` of them; in the emptiest zone they do no harm.
    """
    if not rooms:
        return 0
    *rest, least = rooms = sorted(rooms, reverse=True)
    in_one = taken if in_one is None else min(in_one, taken)
    level = max(0, least - in_one)
    top = level + skew
    # Either every zone loses as much as one can, or the emptiest does and what is left of it is where it hurts.
    thinned = sum(min(max(0, each - in_one), top) for each in rooms)
    beyond = [max(0, each - top) if in_one <= least else 0 for each in reversed(rest)]
    scattered = level + sum(min(each, top) for each in rest) - _most(taken - (least - level), in_one, beyond)
    return max(0, max(thinned, scattered) - _most(own, top, [max(0, top - each) for each in rest]))


def _most(count: int, each: int, harmless: Sequence[int]) -> int:
    """Of `count`, how many do harm where they do most: in some zones, `each` at most in one, of which the first are `harmless`,
    the fewest first."""
    sums = accumulate(harmless)
    return max([0, *(min(count, number * each) - none for number, none in enumerate(sums, 1))])


def room_rules(placement: Placement) -> RoomRules:
    hard = [rule for rule in placement.spread if rule.when_unsatisfiable == "DoNotSchedule"]
    limits = [placement.max_per_node, *(rule.max_skew for rule in hard if rule.topology_key == HOSTNAME)]
    skews = [rule.max_skew for rule in hard if rule.topology_key == ZONE]
    other = sorted({rule.topology_key for rule in hard} - {HOSTNAME, ZONE, "region"})  # rooms of one region are all in that
    why = ""
    if other:
        why = f"it must be spread evenly by {', '.join(other)} (DoNotSchedule), which rooms cannot promise"
    elif skews and (placement.zones or placement.node_labels):
        why = "it must be spread evenly by zone (DoNotSchedule), over nodes that it names, and rooms do not say on which they are"
    return RoomRules(_least(limits), _least(skews), why)


def _least(limits: Iterable[int]) -> int:
    return min((each for each in limits if each), default=0)
