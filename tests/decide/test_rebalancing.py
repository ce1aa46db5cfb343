"""How a quota is shared between regions, and when it is left alone."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from fairlead.decide.rebalancing import Demand, level, wishes


def demand(used: int = 0, waits: int = 0, protected: int = 0, has: int = 0) -> Demand:
    return Demand({"cpu": used}, {"cpu": waits}, {"cpu": protected}, {"cpu": has})


def during(limit: int, **regions: Demand) -> dict[str, int]:
    return {region: wish.during["cpu"] for region, wish in wishes({"cpu": limit}, regions).items()}


def test_a_quota_nobody_uses_is_spread_evenly() -> None:
    assert during(100, east=demand(), west=demand(), north=demand()) == {"east": 34, "north": 33, "west": 33}


def test_what_is_used_comes_first_then_what_is_protected_then_what_waits() -> None:
    assert during(100, east=demand(used=70), west=demand(protected=20, waits=90)) == {"east": 70, "west": 30}
    assert during(100, east=demand(used=70, waits=50), west=demand(protected=30)) == {"east": 70, "west": 30}
    assert during(100, east=demand(used=70, waits=50), west=demand(protected=20)) == {"east": 80, "west": 20}


def test_protection_is_for_what_a_region_uses_too() -> None:
    assert during(100, east=demand(used=30, protected=30, waits=10), west=demand(waits=90)) == {"east": 40, "west": 60}


def test_those_who_wait_share_so_that_the_smallest_share_is_largest() -> None:
    assert during(100, a=demand(waits=10), b=demand(waits=200), c=demand(waits=200)) == {"a": 10, "b": 45, "c": 45}


def test_what_remains_after_the_lease_is_what_is_used_and_what_is_protected() -> None:
    found = wishes({"cpu": 100}, {"east": demand(used=30, protected=10), "west": demand(used=5, protected=20)})
    assert {region: wish.after["cpu"] for region, wish in found.items()} == {"east": 30, "west": 20}


def test_nothing_moves_while_everybody_has_enough_and_some_to_spare() -> None:
    kept = {"east": demand(used=20, has=60), "west": demand(used=10, has=40)}
    assert during(100, **kept) == {"east": 60, "west": 40}
    assert during(100, east=demand(used=30, has=60), west=demand(used=25, has=40)) == {"east": 60, "west": 40}


def test_it_moves_when_a_region_is_close_to_its_end_or_lacks_something() -> None:
    assert during(100, east=demand(used=58, has=60), west=demand(used=10, has=40)) == {"east": 74, "west": 26}
    assert during(100, east=demand(used=20, has=60), west=demand(used=40, waits=15, has=40)) == {"east": 33, "west": 67}


def test_a_smaller_quota_is_shared_anew_though_everybody_has_enough() -> None:
    assert during(50, east=demand(used=20, has=60), west=demand(used=10, has=40)) == {"east": 30, "west": 20}


AMOUNT = st.integers(0, 60)
DEMANDS = st.dictionaries(st.sampled_from("abcd"), st.builds(demand, AMOUNT, AMOUNT, AMOUNT, AMOUNT), min_size=1)


@given(st.integers(0, 200), DEMANDS)
def test_shares_never_exceed_the_quota_and_who_uses_or_waits_gets_it_while_there_is_enough(
    limit: int, regions: dict[str, Demand]
) -> None:
    found = during(limit, **regions)
    assert sum(found.values()) <= limit
    assume(sum(max(d.used["cpu"] + d.waits["cpu"], d.protected["cpu"]) for d in regions.values()) <= limit)
    for region, each in regions.items():
        assert found[region] >= max(each.used["cpu"] + each.waits["cpu"], each.protected["cpu"])


@given(st.integers(0, 200), DEMANDS)
def test_granting_the_wish_and_asking_again_changes_nothing(limit: int, regions: dict[str, Demand]) -> None:
    found = during(limit, **regions)
    again = {region: each._replace(has={"cpu": found[region]}) for region, each in regions.items()}
    assert during(limit, **again) == found


@given(st.integers(0, 300), st.dictionaries(st.sampled_from("abcdef"), AMOUNT))
def test_a_level_gives_everything_that_is_wanted_or_there_and_nobody_less_than_another_who_gets_more(
    amount: int, wants: dict[str, int]
) -> None:
    shares, left = level(amount, wants)
    assert sum(shares.values()) + left == amount
    assert left == max(0, amount - sum(wants.values()))
    for name, share in shares.items():
        assert 0 <= share <= wants[name]
        if share < wants[name]:
            assert all(other <= share + 1 for other in shares.values())
