"""A ranking kept up to date row by row says what one made from nothing would say, with and without domains."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.resources import Resources
from fairlead.scheduler import ranking as module
from fairlead.scheduler.fleet import Column, OneRow, Rows
from fairlead.scheduler.ranking import FEW, NOWHERE, Ranking
from fairlead.scheduler.snapshot import FIRM, Snapshot, Use
from tests.scheduler.fleets import GI, node, snapshot_of


class ByCpu:
    """Fits where 1,000 is free; the fuller the better."""

    few = FEW
    around = None

    def __init__(self, snapshot: Snapshot) -> None:
        self.rows_rated = 0
        self.snapshot = snapshot

    def rate_rows(self, rows: Rows) -> Column:
        free = rows.cpu_free
        self.rows_rated += len(free)
        return np.where(free >= 1000, -free, NOWHERE)

    def rate_row(self, row: OneRow) -> int:
        self.rows_rated += 1
        return -row.cpu_free if row.cpu_free >= 1000 else NOWHERE


class ThreeZones:
    """Groups by the row's number; terms that the test sets."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.values = np.zeros(3, np.int64)

    def group_of_rows(self) -> Column:
        return np.arange(self.snapshot.fleet.rows, dtype=np.int64) % 3

    def terms(self) -> Column:
        return self.values


def fleet(count: int, seed: int = 1) -> Snapshot:
    draws = random.Random(seed)
    return snapshot_of(*(node(f"n{n:04d}", cpu=draws.randrange(0, 9) * 500, memory=64 * GI) for n in range(count)))


def naive(snapshot: Snapshot, rater: ByCpu, groups: ThreeZones | None = None) -> int:
    totals = [rater.rate_row(snapshot.row(row)) for row in range(snapshot.fleet.rows)]
    if groups is not None:
        totals = [total + int(groups.values[row % 3]) for row, total in enumerate(totals)]
    # Equals go to the first row; with groups, to the first of the first group.
    best = max(range(len(totals)), key=lambda row: (totals[row], -(row % 3) if groups is not None else 0, -row))
    return best if totals[best] > NOWHERE // 2 else -1


def use(snapshot: Snapshot, row: int, number: int, cpu: int = 500) -> None:
    snapshot.set_use(("risk", f"w-{number}"), Use(row, FIRM, Resources(cpu, GI), uid="u"))


@given(st.integers(0, 10_000), st.booleans())
@settings(max_examples=60, deadline=None)
def test_it_agrees_with_one_made_from_nothing_whatever_changes(seed: int, grouped: bool) -> None:
    draws = random.Random(seed)
    snapshot = fleet(draws.choice((1, 7, 300, 700)), seed)
    rater = ByCpu(snapshot)
    rater.few = draws.choice((0, 1, FEW))
    groups = ThreeZones(snapshot) if grouped else None
    ranking = Ranking(snapshot, rater, groups)
    for step in range(30):
        match draws.randrange(5):
            case 0:
                row = draws.randrange(snapshot.fleet.rows)
                use(snapshot, row, step)
            case 1 if snapshot.uses:
                snapshot.set_use(draws.choice(sorted(snapshot.uses)), None)
            case 2:
                for extra in range(draws.choice((2, 40))):
                    use(snapshot, draws.randrange(snapshot.fleet.rows), 1000 + step * 100 + extra)
            case 3:
                snapshot.set_node(f"new{step}", node(f"new{step}", cpu=draws.randrange(9) * 500))
            case _ if groups is not None:
                groups.values = np.array([draws.choice((0, 700, NOWHERE)) for _ in range(3)], np.int64)
        ranking.sync()
        row = ranking.best()
        assert row == naive(snapshot, rater, groups)
        assert len(ranking.top(1)) == (row >= 0)
        if row >= 0:
            use(snapshot, row, 50_000 + step, 1000)
            ranking.placed(row)
            assert ranking.best() == naive(snapshot, rater, groups)


def test_a_placement_rates_one_row_whatever_the_size_of_the_fleet() -> None:
    snapshot = snapshot_of(*(node(f"n{n:05d}", cpu=8000) for n in range(3000)))
    rater = ByCpu(snapshot)
    ranking = Ranking(snapshot, rater)
    ranking.sync()
    rater.rows_rated = 0
    for number in range(50):
        row = ranking.best()
        use(snapshot, row, number, 1000)
        ranking.placed(row)
        ranking.sync()
    assert rater.rows_rated == 50


def test_only_rows_that_changed_are_rated_again() -> None:
    snapshot = fleet(1000)
    rater = ByCpu(snapshot)
    ranking = Ranking(snapshot, rater)
    ranking.sync()
    rater.rows_rated = 0
    for number, row in enumerate((5, 5, 17, 900)):
        use(snapshot, row, number)
    ranking.sync()
    assert rater.rows_rated == 3


def test_equals_go_to_the_first_row() -> None:
    snapshot = snapshot_of(*(node(f"n{n}") for n in range(5)))
    ranking = Ranking(snapshot, ByCpu(snapshot))
    ranking.sync()
    assert ranking.best() == 0


def test_a_log_that_was_cut_short_is_no_reason_to_miss_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.scheduler.snapshot._LOG_KEPT", 4)
    snapshot = fleet(4)
    rater = ByCpu(snapshot)
    ranking = Ranking(snapshot, rater)
    ranking.sync()
    for number in range(30):
        use(snapshot, number % 4, number, 100)
        snapshot.trim_changes()
    assert snapshot.changed_base > 0
    ranking.sync()
    assert ranking.best() == naive(snapshot, rater)


def test_the_sample_gives_its_best_and_nothing_else() -> None:
    snapshot = snapshot_of(*(node(f"n{n}", cpu=1000 + 1000 * n) for n in range(5)))
    ranking = Ranking(snapshot, ByCpu(snapshot))
    ranking.sync()
    assert ranking.best_of([3, 2, 4]) == 2
    use(snapshot, 0, 1, 500)
    ranking.sync()
    assert ranking.best_of([0]) == -1
    assert ranking.feasible() == 4


def test_blocks_are_what_makes_it_cheap() -> None:
    """A mutant that looks at one block only would still pass on a small fleet."""
    assert module.BLOCK < 300
    snapshot = snapshot_of(*(node(f"n{n:04d}", cpu=4000) for n in range(1000)))
    use(snapshot, 999, 1, 3000)
    ranking: Any = Ranking(snapshot, ByCpu(snapshot))
    ranking.sync()
    assert ranking.best() == 999


@pytest.mark.parametrize("zones", [True, False])
def test_where_there_is_no_node_yet_a_slot_fits_nowhere(zones: bool) -> None:
    snapshot = fleet(0)
    ranking = Ranking(snapshot, ByCpu(snapshot), ThreeZones(snapshot) if zones else None)
    ranking.sync()
    assert ranking.best() == -1
    assert ranking.top(3) == []
