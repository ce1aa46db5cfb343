"""Plans of preemption: the best victims by the stated order, proven to fit, and never more than the rules allow."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.decide import preempt_node
from fairlead.decide.devices import pick_devices
from fairlead.decide.fit import DeviceNeed, Need, feasible
from fairlead.decide.preempt import NoPlan, Plan, Preemptor
from fairlead.decide.preempt_bounds import CANDIDATE, Bounds
from fairlead.decide.preempt_index import Evictable, Placed, SlotKey
from fairlead.decide.preempt_node import NOBODY, NodeSearch, Relieved, shortfall
from fairlead.decide.preempt_rules import BORROWED_BELOW, Evictor, breaches, credit_of, rank_of, unranked
from fairlead.model.resources import Device, DeviceHold, Resources

FIELDS = (
    "cpu_free", "memory_free", "cpu_unlent", "memory_unlent", "slots_free", "node_class", "schedulable", "healthy", "cordoned",
    "observed_ms", "exclusive_to", "used_by", "number",
)  # fmt: skip


class View:
    now_ms = 100


NOW: Any = View()


class Policy:
    """Rules by hand: who preempts, who is spared, who may break budgets. Evictors from 9 up may break them."""

    def __init__(self, spared: Iterable[int] = (), idle: Iterable[int] = (), breakers: Iterable[int] = ()) -> None:
        self.spared, self.idle, self.breakers = set(spared), set(idle), set(breakers)

    def may_preempt(self, evictor_priority: int, victim_priority: int) -> bool:
        return evictor_priority not in self.idle and victim_priority not in self.spared

    def may_break_budgets(self, evictor_priority: int) -> bool:
        return evictor_priority in self.breakers


ANYBODY = Policy()


class Rows:
    cpu_free: Any
    memory_free: Any
    cpu_unlent: Any
    memory_unlent: Any
    slots_free: Any
    node_class: Any
    schedulable: Any
    healthy: Any
    cordoned: Any
    observed_ms: Any
    exclusive_to: Any
    used_by: Any
    number: Any

    def __init__(self, world: World, index: Any) -> None:
        self._world = world
        self._index = index
        for name in FIELDS:
            value = world.columns[name][index]
            setattr(self, name, value if isinstance(index, slice) else int(value))

    def _scalar(self, name: str) -> Any:
        column = self._world.columns.get(name)
        return 0 if column is None else column[self._index] if isinstance(self._index, slice) else int(column[self._index])

    def scalar_free(self, name: str) -> Any:
        return self._scalar(f"free:{name}")

    def scalar_unlent(self, name: str) -> Any:
        return self._scalar(f"unlent:{name}")

    def devices_whole(self, resource: str, models: tuple[str, ...]) -> int:
        raise AssertionError("a plan asks for devices on the row without its victims")

    def devices_share(self, resource: str, models: tuple[str, ...]) -> int:
        raise AssertionError("a plan asks for devices on the row without its victims")


class World:
    """Nodes and slots as a proposer sees them; its own sums, so that the index is checked against them."""

    def __init__(self, rows: int, cpu: int = 4, memory: int = 100, slots: int = 100, devices: tuple[Device, ...] = ()) -> None:
        self.rows = rows
        self.columns = {name: np.zeros(rows, np.int64) for name in FIELDS}
        for name, value in {"cpu_free": cpu, "cpu_unlent": cpu, "memory_free": memory, "memory_unlent": memory}.items():
            self.columns[name][:] = value
        self.columns["slots_free"][:] = slots
        self.columns["schedulable"][:] = self.columns["healthy"][:] = 1
        self.columns["observed_ms"][:] = 100
        self.columns["number"][:] = range(rows)
        self.devices = [devices] * rows
        self.device_used: list[dict[str, int]] = [{} for _ in range(rows)]
        self.changed: list[int] = []
        self.changed_base = 0
        self.layout = 0
        self.evictable = Evictable()
        self.slots: dict[SlotKey, tuple[int, dict[str, Any]]] = {}
        self.preemptor = Preemptor(self, self.evictable)

    @property
    def fleet(self) -> World:
        return self

    @property
    def changes(self) -> int:
        return self.changed_base + len(self.changed)

    def all(self) -> Rows:
        return Rows(self, slice(0, self.rows))

    def row(self, number: int) -> Rows:
        return Rows(self, number)

    def _book(self, row: int, use: dict[str, Any], sign: int) -> None:
        requests: Resources = use["requests"]
        own = self.columns
        own["cpu_unlent"][row] -= sign * requests.cpu
        own["memory_unlent"][row] -= sign * requests.memory
        own["slots_free"][row] -= sign
        for name, amount in requests.scalars:
            self._scalar(f"unlent:{name}")[row] -= sign * amount
        if not use["borrowed"]:
            own["cpu_free"][row] -= sign * requests.cpu
            own["memory_free"][row] -= sign * requests.memory
            for name, amount in requests.scalars:
                self._scalar(f"free:{name}")[row] -= sign * amount
        used = self.device_used[row]
        for hold in use["devices"]:
            used[hold.id] = used.get(hold.id, 0) + sign * hold.thousandths
        self.changed.append(row)

    def _scalar(self, name: str) -> Any:
        return self.columns.setdefault(name, np.zeros(self.rows, np.int64))

    def put(self, row: int, name: str, priority: int = 0, cpu: int = 1, memory: int = 1, **more: Any) -> SlotKey:
        key = ("t", name)
        requests = Resources(cpu, memory, more.pop("scalars", ()))
        use = {"priority": priority, "requests": requests, "devices": (), "borrowed": False, "uid": name, **more}
        self.slots[key] = (row, use)
        self._book(row, use, 1)
        self.evictable.place(row, key, **use)
        return key

    def leave(self, key: SlotKey) -> None:
        row, use = self.slots.pop(key)
        self._book(row, use, -1)
        self.evictable.unplace(row, key)

    def drain(self, key: SlotKey) -> None:
        """On its way out: still booked, no longer evictable."""
        row, use = self.slots.pop(key)
        leaving = Leaving(row, use)
        self.evictable.unplace(row, key)
        self.evictable.told(key, leaving, 1)
        self.changed.append(row)

    def plan(self, need: Need, priority: int = 9, policy: Policy = ANYBODY, **more: Any) -> Plan | NoPlan:
        return self.preemptor.plan(need, Evictor(priority, need.borrows, policy), NOW, **more)

    def victims(self, need: Need, priority: int = 9, policy: Policy = ANYBODY, **more: Any) -> tuple[int, list[str]]:
        plan = self.plan(need, priority, policy, **more)
        assert isinstance(plan, Plan), plan
        return plan.row, sorted(name for _, name in plan.victims)


class Leaving:
    evictable = False

    def __init__(self, row: int, use: dict[str, Any]) -> None:
        self.row = row
        self.how = 2 if use["borrowed"] else 0
        self.requests: Resources = use["requests"]
        self.devices: tuple[DeviceHold, ...] = use["devices"]
        self.priority: int = use["priority"]
        self.uid: str = use["uid"]
        self.min_serving = 0


class Tables:
    allowed = labels = taints = zones = regions = tenancy = residency = np.ones(4, np.uint8)


def need_of(cpu: int = 1, memory: int = 1, borrows: bool = False, **more: Any) -> Need:
    base = Need(
        cpu=cpu, memory=memory, slots=1, firm_cpu=0 if borrows else cpu, firm_memory=0 if borrows else memory, scalars=(),
        devices=(), max_age_ms=50, classes=Tables(), borrows=borrows,
    )  # fmt: skip
    return replace(base, **more)


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
    assert world.plan(need_of()) == Plan(1, (), None)


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
    assert world.plan(need_of(), policy=critical) == Plan(0, (("t", "web-0"),), 0, ("web",))
    assert world.plan(need_of()) == NoPlan({"room": 1, "budgets": 1})


def test_borrowers_have_no_budget_against_whoever_claims_their_room() -> None:
    world = World(1, cpu=1)
    world.put(0, "guest", uid="g", min_serving=1, borrowed=True)
    assert world.victims(need_of()) == (0, ["guest"])


# --- devices and scalars -------------------------------------------------------------------------------------------------

GPUS = (Device(id="g0"), Device(id="g1"))


def whole(device: str) -> tuple[DeviceHold, ...]:
    return (DeviceHold(id=device),)


def test_an_exclusive_device_changes_hands() -> None:
    world = World(2, cpu=10, devices=GPUS)
    world.put(0, "cpu-only")
    world.put(0, "first", devices=whole("g0"), priority=9)
    world.put(0, "second", devices=whole("g1"), priority=3)
    world.put(1, "third", devices=(*whole("g0"), *whole("g1")), priority=4)
    plan = world.plan(need_of(devices=(DeviceNeed("gpu", (), 1, 0),)))
    assert plan == Plan(0, (("t", "second"),), 3, (), whole("g1"))


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


def _claim(world: World, need: Need, name: str) -> Plan:
    plan = world.plan(need)
    assert isinstance(plan, Plan), plan
    for victim in plan.victims:
        world.drain(victim)
    key = world.put(plan.row, name, priority=9, cpu=need.cpu, memory=need.memory, devices=plan.devices)
    world.evictable.claim(key, plan.row, plan.victims)
    return plan


def test_several_claims_stand_on_one_node_before_any_victim_is_gone() -> None:
    world = World(1, cpu=4)
    for n in range(4):
        world.put(0, f"low-{n}")
    need = need_of()
    taken = [_claim(world, need, f"high-{n}").victims for n in range(4)]
    assert sorted(itertools.chain(*taken)) == [("t", f"low-{n}") for n in range(4)]
    assert world.plan(need) == NoPlan({"room": 1})


def test_what_a_large_victim_leaves_over_is_not_sold_before_it_is_gone() -> None:
    world = World(1, cpu=4)
    world.put(0, "large", cpu=4)
    _claim(world, need_of(cpu=1), "high")
    assert world.plan(need_of(cpu=1)) == NoPlan({"room": 1})
    world.evictable.told(("t", "large"), Leaving(0, {"borrowed": False, "requests": Resources(4, 1), "devices": (), "priority": 0,
                                                      "uid": ""}), -1)  # fmt: skip
    world.columns["cpu_free"][0] += 4
    world.columns["cpu_unlent"][0] += 4
    world.changed.append(0)
    assert world.plan(need_of(cpu=3)) == Plan(0, (), None)
    assert world.plan(need_of(cpu=4)) == NoPlan({"room": 1})


def test_a_victim_that_runs_again_is_in_a_life_nobody_has_claimed() -> None:
    world = World(1, cpu=1)
    low = world.put(0, "low")
    _claim(world, need_of(), "high")
    assert world.evictable.cells["cpu_free"][0] == 1
    world.evictable.told(low, Leaving(0, {**world.slots[("t", "high")][1], "uid": ""}), -1)
    assert world.evictable.cells["cpu_free"][0] == 0
    world.put(0, "low")
    world.drain(low)
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
    _claim(world, need, "high")
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


class Elsewhere:
    """A gate of the policy that looks beyond the row: only rows from `first` on."""

    name = "example.dev/elsewhere"

    def __init__(self, first: int) -> None:
        self.first = first

    def check(self, need: Need, row: Any, view: Any) -> Any:
        return row.number >= self.first

    def why(self, need: Need, row: Any, view: Any) -> str:
        return "too near"


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


# --- against brute force -------------------------------------------------------------------------------------------------

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
            _claim(world, needs[0], f"c-{number}")
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
    rows = [_claim(world, need, f"h-{n}").row for n in range(20)]
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
