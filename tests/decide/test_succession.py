"""Who stands in for slots that run once in the world (P11): one for one, after the lease was taken, gone before home is back."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from fairlead.decide.assigning import BLOCK, RECOVERY_FIRST, own_slots, spare_in
from fairlead.decide.outlooks import Pace, outlook
from fairlead.decide.recovery import TURN, Regions, Rooms, Service, plan
from fairlead.decide.rollout import wanted
from fairlead.decide.slots import Slot
from fairlead.decide.succession import Alone, Areas, gone, homes_of, may_give_back, name_of, succeed, with_successors
from fairlead.model.ids import Uid
from fairlead.model.kinds.recovery import RecoveryOrder, RecoveryOrderSpec, StandIn
from fairlead.model.kinds.work import Assignment, AssignmentSpec, AssignmentStatus, SlotRange, Successor
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources

NAMES = ("centre", "east", "west")
HOMES = {"east": (0, 1), "west": (BLOCK,)}


def areas(*lost: str, settled: tuple[str, ...] = (), able: tuple[str, ...] | None = None) -> Areas:
    rest = tuple(name for name in NAMES if name not in lost)
    return Areas(frozenset(lost), frozenset(settled), rest if able is None else able)


def alone(**fields: Any) -> Alone:
    base = {"workload": "api", "homes": HOMES, "stand_ins": (), "taken": {}, "blocks": {"east": 0, "west": 1, "centre": 2}}
    return Alone(**{**base, **fields})


def for_east(slot: int, ordinal: int = 0, region: str = "west", **fields: Any) -> StandIn:
    return StandIn(
        home="east", slot=slot, region=region, ordinal=ordinal, supersedes=(f"east/api-{slot}@7",), **fields
    )  # fmt: skip


def rooms(count: int) -> Any:
    return lambda region: count


def test_nobody_stands_in_before_the_lease_of_the_lost_region_was_taken() -> None:
    assert succeed(alone(), 3, areas("east"), rooms(9)).stand_ins == ()


def test_each_lost_slot_gets_one_that_names_it_and_the_epoch_of_the_lease() -> None:
    found = succeed(alone(taken={"east": 7}), 3, areas("east"), rooms(9))
    assert found.stand_ins == (for_east(0, 0, "centre"), for_east(1, 1, "centre"))
    assert (found.region, found.new, found.missing) == ("centre", 2, 0)


def test_no_more_stand_in_than_the_minimum_lacks_and_what_finds_no_room_is_missing() -> None:
    assert len(succeed(alone(taken={"east": 7}), 2, areas("east"), rooms(9)).stand_ins) == 1
    short = succeed(alone(taken={"east": 7}), 3, areas("east"), rooms(1))
    assert (short.new, short.missing) == (1, 1)
    nowhere = succeed(alone(taken={"east": 7}), 3, areas("east", able=()), rooms(9))
    assert (nowhere.stand_ins, nowhere.missing) == ((), 2)


def test_a_region_whose_own_lease_was_taken_gets_none() -> None:
    found = succeed(alone(taken={"east": 7, "centre": 2}), 3, areas("east"), rooms(9))
    assert {one.region for one in found.stand_ins} == {"west"}


def test_what_stands_in_stays_while_its_home_is_lost_or_has_not_settled() -> None:
    there = (for_east(0), for_east(1, 1))
    assert succeed(alone(taken={"east": 7}, stand_ins=there), 3, areas("east"), rooms(9)).stand_ins == there
    assert succeed(alone(stand_ins=there), 3, areas(), rooms(9)).stand_ins == there


def test_it_leaves_when_its_home_has_settled_and_is_kept_until_it_is_gone() -> None:
    there = for_east(0)
    leaving = replace(there, leaving=True)
    assert succeed(alone(stand_ins=(there,)), 3, areas(settled=("east",)), rooms(9)).stand_ins == (leaving,)
    assert succeed(alone(stand_ins=(leaving,)), 3, areas(settled=("east",)), rooms(9)).stand_ins == (leaving,)
    last = alone(stand_ins=(leaving,), gone=frozenset({leaving}))
    assert succeed(last, 3, areas(settled=("east",)), rooms(9)).stand_ins == ()


def test_it_does_not_leave_for_a_home_that_may_not_run_anything_yet() -> None:
    there = for_east(0)
    assert succeed(alone(stand_ins=(there,), taken={"east": 7}), 2, areas(settled=("east",)), rooms(9)).stand_ins == (there,)


def test_it_leaves_when_nobody_wants_its_slot_any_more() -> None:
    there = for_east(1)
    leaving = (replace(there, leaving=True),)
    fewer = alone(stand_ins=(there,), homes={"east": (0,), "west": (BLOCK,)}, taken={"east": 7})
    assert succeed(fewer, 1, areas("east"), rooms(9)).stand_ins == leaving
    assert succeed(alone(stand_ins=(there,), taken={"east": 7}, wanted=False), 3, areas("east"), rooms(9)).stand_ins == leaving


def test_the_number_of_one_that_still_leaves_is_not_used_again() -> None:
    leaving = for_east(0, 0, "centre", leaving=True)
    found = succeed(alone(stand_ins=(leaving,), taken={"east": 7}), 3, areas("east", able=("centre",)), rooms(9))
    assert [(one.slot, one.ordinal) for one in found.stand_ins] == [(0, 0), (1, 1)]


def test_where_its_region_is_lost_too_the_next_one_carries_the_chain_on() -> None:
    there = for_east(0)
    lost = alone(stand_ins=(there,), taken={"east": 7, "west": 4}, homes={"east": (0,)})
    (one,) = succeed(lost, 1, areas("east", "west"), rooms(9)).stand_ins
    assert (one.region, one.ordinal) == ("centre", 0)
    assert one.supersedes == (f"west/api-{BLOCK + RECOVERY_FIRST}@4", "east/api-0@7")
    unsure = alone(stand_ins=(there,), taken={"east": 7}, homes={"east": (0,)})
    assert succeed(unsure, 1, areas("east", "west"), rooms(9)).stand_ins == (there,), "it may run there still"


def test_where_its_region_has_no_place_it_leaves_and_another_comes_when_it_is_gone_and_not_before() -> None:
    there, homes = for_east(0, region="centre"), {"east": (0,), "west": (BLOCK,)}
    leaving = replace(there, leaving=True)
    at = areas("east", able=("west",))._replace(stuck=frozenset({"centre"}))
    assert succeed(alone(homes=homes, taken={"east": 7}, stand_ins=(there,)), 2, at, rooms(9)).stand_ins == (leaving,)
    stays = succeed(alone(homes=homes, taken={"east": 7}, stand_ins=(leaving,)), 2, areas("east"), rooms(9))
    assert stays.stand_ins == (leaving,), "it leaves, wherever there is room by now"
    last = alone(homes=homes, taken={"east": 7}, stand_ins=(leaving,), gone=frozenset({leaving}))
    assert succeed(last, 2, areas("east", able=("west",)), rooms(9)).stand_ins == (for_east(0),)
    lost = alone(homes=homes, taken={"east": 7, "centre": 3}, stand_ins=(leaving,))
    (one,) = succeed(lost, 2, areas("east", "centre"), rooms(9)).stand_ins
    assert one.supersedes == (f"centre/api-{2 * BLOCK + RECOVERY_FIRST}@3", "east/api-0@7"), "its lease was taken while it left"


# --- with the rest of recovery ----------------------------------------------------------------------------------------------


def service(**fields: Any) -> Service:
    slots = {"east": 2, "west": 1}
    return Service(("risk", "api"), 1, 3, Resources(100, 100), "critical", NAMES, slots, slots, {}, alone=alone(**fields))


HELD = Rooms({("critical", "centre"): {Resources(100, 100): 5}})


def test_nobody_stands_in_where_a_region_is_not_healthy_or_has_no_place_for_the_services_own() -> None:
    everywhere = Rooms({("critical", name): {Resources(100, 100): 5} for name in NAMES})
    lost_west_unknown = Regions(frozenset({"east"}), frozenset({"centre"}), frozenset())
    assert plan([service(taken={"east": 7})], lost_west_unknown, everywhere).orders == {("risk", "api"): {"centre": 2}}
    healthy = Regions(frozenset({"east"}), frozenset({"west", "centre"}), frozenset())
    for failing, other in (("centre", "west"), ("west", "centre")):
        stuck = service(taken={"east": 7})._replace(failing=frozenset({failing}))
        assert plan([stuck], healthy, everywhere).orders == {("risk", "api"): {other: 2}}
    unhealthy_centre = Regions(frozenset({"east"}), frozenset({"west"}), frozenset())
    assert plan([service(taken={"east": 7})], unhealthy_centre, everywhere).orders == {("risk", "api"): {"west": 2}}


def test_the_plan_orders_stand_ins_by_region_and_takes_their_rooms() -> None:
    regions = Regions(frozenset({"east"}), frozenset({"west", "centre"}), frozenset())
    other = service(taken={"east": 7})._replace(key=("risk", "other"), priority=0)
    found = plan([service(taken={"east": 7}), other], regions, Rooms({("critical", "centre"): {Resources(100, 100): 3}}))
    assert found.orders == {("risk", "api"): {"centre": 2}, ("risk", "other"): {"centre": 1}}
    assert found.short[("risk", "other")].missing == 1
    assert len(found.stand_ins[("risk", "api")]) == 2


def test_an_order_whose_stand_ins_all_leave_is_kept_for_them() -> None:
    regions = Regions(frozenset(), frozenset(NAMES), frozenset(NAMES))
    found = plan([service(stand_ins=(for_east(0),))], regions, HELD)
    assert found.orders == {("risk", "api"): {}}


def test_the_outlook_counts_the_time_a_slot_lease_takes_to_end() -> None:
    regions = Regions(frozenset(), frozenset(NAMES), frozenset(NAMES))
    (found,) = outlook("east", [service()], regions, HELD, Pace(18.0, 1.0, 5.0))
    assert (found.new_slots, found.missing, found.seconds) == (2, 0, 72.0)


def test_the_outlook_of_a_region_names_what_only_stands_in_there_for_one_that_is_lost() -> None:
    """It names each home's slot once more, in a third region, or is missing."""
    moved = service(homes={"east": (0,)}, taken={"east": 7}, stand_ins=(for_east(0),))
    moved = moved._replace(minimum=1, slots={"east": 1, "west": 0}, alive={}, ordered={"west": 1}, stood_in={"west": 1})
    regions = Regions(frozenset({"east"}), frozenset({"west", "centre"}), frozenset())
    (found,) = outlook("west", [moved], regions, HELD, Pace(18.0, 1.0, 5.0))
    assert (found.region, found.new_slots, found.missing, found.seconds) == ("centre", 1, 0, 72.0)
    (found,) = outlook("west", [moved], regions, Rooms({}), Pace(18.0, 1.0, 5.0))
    assert (found.missing, found.why) == (1, "budget 'critical' holds no more in centre")
    (found,) = outlook("west", [moved._replace(regions=("east", "west"))], regions, HELD, Pace(18.0, 1.0, 5.0))
    assert (found.missing, found.why) == (1, "no healthy region may carry it (it may be in east, west)")


