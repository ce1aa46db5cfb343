"""What a node's class decides: region, zone, residency, tenancy, labels, taints; one table each, for ints and for columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.decide import classes as classes_module
from fairlead.decide.classes import Classes
from fairlead.decide.compiling import compile_need
from fairlead.decide.fit import GATES, S6_GATES
from fairlead.decide.topology import Topology
from fairlead.model.kinds.capacity import Node, NodePool, NodePoolSpec, NodeSpec, Taint
from fairlead.model.kinds.intent import LabelExpression, Placement, Region, RegionRule, RegionSpec, Residency, Toleration
from fairlead.model.kinds.work import Ask
from fairlead.model.meta import Metadata
from tests.decide.fleets import NOW, Row

TABLES = ("regions", "zones", "residency", "tenancy", "labels", "taints")
GATE = {gate.name: gate for gate in GATES}


def _node(labels: dict[str, str] | None = None, **spec: Any) -> Node:
    return Node(metadata=Metadata(name="n", labels=labels or {}), spec=NodeSpec(**spec))


def _region(*areas: str) -> Region:
    return Region(metadata=Metadata(name="eu"), spec=RegionSpec(areas=areas))


def _failed(
    ask: Ask, node: Node, pool: NodePool | None = None, region: Region | None = None, areas: frozenset[str] | None = None
) -> set[str]:
    classes = Classes()
    number = classes.number_of(node, pool, region)
    need = compile_need(ask, "risk", "u", Topology(classes), borrows=False, max_age_s=1.0, areas=areas)
    row: Any = Row(0, number)
    return {name for name in TABLES if not GATE[name].check(need, row, NOW)}


def _ask(**place: Any) -> Ask:
    return Ask(placement=Placement(**place))


@pytest.mark.parametrize(
    ("ask", "node", "failed"),
    [
        (_ask(), _node(region="eu", zone="a"), set()),
        (_ask(zones=("a",)), _node(zone="a"), set()),
        (_ask(zones=("a",)), _node(zone="b"), {"zones"}),
        (_ask(regions=RegionRule(allowed=("eu",))), _node(region="us"), {"regions"}),
        (_ask(node_labels=(LabelExpression(key="disk", values=("ssd",)),)), _node({"disk": "hdd"}), {"labels"}),
        (_ask(), _node(taints=(Taint(key="gpu"),)), {"taints"}),
        (_ask(tolerations=(Toleration(key="gpu", operator="Exists"),)), _node(taints=(Taint(key="gpu"),)), set()),
        (_ask(), _node(taints=(Taint(key="gpu", effect="PreferNoSchedule"),)), set()),
    ],
)
def test_a_class_fails_exactly_the_gates_it_should(ask: Ask, node: Node, failed: set[str]) -> None:
    assert _failed(ask, node) == failed


@pytest.mark.parametrize(
    ("own", "policy", "areas", "fits"),
    [
        ((), None, None, True),
        (("eu",), None, ("eu", "de"), True),
        (("eu",), None, ("us",), False),
        (("eu",), None, None, False),
        ((), frozenset({"eu"}), ("eu",), True),
        ((), frozenset({"eu"}), ("us",), False),
        ((), frozenset({"eu"}), None, False),
        ((), frozenset(), ("eu",), False),
        (("us",), frozenset({"eu"}), ("us",), False),
        (("us",), frozenset({"eu"}), ("eu",), False),
    ],
)
def test_residency_must_satisfy_workload_and_policy_and_fails_closed(
    own: tuple[str, ...], policy: frozenset[str] | None, areas: tuple[str, ...] | None, fits: bool
) -> None:
    ask = _ask(residency=Residency(areas=own))
    region = _region(*areas) if areas is not None else None
    assert _failed(ask, _node(region="eu"), region=region, areas=policy) == (set() if fits else {"residency"})


@pytest.mark.parametrize(
    ("tenants", "classes", "fits"),
    [((), (), True), (("risk",), (), True), (("shop",), (), False), ((), ("standard",), True), (("risk",), ("batch",), False)],
)
def test_a_pool_names_its_tenants_and_classes(tenants: tuple[str, ...], classes: tuple[str, ...], fits: bool) -> None:
    pool = NodePool(metadata=Metadata(name="p"), spec=NodePoolSpec(allowed_tenants=tenants, allowed_classes=classes))
    assert _failed(_ask(), _node(pool="p"), pool=pool) == (set() if fits else {"tenancy"})


_nodes = st.builds(
    lambda zone, region, disk: _node({"disk": disk} if disk else {}, zone=zone, region=region),
    st.sampled_from("ab"),
    st.sampled_from(("eu", "us")),
    st.sampled_from(("", "ssd", "hdd")),
)
_asks = st.builds(
    lambda zones, disks, areas: _ask(
        zones=tuple(sorted(zones)),
        node_labels=(LabelExpression(key="disk", values=tuple(sorted(disks))),) if disks else (),
        residency=Residency(areas=tuple(sorted(areas))),
    ),
    st.sets(st.sampled_from("ab")),
    st.sets(st.sampled_from(("ssd", "hdd"))),
    st.sets(st.sampled_from(("eu", "us"))),
)


@given(_asks, st.lists(_nodes, min_size=1, max_size=6), st.integers(0, 5))
def test_the_wide_tables_say_of_a_column_what_the_narrow_ones_say_of_each_class(ask: Ask, nodes: list[Node], later: int) -> None:
    classes = Classes()
    numbers = [classes.number_of(node, None, _region(node.spec.region)) for node in nodes[: later or None]]
    need = compile_need(ask, "risk", "u", Topology(classes), borrows=False, max_age_s=1.0, areas=None)
    verdicts = classes.verdicts(ask, "risk")
    verdicts.wide()
    numbers += [classes.number_of(node, None, _region(node.spec.region)) for node in nodes[len(numbers) :]]
    wide = replace(need, classes=verdicts.wide())
    columns: Any = Row(np.arange(len(numbers)), np.array(numbers))
    for name in TABLES:
        rows: list[Any] = [Row(0, number) for number in numbers]
        assert GATE[name].check(wide, columns, NOW).tolist() == [GATE[name].check(need, row, NOW) for row in rows], name


def test_the_gates_of_s6_are_those_that_law_tenant_and_operator_set() -> None:
    assert {gate.name for gate in S6_GATES} == {"regions", "zones", "residency", "tenancy"}


def test_verdicts_that_are_no_longer_kept_up_to_date_show_in_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classes_module, "_VERDICTS_MAX", 2)
    classes = Classes()
    first = classes.verdicts(_ask(zones=("a",)), "t")
    classes.verdicts(_ask(zones=("b",)), "t")
    assert classes.version == 0
    classes.verdicts(_ask(zones=("c",)), "t")
    assert classes.version == 1
    classes.number_of(_node(zone="a"), None)
    assert len(first.allowed) == 0
    assert len(classes.verdicts(_ask(zones=("a",)), "t").allowed) == 1
