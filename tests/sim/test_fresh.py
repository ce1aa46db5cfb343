"""Seeds that nobody has run before: they follow from the package's source, so that every change meets others, and one tree
meets the same ones wherever it is tested. One that fails is a finding, not bad luck: its message says how to see it again."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.observe.build import build
from fairlead.sim import campaign
from fairlead.sim.world import run_scenario

SEEDS = 8
MINUTES = 0.5
FIRST = int(build().rpartition("+")[2], 16) % 1_000_000_000


@pytest.mark.parametrize("number", range(SEEDS))
def test_a_fresh_seed_breaks_no_promise(number: int, tmp_path: Path) -> None:
    scenario = campaign.scenario_of(FIRST + number, campaign.MIXED, MINUTES)
    verdict = run_scenario(scenario)
    shown = f"fairlead sim run --profile {scenario.profile} --first-seed {scenario.seed} --seeds 1 --minutes {MINUTES} --thin"
    assert not verdict.findings, f"{campaign.told(scenario, verdict, campaign.keep(scenario, verdict, tmp_path))}\nor: {shown}"


def test_other_source_has_other_seeds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("ONE = 1\n")
    monkeypatch.setattr("fairlead.observe.build._ROOT", tmp_path)
    first = build()
    assert build() == first
    (tmp_path / "one.py").write_text("ONE = 2\n")
    assert build() != first
