"""One source of truth for fit: a column of nodes and a single node get the same answer, and every reason is told."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.decide.fit import GATES, DeviceNeed, Gate, Need, feasible
from fairlead.decide.fit import reasons as reasons_at
from fairlead.decide.tiers import Tier

SCHEDULING = Path(__file__).parents[2] / "docs" / "scheduling.md"
CLASSES = 4
FIELDS = (
    "cpu_free", "memory_free", "cpu_unlent", "memory_unlent", "slots_free", "node_class", "schedulable", "healthy", "cordoned",
    "observed_ms", "exclusive_to", "used_by", "number",
)  # fmt: skip
TABLES = ("labels", "taints", "zones", "regions", "tenancy", "residency")
SCALARS = ("licences", "fpga")


class View:
    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms


NOW = View(now_ms=200)
DRAWN_NOW = View(now_ms=3)  # so that drawn ages and times of observation meet on both sides


def reasons(need: Need, row: NodeRow) -> dict[str, str]:
    return reasons_at(need, row, NOW)


class Tables:
    """Verdicts by node class: bytes for the authority, arrays for the scheduler."""

    def __init__(self, tables: dict[str, list[int]], *, columns: bool) -> None:
        make: Any = (lambda values: np.array(values, dtype=np.int64)) if columns else bytes
        self.labels, self.taints, self.zones = make(tables["labels"]), make(tables["taints"]), make(tables["zones"])
        self.regions, self.tenancy, self.residency = (make(tables[name]) for name in ("regions", "tenancy", "residency"))
        self.allowed = make([int(all(verdicts)) for verdicts in zip(*tables.values(), strict=True)])


class NodeRow:
    """One node (ints) or all of them (columns), by what `pick` makes of each field's list."""

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

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values
        for name in FIELDS:
            setattr(self, name, values[name])

    def scalar_free(self, name: str) -> Any:
        return self._values[f"free:{name}"]

    def scalar_unlent(self, name: str) -> Any:
        return self._values[f"unlent:{name}"]

    def devices_whole(self, resource: str, models: tuple[str, ...]) -> Any:
        return self._values["whole"]

    def devices_share(self, resource: str, models: tuple[str, ...]) -> Any:
        return self._values["share"]


_small = st.integers(-2, 4)
_bit = st.integers(0, 1)
_node = st.fixed_dictionaries(
    {
        **dict.fromkeys(FIELDS, _small),
        **dict.fromkeys(("schedulable", "healthy", "cordoned"), _bit),
        "node_class": st.integers(0, CLASSES - 1),
        **dict.fromkeys(("exclusive_to", "used_by"), st.integers(-1, 3)),
        "number": st.integers(0, 7),
        **{f"{part}:{name}": _small for part in ("free", "unlent") for name in SCALARS},
        "whole": st.integers(0, 3),
        "share": st.integers(0, 1000),
    }
)
_tables = st.fixed_dictionaries({gate: st.lists(_bit, min_size=CLASSES, max_size=CLASSES) for gate in TABLES})


# What a plug-in would bring: rules out every other node.
EVEN = Gate("example.even", lambda need, row, view: row.number % 2 == 0, lambda need, row, view: f"{row.number} is odd")


@st.composite
def _needs(draw: st.DrawFn) -> tuple[Need, dict[str, list[int]]]:
    tables = draw(_tables)
    amount = st.integers(0, 4)
    borrows = draw(st.booleans())
    cpu, memory = draw(amount), draw(amount)
    whole = draw(st.integers(0, 2))
    need = Need(
        cpu=cpu,
        memory=memory,
        slots=1,
        firm_cpu=0 if borrows else cpu,
        firm_memory=0 if borrows else memory,
        scalars=tuple((name, draw(amount)) for name in draw(st.sets(st.sampled_from(SCALARS)))),
        devices=draw(st.sampled_from([(), (DeviceNeed("gpu", (), whole, 0 if whole else draw(st.integers(0, 1000))),)])),
        max_age_ms=draw(amount),
        classes=Tables(tables, columns=False),
        borrows=borrows,
        tenant=draw(st.integers(1, 3)),
        exclusive=draw(st.booleans()),
        extra=draw(st.sampled_from([(), (EVEN,)])),
    )
    return need, tables


def _columns(nodes: list[dict[str, int]]) -> NodeRow:
    return NodeRow({name: np.array([node[name] for node in nodes], dtype=np.int64) for name in nodes[0]})


