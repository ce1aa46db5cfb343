"""The hunt for planted bugs: what counts as found, by which seed it must be, and what of the worlds without them is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest
from msgspec.structs import replace

from fairlead.sim.campaign import scenario_of
from fairlead.sim.hunt import Hunt
from fairlead.sim.mutants import MUTANTS
from fairlead.sim.planting import WITHIN
from fairlead.sim.scenario import Scenario
from fairlead.sim.verdict import Finding, Verdict

NAME: Final = "no-receipts"  # must be found by S13


def hunt(planted: Mapping[int, str], control: Mapping[int, str] = {}) -> Hunt:
    """Worlds in which these seeds break these promises, with the bug and without it."""

    def run(scenario: Scenario) -> Verdict:
        found = (planted if scenario.mutant else control).get(scenario.seed)
        findings = [Finding(each, "global", 1.0, "it is broken") for each in found.split()] if found else []
        return Verdict(scenario.seed, scenario.profile, findings, [], 1, 1.0, "t", 1, {}, {}, {}, None, [], [])

    return Hunt(scenario_of, lambda text: None, run)


def told(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["found"], row["seeds_needed"], row["late"], row["hunted"], row["showed"], row["density"]


@pytest.mark.parametrize("crash", ["X0", "X1", "X2", "X2 X0", "L4"])
def test_a_crash_and_another_promise_are_no_find(crash: str) -> None:
    row = hunt(dict.fromkeys(range(1, 10), crash)).row(NAME, 3)
    assert told(row) == (False, 0, False, 3, 0, 0.0)
    assert row["found_by"] == ""


def test_a_promise_counts_also_beside_a_crash() -> None:
    row = hunt({2: "X2 S13"}).row(NAME, 3)
    assert told(row) == (True, 2, False, 2, 1, 0.5)
    assert row["found_by"] == "S13"


def test_without_a_number_as_many_seeds_are_looked_in_as_are_stated() -> None:
    assert MUTANTS[NAME].within == WITHIN
    assert told(hunt({WITHIN + 1: "S13"}).row(NAME)) == (False, 0, False, WITHIN, 0, 0.0)
    assert told(hunt({WITHIN: "S13"}).row(NAME)) == (True, WITHIN, False, WITHIN, 1, 1 / WITHIN)


def test_one_that_is_found_in_a_later_seed_than_is_stated_is_late() -> None:
    assert told(hunt({WITHIN + 1: "S13"}).row(NAME, 2 * WITHIN)) == (True, WITHIN + 1, True, WITHIN + 1, 1, round(1 / 6, 4))


def test_the_density_is_measured_over_all_the_seeds_that_were_asked_for() -> None:
    row = hunt({2: "S13", 3: "S13", 4: "X0"}).row(NAME, density=8)
    assert told(row) == (True, 2, False, 8, 2, 0.25)


def test_a_world_that_is_not_well_without_the_bug_is_told_and_run_once() -> None:
    runs: list[Scenario] = []
    made = hunt({1: "S13"}, {1: "L4"})
    run = made._run

    def noted(scenario: Scenario) -> Verdict:
        runs.append(scenario)
        return run(scenario)

    made._run = noted
    assert made.row(NAME, 3)["control"] == ["L4"]
    assert made.row(NAME, 3)["control"] == ["L4"]
    assert [scenario.mutant for scenario in runs].count("") == 1, "several bugs share a world"
    assert replace(runs[0], mutant="") == runs[1], "but for the bug it is the same"
