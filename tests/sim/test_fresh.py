"""Seeds that nobody has run before: a slice of a campaign, of the day on which it is run (fresh.py). One that fails is a finding,
not bad luck: its message says how to see it again."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from fairlead.sim import campaign
from fairlead.sim.scenario import Scenario
from fairlead.sim.world import Verdict, run_scenario
from tests.sim import fresh

PARTS = 4  # that run beside each other
PART_CPU_S = 10.0
MINUTES = 0.5


def slice_of(
    seed: int, cpu_s: float, run: Callable[[Scenario], Verdict] = run_scenario, cpu: Callable[[], float] = time.process_time
) -> list[tuple[Scenario, Verdict]]:
    """As many seeds as fit, and one at least: this one, and every so many after it. Others may use the machine meanwhile."""
    began, ran = cpu(), list[tuple[Scenario, Verdict]]()
    while not ran or cpu() - began < cpu_s:
        scenario = campaign.scenario_of(seed + PARTS * len(ran), campaign.MIXED, MINUTES)
        ran.append((scenario, run(scenario)))
    return ran


@pytest.mark.parametrize("part", range(PARTS))
def test_fresh_seeds_break_no_promise(part: int, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    first = fresh.first() + part
    ran = slice_of(first, PART_CPU_S)
    record_property(fresh.RAN, f"{len(ran)} from {first}, every {PARTS}th, each {MINUTES} minutes")
    failed = [(scenario, verdict) for scenario, verdict in ran if verdict.findings]
    shown = [
        f"{campaign.told(scenario, verdict, campaign.keep(scenario, verdict, tmp_path))}\nor: fairlead sim run --profile "
        f"{scenario.profile} --first-seed {scenario.seed} --seeds 1 --minutes {MINUTES} --thin"
        for scenario, verdict in failed
    ]
    assert not shown, "\n".join(shown)


def test_a_slice_ends_when_its_time_is_used_up_and_is_never_empty() -> None:
    used = iter(range(100))
    verdict = Verdict(1, "swarm", [], [], 0, 0.0, "", 0, {}, {}, {}, None)
    ran = slice_of(5, 3.0, lambda scenario: verdict, lambda: float(next(used)))
    assert [scenario.seed for scenario, _ in ran] == [5, 5 + PARTS, 5 + 2 * PARTS]
    assert len(slice_of(5, 0.0, lambda scenario: verdict, lambda: 0.0)) == 1


def test_every_day_has_seeds_of_its_own_and_a_run_keeps_those_it_began_with() -> None:
    today, tomorrow = fresh.seed_of(date(2026, 11, 17)), fresh.seed_of(date(2026, 11, 18))
    assert tomorrow - today >= fresh.A_DAY
    environ: dict[str, str] = {}
    begun = fresh.first(environ)
    assert environ == {fresh.FROM: str(begun)}, "workers inherit it"
    assert fresh.first({fresh.FROM: "7"}) == 7, "whoever wants to see a day again says so"


def test_a_run_of_the_tests_says_which_seeds_it_is_about_to_meet(pytestconfig: pytest.Config) -> None:
    said = pytestconfig.hook.pytest_report_header(config=pytestconfig, start_path=pytestconfig.rootpath)
    assert fresh.header() in [line for lines in said for line in ([lines] if isinstance(lines, str) else lines)]
