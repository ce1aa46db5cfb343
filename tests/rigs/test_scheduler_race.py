"""Four scheduler processes race on one plane process, and every promise that its journal can show is kept; with the authority's
own look at the node taken out, the same race shows that it was needed."""

from __future__ import annotations

import pytest

from tests.rigs.race_rig import SCHEDULERS, Plan, run_race

ASKED = ("S1", "S2", "S3", "S4", "S6", "S7", "S8", "S9", "S18", "S19", "S20")


@pytest.mark.parametrize("mode", ["partitioned", "sharing", "free"])
def test_racing_schedulers_break_no_promise_and_leave_nothing_unbound(mode: str) -> None:
    outcome = run_race(Plan(mode))
    assert outcome.violations == {}, outcome.examples
    assert outcome.unbound == []
    assert outcome.slots > 2000
    assert {invariant: outcome.checked.get(invariant, 0) for invariant in ASKED if not outcome.checked.get(invariant)} == {}
    # A race in which nothing happened would show nothing.
    assert min(outcome.failed, outcome.drained, outcome.cordons, outcome.reserved) > 0
    assert len(outcome.reports) == SCHEDULERS + (mode != "sharing"), "one was killed, and came back unless others do its part"
    # On a busy machine one may come when all is done, or be killed before it did anything; two that bind are a race.
    assert sum(report.bound > 0 for report in outcome.reports) >= 2
    refused = outcome.refusals()
    if mode == "free":
        assert outcome.conflicts > 0
        assert refused["AlreadyBound"] > 0, "slots were contended"
        assert refused["NoFit"] > 0, "places were contended"
    else:  # a part whose scheduler starts late, or is held up by a busy machine, is picked up: then both have it for a moment
        most = {"partitioned": 0.01, "sharing": 0.1}[mode]
        assert refused["AlreadyBound"] <= most * outcome.slots, "parts keep them off each other's slots"


def test_an_authority_that_does_not_look_again_is_caught_by_the_checker() -> None:
    outcome = run_race(Plan("free", bursts=8, nodes=20, mutant="sells-twice"))
    assert outcome.violations.get("S2", 0) > 0, "schedulers oversell a node where the authority lets them"
