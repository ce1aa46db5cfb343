"""Who is next: priority, weighted dominant share, deadline, age, name. And that nobody starves."""

from __future__ import annotations

from itertools import pairwise

import pytest

from fairlead.scheduler.queue import Queue
from tests.scheduler.queues import CAPACITY, GI, T0, names, queue, request, said


def drain(made: Queue, turns: int, limit: int = 1) -> list[str]:
    """The tenants in the order in which they are served, everything placed."""
    out = []
    for _ in range(turns):
        for item in made.take(limit, T0):
            out.append(item.tenant)
            made.placed(item)
    return out


def test_a_higher_priority_goes_first_whatever_its_tenant_uses() -> None:
    made = queue(request("a", "low-0", priority=0), request("b", "high-0", priority=10, created=500))
    made.set_usage("b", {"cpu": 90_000})
    assert names(made.take(2, T0)) == ["high-0", "low-0"]


def test_within_a_priority_the_tenant_with_the_least_dominant_share_goes_first() -> None:
    made = queue(request("a", "x-0"), request("b", "y-0", created=100), request("c", "z-0", created=200))
    made.set_usage("a", {"cpu": 10_000, "memory": 200 * GI})  # dominant: memory, one half
    made.set_usage("b", {"cpu": 30_000})
    assert names(made.take(3, T0)) == ["z-0", "y-0", "x-0"]


def test_the_larger_of_two_dimensions_is_the_one_that_counts() -> None:
    made = queue(request("a", "x-0", created=0), request("b", "y-0", created=1))
    made.set_usage("a", {"cpu": 1_000, "memory": 120 * GI})
    made.set_usage("b", {"cpu": 20_000, "memory": 0})
    assert names(made.take(2, T0)) == ["y-0", "x-0"], "0.2 of cpu is less than 0.3 of memory"


def test_what_is_handed_out_counts_at_once_and_what_comes_back_is_taken_off() -> None:
    made = queue(*(request("a", f"x-{i}", cpu=10_000) for i in range(4)), *(request("b", f"y-{i}", created=1) for i in range(20)))
    first = made.take(1, T0)
    assert names(first) == ["x-0"]
    assert [item.tenant for item in made.take(9, T0)] == ["b"] * 9, "nine times 1 cpu is still less than 10"
    made.give_back(first[0], T0)
    assert names(made.take(1, T0)) == ["x-0"], "its share is nothing again"


def test_what_is_placed_goes_on_counting_until_the_usage_says_otherwise() -> None:
    made = queue(*(request("a", f"x-{i}", cpu=5_000) for i in range(3)), *(request("b", f"y-{i}", created=1) for i in range(3)))
    for item in made.take(2, T0):
        made.placed(item)
    assert names(made.take(2, T0)) == ["y-1", "y-2"]
    made.set_usage("a", {})
    assert names(made.take(1, T0)) == ["x-1"]


def test_tenants_with_weights_one_and_three_are_served_one_to_three() -> None:
    made = queue(*(request(t, f"{t}-{i}", cpu=100, memory=0) for t in "ab" for i in range(200)))
    made.set_weight("b", 3)
    served = drain(made, 160)
    assert (served.count("a"), served.count("b")) == (40, 120)
    assert all(1 <= served[i : i + 8].count("a") <= 3 for i in range(152)), "and evenly, not in blocks"


def test_a_tenant_of_large_requests_and_one_of_small_ones_get_the_same_share() -> None:
    made = queue(
        *(request("big", f"big-{i}", cpu=800, memory=GI) for i in range(50)),
        *(request("small", f"small-{i}", cpu=100, memory=0) for i in range(400)),
    )
    served = drain(made, 180)
    assert served.count("small") == 8 * served.count("big")


def test_within_a_tenant_the_earliest_deadline_goes_first_and_none_goes_last() -> None:
    made = queue(
        request(name="none-0", created=0),
        request(name="late-0", created=1, deadline=90_000),
        request(name="target-0", created=2_000, start_target_seconds=10.0),
        request(name="both-0", created=3, deadline=80_000, start_target_seconds=5.0),
    )
    assert names(made.take(4, T0)) == ["both-0", "target-0", "late-0", "none-0"]


def test_then_the_oldest_goes_first_and_names_break_ties() -> None:
    made = queue(request(name="b-0", created=5), request(name="a-0", created=5), request(name="z-0", created=1))
    assert names(made.take(3, T0)) == ["z-0", "a-0", "b-0"]


def test_a_plane_without_known_capacity_orders_by_deadline_and_age() -> None:
    made = queue(request("a", "x-0", created=2), request("b", "y-0", created=1))
    made.set_capacity({})
    made.set_usage("b", {"cpu": 50_000})
    assert names(made.take(2, T0)) == ["y-0", "x-0"]


def test_more_capacity_makes_the_same_use_a_smaller_share() -> None:
    made = queue(request("a", "x-0"), request("b", "y-0", created=1))
    made.set_usage("a", {"memory": 100 * GI})
    made.set_usage("b", {"cpu": 20_000})
    made.set_capacity({**CAPACITY, "memory": 4_000 * GI})
    assert names(made.take(1, T0)) == ["x-0"]


def test_a_lost_race_goes_ahead_of_those_of_its_age_only() -> None:
    made = queue(request(name="a-0", created=5), request(name="b-0", created=5), request(name="old-0", created=1))
    old, first, second = made.take(3, T0)
    made.give_back(second, T0)
    made.give_back(old, T0)
    made.upsert(request(name="a-1", created=5), T0)
    assert names(made.take(3, T0)) == ["old-0", "b-0", "a-1"]
    made.placed(first)


