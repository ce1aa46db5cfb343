"""How many replicas and nodes there should be, and when more would make it worse."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.decide.autoscaling import (
    Load,
    Pool,
    PoolRule,
    PoolScaling,
    ReplicaRule,
    Scaling,
    Waiting,
    blocked_by,
    nodes,
    packed,
    replicas,
)
from fairlead.model.kinds.intent import PendingReason
from fairlead.model.resources import Resources

RULE = ReplicaRule(minimum=2, maximum=40)
GI = 1 << 30


def load(
    ordered: int = 10, serving: int = 10, busy: int = 700, since: float = 1e6, lately: tuple[tuple[float, int], ...] = ()
) -> Load:
    return Load(ordered, serving, busy, since, lately)


def test_load_above_its_target_adds_what_brings_it_back() -> None:
    assert replicas(RULE, load(busy=1000)).replicas == 15
    assert replicas(RULE, load(busy=760)).replicas == 10, "within its tolerance"
    assert replicas(RULE, load(busy=5000)).replicas == 20, "at most as many again in one step"
    assert replicas(RULE._replace(maximum=12), load(busy=5000)).replicas == 12


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (load(serving=4, busy=1000), "4 of 10 serve"),
        (load(serving=8, busy=1000), "2 ordered before are not serving yet"),
        (load(busy=1000, since=5), "added some 5 s ago; waits 30 s"),
        (load(busy=1000, since=40)._replace(age_s=40), "added some 40 s ago; the load was measured before that"),
        (load(busy=100, since=400)._replace(age_s=400), "the load was measured before that"),
    ],
)
def test_nothing_is_added_while_the_load_cannot_be_believed(now: Load, why: str) -> None:
    found = replicas(RULE, now)
    assert found.replicas == 10
    assert why in found.why


def test_nothing_is_added_while_some_wait_for_what_no_capacity_cures() -> None:
    waits = load(ordered=5, serving=4, busy=2000)
    assert replicas(RULE, waits).replicas == 10, "the fifth is on its way"
    held = replicas(RULE, waits._replace(blocked=blocked_by([PendingReason("WaitingForQuota", 1)])))
    assert (held.replicas, held.reason) == (5, "Blocked")
    assert "1 WaitingForQuota" in held.why
    fewer = waits._replace(busy_permille=100, blocked=(("WaitingForQuota", 1),))
    assert replicas(RULE, fewer) == replicas(RULE, fewer._replace(blocked=())), "it keeps nobody from going down"


def test_only_what_neither_capacity_nor_patience_cures_blocks() -> None:
    curable = [
        PendingReason(reason, 3) for reason in ("WaitingForCapacity", "PendingEvaluation", "BackingOff", "TopologyBlocked")
    ]
    assert blocked_by(curable) == ()
    more = [PendingReason("ResidencyBlocked", 1), PendingReason("WaitingForQuota", 2), PendingReason("WaitingForQuota", 1)]
    assert blocked_by([*curable, *more]) == (("ResidencyBlocked", 1), ("WaitingForQuota", 3))


def test_one_load_is_answered_once() -> None:
    """It may be believed for longer than the wait after an addition."""
    before = load(ordered=20, serving=20, busy=1400, since=40)
    assert replicas(RULE, before).replicas == 40
    assert replicas(RULE, before._replace(age_s=50)) == Scaling(
        20, 20, "added some 40 s ago; the load was measured before that"
    ), "nor is it remembered as what was wanted"


def test_none_serving_is_no_load_and_a_minimum_holds_all_the_same() -> None:
    assert replicas(RULE, load(serving=0, busy=0)).replicas == 10
    assert replicas(RULE, load(ordered=1, serving=0, busy=0)).replicas == 2
    assert replicas(RULE._replace(maximum=6), load()).replicas == 6


def test_it_goes_down_only_to_the_most_that_was_wanted_lately() -> None:
    assert replicas(RULE, load(busy=350, lately=((200.0, 8), (20.0, 5)))).replicas == 8
    assert replicas(RULE, load(busy=350, lately=((301.0, 8), (20.0, 5)))).replicas == 5
    assert replicas(RULE, load(busy=10)).replicas == 2


@given(
    st.builds(lambda low, high: ReplicaRule(low, high), st.integers(0, 5), st.integers(5, 50)),
    st.builds(load, st.integers(0, 60), st.integers(0, 60), st.integers(0, 3000), st.floats(0, 1000)),
)
def test_the_answer_is_always_within_its_bounds(rule: ReplicaRule, now: Load) -> None:
    found = replicas(rule, now)
    assert rule.minimum <= found.replicas <= rule.maximum


# --- amplification: a demand that six replicas can carry, while new ones take long to serve


def naive(rule: ReplicaRule, now: Load) -> Scaling:
    """What is ordered, times how busy the few are that serve."""
    wanted = max(rule.minimum, min(-(-now.ordered * now.busy_permille // rule.target_permille), rule.maximum))
    return Scaling(wanted, wanted, "")


def most_ordered(decide: Callable[[ReplicaRule, Load], Scaling]) -> int:
    """A service loses four of its six replicas; replacements take 90 s to serve. The demand stays what it was."""
    demand, ordered, serving = 4200, 6, 2  # in thousandths of a busy replica: six at their target
    coming = [90.0] * 4
    last_up, most, lately = -1e6, ordered, list[tuple[float, int]]()
    for now in range(0, 600, 15):
        serving += sum(1 for at in coming if at <= now)
        coming = [at for at in coming if at > now]
        busy = min(1000, demand // max(serving, 1))
        found = decide(RULE, Load(ordered, serving, busy, now - last_up, tuple((now - at, count) for at, count in lately)))
        lately.append((now, found.wanted))
        if found.replicas > ordered:
            coming += [now + 90.0] * (found.replicas - ordered)
            last_up = now
        elif found.replicas < ordered:
            gone = ordered - found.replicas
            coming = coming[: max(0, len(coming) - gone)]
            serving = min(serving, found.replicas)
        ordered = found.replicas
        most = max(most, ordered)
    return most


def test_a_naive_one_overshoots_twice_and_more_where_this_one_stays_within_what_is_needed_and_its_surge() -> None:
    assert most_ordered(naive) >= 2 * 6
    assert most_ordered(replicas) <= 6 + RULE.surge


# --- nodes

POOL = PoolRule(minimum=1, maximum=10, node=Resources(4000, 16 * GI), max_slots=100)
ASK = Resources(1000, GI)


def test_nodes_are_added_for_those_who_wait_for_what_such_a_node_has() -> None:
    found = nodes(POOL, Pool(2, 0), [Waiting("WaitingForCapacity", ASK, 9)])
    assert (found.add, found.remove) == (3, ())


@pytest.mark.parametrize(
    "reason", ["WaitingForQuota", "OnHold", "WaitingForGang", "ResidencyBlocked", "BackingOff", "Misconfigured"]
)
def test_no_node_is_added_for_what_nodes_cannot_cure(reason: str) -> None:
    assert nodes(POOL, Pool(2, 0), [Waiting(reason, ASK, 9)]).add == 0


def test_how_many_are_added_does_not_depend_on_the_order_they_wait_in() -> None:
    small, large = Waiting("WaitingForCapacity", Resources(1000, GI), 2), Waiting("WaitingForCapacity", Resources(3000, GI), 2)
    found = [nodes(POOL, Pool(1, 0), order).add for order in ([small, large], [large, small])]
    assert found == [2, 2]


def test_no_node_is_added_for_an_ask_larger_than_it_or_a_deadline_it_would_miss() -> None:
    assert nodes(POOL, Pool(2, 0), [Waiting("WaitingForCapacity", Resources(5000, GI), 1)]).add == 0
    late = nodes(POOL, Pool(2, 0, start_s=60), [Waiting("WaitingForCapacity", ASK, 3, deadline_s=59)])
    assert (late.add, late.why) == (0, "as wanted; 3 slots wait whose deadline is before a new node would be there")
    assert nodes(POOL, Pool(2, 0, start_s=60), [Waiting("WaitingForCapacity", ASK, 1, deadline_s=60)]).add == 1


def test_of_more_than_there_may_be_the_empty_go_first_then_those_with_the_least_on_them_drained() -> None:
    busy = [("c", 5), ("b", 2), ("d", 9)]
    found = nodes(POOL, Pool(12, 0, [("a", 1.0)], busy=busy), [Waiting("WaitingForCapacity", ASK, 9)])
    assert (found.add, found.remove, found.drain) == (0, ("a",), ("b",))
    assert nodes(POOL, Pool(11, 0, [("a", 1.0)], busy=busy), []).drain == ()


def test_empty_nodes_that_somebody_keeps_closed_go_for_a_maximum_alone_after_the_other_empty_ones_and_before_any_work() -> None:
    closed = [("k", 900.0), ("l", 990.0)]
    assert nodes(POOL, Pool(5, 0, kept=closed), []).remove == ()
    found = nodes(POOL, Pool(12, 0, [("a", 1.0)], busy=[("b", 1)], kept=closed), [])
    assert (found.remove, found.drain) == (("a", "l"), ())
    found = nodes(POOL, Pool(14, 0, [("a", 1.0)], busy=[("b", 1)], kept=closed), [])
    assert (found.remove, found.drain) == (("a", "l", "k"), ("b",))


def test_nodes_on_their_way_count_and_bounds_and_waits_hold() -> None:
    waiting = [Waiting("WaitingForCapacity", ASK, 9)]
    assert nodes(POOL, Pool(2, 3), waiting) == PoolScaling(0, (), "3 on their way")
    assert nodes(POOL, Pool(2, 1), waiting).add == 2
    assert nodes(POOL, Pool(9, 0), waiting).add == 1
    assert nodes(POOL, Pool(10, 0), waiting) == PoolScaling(0, (), "no more than 10", full=True)
    assert nodes(POOL, Pool(2, 0, since_up_s=5), waiting).add == 0
    assert nodes(POOL, Pool(0, 0), []).add == 1
    assert nodes(POOL, Pool(7, 0, leaving=2), waiting).add == 1, "ten machines at most, also while two of them go"
    assert nodes(POOL, Pool(0, 0, leaving=3), []).add == 1, "those that go are not the fewest there must be"


def test_jobs_that_a_wait_would_make_hopeless_get_their_nodes_first_and_at_once() -> None:
    """Thirty seconds are waited after an addition, ten of them have gone, and a node takes sixty to start."""
    calm = Waiting("WaitingForCapacity", ASK, 6)
    later = Waiting("WaitingForCapacity", ASK, 3, deadline_s=80)
    urgent = Waiting("WaitingForCapacity", ASK, 3, deadline_s=79)
    hopeless = Waiting("WaitingForCapacity", ASK, 3, deadline_s=59)
    pool = Pool(2, 0, since_up_s=10)
    assert nodes(POOL, pool, [calm, later, hopeless]).add == 0
    found = nodes(POOL, pool, [calm, later, urgent, hopeless])
    assert (found.add, found.why) == (1, "3 slots wait for capacity that 1 more nodes have, and would be too late after a wait")
    assert nodes(POOL, pool._replace(starting=1), [calm, urgent]).add == 0, "the one on its way is for them"
    assert nodes(POOL, pool._replace(nodes=10), [urgent]).add == 0
    assert nodes(POOL, pool._replace(since_up_s=30), [calm, later, urgent]).add == 3, "then for everybody"


def test_empty_nodes_go_the_longest_empty_first_and_never_below_the_minimum_or_while_somebody_waits() -> None:
    idle = (("a", 700.0), ("b", 900.0), ("c", 100.0))
    assert nodes(POOL, Pool(3, 0, idle), []).remove == ("b", "a")
    assert nodes(POOL._replace(minimum=2), Pool(3, 0, idle), []).remove == ("b",)
    assert nodes(POOL, Pool(3, 0, idle), [Waiting("WaitingForCapacity", ASK, 1)]).remove == ()


def test_shapes_share_nodes_where_they_fit_together() -> None:
    waiting = [Waiting("", Resources(3000, GI), 2), Waiting("", Resources(1000, GI), 2), Waiting("", Resources(500, 16 * GI), 1)]
    assert packed(POOL.node, 100, waiting) == 3
    assert packed(POOL.node, 1, waiting) == 5