# --- what it means to a region ----------------------------------------------------------------------------------------------


def order(*stand_ins: StandIn) -> RecoveryOrder:
    return RecoveryOrder(Metadata(name="api", uid=Uid("o"), generation=3), RecoveryOrderSpec("api", "u", stand_ins=stand_ins))


def assigned(region: str, block: int, count: int) -> AssignmentSpec:
    slots = (SlotRange(block * BLOCK, block * BLOCK + count - 1),)
    return AssignmentSpec("api", "u", 1, region, slots, spare=spare_in(block, 1), min_serving=count)


def carried(spec: AssignmentSpec, seen: int = 2, unwanted: int = 0) -> Assignment:
    return Assignment(Metadata(name=f"api.{spec.region}", generation=2), spec, AssignmentStatus(seen, unwanted=unwanted))


def test_a_home_is_told_which_of_its_slots_are_superseded_and_still_counts_them_as_its_own() -> None:
    spec = with_successors(assigned("east", 0, 2), order(for_east(1)), "critical")
    assert (spec.slots, spec.superseded, spec.exclusive) == ((SlotRange(0, 0),), (SlotRange(1, 1),), "global")
    assert (own_slots(spec), homes_of(spec), spec.min_serving) == (2, (0, 1), 1)
    leaving = with_successors(assigned("east", 0, 2), order(replace(for_east(1), leaving=True)), "critical")
    assert leaving.superseded == (SlotRange(1, 1),), "not before the other one is gone"


