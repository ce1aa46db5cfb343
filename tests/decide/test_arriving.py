"""Which of a pool's ordered nodes may still come, and how long it waits after those that did not."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from fairlead.decide.arriving import Arriving, arriving, has_come, with_addition
from fairlead.decide.autoscaling import AGAIN_S_MAX, Pool, PoolRule, Waiting, again_after_s, nodes
from fairlead.decide.slots import instant
from fairlead.model.kinds.capacity import Addition, Node, NodePool, NodePoolSpec, NodePoolStatus, NodeStatus
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources

NOW = 1_700_000_000_000
GI = 1 << 30
POOL = PoolRule(minimum=1, maximum=10, node=Resources(4000, 16 * GI), max_slots=100)
WAITING = [Waiting("WaitingForCapacity", Resources(1000, GI), 9)]  # three nodes hold it


def seen(*additions: tuple[int, float], ordered: tuple[int, ...], came: tuple[int, ...] = (), **status: Any) -> Arriving:
    """Of a pool whose nodes take a minute, and that ordered some of these numbers so many seconds ago."""
    made = tuple(Addition(first, instant(NOW - int(ago_s * 1000))) for first, ago_s in additions)
    names = tuple(f"eu-burst-{n}" for n in ordered)
    there = NodePoolStatus(
        ordered=names, numbered=max(ordered, default=0), additions=made, **{"observed_generation": 1, **status}
    )
    pool = NodePool(Metadata(name="burst"), NodePoolSpec(provider="local", start_seconds=60.0), there)
    nodes = {name: a_node(name, 1 if int(name.rpartition("-")[2]) in came else 0) for name in names}
    return arriving(pool, nodes, NOW)


def a_node(name: str, session: int) -> Node:
    return Node(Metadata(name=name), status=NodeStatus(session=session))


def test_a_node_has_come_when_an_agent_registers_it_and_not_when_it_is_approved() -> None:
    assert not has_come(None)
    assert not has_come(a_node("n", 0))
    assert has_come(a_node("n", 1))


def test_what_has_not_registered_after_three_times_what_a_node_takes_is_overdue() -> None:
    found = seen((1, 181), (3, 179), ordered=(1, 2, 3), came=(1,))
    assert (found.overdue, found.absent) == (("eu-burst-2",), ("eu-burst-3",))
    assert [each.first for each in found.additions] == [3], "no longer needed"


def test_an_order_that_a_version_before_wrote_is_as_old_as_the_last_addition() -> None:
    assert seen(ordered=(1,), last_up_time=instant(NOW - 179_000)).absent == ("eu-burst-1",)
    assert seen(ordered=(1,), last_up_time=instant(NOW - 181_000)).overdue == ("eu-burst-1",)
    assert seen(ordered=(1,)).absent == ("eu-burst-1",), "it is not known when: from now on"


def test_a_node_that_is_deregistered_while_it_is_ordered_is_overdue_at_once() -> None:
    assert seen(ordered=(1,), last_up_time=instant(NOW - 9_000_000)) == Arriving((), ("eu-burst-1",), (), 0)


def test_additions_of_which_none_came_are_counted_until_one_does_or_somebody_changes_the_pool() -> None:
    assert seen((1, 181), ordered=(1, 2), in_vain=1).in_vain == 2
    assert seen((1, 181), ordered=(1, 2), came=(1,), in_vain=1).in_vain == 1, "half of it came"
    assert seen((1, 100), ordered=(1,), in_vain=1).in_vain == 1, "it may still come"
    assert seen((2, 181), ordered=(1,), in_vain=1).in_vain == 1, "it was let go before it could"
    assert seen((1, 100), ordered=(1,), came=(1,), in_vain=3).in_vain == 0
    assert seen(ordered=(1,), in_vain=3, last_up_time=instant(NOW - 400_000)).in_vain == 3, "counted once"
    assert seen((1, 100), ordered=(1,), in_vain=3, observed_generation=0).in_vain == 0
    assert seen(ordered=(1,), came=(1,), in_vain=3, last_up_time=instant(NOW - 400_000)).in_vain == 0, "late, but it came"


def test_of_more_additions_than_are_kept_the_oldest_are_taken_for_one() -> None:
    made: tuple[Addition, ...] = ()
    for n in range(100):
        made = with_addition(made, n + 1, NOW + n * 1000)
    assert len(made) == 64
    assert (made[0].first, made[1].first, made[-1].first) == (1, 38, 100)
    assert made[0].time == instant(NOW + 36_000), "none is given up before its time"


def test_what_does_not_come_goes_whatever_else_follows_and_is_on_its_way_no_longer() -> None:
    found = nodes(POOL, Pool(2, 0, overdue=("a", "b"), leaving=2), WAITING)
    assert (found.add, found.remove) == (3, ("a", "b"))
    assert "2 that did not register within 180 s go" in found.why
    assert nodes(POOL, Pool(2, 0, overdue=("a",), leaving=1), []).remove == ("a",)
    assert nodes(POOL._replace(maximum=3), Pool(2, 0, overdue=("a",), leaving=1), WAITING).add == 0, "its machine may be there"
    least = POOL._replace(minimum=3, maximum=3)
    assert nodes(least, Pool(2, 0, overdue=("a",), leaving=1), []).add == 0
    assert nodes(least, Pool(2, 0), []).add == 1


def test_after_additions_that_came_to_nothing_one_node_is_ordered_and_each_time_twice_as_late() -> None:
    held = nodes(POOL, Pool(2, 0, since_up_s=359.0, in_vain=1), WAITING)
    assert (held.add, held.full) == (0, True), "what waits is for another pool"
    assert "the next is ordered 360 s after the last" in held.why
    assert nodes(POOL, Pool(2, 0, since_up_s=360.0, in_vain=1), WAITING).add == 1
    assert nodes(POOL, Pool(2, 0, since_up_s=719.0, in_vain=2), WAITING).add == 0
    few = POOL._replace(minimum=5)
    assert nodes(few, Pool(2, 0, since_up_s=359.0, in_vain=1), []).add == 0
    assert nodes(few, Pool(2, 0, since_up_s=360.0, in_vain=1), []).add == 1
    urgent = [Waiting("WaitingForCapacity", Resources(1000, GI), 3, deadline_s=61)]
    assert nodes(POOL, Pool(2, 0, since_up_s=10.0, in_vain=1), urgent).add == 0
    assert [again_after_s(180.0, n) for n in (0, 1, 9, 10_000)] == [0.0, 360.0, AGAIN_S_MAX, AGAIN_S_MAX]


def test_of_more_than_there_may_be_those_that_have_not_come_go_before_any_that_is_there() -> None:
    three = Pool(3, 3, busy=[("a", 1), ("b", 1), ("c", 1)], absent=("x", "y", "z"))
    found = nodes(POOL._replace(maximum=3), three, [])
    assert (set(found.remove), found.drain) == ({"x", "y", "z"}, ())
    assert nodes(POOL._replace(maximum=5), three, []).remove == ("z",), "the last that was ordered"
    idle = Pool(4, 1, [("i", 900.0)], busy=[("a", 1), ("b", 2), ("c", 3)], absent=("x",))
    found = nodes(POOL._replace(maximum=2), idle, [])
    assert (found.remove, found.drain) == (("x", "i"), ("a",))


def test_a_pool_that_was_never_changed_has_nothing_overdue() -> None:
    pool = NodePool(Metadata(name="burst"), NodePoolSpec(provider="local"))
    assert arriving(replace(pool), {}, NOW) == Arriving((), (), (), 0)
