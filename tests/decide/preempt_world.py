"""Nodes, slots, needs and a policy for the tests of preemption's planner: plain values, and the planner kept up with them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from msgspec.structs import replace

from fairlead.decide.fit import Need
from fairlead.decide.preempt import NoPlan, Plan, Preemptor
from fairlead.decide.preempt_index import Evictable, SlotKey
from fairlead.decide.preempt_rules import Evictor
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


GPUS = (Device(id="g0"), Device(id="g1"))


def whole(device: str) -> tuple[DeviceHold, ...]:
    return (DeviceHold(id=device),)


def claim(world: World, need: Need, name: str) -> Plan:
    plan = world.plan(need)
    assert isinstance(plan, Plan), plan
    for victim in plan.victims:
        world.drain(victim)
    key = world.put(plan.row, name, priority=9, cpu=need.cpu, memory=need.memory, devices=plan.devices)
    world.evictable.claim(key, plan.row, plan.victims)
    return plan


class Elsewhere:
    """A gate of the policy that looks beyond the row: only rows from `first` on."""

    name = "example.dev/elsewhere"

    def __init__(self, first: int) -> None:
        self.first = first

    def check(self, need: Need, row: Any, view: Any) -> Any:
        return row.number >= self.first

    def why(self, need: Need, row: Any, view: Any) -> str:
        return "too near"
