"""What a service that must be spread evenly over zones can certainly claim (docs/recovery.md): never more than it then finds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.decide.claimable import evenly
from fairlead.decide.outlooks import Outlook, Pace, outlook
from fairlead.decide.recovery import Plan, Regions, Rooms, Service, plan
from tests.decide.test_recovery import LARGE, SMALL, regions, service

PLACE = ("critical", "west")
SKEWED = "it may have 1 more in one zone than in another (DoNotSchedule), and budget 'critical' has too few rooms for that in"


def in_zones(*zones: int, nodes: tuple[int, ...] = ()) -> Rooms:
    """Rooms in west, by zone."""
    return Rooms({PLACE: {SMALL: sum(zones)}}, {}, {PLACE: {SMALL: nodes}}, {PLACE: {SMALL: zones}})


def even(name: str = "risk-api", **fields: Any) -> Service:
    return service(name, **{"slots": {"east": 4}, "zone_skew": 1, **fields})


def seen(rooms: Rooms, *services: Service, partial: frozenset[str] = frozenset()) -> Outlook:
    """Of the first, if east died now."""
    found = outlook("east", services, regions()._replace(partial=partial), rooms, Pace(18.0, 1.0, 5.0))
    return next(each for each in found if each.key == services[0].key)


def test_rooms_that_are_spread_over_all_zones_are_enough() -> None:
    assert (seen(in_zones(2, 1, 1), even()).missing, seen(in_zones(2, 2), even()).missing) == (0, 0)
    assert seen(in_zones(4), even()).missing == 0, "a region of one zone is even"


def test_a_zone_that_takes_work_and_has_no_room_holds_back_the_others() -> None:
    short = seen(in_zones(2, 2, 0), even())
    assert (short.new_slots, short.missing, short.why) == (4, 2, f"{SKEWED} some zone of west")
    assert seen(in_zones(2, 2, 0), even(zone_skew=2)).missing == 0


def test_rooms_of_which_nobody_says_in_what_zones_they_are_promise_nothing() -> None:
    assert seen(Rooms({PLACE: {SMALL: 9}}), even()).missing == 4


def test_slots_that_it_has_there_may_lie_in_one_zone() -> None:
    assert seen(in_zones(1, 1, 1), even(slots={"east": 4, "west": 2})).missing == 0
    assert seen(in_zones(1, 1), even(slots={"east": 4, "west": 2})).missing == 1, "both in one zone: there is no more for it"


def test_the_figures_that_the_documents_give() -> None:
    assert [evenly((2, 1, 1), 1), evenly((2, 2, 0), 1), evenly((1, 1, 1), 1, 2), evenly((1, 1, 0), 1, 2)] == [4, 2, 2, 0]
    assert [evenly((3, 3, 3), 1, 0, 4, 2), evenly((4, 4, 4), 1, 0, 4)] == [4, 2]


def test_slots_that_nobody_counts_on_in_a_partial_region_may_lie_there_still() -> None:
    there = even(slots={"east": 4, "west": 4}, alive={"east": 4, "west": 1})
    short = seen(in_zones(2, 1, 1), there, partial=frozenset({"west"}))
    assert (short.new_slots, short.missing) == (3, 2)
    assert seen(in_zones(2, 2, 2), there, partial=frozenset({"west"})).missing == 0


def test_what_others_may_claim_first_is_counted_by_how_it_may_lie() -> None:
    assert seen(in_zones(4, 4, 4), even(), service("b", slots={"east": 4})).missing == 2, "all of it in one zone"
    assert seen(in_zones(5, 5, 5), even(), service("b", slots={"east": 4})).missing == 0
    assert seen(in_zones(3, 3, 3), even(), even("b")).missing == 0, "two of it in one zone, at most"
    assert seen(in_zones(3, 3, 3), even("b"), even()).missing == 0, "whoever comes first"
    assert seen(in_zones(3, 3, 2), even("b"), even()).missing == 2
    assert seen(in_zones(2, 2, 2), even(), even("b", minimum=2)).missing == 0
    there = even("b", slots={"east": 4, "west": 2})  # two more: both in one zone, where each of the others has one of its own
    assert seen(in_zones(2, 2, 2), even(), there).missing == 2


def test_one_that_may_also_have_few_on_a_node_counts_on_both() -> None:
    assert seen(in_zones(2, 2, nodes=(4,)), even(per_node=1)).missing == 0
    assert seen(in_zones(2, 2, nodes=(2, 2)), even(per_node=1)).missing == 3, "too few nodes, perhaps of one zone"
    short = seen(in_zones(4, 2, nodes=(4, 2)), even(per_node=1))
    assert (short.missing, short.why) == (3, f"{SKEWED} some zone of west"), "four nodes; both rooms of one zone may be of others"


def test_on_the_nodes_of_rooms_its_own_slots_are_in_the_way_of_them_too() -> None:
    there = even(per_node=1, slots={"east": 4, "west": 5}, minimum=8)
    short = seen(in_zones(4, 2, 2, nodes=(8,)), there)
    assert short.missing == 3, "three of its own in the first zone and two in the second leave it two in the third at most"


def test_of_two_sizes_the_better_counts() -> None:
    both = Rooms({PLACE: {SMALL: 2, LARGE: 3}}, {}, {}, {PLACE: {SMALL: (1, 1, 0), LARGE: (1, 1, 1)}})
    assert seen(both, even()).missing == 1


def test_what_was_ordered_and_has_not_claimed_may_be_anybodys() -> None:
    owed = even(ordered={"west": 2}, slots={"east": 4}, alive={})
    found = plan([owed], regions("east"), in_zones(2, 2))
    assert found.orders == {owed.key: {"west": 4}}
    assert found.unsure[owed.key].missing == 2
    assert not plan([owed], regions("east"), in_zones(4, 4)).unsure


# --- whatever lies where, and whoever is first ------------------------------------------------------------------------


class Region:
    """Zones of nodes with rooms, and a scheduler that claims one for a slot wherever its service's rules allow it."""

    def __init__(self, zones: list[list[int]], data: st.DataObject) -> None:
        self.left = {(zone, node): rooms for zone, nodes in enumerate(zones) for node, rooms in enumerate(nodes)}
        self.zones = len(zones)
        self.on: dict[tuple[str, str], Counter[tuple[int, int]]] = {}
        self.data = data

    def own(self, of: Service, slots: int) -> None:
        """They lie anywhere: zones come and go, slots end in any order."""
        where = st.lists(st.sampled_from(sorted(self.left)), min_size=slots, max_size=slots)
        self.on[of.key] = Counter(self.data.draw(where))

    def claims(self, of: Service) -> bool:
        on = self.on.setdefault(of.key, Counter())
        per_zone = [sum(count for (zone, _), count in on.items() if zone == each) for each in range(self.zones)]
        fits = [
            at
            for at, rooms in self.left.items()
            if rooms
            and (not of.zone_skew or per_zone[at[0]] < min(per_zone) + of.zone_skew)
            and (not of.per_node or on[at] < of.per_node)
        ]
        if not fits:
            return False
        at = self.data.draw(st.sampled_from(fits))
        self.left[at] -= 1
        on[at] += 1
        return True


