"""Every drill on a real platform, one after another as `make drills` runs them. Long, so only with `make soak`; two of them run
with every test in test_scenarios.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.drills.catalogue import DRILLS
from tests.platform.platforms import PYTHON, Platform

DRILL_S = 900.0


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    made = Platform(tmp_path_factory.mktemp("drills") / "state")
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.mark.soak
@pytest.mark.parametrize("name", DRILLS)
def test_a_drill_is_as_expected_and_leaves_nothing_behind(platform: Platform, name: str) -> None:
    done = platform.call(
        PYTHON, "-m", "fairlead.main", "drill", name, "--state", str(platform.state), "--json", patience_s=DRILL_S
    )
    assert done.stdout, done.stderr
    results = json.loads(done.stdout)["results"]
    assert [check for check in results["checks"] if not check["passed"]] == [], done.stderr
    assert results["passed"]
    assert done.returncode == 0


@pytest.mark.soak
def test_a_drill_without_a_platform_is_run_on_one_that_is_started_for_it(tmp_path: Path) -> None:
    nobody = Platform(tmp_path / "state")
    command = (PYTHON, "-m", "fairlead.main", "drill", "watch-loss", "--state", str(nobody.state), "--json")
    done = nobody.call(*command, patience_s=DRILL_S)
    assert done.stdout, done.stderr
    told = json.loads(done.stdout)
    assert (told["params"]["platform"], told["results"]["passed"]) == ("throwaway", True), done.stderr
    assert [found.name for found in nobody.state.iterdir()] == ["drills"]


@pytest.mark.soak
@pytest.mark.parametrize("plane", ["global", "us-east", "us-west", "eu-central"])
def test_the_history_of_all_that_is_judged_again_and_is_the_same(platform: Platform, plane: str) -> None:
    file = str(platform.state / f"{plane}.history")
    platform.fairlead("export", file, "--plane", plane, "--state", str(platform.state))
    results = json.loads(platform.fairlead("replay", file, "--verify", "--json"))["results"]
    assert results["identical"]
    assert results["judged"] > 100
    if plane == "global":
        return
    assert results["placements"]["decided"] > 0
    rule = "residency: [{tenants: [risk, billing, search, fraud, analytics], areas: [nowhere]}]"
    policy = platform.state / "strict.yaml"
    policy.write_text(
        f"apiVersion: fairlead.dev/v1alpha1\nkind: SchedulerPolicy\nmetadata: {{name: r99}}\nspec: {{revision: 99, {rule}}}\n"
    )
    fork = json.loads(platform.fairlead("replay", file, "--fork", f"policy={policy}", "--json"))["results"]["placements"]["fork"]
    assert fork["would_wait"] > 0, "no node lies there"
    assert "gate residency" in fork["by"]
    assert all(one["why"] for one in fork["differences"])
