"""Rooms that a service's own placement may keep it from: ordered all the same, and no reason to call it ready."""

from __future__ import annotations

from fairlead.decide.claimable import room_rules
from fairlead.decide.outlooks import Outlook, Pace, outlook
from fairlead.decide.recovery import Place, Rooms, Service, plan
from fairlead.model.kinds.intent import Placement, SpreadRule
from fairlead.model.resources import Resources
from tests.decide.test_recovery import LARGE, SMALL, regions, service

KEY = ("risk", "risk-api")


def on(shape: Resources = SMALL, **nodes: tuple[int, ...]) -> Rooms:
    """Rooms by region, as HeldShape.nodes says it."""
    places: dict[Place, tuple[int, ...]] = {("critical", region): each for region, each in nodes.items()}
    held = {place: {shape: sum(each)} for place, each in places.items()}
    return Rooms(held, {}, {place: {shape: each} for place, each in places.items()})


def seen(of: Service, rooms: Rooms, *others: Service) -> Outlook:
    found = outlook("east", [of, *others], regions(), rooms, Pace(18.0, 1.0, 5.0))
    return next(each for each in found if each.key == of.key)


def test_a_service_that_may_have_few_on_a_node_counts_on_rooms_of_as_many_nodes() -> None:
    apart = service(slots={"east": 4}, per_node=1)
    assert seen(apart, on(west=(4,))).missing == 0
    stacked = seen(apart, on(west=(2, 2)))
    assert (stacked.new_slots, stacked.missing) == (4, 2)
    assert stacked.why == "it may have 1 on one node, and budget 'critical' has too few nodes for that in west"
    assert seen(apart._replace(per_node=2), on(west=(2, 2))).missing == 0
    assert seen(apart._replace(per_node=0), on(west=(1, 1, 1, 1))).missing == 0


def test_slots_that_it_has_there_may_be_on_the_nodes_of_the_rooms() -> None:
    apart = service(slots={"east": 4, "west": 2}, per_node=1)
    assert seen(apart, on(west=(2,))).missing == 2
    assert seen(apart, on(west=(3,))).missing == 1
    assert seen(apart, on(west=(4,))).missing == 0


def test_what_others_claim_before_may_be_on_nodes_that_it_needs() -> None:
    apart = service(slots={"east": 4}, per_node=1)
    first = service("first", priority=2000, slots={"east": 4})
    assert seen(apart, on(west=(6, 6)), first).missing == 2
    assert seen(apart, on(west=(8, 1)), first).missing == 0


def test_rooms_of_two_shapes_may_be_on_the_same_nodes() -> None:
    place = ("critical", "west")
    both = Rooms({place: {SMALL: 2, LARGE: 3}}, {}, {place: {SMALL: (2,), LARGE: (3,)}})
    assert seen(service(slots={"east": 4}, per_node=1), both).missing == 1


def test_a_region_where_it_is_sure_goes_first_and_where_none_is_it_is_ordered_all_the_same() -> None:
    apart = service(slots={"east": 4}, alive={}, per_node=1)
    assert plan([apart], regions("east"), on(centre=(2, 2), west=(4,))).orders == {KEY: {"west": 4}}
    found = plan([apart], regions("east"), on(west=(2, 2)))
    assert (found.orders, found.short) == ({KEY: {"west": 4}}, {}), "it may do: what waits is told when it does"
    assert plan([apart], regions("east"), on(west=(1, 1))).orders == {KEY: {"west": 2}}, "rather than nothing in centre"


def test_what_is_ordered_a_few_at_a_time_stays_in_one_region() -> None:
    apart = service(slots={"east": 4}, alive={}, ordered={"west": 2}, per_node=1)
    claimed = Rooms({("critical", "west"): {SMALL: 2}, ("critical", "centre"): {SMALL: 4}}, {("critical", "west"): 2}, {
        ("critical", "west"): {SMALL: (2,)}, ("critical", "centre"): {SMALL: (4,)},
    })  # fmt: skip
    assert plan([apart], regions("east"), claimed).orders == {KEY: {"west": 4}}


def test_where_no_room_can_be_promised_that_is_the_reason() -> None:
    wet = service(slots={"east": 4}, unsure={"west": "it is to avoid zones there"})
    short = seen(wet, on(west=(4,)))
    assert (short.missing, short.why) == (4, "it is to avoid zones there")
    assert seen(wet, on(west=(4,), centre=(4,))).region == "centre"
    there = wet._replace(slots={"east": 4, "west": 4}, alive={"east": 4, "west": 4})
    assert seen(there, on()).missing == 0, "it needs no room"


def test_hard_rules_of_a_placement_are_what_may_be_in_the_way_of_rooms() -> None:
    soft = SpreadRule(topology_key="zone", when_unsatisfiable="ScheduleAnyway")
    assert room_rules(Placement(spread=(soft, SpreadRule(topology_key="region")))) == (0, 0, "")
    assert room_rules(Placement(max_per_node=3)) == (3, 0, "")
    assert room_rules(Placement(max_per_node=3, spread=(SpreadRule(topology_key="hostname", max_skew=2),))) == (2, 0, "")
    assert room_rules(Placement(spread=(SpreadRule("zone", max_skew=2), SpreadRule("zone", max_skew=3)))) == (0, 2, "")
    assert "spread evenly by rack (" in room_rules(Placement(spread=(SpreadRule("zone"), SpreadRule("rack"))))[2]
    assert "over nodes that it names" in room_rules(Placement(zones=("a",), spread=(SpreadRule("zone"),)))[2]
    assert room_rules(Placement(zones=("a",), spread=(soft,))) == (0, 0, "")
