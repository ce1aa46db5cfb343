"""Who leaves in a plan of preemption: the stated order, who may be a victim at all, and budgets."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.decide.preempt import NoPlan, Plan
from fairlead.decide.preempt_rules import Evictor, rank_of, unranked
from tests.decide.preempt_world import ANYBODY, Policy, World, need_of

# --- the order -----------------------------------------------------------------------------------------------------------


def test_the_lowest_priority_leaves_first_even_if_it_takes_more_victims() -> None:
    world = World(2, cpu=4)
    for n in range(4):
        world.put(0, f"low-{n}", priority=1)
    world.put(1, "mid", priority=5, cpu=4)
    assert world.victims(need_of(cpu=3)) == (0, ["low-0", "low-1", "low-2"])


def test_of_equal_priority_the_fewest_victims_leave() -> None:
    world = World(2, cpu=4)
    for n in range(4):
        world.put(0, f"small-{n}", priority=1)
    world.put(1, "large", priority=1, cpu=4)
    assert world.victims(need_of(cpu=2)) == (1, ["large"])


def test_of_as_many_the_youngest_leave_and_then_the_smallest() -> None:
    world = World(3, cpu=2)
    world.put(0, "old", cpu=2, started_ms=0)
    world.put(1, "young", cpu=2, started_ms=600_000)
    world.put(2, "young-small", cpu=1, started_ms=600_500)
    world.put(2, "filler", priority=9, cpu=1)
    assert world.victims(need_of()) == (2, ["young-small"])
    world.leave(("t", "young-small"))
    world.put(2, "filler-2", priority=9)
    assert world.victims(need_of()) == (1, ["young"])


def test_on_one_node_the_youngest_of_equals_leave() -> None:
    world = World(1, cpu=4)
    for name, minute in (("old", 1), ("youngest", 9), ("young", 7), ("oldest", 0)):
        world.put(0, name, started_ms=60_000 * minute)
    assert world.victims(need_of()) == (0, ["youngest"])
    assert world.victims(need_of(cpu=2)) == (0, ["young", "youngest"])


def test_of_equals_the_first_row_is_taken() -> None:
    world = World(5, cpu=1)
    for row in (3, 1, 4, 0, 2):
        world.put(row, f"s-{row}")
    assert world.victims(need_of()) == (0, ["s-0"])


def test_who_is_not_needed_stays() -> None:
    world = World(1, cpu=10)
    world.put(0, "one", cpu=1)
    world.put(0, "six", cpu=6)
    world.put(0, "three", cpu=3)
    assert world.victims(need_of(cpu=5)) == (0, ["six"])
    assert world.victims(need_of(cpu=7)) == (0, ["one", "six"])


def test_a_need_that_fits_asks_nobody_to_leave() -> None:
    world = World(2, cpu=2)
    world.put(0, "s", cpu=2)
    assert world.plan(need_of()) == Plan(1, ())


# --- who may be a victim -------------------------------------------------------------------------------------------------


def test_equal_and_higher_priorities_stay_whatever_happens() -> None:
    world = World(2, cpu=1)
    world.put(0, "equal", priority=9)
    world.put(1, "higher", priority=10)
    assert world.plan(need_of()) == NoPlan({"room": 2})
    assert world.victims(need_of(), priority=10) == (0, ["equal"])


def test_the_policy_says_who_preempts_and_who_is_spared() -> None:
    world = World(2, cpu=1)
    world.put(0, "spared", priority=3)
    world.put(1, "fair-game", priority=4)
    assert world.victims(need_of(), policy=Policy(spared={3})) == (1, ["fair-game"])
    assert world.plan(need_of(), policy=Policy(idle={9})) == NoPlan({"room": 2})


def test_a_borrower_leaves_for_anybody_firm_and_before_everybody_else() -> None:
    world = World(2, cpu=1)
    world.put(0, "firm", priority=0)
    world.put(1, "guest", priority=50, borrowed=True)
    assert world.victims(need_of(), priority=9) == (1, ["guest"])
    assert world.victims(need_of(), priority=0, policy=Policy(idle={0})) == (1, ["guest"])


def test_a_borrower_does_not_help_where_what_is_held_is_in_the_way() -> None:
    world = World(1, cpu=2)
    world.columns["cpu_free"][0] -= 2  # held for a recovery budget
    world.put(0, "guest", cpu=2, borrowed=True)
    assert world.plan(need_of()) == NoPlan({"room": 1})


def test_who_borrows_evicts_only_borrowers_below_itself() -> None:
    world = World(3, cpu=1)
    world.put(0, "firm", priority=0)
    world.put(1, "peer", priority=9, borrowed=True)
    need = need_of(borrows=True)
    world.put(2, "lower", priority=3, borrowed=True)
    assert world.victims(need) == (2, ["lower"])
    world.leave(("t", "lower"))
    world.put(2, "firm-2", priority=0)
    assert world.plan(need) == NoPlan({"room": 3})


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 5), st.booleans(), st.integers(0, 5), st.booleans())
def test_nobody_can_evict_whoever_may_evict_it(priority: int, borrows: bool, other: int, other_borrows: bool) -> None:
    forth = Evictor(priority, borrows, ANYBODY).may_evict(other, other_borrows)
    back = Evictor(other, other_borrows, ANYBODY).may_evict(priority, borrows)
    assert not (forth and back)
    if forth:
        assert rank_of(other, other_borrows) < rank_of(priority, borrows), "one total order, so no chain returns"
    assert unranked(rank_of(priority, borrows)) == (priority, borrows)


def test_a_slot_on_its_way_out_is_no_victim_and_its_room_is_taken() -> None:
    world = World(1, cpu=2)
    world.put(0, "going", cpu=1)
    world.put(0, "stays", priority=9, cpu=1)
    world.drain(("t", "going"))
    assert world.plan(need_of()) == NoPlan({"room": 1})


# --- budgets -------------------------------------------------------------------------------------------------------------


def _replicas(world: World, rows: Iterable[int], min_serving: int) -> None:
    for number, row in enumerate(rows):
        world.put(row, f"web-{number}", uid="web", min_serving=min_serving)


def test_a_disruption_budget_is_kept_even_if_a_higher_priority_leaves_instead() -> None:
    world = World(3, cpu=1)
    _replicas(world, (0, 1), min_serving=2)
    world.put(2, "batch", priority=5)
    assert world.victims(need_of()) == (2, ["batch"])


def test_a_plan_takes_no_more_of_one_workload_than_its_budget_has_left() -> None:
    world = World(2, cpu=3)
    _replicas(world, (0, 0, 0), min_serving=2)
    world.put(1, "x", cpu=3, priority=5)
    assert world.victims(need_of(cpu=2)) == (1, ["x"])
    assert world.victims(need_of(cpu=1)) == (0, ["web-0"])


def test_a_budget_counts_slots_on_other_nodes_and_recovers_when_one_comes_back() -> None:
    world = World(3, cpu=1)
    _replicas(world, (0, 1), min_serving=1)
    world.put(2, "full", priority=9)
    need = need_of()
    assert world.victims(need) == (0, ["web-0"])
    world.drain(("t", "web-0"))
    assert world.plan(need) == NoPlan({"room": 2, "budgets": 1})
    world.leave(("t", "full"))
    world.put(2, "web-2", uid="web", min_serving=1, priority=9)
    assert world.victims(need) == (1, ["web-1"]), "the third replica lets the second go"


def test_a_close_look_is_forgotten_when_a_budget_it_asked_about_changes_elsewhere() -> None:
    world = World(2, cpu=1)
    _replicas(world, (0, 1), min_serving=1)
    need = need_of()
    assert world.victims(need, barred=lambda row: row == 0) == (1, ["web-1"])
    world.drain(("t", "web-0"))
    assert world.plan(need) == NoPlan({"room": 1, "budgets": 1})


def test_only_a_class_the_policy_names_breaks_a_budget_and_the_plan_says_which() -> None:
    world = World(2, cpu=1)
    _replicas(world, (0,), min_serving=1)
    world.put(1, "unprotected", priority=8)
    critical = Policy(breakers={9})
    assert world.victims(need_of(), policy=critical) == (1, ["unprotected"]), "breaking none comes first"
    world.leave(("t", "unprotected"))
    world.put(1, "mate", priority=9)
    assert world.plan(need_of(), policy=critical) == Plan(0, (("t", "web-0"),), ("web",))
    assert world.plan(need_of()) == NoPlan({"room": 1, "budgets": 1})


def test_borrowers_have_no_budget_against_whoever_claims_their_room() -> None:
    world = World(1, cpu=1)
    world.put(0, "guest", uid="g", min_serving=1, borrowed=True)
    assert world.victims(need_of()) == (0, ["guest"])