def test_the_other_region_is_told_what_each_of_its_new_slots_supersedes() -> None:
    first = BLOCK + RECOVERY_FIRST
    spec = with_successors(assigned("west", 1, 1), order(for_east(0), for_east(1, 2)), "critical")
    assert spec.slots == (SlotRange(BLOCK, BLOCK), SlotRange(first, first), SlotRange(first + 2, first + 2))
    assert [(each.index, each.supersedes) for each in spec.successors] == [(first, "east/api-0@7"), (first + 2, "east/api-1@7")]
    assert (own_slots(spec), homes_of(spec), spec.budget_name) == (1, (BLOCK,), "critical")
    left = with_successors(assigned("west", 1, 1), order(replace(for_east(0), leaving=True)), "critical")
    assert (left.slots, left.recovery, left.successors) == ((SlotRange(BLOCK, BLOCK),), None, ())


def test_one_that_leaves_is_gone_when_its_region_has_answered_this_very_order() -> None:
    leaving = for_east(0, leaving=True)
    made = order(leaving, for_east(1, 1))
    spec = with_successors(assigned("west", 1, 1), made, "critical")
    home = carried(with_successors(assigned("east", 0, 2), made, "critical"))
    assert gone(made, {"east": home, "west": carried(spec)}) == {leaving}
    assert not gone(made, {"east": home, "west": carried(spec, unwanted=1)})
    assert not gone(made, {"east": home, "west": carried(spec, seen=1)}), "what was said is about an earlier order"
    assert not gone(made, {"east": home, "west": carried(replace(spec, ordered="o/2"))}), "another one may be under way"
    assert not gone(made, {"east": carried(replace(home.spec, ordered=""))}), "nor is it known that none is"
    assert gone(made, {"east": home}) == {leaving}, "it never came there"
    named = replace(spec, slots=(*spec.slots, SlotRange(BLOCK + RECOVERY_FIRST, BLOCK + RECOVERY_FIRST)))
    assert not gone(made, {"east": home, "west": carried(named)})
    assert name_of(None) == ""