def test_a_tenant_whose_work_fits_nowhere_does_not_starve_the_others() -> None:
    """Its share stays at nothing, so by share alone it would be first for ever."""
    made = queue(
        *(request("stuck", f"s-{i}") for i in range(1_000)),
        *(request("works", f"w-{i}", created=1) for i in range(1_000)),
        stall_after=10,
    )
    made.set_usage("works", {"cpu": 50_000})
    placed = tried = 0
    while placed < 100:
        for item in made.take(4, T0):
            tried += 1
            if item.tenant == "works":
                placed += 1
                made.placed(item)
            else:
                made.failed(item, "NoMatchingCapacity", ("labels",), "no node has that label", T0)
    assert tried <= 10 + 4 + 2 * placed, "after ten failures every second turn is another's"


def test_a_stalled_tenant_still_has_every_second_turn_and_all_of_them_when_alone() -> None:
    made = queue(*(request("stuck", f"s-{i}") for i in range(30)), *(request("works", f"w-{i}", created=1) for i in range(6)))
    made.set_usage("works", {"cpu": 50_000})
    made._stand(made._tenants["stuck"], stalled=True)
    assert [item.tenant for item in made.take(10, T0)] == ["stuck", "works"] * 5
    made.remove("works", "w-5")
    assert [item.tenant for item in made.take(3, T0)] == ["stuck"] * 3


def test_a_stall_ends_with_time_and_with_a_placement() -> None:
    made = queue(
        *(request("a", f"x-{i}") for i in range(8)), *(request("b", f"y-{i}", created=1) for i in range(8)), stall_after=2
    )
    made.set_usage("b", {"cpu": 50_000})
    for item in made.take(2, T0):
        made.failed(item, "WaitingForCapacity", ("cpu",), "full", T0)
    assert [item.tenant for item in made.take(4, T0)] == ["a", "b", "a", "b"]
    assert [item.tenant for item in made.take(2, T0 + 1_000)] == ["a", "a"]


def test_a_nearer_deadline_that_comes_later_overtakes_the_head_that_was_offered() -> None:
    made = queue(*(request(name=f"a-{i}", created=i, deadline=50_000) for i in range(3)))
    assert names(made.take(1, T0)) == ["a-0"]
    made.upsert(request(name="b-0", created=9, deadline=40_000), T0)
    assert names(made.take(1, T0)) == ["b-0"]
    made.upsert(request(name="c-0", created=9), T0)
    made.upsert(request(name="d-0", created=10, deadline=45_000), T0)
    assert names(made.take(9, T0)) == ["d-0", "a-1", "a-2", "c-0"]


def test_what_a_tenant_was_given_at_one_priority_counts_at_the_others() -> None:
    made = queue(
        *(request(t, f"{t}-{i}", created=i) for t in "ab" for i in range(2)),
        *(request("a", f"high-{i}", priority=5, cpu=4_000) for i in range(2)),
    )
    assert names(made.take(1, T0)) == ["high-0"]
    assert names(made.take(2, T0)) == ["high-1", "b-0"]
    made = queue(*(request(t, f"{t}-{i}", created=i) for t in "ab" for i in range(3)))
    assert names(made.take(2, T0)) == ["a-0", "b-0"]
    made.upsert(request("a", "high-0", priority=5, cpu=9_000), T0)
    assert names(made.take(3, T0)) == ["high-0", "b-1", "b-2"]


def test_lower_priorities_are_not_touched_while_a_higher_one_has_work() -> None:
    made = queue(*(request("a", f"x-{i}", priority=i % 3) for i in range(9)))
    assert [item.priority for item in made.take(9, T0)] == [2, 2, 2, 1, 1, 1, 0, 0, 0]


def test_a_level_that_was_empty_for_a_while_is_found_again() -> None:
    made = queue(request(name="a-0", priority=5))
    assert names(made.take(5, T0)) == ["a-0"]
    assert made.take(5, T0) == []
    assert not made.has_ready
    made.upsert(request(name="b-0", priority=5), T0)
    assert made.has_ready
    assert names(made.take(5, T0)) == ["b-0"]


def test_the_same_inputs_and_seed_give_the_same_order_and_the_same_times() -> None:
    def run() -> list[tuple[str, int]]:
        made = queue(*(request(f"t{i % 7}", f"w-{i}", created=i % 5, priority=i % 2) for i in range(200)), seed=7)
        out = []
        for step in range(40):
            made.due(T0 + step * 500)
            for item in made.take(9, T0 + step * 500):
                made.failed(item, "WaitingForCapacity", ("cpu",), "", T0 + step * 500)
                out.append((item.name, said(made, item.name, item.tenant).next_attempt_ms))
        return out

    assert run() == run()


@pytest.mark.parametrize("seed", [1, 2])
def test_every_tenant_gets_its_part_of_a_long_backlog(seed: int) -> None:
    """L9: with work of its own waiting, no tenant waits for more than twice its fair share of turns."""
    tenants = [f"t{i}" for i in range(10)]
    made = queue(*(request(t, f"{t}-{i}", cpu=10, memory=0) for t in tenants for i in range(100)), seed=seed)
    served = drain(made, 500, limit=2)
    for tenant in tenants:
        turns = [i for i, t in enumerate(served) if t == tenant]
        gaps = [b - a for a, b in pairwise(turns)]
        assert max(gaps) <= 2 * len(tenants)
