"""The search for a plan of preemption, against brute force: the best plan there is, true bounds, and a window that moves on."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.decide import preempt_node
from fairlead.decide.devices import pick_devices
from fairlead.decide.fit import DeviceNeed, Need, feasible
from fairlead.decide.preempt import NoPlan, Plan, Preemptor
from fairlead.decide.preempt_bounds import CANDIDATE, Bounds
from fairlead.decide.preempt_node import NOBODY, NodeSearch, Relieved, shortfall
from fairlead.decide.preempt_rules import BORROWED_BELOW, Evictor, breaches, rank_of, unranked
from fairlead.model.resources import DeviceHold
from tests.decide.preempt_world import ANYBODY, GPUS, NOW, Elsewhere, Policy, World, claim, need_of, whole

_slot = st.fixed_dictionaries(
    {
        "priority": st.sampled_from((0, 1, 5, 9)),
        "cpu": st.integers(0, 3),
        "memory": st.integers(0, 3),
        "borrowed": st.booleans(),
        "uid": st.sampled_from(("u", "v", "w")),
        "min_serving": st.sampled_from((0, 0, 1, 2, 3)),
        "started_ms": st.sampled_from((0, 60_000, 120_000)),
        "devices": st.sampled_from(((), (), whole("g0"), (DeviceHold(id="g1", thousandths=400),))),
    }
)
_needs = st.builds(
    need_of,
    cpu=st.integers(0, 6),
    memory=st.integers(0, 6),
    borrows=st.booleans(),
    devices=st.sampled_from(((), (), (DeviceNeed("gpu", (), 1, 0),), (DeviceNeed("gpu", (), 0, 700),))),
)
_policies = st.sampled_from((ANYBODY, Policy(spared={1}), Policy(breakers={5}), Policy(idle={5})))


def _fill(nodes: list[list[dict[str, Any]]], held: int) -> World:
    world = World(len(nodes), cpu=5, memory=5, slots=5, devices=GPUS)
    world.columns["cpu_free"][:] -= held
    for row, slots in enumerate(nodes):
        for number, slot in enumerate(slots):
            world.put(row, f"s-{row}-{number}", **slot)
    return world


def _brute(world: World, need: Need, evictor: Evictor) -> tuple[int, ...] | None:
    """The best key over every node and every set of victims, by the stated order alone."""
    best: tuple[int, ...] | None = None
    for row in range(world.rows):
        slots = [p for p in world.evictable.slots[row].values() if evictor.may_evict(p.priority, p.borrowed)]
        for count in range(len(slots) + 1):
            for victims in itertools.combinations(slots, count):
                broken = breaches(victims, world.evictable.live, evictor)
                if broken and not evictor.may_break_budgets:
                    continue
                left = Relieved(world.row(row), GPUS, world.device_used[row])
                for victim in victims:
                    left.remove(victim)
                if not feasible(need, left, NOW) or pick_devices(need.devices, GPUS, left.device_used) is None:
                    continue
                rank = max((p.rank for p in victims), default=NOBODY)
                oldest = min((p.minute for p in victims), default=0)
                key = (int(bool(broken)), rank, count, -oldest, sum(p.size for p in victims), row)
                best = key if best is None or key < best else best
    return best


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.lists(_slot, max_size=5), min_size=1, max_size=3), _needs, _policies, st.integers(0, 2), st.sampled_from((1, 5))
)
def test_small_fleets_get_the_best_plan_there_is(
    nodes: list[list[dict[str, Any]]], need: Need, policy: Policy, held: int, priority: int
) -> None:
    world = _fill(nodes, held)
    evictor = Evictor(priority, need.borrows, policy)
    world.evictable.reach(world.rows)
    best = _brute(world, need, evictor)
    plan = world.plan(need, priority, policy)
    if best is None:
        assert isinstance(plan, NoPlan), plan
        assert sum(plan.reasons.values()) == world.rows, "every node has its reason"
        return
    assert isinstance(plan, Plan), (best, plan)
    victims = [world.evictable.slots[plan.row][key] for key in plan.victims]
    broken = breaches(victims, world.evictable.live, evictor)
    rank = max((p.rank for p in victims), default=NOBODY)
    oldest = min((p.minute for p in victims), default=0)
    key = (int(bool(broken)), rank, len(victims), -oldest, sum(p.size for p in victims), plan.row)
    assert key == best
    assert plan.broken == tuple(breach.uid for breach in broken)


@settings(deadline=None, max_examples=80)
@given(
    st.lists(st.lists(_slot, max_size=4), min_size=2, max_size=4),
    st.lists(st.tuples(st.sampled_from(("put", "leave", "drain", "claim")), st.integers(0, 3), _slot), max_size=12),
    st.lists(_needs, min_size=1, max_size=2),
    _policies,
)
def test_a_planner_that_lived_through_changes_says_what_a_new_one_says(
    nodes: list[list[dict[str, Any]]], changes: list[tuple[str, int, dict[str, Any]]], needs: list[Need], policy: Policy
) -> None:
    world = _fill(nodes, 0)
    for number, (what, row, slot) in enumerate(changes):
        row %= world.rows
        here = sorted(key for key, (at, _) in world.slots.items() if at == row)
        if what == "put":
            world.put(row, f"n-{number}", **slot)
        elif here and what == "leave":
            world.leave(here[number % len(here)])
        elif here and what == "drain":
            world.drain(here[number % len(here)])
        elif what == "claim" and isinstance(world.plan(needs[0]), Plan):
            claim(world, needs[0], f"c-{number}")
        for need in needs:
            told = world.plan(need, 5, policy)
            fresh = Preemptor(world, world.evictable).plan(need, Evictor(5, need.borrows, policy), NOW)
            assert told == fresh
        again = [world.plan(need, 5, policy) for need in needs]
        assert again == [world.plan(need, 5, policy) for need in needs], "asking changes nothing"


@settings(deadline=None, max_examples=100)
@given(st.lists(st.lists(_slot, max_size=5), min_size=1, max_size=4), _needs, st.integers(0, 2))
def test_a_bound_is_the_same_for_columns_and_for_one_row_and_never_above_the_truth(
    nodes: list[list[dict[str, Any]]], need: Need, held: int
) -> None:
    world = _fill(nodes, held)
    world.evictable.reach(world.rows)
    world.evictable.refresh()
    evictor = Evictor(9, need.borrows, ANYBODY)
    ranks = tuple(rank for rank in world.evictable.ranks if evictor.may_evict(*unranked(rank)))
    bounds = Bounds(need, ranks, world.evictable)
    verdicts, columns = bounds.of_all(world.all(), world.rows, NOW)
    for row in range(world.rows):
        one = bounds.of_row(world.row(row), row, NOW)
        if isinstance(one, int):
            assert one == verdicts[row]
            continue
        assert verdicts[row] == CANDIDATE
        assert one == (*(int(column[row]) for column in columns), row)
        slots = [p for p in world.evictable.slots[row].values() if p.rank in ranks]
        found = NodeSearch(need, evictor, Relieved(world.row(row), GPUS, world.device_used[row]), GPUS, world.evictable.live)
        looked = found.best(slots, row)
        if isinstance(looked, preempt_node.Found):
            assert one <= looked.key[1:]


@settings(deadline=None, max_examples=100)
@given(st.lists(_slot, min_size=1, max_size=6), _needs)
def test_the_short_way_finds_victims_that_are_all_needed(slots: list[dict[str, Any]], need: Need) -> None:
    world = _fill([slots], 0)
    evictor = Evictor(9, need.borrows, ANYBODY)
    pool = [p for p in world.evictable.slots[0].values() if evictor.may_evict(p.priority, p.borrowed)]
    search = NodeSearch(need, evictor, Relieved(world.row(0), GPUS, world.device_used[0]), GPUS, world.evictable.live)
    search._protected = frozenset(p.uid for p in pool if p.min_serving)
    taken = search._give_back(pool)
    if taken is None:
        return
    assert search._fits(taken)
    assert not breaches(taken, world.evictable.live, evictor)
    assert not any(search._fits([p for p in taken if p is not one]) for one in taken) or search._fits(())


def test_a_node_with_many_different_slots_is_still_answered_quickly_and_with_few_victims() -> None:
    world = World(1, cpu=5000, memory=10_000)
    for n in range(100):
        world.put(0, f"s-{n}", cpu=40 + n % 17, memory=1 + n % 13, started_ms=60_000 * (n % 7))
    row = Relieved(world.row(0))
    assert shortfall(need_of(cpu=1000), row).dimensions == ("cpu_firm", "cpu", "slots")
    plan = world.plan(need_of(cpu=1000))
    assert isinstance(plan, Plan)
    assert len(plan.victims) == 15, "none gives more than 56, and 800 and more are short"


def test_the_window_moves_on_when_its_nodes_are_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.decide.preempt.WINDOW", 4)
    world = World(40, cpu=1)
    for row in range(40):
        world.put(row, f"s-{row}", uid="web" if row < 20 else "", min_serving=20 if row < 20 else 0)
    need = need_of()
    rows = [claim(world, need, f"h-{n}").row for n in range(20)]
    assert sorted(rows) == list(range(20, 40)), "the first twenty are protected and the rest come in turn"
    assert world.plan(need) == NoPlan({"room": 20, "budgets": 20})


def test_the_window_moves_on_past_nodes_that_are_shut_or_barred(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.decide.preempt.WINDOW", 4)
    world = World(40, cpu=1)
    for row in range(40):
        world.put(row, f"s-{row}")
    far, near = need_of(extra=(Elsewhere(30),)), need_of()
    assert world.victims(far) == (30, ["s-30"])
    assert world.victims(near, barred=lambda row: row < 20) == (20, ["s-20"])
    assert world.victims(near) == (0, ["s-0"]), "what was left out once is not left out for ever"
    assert world.plan(near, barred=lambda row: True) == NoPlan({"barred": 40})


def test_ranks_of_borrowers_lie_below_all_others() -> None:
    assert rank_of(2**31, True) < rank_of(-(2**31), False)
    assert BORROWED_BELOW > 2**32
