"""What the lineup finds is what a ranking of all nodes finds; what it does not understand it leaves to one."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.decide.policy import CompiledPolicy, compile_policy
from fairlead.model.kinds.intent import Placement, SpreadRule
from fairlead.model.kinds.policy import SchedulerPolicySpec, ScoreWeight
from fairlead.model.resources import DeviceAsk, Resources
from fairlead.scheduler import lineup as module
from fairlead.scheduler.cycle import Cycle
from fairlead.scheduler.lineup import Lineup
from fairlead.scheduler.policies import Policies
from fairlead.scheduler.preempting import Preempting
from fairlead.scheduler.shapes import Shape, ShapeBook
from fairlead.scheduler.snapshot import FIRM, HELD, LENT, Snapshot, Use
from fairlead.scheduler.units import NO_DEADLINE, Item, amounts_of
from tests.scheduler.fleets import GI, NOW_MS, node, request, snapshot_of

SIZES = ((4000, 8 * GI), (4000, 8 * GI), (64_000, 160 * GI), (3333, 7 * GI + 12_345))


def shape_of(snapshot: Snapshot, policy: CompiledPolicy | None = None, **asked: Any) -> Shape:
    policies = Policies()
    found = ShapeBook(snapshot, policies).shape_of(request("w-0", **asked), policy or policies.policy_for("risk"))  # type: ignore[arg-type]
    assert found is not None
    return found


def item_of(name: str, **asked: Any) -> Item:
    made = request(name, **asked)
    spec = made.spec
    amounts = amounts_of(spec.ask.requests, spec.ask.devices)
    return Item("risk", name, spec.slot.workload, spec.slot.uid, 500, NO_DEADLINE, 0, amounts, amounts, 0, 0, request=made)


def change(snapshot: Snapshot, draws: random.Random, step: int) -> None:
    """One thing that happens to a fleet."""
    row = draws.randrange(snapshot.fleet.rows)
    name = snapshot.names[row]
    match draws.randrange(8):
        case 0 | 1 | 2:
            how = draws.choice((FIRM, FIRM, FIRM, HELD, LENT))
            asks = Resources(draws.choice((1, 100, 333, 1000)), draws.choice((1, GI // 3, GI)))
            snapshot.set_use(("risk", f"w-{step}"), Use(row, how, asks, uid="u"))
        case 3 if snapshot.uses:
            snapshot.set_use(draws.choice(sorted(snapshot.uses)), None)
        case 4:
            snapshot.set_node(name, node(name, cpu=4000, cordoned=draws.random() < 0.5, slots=draws.choice((1, 110))))
        case 5:
            snapshot.failed(name)
        case 6:
            snapshot.set_node(f"new{step}", node(f"new{step}", cpu=8000))
        case _:
            snapshot.fleet.cells["observed_ms"][row] = draws.choice((0, NOW_MS))


@given(st.integers(0, 100_000))
@settings(max_examples=60, deadline=None)
def test_it_finds_what_a_ranking_of_all_nodes_finds(seed: int) -> None:
    draws = random.Random(seed)
    sizes = [draws.choice(SIZES) for _ in range(draws.choice((1, 5, 60)))]
    snapshot = snapshot_of(*(node(f"n{n:03d}", cpu=cpu, memory=memory) for n, (cpu, memory) in enumerate(sizes)))
    lineup = Lineup(snapshot)
    for step in range(25):
        for more in range(draws.choice((0, 1, 12))):
            change(snapshot, draws, 100 * step + more)
        shape = shape_of(snapshot, cpu=draws.choice((1, 7, 100, 1000, 4000, 9000)), memory=draws.choice((1, GI // 7, GI, 8 * GI)))
        assert shape.lines_up
        found = lineup.best(shape)
        assert found is not None, "so few nodes are all looked at"
        shape.catch_up()
        row = shape.ranking.best()
        assert [rated.row for rated in found.best[:1]] == [row][: row >= 0]
        for rated in found.best:
            one = snapshot.row(rated.row)
            assert (rated.total, rated.rates) == (shape.rate_row(one), shape.breakdown(one))


def test_equals_go_to_the_first_row_and_are_looked_at_once() -> None:
    snapshot = snapshot_of(*(node(f"n{n:03d}") for n in range(500)))
    found = Lineup(snapshot).best(shape_of(snapshot))
    assert found is not None
    assert (found.best[0].row, found.looked) == (0, 1)


def test_of_nodes_with_equal_sums_left_the_first_row_is_taken() -> None:
    """A node of as many bytes as millicores: what one has of CPU the other has of memory."""
    snapshot = snapshot_of(*(node(name, cpu=4000, memory=4000) for name in ("a", "b")))
    for row, (cpu, memory) in enumerate(((1000, 2000), (2000, 1000))):
        snapshot.set_use(("risk", f"w-{row}"), Use(row, FIRM, Resources(cpu, memory), uid="u"))
    shape = shape_of(snapshot, cpu=100, memory=100)
    found = Lineup(snapshot).best(shape)
    assert found is not None
    shape.catch_up()
    assert (found.best[0].row, found.looked, shape.ranking.best()) == (0, 2, 0)


def test_a_full_node_is_not_looked_at() -> None:
    snapshot = snapshot_of(*(node(f"n{n:03d}") for n in range(300)))
    for row in range(299):
        snapshot.set_use(("risk", f"w-{row}"), Use(row, FIRM, Resources(3900, 8 * GI), uid="u"))
    found = Lineup(snapshot).best(shape_of(snapshot))
    assert found is not None
    assert (found.best[0].row, found.looked) == (299, 1)


def test_it_declines_when_too_many_would_have_to_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOKED_MAX", 10)
    snapshot = snapshot_of(*(node(f"n{n:03d}") for n in range(11)))
    for row in range(11):  # each has room in sum, none has CPU
        snapshot.set_use(("risk", f"w-{row}"), Use(row, FIRM, Resources(4000, row), uid="u"))
    assert Lineup(snapshot).best(shape_of(snapshot)) is None


def test_a_large_fleet_is_lined_up_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ROWS_AT_ONCE", 4)
    snapshot = snapshot_of(*(node(f"n{n}") for n in range(10)))
    lineup, shape = Lineup(snapshot), shape_of(snapshot)
    assert [lineup.best(shape) is None for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize(
    "asked",
    [
        {"devices": (DeviceAsk(),)},
        {"placement": Placement(spread=(SpreadRule(topology_key="zone"),))},
        {"workload_class": "best-effort"},
        {"may_borrow": True},
    ],
)
def test_what_is_more_than_amounts_is_left_to_a_ranking(asked: dict[str, Any]) -> None:
    assert not shape_of(snapshot_of(node("a")), **asked).lines_up


def test_other_scores_are_left_to_a_ranking() -> None:
    for names in (("fill",), ("packing", "cost"), ("stability",)):
        policy = compile_policy(SchedulerPolicySpec(revision=1, scores=tuple(ScoreWeight(name=name) for name in names)))
        assert isinstance(policy, CompiledPolicy)
        assert not shape_of(snapshot_of(node("a")), policy).lines_up


def test_a_shape_that_comes_again_and_again_gets_its_ranking() -> None:
    snapshot = snapshot_of(*(node(f"n{n}", cpu=64_000, memory=64 * GI) for n in range(4)))
    policies = Policies()
    book = ShapeBook(snapshot, policies)
    cycle = Cycle(snapshot, book, policies, Preempting(snapshot), random.Random(1))
    made = []
    for number in range(10):
        (run,) = cycle.decide([item_of(f"w-{number}")])
        assert [placement.row for placement in run.placements] == [0]
        made.append(run.shape.ranking.is_made)
    assert made == sorted(made), "once made it is used"
    assert (made[0], made[-1]) == (False, True)


def test_where_the_lineup_knows_no_place_the_reasons_are_found_as_ever() -> None:
    snapshot = snapshot_of(node("a", cpu=100))
    policies = Policies()
    cycle = Cycle(snapshot, ShapeBook(snapshot, policies), policies, Preempting(snapshot), random.Random(1))
    (run,) = cycle.decide([item_of("w-0")])
    assert [(failure.reason, failure.gates) for failure in run.failures] == [("NoMatchingCapacity", {"cpu": 1})]