def test_a_region_gets_its_lease_back_when_its_assignments_name_nothing_that_others_run() -> None:
    made = order(for_east(0))
    before, after = assigned("east", 0, 2), with_successors(assigned("east", 0, 2), made, "critical")
    assert not may_give_back("east", [made.spec.stand_ins], [carried(before)])
    assert may_give_back("east", [made.spec.stand_ins], [carried(after)])
    assert may_give_back("east", [made.spec.stand_ins], [None])
    west = with_successors(assigned("west", 1, 1), made, "critical")
    assert may_give_back("west", [made.spec.stand_ins], [carried(west)])
    assert not may_give_back("west", [()], [carried(west)]), "what stood in there has been stood in for by another"


def test_while_several_regions_are_silent_stand_ins_are_ordered_a_few_at_a_time() -> None:
    sole = Service(
        ("risk", "api"), 1000, 3, Resources(1, 1), "critical", NAMES, {"east": 2, "west": 1}, {}, {},
        alone=alone(taken={"east": 7}),
    )  # fmt: skip
    lost = Regions(frozenset({"east"}), frozenset({"centre", "west"}), frozenset())
    held = Rooms({("critical", name): {Resources(1, 1): 9} for name in NAMES})
    found = plan([sole], lost, held, at_most=1)
    assert [one.slot for one in found.stand_ins[sole.key]] == [0]
    assert found.short[sole.key] == (1, TURN)
    none = plan([sole], lost, held, at_most=0)
    assert (none.orders, none.short[sole.key]) == ({}, (2, TURN))
    assert len(plan([sole], lost, held, at_most=2).stand_ins[sole.key]) == 2


def test_stand_ins_none_of_which_has_a_place_go_where_there_is_room_for_all_of_them() -> None:
    there = tuple(for_east(slot, slot, region="centre") for slot in (0, 1))
    lost = Regions(frozenset({"east"}), frozenset({"centre", "west"}), frozenset())
    full = service(taken={"east": 7}, stand_ins=there)._replace(
        full=frozenset({"centre"}), waits={"centre": 2}, ordered={"centre": 2}
    )

    def leave(made: Service, held: int = 2) -> bool:
        found = plan([made], lost, Rooms({("critical", "west"): {Resources(100, 100): held}}))
        said = {one.leaving for one in found.stand_ins["risk", "api"]}
        assert len(said) == 1, "all of them, or none"
        assert {one.region for one in found.stand_ins["risk", "api"]} == {"centre"}, "nobody comes while they are there"
        return said.pop()

    assert leave(full)
    assert not leave(full, held=1), "too little room for both"
    assert not leave(full._replace(full=frozenset())), "not for long enough"
    assert not leave(full._replace(waits={"centre": 1})), "one has a place, and nobody says which"
    assert not leave(full._replace(stood_in={"centre": 1})), "one serves"
    assert full.alone is not None
    assert not leave(full._replace(alone=full.alone._replace(taken={"east": 7, "west": 2}))), "west may run nothing yet"


def test_what_is_bound_for_one_slot_of_the_world_is_not_wanted_under_an_order_for_another_until_it_is_gone() -> None:
    index = RECOVERY_FIRST
    order = AssignmentSpec(
        "api", "u", 1, "centre", slots=(SlotRange(first=index, last=index),), exclusive="global",
        successors=(Successor(index=index, supersedes="west/api-7@3"),),
    )  # fmt: skip
    for supersedes, want in (("west/api-7@3", {index: 1}), ("east/api-1@2", {})):
        there = {index: Slot(index, SlotState.SERVING, 1, 1, supersedes=supersedes)}
        assert wanted(order, there) == want
    assert wanted(order, {}) == {index: 1}
