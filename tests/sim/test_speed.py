"""What a simulated second costs, in steps and in calls of functions: counted, so that it is the same on every machine."""

from __future__ import annotations

import cProfile

from fairlead.sim.scenario import Scenario, Work
from fairlead.sim.world import run_scenario

# One global plane and three regions with ten nodes each, two commands a second for twenty seconds, then rest. Lower these when
# something becomes cheaper; a higher number needs a reason in its commit.
STEPS_PER_SIMULATED_S = 765
STEPS_PER_COMMIT = 47  # it was 40 before one commit held what components make of a change: there are fewer now
CALLS_PER_SIMULATED_S = 34_500  # of Python functions: microseconds follow it, and a step may well become dearer
MARGIN = 1.2


def test_a_simulated_second_and_a_commit_take_no_more_steps_and_calls_than_they_did() -> None:
    work = Work(workloads=10, actions=120.0, operators=0.0, replays=0.0)
    counter = cProfile.Profile(subcalls=False, builtins=False)
    counter.enable()
    try:
        verdict = run_scenario(Scenario(1, "full", 3, 1, 10, rough_s=20.0, settle_s=10.0, quiet_s=5.0, work=work))
    finally:
        counter.disable()
    assert not verdict.findings
    per_second, per_commit = verdict.steps / verdict.simulated_s, verdict.steps / verdict.commits
    calls = sum(each.callcount for each in counter.getstats()) / verdict.simulated_s
    assert per_second <= STEPS_PER_SIMULATED_S * MARGIN, f"{per_second:.0f} steps a simulated second"
    assert per_commit <= STEPS_PER_COMMIT * MARGIN, f"{per_commit:.1f} steps a commit"
    assert calls <= CALLS_PER_SIMULATED_S * MARGIN, f"{calls:.0f} calls a simulated second"
