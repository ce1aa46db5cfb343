"""Rules about neighbours over a whole cycle: what a slot bears when it is placed, and what a placement changes for the others."""

from __future__ import annotations

from msgspec.structs import replace

from fairlead.decide.topology import marks_of
from fairlead.model.kinds.intent import AffinityRule, LabelExpression, Placement
from tests.scheduler.fleets import node, request, snapshot_of
from tests.scheduler.test_cycle import Table
from tests.scheduler.test_snapshot import Seen

WEB, DATA = (("app", "web"),), (("app", "data"),)
NAMED = (LabelExpression(key="app", values=("data",)),)


def test_slots_that_are_decided_alike_bear_labels_of_their_own() -> None:
    table = Table(snapshot_of(node("n0", zone="a"), node("n1", zone="b")))
    table.places(request("web-0", labels=WEB), request("data-0", labels=DATA))
    near = Placement(affinity=(AffinityRule(topology_key="zone", match=NAMED),))
    away = Placement(anti_affinity=(AffinityRule(topology_key="zone", match=NAMED),))
    assert table.places(request("cache-0", placement=near)) == {"cache-0": "n0"}
    assert table.places(request("apart-0", placement=away)) == {"apart-0": "n1"}


def test_the_echo_of_a_bind_changes_nothing_whatever_the_slot_bears() -> None:
    table = Table(snapshot_of(node("n0")))
    data = request("data-0", labels=DATA)
    table.places(request("web-0", labels=WEB), data)
    changes = table.snapshot.changes
    echo = Seen("n0", workload_uid=data.spec.slot.uid, marks=marks_of(replace(data.spec.ask)))
    assert not table.snapshot.set_binding(("risk", "data-0"), echo)
    assert table.snapshot.changes == changes
