"""A region goes dark or is cut off under the simulator, and critical services are back elsewhere in time (L5)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fairlead.observe.losses import RECOVERED_S
from fairlead.sim.campaign import scenario_of
from fairlead.sim.world import Verdict, run_scenario


@pytest.fixture(scope="module")
def lost() -> Verdict:
    scenario = scenario_of(5, "regions", 2.0)
    return run_scenario(replace(
        scenario, faults=replace(scenario.faults, region=2.0, crash=0.0), servers=1, nodes=2, settle_s=100.0, quiet_s=10.0,
    ))  # fmt: skip


def test_critical_services_are_back_within_a_minute_of_the_loss_of_their_region(lost: Verdict) -> None:
    assert lost.counts["F_region"] >= 1
    assert lost.findings == []
    assert len(lost.recovered_s) >= 3
    assert max(lost.recovered_s) < 60


def test_the_loss_is_what_was_waited_for_and_not_a_coincidence(lost: Verdict) -> None:
    """A region is declared lost after its lease and six seconds: whoever had not enough elsewhere took longer than that."""
    assert any(seconds > 10 for seconds in lost.recovered_s)


def test_services_are_back_in_time_though_nothing_comes_up_in_the_region_that_takes_over_first() -> None:
    verdict = run_scenario(scenario_of(2, "barren", 8.0))
    assert verdict.findings == []
    assert verdict.counts["barren"] >= 1
    assert max(verdict.recovered_s) > RECOVERED_S / 5, "some waited for a minute where they did not come up"
