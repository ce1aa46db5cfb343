"""Stand-ins that do not come up (decide/idle.py): how many for how long, for how long a region is spent, and in how many it is
tried at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairlead.decide.idle import PAUSES_MS, Tried, idle_for, idle_since, tried
from fairlead.decide.outlooks import Pace, outlook
from fairlead.decide.recovery import TRIES_MAX, Regions, Rooms, Service, plan
from tests.decide.test_recovery import SMALL, held, regions, service

KEY = ("risk", "risk-api")
FIVE = ("home", "a", "b", "c", "d")


def test_of_several_as_many_are_idle_for_a_while_as_were_all_the_while() -> None:
    since = idle_since((), 2, 10)
    since = idle_since(since, 3, 20)
    assert (idle_for(since, 10, 20), idle_for(since, 10, 30)) == (2, 3)
    since = idle_since(since, 1, 40)  # two came up
    since = idle_since(since, 2, 50)
    assert (idle_for(since, 40, 50), idle_for(since, 40, 90)) == (1, 2)


def test_a_region_is_spent_for_longer_each_time_and_another_generation_begins_anew() -> None:
    now, known = 0, None
    for pause_ms in (*PAUSES_MS, PAUSES_MS[-1]):
        for _ in range(3):  # one time, however long it lasts
            now += 1000
            known = tried(known, 7, True, now)
        known = tried(known, 7, False, now + 1)
        assert known is not None
        assert (known.is_spent(now + pause_ms - 1), known.is_spent(now + pause_ms)) == (True, False)
        now += pause_ms
    assert tried(known, 8, False, now) is None
    assert tried(known, 8, True, now) == Tried(8, 1, now, True)


def test_what_does_not_come_up_is_ordered_elsewhere_and_leaves_when_that_serves() -> None:
    lies = service(slots={"east": 4}, alive={}, ordered={"west": 4}, idle={"west": 4})
    both = {"west": 4, "centre": 4}
    assert plan([lies], regions("east"), held(west=9, centre=4)).orders == {KEY: both}, "rooms beside it come last"
    assert plan([lies], regions("east"), held(west=4)).orders == {KEY: {"west": 4}}, "which are owed to what was ordered"
    claimed = Rooms(held(west=4).held, {("critical", "west"): 4})
    assert plan([lies], regions("east"), claimed).orders == {KEY: {"west": 8}}
    started = lies._replace(ordered=both, stood_in={"centre": 3})
    assert plan([started], regions("east"), Rooms({})).orders == {KEY: both}
    serves = started._replace(stood_in={"centre": 4})
    assert plan([serves], regions("east"), Rooms({})).orders == {KEY: {"centre": 4}}
    spent = serves._replace(ordered={}, idle={}, stood_in={}, spent=frozenset({"west"}))
    assert plan([spent], regions("east"), held(west=9)).short[KEY].missing == 4, "not where it did not come up a while ago"


def test_readiness_does_not_count_on_what_does_not_come_up() -> None:
    lies = service(slots={"east": 4, "centre": 2}, alive={"east": 4, "centre": 2}, ordered={"west": 4}, idle={"west": 4})
    (seen,) = outlook("east", [lies], regions(), held(centre=1), Pace(18.0, 1.0, 5.0))
    assert (seen.region, seen.missing) == ("centre", 1)


def carried_out(lies: Service, rounds: int, comes_up: frozenset[str]) -> list[dict[str, int]]:
    """Orders, minute by minute: where it comes up all of it serves then, and nowhere else any."""
    there = Regions(frozenset({"home"}), frozenset(FIVE[1:]), frozenset(FIVE[1:]))
    out = []
    for _ in range(rounds):
        claimed = {("critical", region): count for region, count in lies.ordered.items()}
        rooms = {("critical", region): {SMALL: 20 - lies.ordered.get(region, 0)} for region in FIVE[1:]}
        orders = plan([lies], there, Rooms(rooms, claimed)).orders.get(KEY, {})
        out.append(orders)
        lies = lies._replace(
            ordered=orders,
            stood_in={region: count for region, count in orders.items() if region in comes_up},
            idle={region: count for region, count in orders.items() if region not in comes_up},
        )
    return out


@given(st.frozensets(st.sampled_from(FIVE[1:])), st.integers(1, 5))
def test_it_is_tried_in_few_regions_and_comes_to_rest(comes_up: frozenset[str], minimum: int) -> None:
    lies = service(regions=FIVE, slots={"home": 4}, alive={}, minimum=minimum)
    found = carried_out(lies, 8, comes_up)
    assert found[4:] == [found[4]] * 4, "nothing goes back and forth"
    assert all(sum(orders.values()) <= TRIES_MAX * minimum for orders in found)
    tried_in = {region for orders in found for region in orders}
    if comes_up & {"a", "b", "c"}:
        assert any(region in comes_up for region in found[4]), "within three tries"
        assert not tried_in - comes_up - {"a", "b"}
    else:
        assert tried_in == {"a", "b", "c"}
