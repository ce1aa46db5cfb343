"""Scores about what a workload prefers: regions, zones, labels, areas, taints, neighbours to be near to or away from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from fairlead.decide.classes import Classes, NodeClass
from fairlead.decide.compiling import compile_need
from fairlead.decide.fit import Need
from fairlead.decide.policy import compile_policy
from fairlead.decide.scores import SCORE_MAX, affinity, locality, spread
from fairlead.decide.scores.wishes import ClassTable, Pulls, Wishes, preference_table, wishes
from fairlead.decide.topology import Topology
from fairlead.model.kinds.capacity import Node, NodeSpec, Taint
from fairlead.model.kinds.intent import (
    AffinityRule,
    LabelExpression,
    Locality,
    Placement,
    Preference,
    Residency,
    SpreadRule,
    Toleration,
)
from fairlead.model.kinds.policy import SchedulerPolicySpec, WorkloadClass
from fairlead.model.kinds.work import Ask, Marks
from fairlead.model.meta import Metadata
from tests.decide.score_rows import NOW, columns, need_of, node, rates


def _class(region: str = "eu-west", zone: str = "a", areas: tuple[str, ...] | None = ("eu",), **fields: Any) -> NodeClass:
    values: dict[str, Any] = {"pool": "", "labels": (), "taints": (), "allowed_tenants": (), "allowed_classes": (), **fields}
    return NodeClass(region=region, zone=zone, areas=areas, **values)


def _table(*node_classes: NodeClass, **placement: Any) -> list[int]:
    return preference_table(Ask(placement=Placement(**placement)), node_classes)


HERE = Preference(weight=30, locality=Locality(regions=("eu-west",)))
ZONE_B = Preference(weight=10, locality=Locality(regions=("eu-west",), zones=("b",)))
SSD = Preference(weight=60, labels=(LabelExpression(key="disk", values=("ssd",)),))
SHUNNED = Taint(key="old", effect="PreferNoSchedule")


@pytest.mark.parametrize(
    ("node_class", "rate"),
    [
        (_class(), 300),
        (_class(zone="b"), 400),
        (_class("us-east", "b"), 0),  # the right zone in the wrong region: a preference holds as a whole
        (_class("us-east", labels=(("disk", "ssd"),)), 600),
        (_class(zone="b", labels=(("disk", "ssd"),)), 1000),
        (_class(zone="b", labels=(("disk", "hdd"),)), 400),
        (_class(zone="b", taints=(SHUNNED,)), 200),
    ],
)
def test_a_node_class_rates_by_the_weights_it_meets_of_all_weights(node_class: NodeClass, rate: int) -> None:
    assert _table(node_class, preferences=(HERE, ZONE_B, SSD)) == [rate]


def test_a_soft_taint_halves_a_class_unless_it_is_tolerated_and_a_hard_one_is_the_gates_affair() -> None:
    old, full = _class(taints=(SHUNNED,)), _class(taints=(Taint(key="full"),))
    assert _table(_class(), old, full) == [1000, 500, 1000]
    assert _table(_class(), old, tolerations=(Toleration(key="old", operator="Exists"),)) == [1000, 1000]


def test_a_preferred_residency_is_a_preference_and_a_required_one_is_not() -> None:
    here, there, nobody_said = _class(), _class("us-east", areas=("us",)), _class("moon", areas=None)
    assert _table(here, there, nobody_said, residency=Residency(areas=("eu",), enforcement="Preferred")) == [1000, 0, 0]
    assert _table(here, there, residency=Residency(areas=("eu",))) == [1000, 1000]
    soft = Residency(areas=("eu",), enforcement="Preferred")
    assert _table(here, there, residency=soft, preferences=(replace(HERE, weight=100),)) == [1000, 0]


def test_locality_reads_the_table_by_node_class_and_applies_only_where_classes_differ() -> None:
    need = need_of(wishes=Wishes(classes=ClassTable([300, 1000])))
    assert rates(locality.SCORE, need, {"node_class": 1}, {"node_class": 0}) == [1000, 300]
    assert locality.SCORE.applies(need)
    assert not locality.SCORE.applies(need_of(wishes=Wishes(classes=ClassTable([1000, 1000]))))
    assert not locality.SCORE.applies(need_of(wishes=Wishes()))


def test_what_an_ask_prefers_is_compiled_with_its_soft_rules_apart_from_the_hard_ones() -> None:
    match = (LabelExpression(key="app", values=("db",)),)
    place = Placement(
        preferences=(HERE,),
        spread=(SpreadRule(when_unsatisfiable="ScheduleAnyway"), SpreadRule(topology_key="hostname")),
        affinity=(
            AffinityRule(topology_key="zone", match=match, required=False, weight=40),
            AffinityRule(topology_key="zone", match=match, weight=5),
        ),
        anti_affinity=(AffinityRule(match=match, required=False, weight=7),),
    )
    found = wishes(Ask(placement=place, image="web:1"), [_class(), _class("us-east")])
    assert found.image == "web:1"
    assert [found.classes[0], found.classes[1]] == [1000, 0]
    assert found.classes[np.array([1, 0, 0])].tolist() == [0, 1000, 1000]
    assert (found.spread_own, found.spread_coarse) == (0, 1)
    assert (found.pulls_own, found.pulls_coarse) == (Pulls(0, 7), Pulls(40, 0))


# --- with real counters ----------------------------------------------------------------------------------------------------


class Fleet:
    """Two zones of two nodes each: 0 and 1 in a, 2 and 3 in b."""

    def __init__(self) -> None:
        self.classes = Classes()
        self.topology = Topology(self.classes)
        self.rows: list[dict[str, int]] = []
        for number, zone in enumerate("aabb"):
            spec = NodeSpec(region="eu-west", zone=zone)
            node_class = self.classes.number_of(Node(metadata=Metadata(name=f"n{number}"), spec=spec), None)
            self.topology.node_changed(number, f"n{number}", node_class, True, True)
            self.rows.append({"number": number, "node_class": node_class})

    def place(self, number: int, uid: str, **labels: str) -> None:
        marks = Marks(labels=tuple(sorted(labels.items()))) if labels else None
        self.topology.placed(number, "risk", uid, marks, 1)

    def need(self, ask: Ask) -> Need:
        need = compile_need(ask, "risk", "u1", self.topology, borrows=False, max_age_s=30.0, areas=None)
        return replace(need, wishes=wishes(ask, self.classes))


def _spread(*keys: str) -> Ask:
    rules = tuple(SpreadRule(topology_key=key, when_unsatisfiable="ScheduleAnyway") for key in keys)
    return Ask(placement=Placement(spread=rules))


def test_spread_prefers_the_emptier_zone_then_the_emptier_node() -> None:
    fleet = Fleet()
    for number in (0, 0, 2):
        fleet.place(number, "u1")
    fleet.place(3, "another")
    assert rates(spread.SCORE, fleet.need(_spread("zone")), *fleet.rows) == [800, 800, 1000, 1000]
    assert rates(spread.SCORE, fleet.need(_spread("hostname")), *fleet.rows) == [666, 1000, 800, 1000]
    assert rates(spread.SCORE, fleet.need(_spread("zone", "hostname")), *fleet.rows) == [733, 900, 900, 1000]
    assert not spread.SCORE.applies(fleet.need(Ask()))
    assert spread.SCORE.applies(fleet.need(_spread("zone")))


def test_a_hard_spread_rule_is_the_gates_affair() -> None:
    fleet = Fleet()
    assert not spread.SCORE.applies(fleet.need(Ask(placement=Placement(spread=(SpreadRule(),)))))


def test_affinity_prefers_to_be_near_and_away_by_weight() -> None:
    fleet = Fleet()
    fleet.place(0, "u2", app="db")
    fleet.place(2, "u3", app="noisy")

    def rule(app: str, key: str, weight: int) -> AffinityRule:
        return AffinityRule(topology_key=key, match=(LabelExpression(key="app", values=(app,)),), required=False, weight=weight)

    near = Ask(placement=Placement(affinity=(rule("db", "zone", 30),)))
    assert rates(affinity.SCORE, fleet.need(near), *fleet.rows) == [1000, 1000, 0, 0]
    away = Ask(placement=Placement(anti_affinity=(rule("noisy", "hostname", 30),)))
    assert rates(affinity.SCORE, fleet.need(away), *fleet.rows) == [1000, 1000, 0, 1000]
    both = Ask(placement=Placement(affinity=(rule("db", "zone", 75),), anti_affinity=(rule("noisy", "hostname", 25),)))
    assert rates(affinity.SCORE, fleet.need(both), *fleet.rows) == [1000, 1000, 0, 250]
    assert not affinity.SCORE.applies(fleet.need(Ask()))


def test_a_class_that_spreads_by_zone_prefers_it_for_work_that_states_no_spread() -> None:
    policy = compile_policy(
        SchedulerPolicySpec(
            revision=1,
            workload_classes=(WorkloadClass(name="even", spread="NodeAndZone"), WorkloadClass(name="plain")),
        )
    )
    assert not isinstance(policy, tuple)
    fleet = Fleet()
    fleet.place(0, "u1")
    ask = policy.with_spread(Ask(workload_class="even"))
    assert rates(spread.SCORE, fleet.need(ask), *fleet.rows) == [800, 900, 1000, 1000]
    assert policy.with_spread(Ask(workload_class="plain")) == Ask(workload_class="plain")
    own = Ask(workload_class="even", placement=Placement(spread=(SpreadRule(topology_key="region"),)))
    assert policy.with_spread(own) is own


def test_the_coarse_part_of_spread_is_one_term_for_a_whole_zone() -> None:
    fleet = Fleet()
    fleet.place(0, "u1")
    need = fleet.need(_spread("zone", "hostname"))
    terms = [spread.SCORE.coarse(need, node(node_class=row["node_class"]), NOW) for row in fleet.rows]
    assert terms == [400, 400, 500, 500]
    assert spread.SCORE.own(need, columns(fleet.rows), NOW).tolist() == [400, 500, 500, 500]
    assert max(terms) + 500 == SCORE_MAX
