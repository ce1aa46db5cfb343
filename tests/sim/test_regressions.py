"""What was found once and mended is not found again where it was found."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from fairlead.sim import campaign
from fairlead.sim.world import run_scenario
from tests.sim.regressions import REGRESSIONS, Regression, world_of

TABLE = (Path(__file__).parents[2] / "docs" / "simulation-findings.md").read_text().partition("What was found and is fixed.")[2]


@pytest.mark.parametrize("one", REGRESSIONS, ids=lambda one: f"{one.profile}-{one.seed}")
def test_a_seed_in_which_something_was_mended_breaks_no_promise(one: Regression, tmp_path: Path) -> None:
    scenario = campaign.scenario_of(one.seed, one.profile, one.minutes)
    verdict = run_scenario(scenario)
    assert not verdict.findings, campaign.told(scenario, verdict, campaign.keep(scenario, verdict, tmp_path))


@pytest.mark.parametrize("one", REGRESSIONS, ids=lambda one: f"{one.profile}-{one.seed}")
def test_each_is_a_row_of_the_table_and_means_the_world_it_was_found_in(one: Regression) -> None:
    scenario = campaign.scenario_of(one.seed, one.profile, one.minutes)
    rows = [line for line in TABLE.splitlines() if f"{one.seed}" in line and f"`{one.profile}`" in line and "(CI)" in line]
    assert rows, f"seed {one.seed} of `{one.profile}` is in no row that says (CI)"
    now = world_of(scenario)
    assert now == one.world, (
        f"this seed draws another world now ({now}): where nothing was found yet, it keeps nothing. Take it out"
    )


def test_a_world_is_known_by_what_is_unusual_about_it() -> None:
    scenario = campaign.scenario_of(1, "tails", 1.0)
    assert world_of(scenario) == world_of(campaign.scenario_of(1, "tails", 1.0))
    others = [
        replace(scenario, nodes=9),
        replace(scenario, faults=replace(scenario.faults, crash=1.0)),
        replace(scenario, work=replace(scenario.work, actions=1.0)),
    ]
    assert world_of(scenario) not in [world_of(other) for other in others]
