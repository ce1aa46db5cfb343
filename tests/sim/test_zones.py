"""A zone whose nodes fall silent together: its region doubts its own hearing, and gives them up all the same."""

from __future__ import annotations

from fairlead.sim.campaign import summed
from fairlead.sim.coverage import ACTS_IN
from fairlead.sim.profiles import PROFILES
from fairlead.sim.scenario import Faults, Scenario
from fairlead.sim.world import Verdict, run_scenario

PROFILE = "zones"


def test_a_zone_falls_silent_and_its_nodes_are_called_suspect() -> None:
    scenario = PROFILES[PROFILE](Scenario(2, PROFILE, rough_s=120.0, settle_s=60.0, quiet_s=10.0, faults=Faults()))
    assert (scenario.regions, scenario.nodes) == (1, 12), "four nodes a zone"
    verdict = run_scenario(scenario)
    assert not verdict.findings
    assert verdict.counts["F_zone"]
    assert verdict.checked["B5"] >= 3
    assert verdict.checked["B5/lost"]


def test_a_campaign_of_zones_in_which_nobody_was_suspected_is_void() -> None:
    void = summed([Verdict(1, PROFILE, [], [], 1, 1.0, "t", 1, {"F_zone": 1}, {}, {}, 1.0)], directed=PROFILE)["void"]
    assert {one["name"] for one in void} == {"B5", "B5/lost"} == set(ACTS_IN[PROFILE])