def _as_mask(answer: Any, length: int) -> list[bool]:
    """A gate that looks at no column, such as devices for a need without any, answers for all nodes at once."""
    return [bool(x) for x in np.broadcast_to(np.asarray(answer), (length,))]


@settings(deadline=None, max_examples=200)
@given(_needs(), st.lists(_node, min_size=1, max_size=8))
def test_every_gate_says_of_a_column_what_it_says_of_each_row(
    drawn: tuple[Need, dict[str, list[int]]], nodes: list[dict[str, int]]
) -> None:
    need, tables = drawn
    wide = replace(need, classes=Tables(tables, columns=True))
    columns, rows = _columns(nodes), [NodeRow(node) for node in nodes]
    for gate in (*GATES, *need.extra):
        assert _as_mask(gate.check(wide, columns, DRAWN_NOW), len(nodes)) == [
            bool(gate.check(need, row, DRAWN_NOW)) for row in rows
        ], gate.name
    assert _as_mask(feasible(wide, columns, DRAWN_NOW), len(nodes)) == [bool(feasible(need, row, DRAWN_NOW)) for row in rows]


@settings(deadline=None, max_examples=200)
@given(_needs(), _node)
def test_the_reasons_are_the_gates_that_fail_and_each_has_words(
    drawn: tuple[Need, dict[str, list[int]]], node: dict[str, int]
) -> None:
    need, row = drawn[0], NodeRow(node)
    told = reasons_at(need, row, DRAWN_NOW)
    assert set(told) == {gate.name for gate in (*GATES, *need.extra) if not gate.check(need, row, DRAWN_NOW)}
    assert all(told.values()), told
    assert bool(feasible(need, row, DRAWN_NOW)) == (not told)


def _need(**changes: Any) -> Need:
    fits_all = Tables({name: [1] for name in TABLES}, columns=False)
    base = Need(
        cpu=500, memory=1 << 30, slots=1, firm_cpu=500, firm_memory=1 << 30, scalars=(), devices=(),
        max_age_ms=100, classes=fits_all, tenant=1,
    )  # fmt: skip
    return replace(base, **changes)


def _row(**changes: int) -> NodeRow:
    base = {
        "cpu_free": 1000, "memory_free": 4 << 30, "cpu_unlent": 1000, "memory_unlent": 4 << 30, "slots_free": 1,
        "node_class": 0, "schedulable": 1, "healthy": 1, "cordoned": 0, "observed_ms": 100, "whole": 0, "share": 0,
        "exclusive_to": 0, "used_by": 2, "number": 0,
    }  # fmt: skip
    return NodeRow({**base, **changes})


def test_a_node_with_exactly_enough_fits() -> None:
    assert reasons(_need(cpu=1000, firm_cpu=1000, memory=4 << 30, firm_memory=4 << 30), _row()) == {}


@pytest.mark.parametrize(
    ("change", "gate", "words"),
    [
        ({"cpu_free": 200}, "cpu", "needs 500m cpu, 200m free"),
        ({"cpu_unlent": -100}, "cpu", "needs 500m cpu, 0 free"),
        ({"memory_free": 1 << 20}, "memory", "needs 1Gi memory, 1Mi free"),
        ({"slots_free": 0}, "slots", "it has no slot left"),
        ({"schedulable": 0}, "handshake", "its inventory handshake is not done"),
        ({"healthy": 0}, "health", "it is not ready"),
        ({"cordoned": 1}, "cordon", "it is cordoned"),
        ({"observed_ms": 99}, "observation", "it was not heard recently enough"),
        ({"exclusive_to": 2}, "isolation", "another tenant has it to itself"),
        ({"exclusive_to": -1}, "isolation", "another tenant has it to itself"),
    ],
)
def test_says_why_a_node_does_not_fit(change: dict[str, int], gate: str, words: str) -> None:
    assert reasons(_need(), _row(**change)) == {gate: words}


@pytest.mark.parametrize("gate", TABLES)
def test_a_class_that_is_not_allowed_fails_its_own_gate_only(gate: str) -> None:
    tables = {name: [int(name != gate)] for name in TABLES}
    assert set(reasons(_need(classes=Tables(tables, columns=False)), _row())) == {gate}


def test_every_failing_gate_is_listed_not_just_the_first() -> None:
    told = reasons(_need(), _row(cpu_free=0, memory_free=0, slots_free=0, healthy=0, cordoned=1, schedulable=0))
    assert list(told) == ["cordon", "health", "handshake", "cpu", "memory", "slots"]


