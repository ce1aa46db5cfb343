"""Rules about neighbours over a whole cycle: what a slot bears when it is placed, and what a placement changes for the others."""

from __future__ import annotations

import random
from typing import Literal

import pytest
from msgspec.structs import replace

from fairlead.decide.standing import request_for
from fairlead.decide.topology import marks_of
from fairlead.model.kinds.intent import AffinityRule, LabelExpression, Placement, SpreadRule
from fairlead.model.kinds.work import Marks
from fairlead.model.resources import Resources
from fairlead.scheduler.ranking import Ranking
from fairlead.scheduler.shapes import Shape
from fairlead.scheduler.snapshot import FIRM, Snapshot, Use
from tests.decide.test_standing import holding
from tests.scheduler.fleets import GI, NOW_MS, node, request, snapshot_of
from tests.scheduler.test_cycle import Table, fill
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


def test_a_required_spread_by_node_goes_on_when_the_emptiest_has_one_more() -> None:
    table = Table(snapshot_of(*(node(f"n{n}", cpu=16_000) for n in range(3))))
    got = table.places(*(request(f"a-{n}", cpu=100, placement=_by_node("DoNotSchedule")) for n in range(9)))
    assert sorted(got.values()) == ["n0", "n0", "n0", "n1", "n1", "n1", "n2", "n2", "n2"]


def test_a_preferred_spread_by_node_stays_level_at_every_height() -> None:
    table = Table(snapshot_of(*(node(f"n{n}", cpu=64_000) for n in range(8))))
    got = table.places(*(request(f"a-{n}", cpu=100, placement=_by_node("ScheduleAnyway")) for n in range(16)))
    assert sorted(got.values()) == sorted(f"n{n}" for n in range(8) for _ in range(2))


def test_rooms_of_a_budget_are_even_over_zones_that_are_alike_and_only_then() -> None:
    """docs/recovery.md says so: it is a preference, and fuller nodes are one too."""
    size = Resources(200, GI // 4)

    def by_zone(*full: int) -> list[int]:
        snapshot = snapshot_of(*(node(f"{zone}{n}", zone=zone) for zone in "abc" for n in range(3)))
        for row, cpu in enumerate(each for each in full for _ in range(3)):
            fill(snapshot, row, f"w-{row}", cpu)
        got = Table(snapshot).places(*(request_for(holding((size, 6)), index, size) for index in range(6)))
        return [sum(name.startswith(zone) for name in got.values()) for zone in "abc"]

    assert by_zone(1000, 1000, 1000) == [2, 2, 2]
    assert by_zone(3500, 3500, 0) == [3, 3, 0]


def test_only_the_first_of_those_that_must_be_on_one_node_may_go_anywhere() -> None:
    table = Table(snapshot_of(*(node(f"n{n}", cpu=1000) for n in range(3))))
    together = Placement(affinity=(AffinityRule(topology_key="hostname", match=NAMED),))
    got = table.places(*(request(f"a-{n}", cpu=400, labels=DATA, placement=together) for n in range(5)))
    assert got == {"a-0": "n0", "a-1": "n0"}


def _by_node(otherwise: Literal["DoNotSchedule", "ScheduleAnyway"]) -> Placement:
    return Placement(spread=(SpreadRule(topology_key="hostname", when_unsatisfiable=otherwise),))


_RULES = (
    _by_node("DoNotSchedule"),
    _by_node("ScheduleAnyway"),
    Placement(affinity=(AffinityRule(topology_key="hostname", match=NAMED),)),
    Placement(affinity=(AffinityRule(topology_key="hostname", match=NAMED),), spread=(SpreadRule(topology_key="zone"),)),
    Placement(spread=(SpreadRule(topology_key="hostname"), SpreadRule(topology_key="zone"))),
)


@pytest.mark.parametrize("rules", range(len(_RULES)))
@pytest.mark.parametrize("seed", range(6))
def test_a_ranking_kept_up_to_date_says_what_one_made_from_nothing_says(rules: int, seed: int) -> None:
    draws = random.Random(f"{rules} {seed}")
    names = [f"n{n:02d}" for n in range(draws.choice((3, 5, 40)))]
    snapshot = snapshot_of(*(node(name, cpu=16_000, zone="ab"[at % 2]) for at, name in enumerate(names)))
    table = Table(snapshot)
    shape = table.decide(request("a-0", cpu=100, labels=DATA, placement=_RULES[rules]))[0].shape
    for step in range(60):
        match draws.randrange(4):
            case 0 if snapshot.uses:
                snapshot.set_use(draws.choice(sorted(snapshot.uses)), None)
            case 1:
                name = draws.choice(names)
                zone = "ab"[snapshot.row_of[name] % 2]
                snapshot.set_node(name, node(name, cpu=16_000, zone=zone, cordoned=draws.random() < 0.5))
            case 2:
                _put(snapshot, draws.randrange(len(names)), f"a-{100 + step}")
            case _:
                pass
        shape.catch_up()
        row = shape.ranking.best()
        assert _whole(shape.ranking, names) == _whole(_anew(shape), names)
        if row >= 0:
            _put(snapshot, row, f"a-{1000 + step}")
            shape.ranking.placed(row)
            assert _whole(shape.ranking, names) == _whole(_anew(shape), names)


def _put(snapshot: Snapshot, row: int, name: str) -> None:
    marks = Marks(labels=DATA)
    snapshot.set_use(("risk", name), Use(row, FIRM, Resources(100, GI), uid="u-risk-a", marks=marks, evictable=True))


def _anew(shape: Shape) -> Ranking:
    made = Ranking(shape.snapshot, shape, shape.ranking._groups)
    made.sync()
    return made


def _whole(ranking: Ranking, names: list[str]) -> list[tuple[int, int]]:
    return ranking.top(len(names))


def test_a_shape_that_was_dropped_keeps_its_rules_about_zones() -> None:
    table = Table(snapshot_of(node("n0", zone="a"), node("n1", zone="b")))
    _put(table.snapshot, 0, "a-0")
    zones = Placement(spread=(SpreadRule(topology_key="zone"),))
    table.queue.upsert(request("a-1", labels=DATA, placement=zones), NOW_MS)
    (run,) = table.cycle.group(table.queue.take(1, NOW_MS))
    run.shape.drop()
    table.cycle.decide_run(run)
    assert [placement.node for placement in run.placements] == ["n1"]
