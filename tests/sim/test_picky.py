"""Work that wants something of its node and neighbours: every rule is drawn and admitted, and nobody else has any."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from fairlead.decide.admission import faults
from fairlead.model.kinds.capacity import Node
from fairlead.model.kinds.intent import Workload
from fairlead.model.registry import KINDS
from fairlead.sim import born, picky
from fairlead.sim.campaign import scenario_of
from fairlead.sim.loop import draws_of
from fairlead.sim.people import NAMES, workload
from fairlead.sim.profiles import PROFILES
from fairlead.sim.scenario import Work
from fairlead.wire import json_codec

WORK = Work(jobs=0.1, exclusive=0.1, picky=0.9)
PLACED = {"nodeLabels", "tolerations", "maxPerNode", "antiAffinity", "affinity", "spread"}


def made(number: int, work: Work) -> dict[str, Any]:
    out = workload(NAMES[number % len(NAMES)], 3, number % 100, work)
    picky.wants(out, number * 7919, work)
    return out


def test_each_rule_is_drawn_and_what_is_drawn_is_admitted() -> None:
    asked: set[str] = set()
    plain = 0
    for number in range(400):
        body = made(number, WORK)
        metadata = body["metadata"] | {"namespace": "risk"}
        decoded = json_codec.decode(json_codec.encode({"metadata": metadata, "spec": body["spec"]}), Workload)
        assert isinstance(decoded, Workload), decoded
        assert faults(KINDS["workloads"], decoded, None) == ()
        spec = body["spec"]
        found = {*spec.get("placement", {}), *(["ports"] if "ports" in spec["template"] else [])}
        found |= {born.LICENSE} & set(spec["resources"]["requests"])
        asked |= found
        plain += not found
    assert asked == PLACED | {"ports", born.LICENSE}
    assert 20 < plain < 60, "one of ten has none"


def test_who_asks_for_no_such_work_gets_it_as_it_was_and_its_nodes_without_labels() -> None:
    assert made(7, replace(WORK, picky=0.0)) == workload(NAMES[7], 3, 7, replace(WORK, picky=0.0))
    (_, node) = born.region_objects("us-east", [born.declared("us-east", 4, False)])[-1]
    assert isinstance(node, Node)
    assert (node.metadata.labels, node.spec.taints, node.spec.allocatable) == ({}, (), born.NODE_ROOM)
    for profile in set(PROFILES) - {"picky"}:
        work = scenario_of(1, profile, 1.0).work
        assert not work.picky, profile
        assert not work.relabels, profile


def test_what_operators_make_of_nodes_is_put_right() -> None:
    scenario, draws = scenario_of(1, "picky", 1.0), draws_of(1, "relabels")
    patches = [picky.changed(draws) for _ in range(100)]
    assert {key for patch in patches for key in patch} == {"metadata", "spec"}
    righted = picky.put_right(scenario, ("us-east",))
    assert [path.rpartition("/")[2] for path, _ in righted] == [f"us-east-n{number}" for number in range(scenario.nodes)]
    assert {key for patch in patches for key in patch.get("metadata", {}).get("labels", {})} == set(born.labels_of(0))
    assert righted[4][1]["spec"]["taints"] == [{"key": "dedicated", "value": "batch", "effect": "NoSchedule"}]
    assert picky.put_right(scenario_of(1, "strays", 1.0), ("us-east",)) == []
