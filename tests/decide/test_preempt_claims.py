"""What a plan of preemption frees and claims: devices and scalars, claims in flight, and gates that no eviction opens."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.decide.fit import DeviceNeed
from fairlead.decide.preempt import NoPlan, Plan
from fairlead.decide.preempt_index import Placed
from fairlead.decide.preempt_rules import credit_of
from fairlead.model.resources import DeviceHold, Resources
from tests.decide.preempt_world import GPUS, Elsewhere, Leaving, World, claim, need_of, whole

# --- devices and scalars -------------------------------------------------------------------------------------------------


def test_an_exclusive_device_changes_hands() -> None:
    world = World(2, cpu=10, devices=GPUS)
    world.put(0, "cpu-only")
    world.put(0, "first", devices=whole("g0"), priority=9)
    world.put(0, "second", devices=whole("g1"), priority=3)
    world.put(1, "third", devices=(*whole("g0"), *whole("g1")), priority=4)
    plan = world.plan(need_of(devices=(DeviceNeed("gpu", (), 1, 0),)))
    assert plan == Plan(0, (("t", "second"),), (), whole("g1"))


def test_the_victims_of_a_share_are_those_on_one_device() -> None:
    world = World(1, cpu=10, devices=GPUS)
    for name, device, part in (("a", "g0", 500), ("b", "g0", 500), ("c", "g1", 300), ("d", "g1", 300), ("e", "g1", 400)):
        world.put(0, name, devices=(DeviceHold(id=device, thousandths=part),))
    plan = world.plan(need_of(devices=(DeviceNeed("gpu", (), 0, 600),)))
    assert isinstance(plan, Plan)
    assert len(plan.victims) == 2
    assert plan.devices == (DeviceHold(id="g1", thousandths=600),) or plan.devices == (DeviceHold(id="g0", thousandths=600),)


def test_a_node_whose_devices_cannot_be_had_is_counted_as_such() -> None:
    world = World(1, cpu=10, devices=GPUS)
    world.put(0, "held", devices=(*whole("g0"), *whole("g1")), priority=9)
    assert world.plan(need_of(devices=(DeviceNeed("gpu", (), 1, 0),))) == NoPlan({"devices": 1})


def test_a_node_that_could_not_help_is_looked_at_again_when_it_changes() -> None:
    world = World(2, cpu=10, devices=GPUS)
    for row in range(2):
        world.put(row, f"held-{row}", devices=(*whole("g0"), *whole("g1")), priority=9)
        world.put(row, f"cpu-{row}")
    need = need_of(devices=(DeviceNeed("gpu", (), 1, 0),))
    assert world.plan(need) == NoPlan({"devices": 2})
    world.leave(("t", "held-1"))
    world.put(1, "low", devices=(*whole("g0"), *whole("g1")))
    assert world.victims(need) == (1, ["low"])


def test_scalars_are_freed_too() -> None:
    world = World(1, cpu=10)
    world._scalar("free:licences")[:] = 1
    world._scalar("unlent:licences")[:] = 1
    world.put(0, "plain")
    world.put(0, "licensed", scalars=(("licences", 1),), priority=3)
    assert world.victims(need_of(scalars=(("licences", 1),))) == (0, ["licensed"])


# --- claims in flight ----------------------------------------------------------------------------------------------------


def test_several_claims_stand_on_one_node_before_any_victim_is_gone() -> None:
    world = World(1, cpu=4)
    for n in range(4):
        world.put(0, f"low-{n}")
    need = need_of()
    taken = [claim(world, need, f"high-{n}").victims for n in range(4)]
    assert sorted(itertools.chain(*taken)) == [("t", f"low-{n}") for n in range(4)]
    assert world.plan(need) == NoPlan({"room": 1})


def test_what_a_large_victim_leaves_over_is_not_sold_before_it_is_gone() -> None:
    world = World(1, cpu=4)
    world.put(0, "large", cpu=4)
    claim(world, need_of(cpu=1), "high")
    assert world.plan(need_of(cpu=1)) == NoPlan({"room": 1})
    world.evictable.told(("t", "large"), Leaving(0, {"borrowed": False, "requests": Resources(4, 1), "devices": (), "priority": 0,
                                                      "uid": ""}), -1)  # fmt: skip
    world.columns["cpu_free"][0] += 4
    world.columns["cpu_unlent"][0] += 4
    world.changed.append(0)
    assert world.plan(need_of(cpu=3)) == Plan(0, ())
    assert world.plan(need_of(cpu=4)) == NoPlan({"room": 1})


def test_a_victim_that_runs_again_is_in_a_life_nobody_has_claimed() -> None:
    world = World(1, cpu=1)
    low = world.put(0, "low")
    claim(world, need_of(), "high")
    assert world.evictable.cells["cpu_free"][0] == 1
    world.evictable.told(low, Leaving(0, {**world.slots[("t", "high")][1], "uid": ""}), -1)
    assert world.evictable.cells["cpu_free"][0] == 0
    world.put(0, "low")
    world.drain(low)
    assert world.evictable.cells["cpu_free"][0] == 0


def test_a_victim_that_leaves_another_node_is_no_credit_where_it_was_claimed_before() -> None:
    world = World(2, cpu=1)
    low, full = world.put(0, "low"), world.put(1, "full", priority=9)
    claim(world, need_of(), "high")
    world.evictable.told(low, Leaving(0, {**world.slots[("t", "high")][1], "uid": ""}), -1)
    world.leave(full)
    world.put(1, "low")
    plan = claim(world, need_of(), "other")
    assert (plan.row, plan.victims) == (1, (low,))
    world.evictable.claim(("t", "high"), 0, (low,))  # told again, as with every change of a binding that has startAfter
    assert world.evictable.cells["cpu_free"][0] == 0
    assert world.plan(need_of()) == NoPlan({"room": 2})


def test_a_claim_that_another_one_took_over_leaves_no_credit_when_the_victim_has_gone() -> None:
    world = World(1, cpu=2)
    low = world.put(0, "low")
    world.put(0, "high", priority=9)
    world.put(0, "other", priority=9)
    leaving = Leaving(0, {**world.slots[low][1], "uid": ""})
    world.drain(low)
    world.evictable.claim(("t", "high"), 0, (low,))
    world.put(0, "low")  # a life that is over again before anybody had a look
    world.drain(low)
    for claimer in ("other", "high", "other"):
        world.evictable.claim(("t", claimer), 0, (low,))
    world.evictable.told(low, leaving, -1)
    assert world.evictable.cells["cpu_free"][0] == 0


def test_the_largest_and_the_youngest_of_a_row_are_those_still_there() -> None:
    world = World(1, cpu=9)
    world.put(0, "large", cpu=5, memory=7, started_ms=600_000)
    world.put(0, "small", cpu=1, memory=2)
    world.leave(("t", "large"))
    world.evictable.refresh()
    own = world.evictable.cells
    assert [own[name][0] for name in ("cpu_max", "memory_max", "minute_max", "size_min")] == [1, 2, 0, 1]


def test_a_refused_claim_leaves_nothing_behind() -> None:
    world = World(1, cpu=2)
    world.put(0, "low", cpu=2)
    need = need_of(cpu=2)
    before = {name: column.copy() for name, column in world.evictable.columns.items()}
    claim(world, need, "high")
    world.evictable.unclaim(("t", "high"))
    world.leave(("t", "high"))
    world.evictable.told(("t", "low"), Leaving(0, {"borrowed": False, "requests": Resources(2, 1), "devices": (), "priority": 0,
                                                    "uid": ""}), -1)  # fmt: skip
    world.columns["cpu_free"][0] += 2
    world.columns["cpu_unlent"][0] += 2
    world.columns["memory_free"][0] += 1
    world.columns["memory_unlent"][0] += 1
    world.columns["slots_free"][0] += 1
    world.put(0, "low", cpu=2)
    world.evictable.refresh()
    for name, column in world.evictable.columns.items():
        assert (column == before[name]).all() or name in ("cpu_max", "memory_max", "minute_max", "size_min"), name
    assert world.victims(need) == (0, ["low"])


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 9), st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=4), st.booleans())
def test_a_claimer_and_its_victims_count_as_the_larger_of_both(cpu: int, sizes: list[tuple[int, bool]], borrows: bool) -> None:
    def placed(amount: int, borrowed: bool) -> Placed:
        return Placed(("t", "x"), 0, 0, Resources(amount, amount), (), borrowed, "", 0, 0, 0, (0, ("t", "x")))

    credit = credit_of(placed(cpu, borrows), [placed(n, borrowed) for n, borrowed in sizes])
    everybody, firm = sum(n for n, _ in sizes), sum(n for n, borrowed in sizes if not borrowed)
    assert cpu + everybody - credit.cpu_unlent == max(cpu, everybody)
    assert credit.cpu_free == (0 if borrows else min(cpu, firm))
    assert credit.slots == min(1, len(sizes))


# --- the rest of feasible() ----------------------------------------------------------------------------------------------


def test_gates_that_no_eviction_opens_are_counted_apart() -> None:
    world = World(4, cpu=1)
    for row in range(4):
        world.put(row, f"s-{row}", priority=9 if row == 3 else 0)
    world.columns["cordoned"][0] = 1
    world.columns["healthy"][1] = 0
    world.columns["exclusive_to"][2] = 7
    assert world.plan(need_of()) == NoPlan({"gates": 3, "room": 1})


def test_a_plan_is_proven_on_the_whole_of_feasible_and_the_next_node_is_taken_where_it_fails() -> None:
    world = World(2, cpu=1)
    world.put(0, "silent")
    world.put(1, "heard", priority=5)
    world.columns["observed_ms"][0] = 49
    assert world.victims(need_of()) == (1, ["heard"])
    assert world.plan(need_of(max_age_ms=-1)) == NoPlan({"unproven": 2})


def test_a_gate_that_eviction_does_not_open_is_asked_of_all_nodes_when_the_first_proof_fails() -> None:
    world = World(1000, cpu=1)
    for row in range(1000):
        world.put(row, f"s-{row}")
    assert world.victims(need_of(extra=(Elsewhere(990),))) == (990, ["s-990"])
    assert world.plan(need_of(extra=(Elsewhere(1000),))) == NoPlan({"unproven": 1000})


def test_rows_the_caller_bars_are_left_out() -> None:
    world = World(2, cpu=1)
    world.put(0, "a")
    world.put(1, "b", priority=5)
    assert world.victims(need_of(), barred=lambda row: row == 0) == (1, ["b"])