def test_a_borrower_uses_what_others_hold_but_not_what_is_lent_already() -> None:
    held = _row(cpu_free=0, memory_free=0, cpu_unlent=500, memory_unlent=1 << 30)
    borrower = _need(firm_cpu=0, firm_memory=0, borrows=True)
    assert reasons(borrower, held) == {}
    assert set(reasons(_need(), held)) == {"cpu", "memory"}
    lent = _row(cpu_free=0, memory_free=0, cpu_unlent=400, memory_unlent=1 << 30)
    assert reasons(borrower, lent) == {"cpu": "needs 500m cpu, 400m free"}


def test_a_firm_need_does_not_take_what_is_lent_to_others_without_asking() -> None:
    assert reasons(_need(), _row(cpu_free=1000, cpu_unlent=0)) == {"cpu": "needs 500m cpu, 0 free"}


def test_a_borrower_is_told_only_of_scalars_that_are_short_for_borrowers() -> None:
    row = _row(**{"free:licences": 0, "unlent:licences": 5, "free:fpga": 0, "unlent:fpga": 1})
    need = _need(scalars=(("fpga", 2), ("licences", 2)))
    assert reasons(need, row) == {"scalars": "needs 2 fpga, 0 free; needs 2 licences, 0 free"}
    borrower = replace(need, borrows=True, firm_cpu=0, firm_memory=0)
    assert reasons(borrower, row) == {"scalars": "needs 2 fpga, 1 free"}


def test_devices_that_are_short_are_named_with_their_model() -> None:
    whole, share = DeviceNeed("gpu", ("a100", "h100"), 4, 0), DeviceNeed("npu", (), 0, 300)
    told = reasons(_need(devices=(whole, share)), _row(whole=1, share=200))
    assert told == {"devices": "needs 4 whole gpu of a100/h100, 1 free; needs 300/1000 of one npu, at most 200 free"}


@pytest.mark.parametrize(
    ("row", "exclusive", "fits"),
    [
        ({"exclusive_to": 1, "used_by": 1}, False, True),
        ({"exclusive_to": 1, "used_by": 1}, True, True),
        ({"exclusive_to": 0, "used_by": 0}, True, True),
        ({"exclusive_to": 0, "used_by": 1}, True, True),
        ({"exclusive_to": 0, "used_by": 2}, True, False),
        ({"exclusive_to": 0, "used_by": -1}, True, False),
        ({"exclusive_to": 0, "used_by": -1}, False, True),
    ],
)
def test_a_tenant_exclusive_slot_goes_only_where_its_tenant_is_alone(row: dict[str, int], exclusive: bool, fits: bool) -> None:
    assert reasons(_need(exclusive=exclusive), _row(**row)) == (
        {} if fits else {"isolation": "slots of another tenant are there"}
    )


def test_a_gate_that_comes_with_the_need_is_asked_and_told() -> None:
    assert feasible(_need(extra=(EVEN,)), _row(number=2), NOW)
    assert not feasible(_need(extra=(EVEN,)), _row(number=3), NOW)
    assert reasons(_need(extra=(EVEN,)), _row(number=3)) == {"example.even": "3 is odd"}


# Most decisive first.
PENDING_REASONS = ("NoMatchingCapacity", "ResidencyBlocked", "WaitingForCapacity", "TopologyBlocked")


def test_gates_have_names_of_their_own_a_tier_and_the_reason_a_slot_waits_for() -> None:
    names = [gate.name for gate in GATES]
    assert len(set(names)) == len(names)
    assert all(isinstance(gate, Gate) and gate.tier is Tier.INVARIANT for gate in GATES)
    assert {gate.reason for gate in GATES} == set(PENDING_REASONS)
    reason = {gate.name: gate.reason for gate in GATES}
    assert (reason["residency"], reason["cpu"], reason["spread"], reason["labels"]) == (
        "ResidencyBlocked", "WaitingForCapacity", "TopologyBlocked", "NoMatchingCapacity",
    )  # fmt: skip


def test_the_documentation_says_to_which_reason_each_gate_leads() -> None:
    rows = [line.split("|") for line in SCHEDULING.read_text().splitlines() if line.startswith("| `")]
    told = {name: row[3].strip() for row in rows if len(row) == 5 for name in re.findall("`([a-z-]+)`", row[1])}
    assert {gate.name: told.get(gate.name) for gate in GATES} == {gate.name: gate.reason for gate in GATES}
