"""What stands in for a lost region (docs/recovery.md): against budgets, by priority, inside residency, and never twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairlead.decide.outlooks import Pace, outlook
from fairlead.decide.recovery import TURN, Plan, Regions, Rooms, Service, plan
from fairlead.model.resources import Resources

SMALL, LARGE = Resources(500, 1 << 29), Resources(2000, 1 << 32)
NAMES = ("east", "west", "centre")
ALL = frozenset(NAMES)


def service(name: str = "risk-api", **fields: object) -> Service:
    base = {
        "key": ("risk", name), "priority": 1000, "minimum": 4, "shape": SMALL, "budget": "critical", "regions": NAMES,
        "slots": {"east": 4, "west": 2}, "alive": {"east": 4, "west": 2}, "ordered": {},
    }  # fmt: skip
    return Service(**{**base, **fields})  # type: ignore[arg-type]


def regions(*lost: str, settled: frozenset[str] | None = None) -> Regions:
    healthy = ALL - frozenset(lost)
    return Regions(frozenset(lost), healthy, healthy if settled is None else settled)


def held(shape: Resources = SMALL, **counts: int) -> Rooms:
    return Rooms({("critical", region): {shape: count} for region, count in counts.items()})


def test_nothing_is_ordered_while_every_region_is_there() -> None:
    assert plan([service()], regions(), held(west=9)) == Plan({}, {})


def test_a_lost_regions_service_gets_what_it_lacks_where_it_lacks_least() -> None:
    found = plan([service()], regions("east"), held(west=9, centre=9))
    assert found == Plan({("risk", "risk-api"): {"west": 2}}, {})


def test_of_regions_that_need_as_much_one_that_is_being_rolled_out_comes_last() -> None:
    changing = service(slots={"east": 4, "west": 2, "centre": 2}, changing=frozenset({"centre"}))
    key = ("risk", "risk-api")
    assert plan([changing], regions("east"), held(west=9, centre=9)).orders == {key: {"west": 2}}, "what is new may not come up"
    assert plan([changing], regions("east"), held(west=1, centre=9)).orders == {key: {"centre": 2}}, "least is missing there"
    ordered = changing._replace(ordered={"centre": 2})
    assert plan([ordered], regions("east"), held(west=9)).orders == {key: {"centre": 2}}, "what was ordered stays"


def test_where_its_own_have_a_place_and_have_not_served_for_a_while_they_are_not_counted_on() -> None:
    key = ("risk", "risk-api")
    hung = service(slots={"east": 4, "centre": 4}, alive={"east": 4, "centre": 0}, mute=frozenset({"centre"}))
    found = plan([hung], regions("east"), held(west=4, centre=4))
    assert (found.orders, found.short) == ({key: {"west": 4}}, {}), (
        "of two that need as many, where it is seen not to serve comes last"
    )
    assert plan([hung], regions("east"), held(centre=1)).short[key].missing == 3, "too few rooms: said, not hidden"
    partly = hung._replace(alive={"east": 4, "centre": 3})
    assert plan([partly], regions("east"), held(west=4, centre=4)).orders == {key: {"centre": 1}}
    assert plan([hung._replace(mute=frozenset())], regions("east"), held(west=4)).orders == {}, "it may just be starting"
    done = hung._replace(ordered={"west": 4}, alive={"centre": 4}, mute=frozenset())
    assert plan([done], regions("east"), held()).orders == {key: {"west": 4}}, "what was ordered stays"
    (seen,) = outlook("east", [hung], regions(), held(), Pace(18.0, 1.0, 5.0))
    assert seen.missing == 4, "and it is known before"


def test_it_goes_where_the_budget_reaches_even_if_more_is_needed_there() -> None:
    found = plan([service()], regions("east"), held(west=1, centre=9))
    assert found.orders == {("risk", "risk-api"): {"centre": 4}}


def test_it_never_leaves_the_regions_it_may_be_in() -> None:
    found = plan([service(regions=("east",))], regions("east"), held(west=9))
    assert found.orders == {}
    assert found.short[("risk", "risk-api")].missing == 4
    assert "no healthy region" in found.short[("risk", "risk-api")].why


def test_short_budgets_serve_the_more_important_first_and_say_what_is_missing() -> None:
    found = plan([service("a", priority=1), service("b", priority=2)], regions("east"), held(west=3))
    assert found.orders == {("risk", "b"): {"west": 2}, ("risk", "a"): {"west": 1}}
    assert found.short[("risk", "a")].missing == 1
    assert "holds no more in west" in found.short[("risk", "a")].why


def test_a_service_without_a_budget_says_so_and_takes_nobody_elses() -> None:
    found = plan([service(budget="")], regions("east"), held(west=9))
    assert found.orders == {}
    assert found.short[("risk", "risk-api")] == (2, "it names no recovery budget")


def test_an_ask_takes_the_smallest_reservation_that_holds_it() -> None:
    both = {("critical", "west"): {LARGE: 2, SMALL: 2}}
    found = plan([service("a", priority=2), service("b", shape=LARGE)], regions("east"), Rooms(both))
    assert found.orders == {("risk", "a"): {"west": 2}, ("risk", "b"): {"west": 2}}
    assert found.short == {}


def unknown(*names: str, lost: tuple[str, ...] = (), settled: frozenset[str] = frozenset()) -> Regions:
    return Regions(frozenset(lost), ALL - {*names, *lost}, settled, frozenset(names))


def test_what_was_ordered_in_a_region_that_is_not_heard_for_a_moment_stays_and_is_not_ordered_twice() -> None:
    recovering = service(ordered={"west": 2}, alive={"east": 0, "west": 2}, stood_in={"west": 2})
    there = Plan({("risk", "risk-api"): {"west": 2}}, {})
    assert plan([recovering], unknown("west", lost=("east",)), held(centre=9)) == there
    assert plan([recovering], unknown("west", lost=("east",)), Rooms({})) == there
    assert plan([recovering], unknown("west", settled=frozenset({"centre"})), Rooms({})) == there, "its own region came back"
    lost = plan([recovering], regions("east", "west"), held(centre=9))
    both = {("risk", "risk-api"): {"west": 2, "centre": 4}}
    assert lost.orders == both, "once it is lost it is ordered elsewhere, and stays until that serves: it may be back at once"
    started = recovering._replace(ordered=both["risk", "risk-api"], stood_in={"west": 2, "centre": 3})
    assert plan([started], regions("east", "west"), Rooms({})).orders == both
    served = started._replace(stood_in={"west": 2, "centre": 4})
    assert plan([served], regions("east", "west"), Rooms({})).orders == {("risk", "risk-api"): {"centre": 4}}


def test_where_too_few_stand_in_a_region_that_is_not_heard_the_rest_is_ordered_elsewhere() -> None:
    half = service(slots={"east": 4}, alive={}, ordered={"west": 1})
    found = plan([half], unknown("west", lost=("east",)), held(centre=9))
    assert found.orders == {("risk", "risk-api"): {"west": 1, "centre": 4}}


def test_where_it_may_not_be_any_more_it_stays_until_another_serves_in_its_place() -> None:
    moving = service(regions=("east", "centre"), slots={"east": 4}, alive={}, ordered={"west": 4}, stood_in={"west": 4})
    both = {("risk", "risk-api"): {"west": 4, "centre": 4}}
    assert plan([moving], regions("east"), held(centre=9)).orders == both
    started = moving._replace(ordered={"west": 4, "centre": 4}, stood_in={"west": 4, "centre": 3})
    assert plan([started], regions("east"), Rooms({})).orders == both
    served = started._replace(stood_in={"west": 4, "centre": 4})
    assert plan([served], regions("east"), Rooms({})).orders == {("risk", "risk-api"): {"centre": 4}}


def test_what_may_not_be_there_any_more_stays_as_well_while_its_region_is_not_heard() -> None:
    """Seconds of silence are no reason to end the last copy: not when it is heard, not when it is lost, not in between."""
    only = service(minimum=1, regions=("east", "centre"), slots={"east": 1}, alive={}, ordered={"west": 1}, stood_in={"west": 1})
    there = {("risk", "risk-api"): {"west": 1}}
    for seen in (regions("east"), unknown("west", lost=("east",)), regions("east", "west")):
        assert plan([only], seen, Rooms({})).orders == there
    moving = {("risk", "risk-api"): {"west": 1, "centre": 1}}
    assert plan([only], unknown("west", lost=("east",)), held(centre=1)).orders == moving, "it moves on, as if it were heard"
    served = only._replace(ordered={"west": 1, "centre": 1}, stood_in={"west": 1, "centre": 1})
    assert plan([served], unknown("west", lost=("east",)), Rooms({})).orders == {("risk", "risk-api"): {"centre": 1}}
    elsewhere = Regions(frozenset({"east"}), frozenset({"centre"}), frozenset())
    assert plan([only], elsewhere, Rooms({})).orders == {}, "its Region was written off"


def test_what_half_comes_up_is_not_taken_back_while_its_region_is_not_heard() -> None:
    half = service(slots={"east": 4}, alive={}, ordered={"west": 4}, stood_in={"west": 3}, idle={"west": 1})
    assert plan([half], unknown("west", lost=("east",)), Rooms({})).orders == {("risk", "risk-api"): {"west": 4}}
    more = plan([half], unknown("west", lost=("east",)), held(centre=4))
    assert more.orders == {("risk", "risk-api"): {"west": 4, "centre": 4}}, "nor is it counted on"


def test_what_was_ordered_stays_until_the_region_has_settled_and_its_own_slots_serve_again() -> None:
    recovering = service(ordered={"west": 2}, alive={"east": 0, "west": 2})
    there = {("risk", "risk-api"): {"west": 2}}
    assert plan([recovering], regions(settled=frozenset({"west", "centre"})), Rooms({})).orders == there
    assert plan([recovering], regions(), Rooms({})).orders == there, "settled, but nothing of it serves there yet"
    assert plan([recovering._replace(alive={"east": 4, "west": 2})], regions(), Rooms({})).orders == {}


def test_it_stays_while_the_region_has_not_settled_though_all_of_it_serves_again() -> None:
    back = service(ordered={"west": 2})
    there = {("risk", "risk-api"): {"west": 2}}
    assert plan([back], regions(settled=frozenset({"west", "centre"})), Rooms({})).orders == there
    assert plan([back], regions(), Rooms({})).orders == {}


def test_what_stands_in_stays_where_nothing_of_its_own_is_left_to_come_back() -> None:
    homeless = service(slots={"east": 0}, alive={}, ordered={"west": 2})
    assert plan([homeless], regions(), Rooms({})).orders == {("risk", "risk-api"): {"west": 2}}


def test_an_order_for_nothing_is_no_order() -> None:
    assert plan([service(alive={}, ordered={"west": 0})], regions(), Rooms({})).orders == {}
    assert plan([service(ordered={"west": 0, "centre": 4})], regions("east"), Rooms({})).orders == {
        ("risk", "risk-api"): {"centre": 4}
    }


def test_a_region_that_has_no_place_for_its_own_slots_gets_no_others() -> None:
    stuck = service(failing=frozenset({"east"}), alive={"east": 0, "west": 2})
    assert plan([stuck], regions(), held(east=9, west=9)).orders == {("risk", "risk-api"): {"west": 2}}
    both = service(failing=frozenset({"west"}))
    assert plan([both], regions("east"), held(west=9, centre=9)).orders == {("risk", "risk-api"): {"centre": 4}}


def test_what_was_ordered_where_there_is_no_place_is_ordered_elsewhere_and_leaves_when_that_serves() -> None:
    stuck = service(slots={"east": 4}, alive={}, ordered={"west": 4}, full=frozenset({"west"}), waits={"west": 4})
    both = {("risk", "risk-api"): {"west": 4, "centre": 4}}
    assert plan([stuck], regions("east"), held(centre=4)) == Plan(both, {})
    started = stuck._replace(ordered=both["risk", "risk-api"], stood_in={"centre": 3})
    assert plan([started], regions("east"), Rooms({})).orders == both, "three of four serve there"
    serves = started._replace(stood_in={"centre": 4})
    assert plan([serves], regions("east"), Rooms({})) == Plan({("risk", "risk-api"): {"centre": 4}}, {})
    gone = serves._replace(ordered={"centre": 4}, full=frozenset(), waits={})
    assert plan([gone], regions("east"), held(west=9)).orders == {("risk", "risk-api"): {"centre": 4}}, "it does not go back"


def test_where_no_region_has_a_place_what_was_ordered_waits_and_that_is_said() -> None:
    ordered = {"west": 2, "centre": 4}
    stuck = service(slots={"east": 4, "west": 2}, alive={"west": 2}, ordered=ordered, full=frozenset({"west", "centre"}))
    found = plan([stuck], regions("east"), held(west=9, centre=9))
    assert found.orders == {("risk", "risk-api"): ordered}, "nothing more is ordered, and nothing is taken back"
    assert found.short[("risk", "risk-api")] == (
        2,
        "centre, west have no place for what was ordered there; no other may carry it",
    )


def test_what_was_ordered_and_finds_no_place_is_missing_before_it_goes_elsewhere() -> None:
    waits = service(slots={"east": 4}, alive={}, ordered={"west": 4}, waits={"west": 3})
    found = plan([waits], regions("east"), held(centre=4))
    assert found.orders == {("risk", "risk-api"): {"west": 4}}
    assert found.short == {("risk", "risk-api"): (3, "3 of those in west find no place")}


def test_what_waits_in_vain_ends_with_its_order_when_the_service_is_well_without() -> None:
    """Else it would wait for ever where nobody needs it."""
    back = service(slots={"east": 2, "west": 2}, alive={"east": 2, "west": 2}, ordered={"west": 2}, full=frozenset({"west"}))
    assert plan([back], regions(settled=frozenset({"west"})), Rooms({})).orders == {("risk", "risk-api"): {"west": 2}}
    assert plan([back], regions(), held(centre=9)).orders == {}


def test_readiness_counts_on_no_region_that_has_had_no_place_for_what_was_ordered_there() -> None:
    pace = Pace(18.0, 1.0, 5.0)
    stuck = service(slots={"east": 4, "centre": 0}, alive={"east": 4}, ordered={"west": 4}, full=frozenset({"west"}))
    (seen,) = outlook("east", [stuck], regions(), held(west=9, centre=4), pace)
    assert (seen.region, seen.new_slots, seen.missing) == ("centre", 4, 0)


def test_where_it_may_be_is_said_when_that_is_nowhere() -> None:
    for allowed, told in ((("east",), "it may be in east"), ((), "it may be in none")):
        assert told in plan([service(regions=allowed)], regions("east"), Rooms({})).short[("risk", "risk-api")].why


def test_a_second_loss_moves_it_on_and_what_is_not_lost_stays() -> None:
    recovering = service(ordered={"west": 2}, regions=NAMES)
    found = plan([recovering], regions("east", "west"), held(centre=9))
    assert found.orders == {("risk", "risk-api"): {"west": 2, "centre": 4}}
    served = recovering._replace(ordered={"west": 2, "centre": 4}, stood_in={"centre": 4})
    assert plan([served], regions("east", "west"), held()).orders == {("risk", "risk-api"): {"centre": 4}}


def test_a_room_that_was_given_away_and_not_claimed_yet_is_not_given_away_again() -> None:
    ordered = service("a", ordered={"west": 2})
    found = plan([ordered, service("b")], regions("east"), held(west=3))
    assert found.orders == {("risk", "a"): {"west": 2}, ("risk", "b"): {"west": 1}}
    claimed = Rooms(held(west=3).held, {("critical", "west"): 2})
    assert plan([ordered, service("b")], regions("east"), claimed).orders == {
        ("risk", "a"): {"west": 2},
        ("risk", "b"): {"west": 2},
    }


def test_the_outlook_names_where_how_many_how_soon_and_what_is_missing() -> None:
    pace = Pace(detect_s=20, bind_s=1, start_s=9)
    (seen,) = outlook("east", [service(), service("other", slots={"west": 4})], regions(), held(west=9), pace)
    assert seen == (("risk", "risk-api"), "west", 2, 30.0, 0, "", 0)
    (seen,) = outlook("west", [service()], regions(), Rooms({}), pace)
    assert seen == (("risk", "risk-api"), "east", 0, 20.0, 0, "", 0), "it has its minimum elsewhere already"
    (seen,) = outlook("east", [service()], regions(), held(west=1), pace)
    assert (seen.missing, seen.new_slots) == (1, 1)


def test_the_outlook_of_a_region_names_what_only_stands_in_there() -> None:
    pace = Pace(detect_s=20, bind_s=1, start_s=9)
    only = service(minimum=1, regions=("east", "west"), slots={"east": 1}, alive={}, ordered={"west": 1}, stood_in={"west": 1})
    (seen,) = outlook("west", [only], regions("east"), held(east=9), pace)
    assert (seen.region, seen.missing, "no healthy region may carry it" in seen.why) == ("", 1, True)
    wider = only._replace(regions=NAMES)
    (seen,) = outlook("west", [wider], regions("east"), held(centre=1), pace)
    assert seen == (("risk", "risk-api"), "centre", 1, 30.0, 0, "", 0)
    (seen,) = outlook("west", [wider], regions("east"), Rooms({}), pace)
    assert (seen.missing, seen.why) == (1, "budget 'critical' holds no more in centre")
    back = wider._replace(alive={"east": 1})
    (seen,) = outlook("west", [back], regions(), Rooms({}), pace)
    assert (seen.region, seen.missing, seen.why) == ("east", 0, ""), "its own serve again"


def test_where_all_there_is_of_it_stands_in_and_that_is_lost_it_is_ordered_elsewhere_or_missing() -> None:
    homeless = service(slots={"east": 0}, alive={}, ordered={"west": 4}, stood_in={"west": 4})
    both = {("risk", "risk-api"): {"west": 4, "centre": 4}}
    assert plan([homeless], regions("west"), held(centre=4)).orders == both
    nowhere = homeless._replace(regions=())
    found = plan([nowhere], regions("west"), held(centre=4))
    assert (found.orders, found.short["risk", "risk-api"].missing) == ({("risk", "risk-api"): {"west": 4}}, 4)
    (seen,) = outlook("west", [nowhere], regions(), held(centre=4), Pace(18.0, 1.0, 5.0))
    assert seen.missing == 4


def claimed_by(services: list[Service]) -> dict[tuple[str, str], int]:
    """Every slot that was ordered has claimed its room."""
    out: dict[tuple[str, str], int] = {}
    for each in services:
        for region, count in each.ordered.items():
            out[each.budget, region] = out.get((each.budget, region), 0) + count
    return out


COUNTS = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 5))
SERVICES = st.lists(
    st.builds(
        lambda n, priority, shape, budget, may, slots, ordered: service(
            f"w{n}", priority=priority, shape=shape, budget=budget, regions=tuple(may), slots=slots, alive=slots, ordered=ordered
        ),
        st.integers(0, 9), st.integers(0, 3), st.sampled_from([SMALL, LARGE]), st.sampled_from(["critical", "other", ""]),
        st.lists(st.sampled_from(NAMES), unique=True), COUNTS, COUNTS,
    ),
    max_size=6, unique_by=lambda s: s.key,
)  # fmt: skip
HELD = st.dictionaries(
    st.tuples(st.sampled_from(["critical", "other"]), st.sampled_from(NAMES)),
    st.dictionaries(st.sampled_from([SMALL, LARGE]), st.integers(0, 6)),
    max_size=6,
)
LOST = st.frozensets(st.sampled_from(NAMES), max_size=3)


@given(SERVICES, HELD, LOST)
def test_a_plan_keeps_to_budgets_and_regions_and_says_what_is_missing(
    services: list[Service], budgets: dict[tuple[str, str], dict[Resources, int]], lost: frozenset[str]
) -> None:
    found = plan(services, regions(*lost), Rooms(budgets, claimed_by(services)))
    taken: dict[tuple[str, str], int] = {}
    for each in services:
        orders = found.orders.get(each.key, {})
        assert all(orders[region] == each.ordered.get(region, 0) for region in set(orders) & lost), "nothing new is ordered there"
        for region, count in orders.items():
            fresh = count - each.ordered.get(region, 0)
            assert fresh >= 0
            if fresh:
                assert region in each.regions
                taken[each.budget, region] = taken.get((each.budget, region), 0) + fresh
        if any(each.slots.get(region) for region in lost) and each.key not in found.short:
            reached = [each.slots.get(r, 0) + orders.get(r, 0) for r in each.regions if r not in lost]
            assert max(reached) >= each.minimum
    for place, count in taken.items():
        assert count <= sum(budgets.get(place, {}).values())


@given(SERVICES, HELD, LOST)
def test_carrying_a_plan_out_and_planning_again_changes_nothing(
    services: list[Service], budgets: dict[tuple[str, str], dict[Resources, int]], lost: frozenset[str]
) -> None:
    there = regions(*lost)
    before = claimed_by(services)
    found = plan(services, there, Rooms(budgets, before))
    done = [each._replace(ordered=found.orders.get(each.key, {})) for each in services]
    assert plan(done, there, Rooms({}, claimed_by(done))).orders == found.orders, "every room was claimed"
    kept = [each for each in done if not any(region in lost for region in each.ordered)]
    if kept == done and all(each.shape == SMALL for each in services):
        assert plan(done, there, Rooms(budgets, before)).orders == found.orders, "ordered, and nobody has claimed yet"


def test_what_would_come_too_late_is_no_recovery() -> None:
    pace = Pace(detect_s=18.0, bind_s=1.0, start_s=5.0)
    (quick,) = outlook("east", [service(deadline_s=24)], regions(), held(west=9), pace)
    assert (quick.seconds, quick.missing, quick.why) == (24.0, 0, "")
    (late,) = outlook("east", [service(deadline_s=20)], regions(), held(west=9), pace)
    assert late.missing == 0
    assert "within 20 s" in late.why


def test_readiness_counts_in_a_partial_region_on_what_serves_there() -> None:
    """If east died now: west is heard, has lost most of its nodes, and nothing of the service serves there."""
    left = service(alive={"east": 4, "west": 0})
    pace = Pace(18.0, 1.0, 5.0)
    (whole,) = outlook("east", [left], regions(), held(west=2), pace)
    assert (whole.new_slots, whole.missing) == (2, 0)
    partly = regions()._replace(partial=frozenset({"west"}))
    (short,) = outlook("east", [left], partly, held(west=2), pace)
    assert (short.region, short.new_slots, short.missing) == ("west", 2, 2)
    (elsewhere,) = outlook("east", [left], partly, held(west=2, centre=4), pace)
    assert (elsewhere.region, elsewhere.new_slots, elsewhere.missing) == ("centre", 4, 0)
    (own,) = outlook("west", [left], partly, held(east=4), pace)
    assert own.missing == 0, "it is the lost one itself that is partial"


def test_while_several_regions_are_silent_few_are_ordered_at_a_time_and_the_important_first() -> None:
    both = {"slots": {"east": 2, "west": 2}, "alive": {}}
    first, second, third = (service(name, priority=rank, **both) for name, rank in (("a", 1), ("b", 3), ("c", 2)))
    found = plan([first, second, third], regions("east", "west"), held(centre=99), at_most=6)
    assert found.orders == {("risk", "b"): {"centre": 4}, ("risk", "c"): {"centre": 2}}
    assert found.short == {("risk", "c"): (2, TURN), ("risk", "a"): (4, TURN)}, "what waits says so"
    then = [each._replace(ordered=found.orders.get(each.key, {})) for each in (first, second, third)]
    rest = plan(then, regions("east", "west"), held(centre=99), at_most=6)
    assert rest.orders == {("risk", name): {"centre": 4} for name in "abc"}
    assert rest.short == {}


def test_nothing_new_is_ordered_where_nothing_may_be_and_what_was_ordered_stays() -> None:
    there = service(slots={"east": 4}, alive={}, ordered={"west": 3})
    found = plan([there, service("other")], regions("east"), held(west=9, centre=9), at_most=0)
    assert found.orders == {("risk", "risk-api"): {"west": 3}}
    assert {key[1]: short for key, short in found.short.items()} == {"risk-api": (1, TURN), "other": (2, TURN)}


def test_where_a_service_goes_is_decided_on_the_room_there_is_and_not_on_its_turn() -> None:
    split = service(slots={"east": 4}, alive={})
    found = plan([split], regions("east"), held(west=3, centre=9), at_most=1)
    assert found.orders == {("risk", "risk-api"): {"centre": 1}}, "west would hold one, and three; only centre holds four"


def test_one_that_has_no_budget_waits_for_one_and_for_no_turn() -> None:
    found = plan([service(budget="")], regions("east"), held(west=9), at_most=9)
    assert found.short[("risk", "risk-api")].why == "it names no recovery budget"
