"""Spread, affinity, anti-affinity, ports and the maximum per node: which node passes and what the others are told; and the parts
a scheduler asks apart: coarse, own and preferred."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fairlead.decide import domains
from fairlead.decide.fit import GATES
from fairlead.decide.need import Need
from fairlead.model.kinds.intent import AffinityRule, LabelExpression, Placement, SpreadRule
from fairlead.model.kinds.work import Ask
from tests.decide.fleets import NOW, Fleet, Row

A, B, NOWHERE = 0, 1, 2  # classes: zone a, zone b, no zone
NODES = {0: A, 1: A, 2: B, 3: NOWHERE}
NEIGHBOURS = {gate.name: gate for gate in GATES if gate.name in ("spread", "affinity", "anti-affinity", "max-per-node", "ports")}
API = (("app", "api"),)


def match(*values: str) -> tuple[LabelExpression, ...]:
    return (LabelExpression(key="app", values=values),)


def ask(labels: tuple[tuple[str, str], ...] = (), ports: tuple[int, ...] = (), **place: Any) -> Ask:
    return Ask(labels=labels, ports=ports, placement=Placement(**place))


@pytest.fixture
def fleet() -> Fleet:
    made = Fleet([{"region": "eu", "zone": "a"}, {"region": "eu", "zone": "b"}, {"region": "eu", "zone": ""}])
    for number, node_class in NODES.items():
        made.node(number, node_class)
    return made


def told(fleet: Fleet, need: Need) -> dict[int, dict[str, str]]:
    """What each node that does not pass is told; coarse and own together must say the same."""
    out = {}
    for number in sorted(fleet.nodes):
        row: Any = fleet.row(number)
        reasons = {name: gate.why(need, row, NOW) for name, gate in NEIGHBOURS.items() if not gate.check(need, row, NOW)}
        if need.topology is not None:
            assert bool(need.topology.coarse(row, NOW) & need.topology.own(row, NOW)) == (not reasons)
        if reasons:
            out[number] = reasons
    return out


def test_a_need_without_rules_has_no_topology(fleet: Fleet) -> None:
    fleet.place(0, "t", "w", ask(API))
    assert fleet.need(ask(), "t", "w").topology is None
    assert fleet.need(ask(API), "t", "w").topology is None


def test_spread_holds_a_zone_back_until_the_emptiest_has_caught_up(fleet: Fleet) -> None:
    spread = ask(spread=(SpreadRule(topology_key="zone"),))
    need = fleet.need(spread, "t", "w")
    no_zone = {3: {"spread": "it lies in no zone, and its workload is spread by zone"}}
    assert told(fleet, need) == no_zone
    fleet.place(0, "t", "w", spread)
    full = {"spread": "zone a has 1 slots of this workload, the emptiest zone has 0, 1 more are allowed"}
    assert told(fleet, need) == {0: full, 1: full, **no_zone}
    fleet.place(2, "t", "w", spread)
    assert told(fleet, need) == no_zone


@pytest.mark.parametrize("change", [{"is_open": False}, {"known": False}, {"node_class": NOWHERE}])
def test_a_zone_without_an_open_node_holds_nobody_back(fleet: Fleet, change: dict[str, Any]) -> None:
    spread = ask(spread=(SpreadRule(topology_key="zone"),))
    need = fleet.need(spread, "t", "w")
    fleet.place(0, "t", "w", spread)
    assert 1 in told(fleet, need)
    fleet.node(2, **{"node_class": B, **change})
    assert 1 not in told(fleet, need)
    fleet.node(2, B)
    assert 1 in told(fleet, need)


def test_a_zone_the_need_may_not_use_holds_nobody_back(fleet: Fleet) -> None:
    only_a = ask(zones=("a",), spread=(SpreadRule(topology_key="zone"),))
    fleet.place(0, "t", "w", only_a)
    assert 1 not in told(fleet, fleet.need(only_a, "t", "w"))


def test_spread_over_nodes_counts_every_open_node(fleet: Fleet) -> None:
    spread = ask(spread=(SpreadRule(topology_key="hostname"),))
    need = fleet.need(spread, "t", "w")
    for number in (0, 1, 2):
        fleet.place(number, "t", "w", spread)
    assert set(told(fleet, need)) == {0, 1, 2}
    fleet.node(3, NOWHERE, is_open=False)
    assert told(fleet, need) == {}, "all open nodes have one"
    fleet.place(0, "t", "w", spread)
    assert told(fleet, need) == {
        0: {"spread": "it has 2 slots of this workload, the emptiest hostname has 1, 1 more are allowed"}
    }


def test_other_workloads_do_not_count_for_spread_or_the_maximum(fleet: Fleet) -> None:
    rules = ask(spread=(SpreadRule(topology_key="zone"),), max_per_node=1)
    fleet.place(0, "t", "other", rules)
    assert set(told(fleet, fleet.need(rules, "t", "w"))) == {3}
    fleet.place(0, "t", "w", rules)
    assert told(fleet, fleet.need(rules, "t", "w"))[0]["max-per-node"] == (
        "it has 1 slots of this workload, which is the most for one node"
    )


def test_a_port_in_use_is_named_whoever_uses_it(fleet: Fleet) -> None:
    fleet.place(1, "else", "w", ask(ports=(80, 443)))
    assert told(fleet, fleet.need(ask(ports=(443, 8080)), "t", "w")) == {1: {"ports": "it has port 443 in use"}}


def test_anti_affinity_holds_in_both_directions_and_where_there_is_no_zone_it_holds_nobody(fleet: Fleet) -> None:
    shuns = ask(anti_affinity=(AffinityRule(topology_key="zone", match=match("api")),))
    fleet.place(0, "t", "api", ask(API))
    away = {"anti-affinity": "zone a has a slot of a workload this one keeps away from"}
    assert told(fleet, fleet.need(shuns, "t", "w")) == {0: away, 1: away}
    fleet.place(2, "t", "w", shuns)
    kept = {"anti-affinity": "zone b has a slot that keeps workloads like this one away"}
    assert told(fleet, fleet.need(ask(API), "t", "api")) == {2: kept}
    assert told(fleet, fleet.need(ask(), "t", "plain")) == {}
    assert told(fleet, fleet.need(ask(API), "else", "api")) == {}, "rules end at the tenant"


def test_a_repeller_that_appears_later_is_noticed_by_the_stamp(fleet: Fleet) -> None:
    before = fleet.topology.stamp()
    assert fleet.need(ask(API), "t", "w").topology is None
    fleet.place(0, "t", "x", ask(anti_affinity=(AffinityRule(topology_key="hostname", match=match("cache")),)))
    assert fleet.topology.stamp() == before, "a rule about nobody that was asked for concerns nobody"
    fleet.place(0, "t", "x", ask(anti_affinity=(AffinityRule(topology_key="hostname", match=match("api")),)))
    assert fleet.topology.stamp() > before
    assert set(told(fleet, fleet.need(ask(API), "t", "w"))) == {0}


def test_affinity_needs_one_in_the_domain_and_the_first_of_its_own_goes_anywhere_with_a_domain(fleet: Fleet) -> None:
    near = ask(API, affinity=(AffinityRule(topology_key="zone", match=match("api")),))
    need = fleet.need(near, "t", "w")
    assert set(told(fleet, need)) == {3}
    fleet.place(2, "t", "w", near)
    far = {"affinity": "zone a has no slot of a workload this one must be near to"}
    lost = {"affinity": "it lies in no zone, and must be near to others by zone"}
    assert told(fleet, need) == {0: far, 1: far, 3: lost}
    stranger = ask(affinity=(AffinityRule(topology_key="zone", match=match("cache")),))
    assert set(told(fleet, fleet.need(stranger, "t", "v"))) == {0, 1, 2, 3}


class ClassOnly:
    """A row that has a node class and nothing else."""

    def __init__(self, node_class: Any) -> None:
        self.node_class = node_class


def test_coarse_reads_the_class_alone_and_own_the_number_alone(fleet: Fleet) -> None:
    both = ask(ports=(80,), spread=(SpreadRule(topology_key="zone"), SpreadRule(topology_key="hostname")), max_per_node=1)
    fleet.place(0, "t", "w", both)
    topology = fleet.need(both, "t", "w").topology
    assert topology is not None
    assert topology.keys == ("zone",)
    rows: Any = [ClassOnly(node_class) for node_class in (A, B, NOWHERE)]
    assert [bool(topology.coarse(row, NOW)) for row in rows] == [False, True, False]
    wide: Any = ClassOnly(np.array([A, B, NOWHERE]))
    assert topology.coarse(wide, NOW).tolist() == [False, True, False]
    numbers: Any = Row(np.array([0, 1, 2, 3]), None)
    assert topology.own(numbers, NOW).tolist() == [False, True, True, True]


def test_soft_rules_refuse_nothing_and_rate_coarse_and_own_apart(fleet: Fleet) -> None:
    soft = ask(
        spread=(SpreadRule(topology_key="zone", when_unsatisfiable="ScheduleAnyway"),),
        affinity=(AffinityRule(topology_key="zone", match=match("cache"), required=False, weight=30),),
        anti_affinity=(AffinityRule(topology_key="hostname", match=match("api"), required=False, weight=7),),
    )
    fleet.place(2, "t", "c", ask((("app", "cache"),)))
    fleet.place(1, "t", "a", ask(API))
    fleet.place(0, "t", "w", soft)
    need = fleet.need(soft, "t", "w")
    assert told(fleet, need) == {}
    topology = need.topology
    assert topology is not None
    assert topology.keys == ("zone",)
    rows: list[Any] = [fleet.row(number) for number in NODES]
    assert [topology.crowding(row, own=False) for row in rows[:3]] == [1, 1, 0]
    assert [topology.preferred_coarse(row, NOW) for row in rows[:3]] == [-10, -10, 30]
    assert [topology.preferred_own(row, NOW) for row in rows] == [0, -7, 0, 0]
    columns: Any = fleet.columns()
    for preferred in (topology.preferred_coarse, topology.preferred_own):
        assert preferred(columns, NOW).tolist() == [preferred(row, NOW) for row in rows]


def test_columns_of_counters_are_bounded_and_made_again_when_asked_for(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domains, "DENSE_CELLS_MAX", 10)
    needs = [fleet.need(ask(ports=(port,)), "t", "w") for port in range(1, 9)]
    fleet.place(2, "t", "w", ask(ports=(1, 8)))
    columns: Any = fleet.columns()
    for _ in range(2):
        answers = [need.topology.own(columns, NOW).tolist() for need in needs if need.topology is not None]
        taken = [True, True, False, True]
        assert answers == [taken, *([[True] * 4] * 6), taken]
        assert sum(counts._dense is not None for counts in fleet.topology._made) <= 2, "four nodes each, ten cells in all"


def test_nodes_that_come_later_are_in_the_columns_too(fleet: Fleet) -> None:
    need = fleet.need(ask(ports=(80,)), "t", "w")
    assert need.topology is not None
    columns: Any = fleet.columns()
    assert need.topology.own(columns, NOW).all()
    for number in range(4, 40):
        fleet.node(number, A)
        fleet.place(number, "t", "w", ask(ports=(80,)))
        columns = fleet.columns()
        assert need.topology.own(columns, NOW).tolist() == [True] * 4 + [False] * (number - 3)


def test_a_workload_that_keeps_away_from_itself_does_not_put_its_own_need_out_of_date(fleet: Fleet) -> None:
    itself = ask(API, anti_affinity=(AffinityRule(topology_key="hostname", match=match("api")),))
    need, stamp = fleet.need(itself, "t", "w"), fleet.topology.stamp()
    fleet.place(0, "t", "w", itself)
    assert fleet.topology.stamp() == stamp
    assert set(told(fleet, need)) == {0}


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_generations_of_a_workload_with_other_labels_count_together_and_one_may_go(fleet: Fleet, gone: int) -> None:
    generations = [ask(), ask(API), ask((("app", "api"), ("v", "2")))]
    for number, generation in enumerate(generations):
        fleet.place(number, "t", "w", generation)
    fleet.remove(fleet.slots[gone])
    one = ask(max_per_node=1)
    assert set(told(fleet, fleet.need(one, "t", "w"))) == {0, 1, 2} - {gone}
    for slot in list(fleet.slots):
        fleet.remove(slot)
    assert told(fleet, fleet.need(one, "t", "w")) == {}
    assert fleet.topology._groups == {}