ZONES = st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=3), min_size=1, max_size=4)


def said(zones: list[list[int]]) -> Rooms:
    nodes = [rooms for zone in zones for rooms in zone]
    layers = tuple(sum(rooms >= least for rooms in nodes) for least in range(1, max(nodes, default=0) + 1))
    return in_zones(*sorted(map(sum, zones), reverse=True), nodes=layers)


@given(ZONES, st.integers(1, 3), st.data())
def test_with_nothing_in_the_way_as_many_find_a_room_as_was_said(zones: list[list[int]], skew: int, data: st.DataObject) -> None:
    region, one = Region(zones, data), even(zone_skew=skew)
    found = 0
    while region.claims(one):
        found += 1
    assert found == evenly([sum(zone) for zone in zones], skew)


def ways(zones: int, count: int, each: int) -> Iterator[tuple[int, ...]]:
    """To have so many in these zones at most, and so many in one."""
    return (way for way in product(range(min(count, each) + 1), repeat=zones) if sum(way) <= count)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=3), st.integers(1, 3), st.integers(0, 4), st.integers(0, 4), st.data())
def test_no_way_to_lie_or_to_be_claimed_leaves_less_than_was_said(
    rooms: list[int], skew: int, own: int, taken: int, data: st.DataObject
) -> None:
    in_one = data.draw(st.integers(0, taken))
    said = evenly(rooms, skew, own, taken, in_one)
    for gone in ways(len(rooms), taken, in_one):
        left = [max(0, room - less) for room, less in zip(rooms, gone, strict=True)]
        for lie in ways(len(rooms), own, own):
            assert _filled(left, list(lie), skew) >= said, (gone, lie)


def _filled(left: list[int], lie: list[int], skew: int) -> int:
    left, found = list(left), 0
    while fits := [zone for zone, rooms in enumerate(left) if rooms and lie[zone] < min(lie) + skew]:
        left[fits[0]] -= 1
        lie[fits[0]] += 1
        found += 1
    return found


OF_EACH = st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3), st.integers(1, 6), st.booleans())


@settings(max_examples=200, deadline=None)
@given(ZONES, st.lists(OF_EACH, min_size=1, max_size=4), st.data())
def test_what_is_sure_finds_a_room_wherever_own_slots_lie_and_whoever_claims_first(
    zones: list[list[int]], drawn: list[tuple[int, int, int, int, bool]], data: st.DataObject
) -> None:
    region, services = Region(zones, data), []
    for number, (skew, per_node, own, lacks, partial) in enumerate(drawn):
        slots, counted = {"east": 1, "west": own}, 0 if partial else own
        made = even(f"s{number}", zone_skew=skew, per_node=per_node, slots=slots, minimum=counted + lacks)
        services.append(made._replace(alive={}, mute=frozenset({"west"} if partial else ()), regions=("east", "west")))
        region.own(made, own)
    found: Plan = plan(services, Regions(frozenset({"east"}), frozenset({"west"}), frozenset({"west"})), said(zones))
    ordered = {each.key: found.orders.get(each.key, {}).get("west", 0) for each in services}
    waiting = dict(ordered)
    while able := [each for each in services if waiting[each.key]]:
        one = data.draw(st.sampled_from(able))
        if region.claims(one):
            waiting[one.key] -= 1
        elif not any(region.claims(each) and _claimed(waiting, each) for each in able):
            break
    for each in services:
        unsure = found.unsure[each.key].missing if each.key in found.unsure else 0
        assert waiting[each.key] <= unsure, (each, ordered[each.key])


def _claimed(waiting: dict[tuple[str, str], int], one: Service) -> bool:
    waiting[one.key] -= 1
    return True
