"""Hints that lie may cost. They break nothing."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fairlead.sim import campaign
from fairlead.sim.hints import KINDS
from fairlead.sim.world import run_scenario


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_hints_break_no_promise_and_all_comes_right_when_they_end(kind: str) -> None:
    scenario = replace(campaign.scenario_of(1, "hints", 0.2), regions=1, nodes=3, settle_s=5.0, quiet_s=1.0)
    told = run_scenario(replace(scenario, hints=kind))
    assert not told.findings
    assert told.checked["S1"] > 0, "something was bound by them"
    true = run_scenario(replace(scenario, hints=""))
    assert told.trace != true.trace, "they were believed"
