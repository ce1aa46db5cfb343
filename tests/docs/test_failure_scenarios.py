"""docs/failure-scenarios.md names every drill, and only metrics, controllers and promises that exist. Each of the eight has a
drill, a script in the simulator and all six answers."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import get_args

import pytest

from fairlead.drills.catalogue import DRILLS
from fairlead.model.controllers import CONTROLLERS
from fairlead.model.kinds.repair import Problem
from fairlead.observe.metrics import METRICS
from fairlead.sim.profiles import PROFILES

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "failure-scenarios.md").read_text()
QUESTIONS = ("desired state", "acts first", "partial progress", "must hold", "proved by", "repair, rollback")
EIGHT = (
    "region-loss-during-recovery", "stale-cache", "commit-timeout", "leader-restart", "policy-rollback",
    "autoscaler-amplification", "repair-during-incident", "override-expiry",
)  # fmt: skip


def section_of(drill: str) -> str:
    """From its heading to the next."""
    return next(
        part for part in re.split(r"^##+ ", PAGE, flags=re.MULTILINE) if re.search(rf"^Drill `{drill}`", part, re.MULTILINE)
    )


@pytest.mark.parametrize("drill", EIGHT)
def test_each_of_the_eight_has_a_drill_a_simulated_script_and_six_answers(drill: str) -> None:
    section = section_of(drill)
    assert drill in DRILLS
    simulated = re.search(r"^Simulated: `(tests/sim/races/\w+)\.py::(test_\w+)`(.*)\.$", section, re.MULTILINE)
    assert simulated is not None, "no script in the simulator is named"
    module = importlib.import_module(simulated[1].replace("/", "."))
    assert callable(getattr(module, simulated[2], None)), f"there is no {simulated[2]} in {simulated[1]}.py"
    assert "played(" in Path(module.__file__ or "").read_text(), "it does not run under the checkers"
    assert set(re.findall(r"`([a-z]+)`", simulated[3])) <= set(PROFILES)
    for question in QUESTIONS:
        assert len(re.findall(rf"^\| {question} \| .+ \|$", section, re.MULTILINE)) == 1, question


def answers(question: str) -> list[str]:
    return re.findall(rf"^\| {question} \| (.*) \|$", PAGE, re.MULTILINE)


def rows_of_the_others() -> dict[str, list[str]]:
    table = PAGE.partition("## The others")[2]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines() if line.startswith("| `")]
    return {row[0].strip("` |"): row for row in rows}


def test_every_drill_has_its_scenario_and_every_scenario_its_drill() -> None:
    named = set(re.findall(r"[Dd]rill `([a-z0-9-]+)`", PAGE)) | set(rows_of_the_others())
    assert named == set(DRILLS)


def test_the_eight_come_first_and_each_answers_every_question() -> None:
    assert tuple(re.findall(r"^Drill `([a-z0-9-]+)`", PAGE, re.MULTILINE)) == EIGHT
    for question in QUESTIONS:
        assert len(answers(question)) == len(EIGHT), question
    for name, row in rows_of_the_others().items():
        assert len(row) == 1 + len(QUESTIONS), name
        assert all(len(cell.strip("| ")) > 1 for cell in row), f"{name} leaves a question open"


def named(cells: list[str]) -> set[str]:
    return {word for cell in cells for word in re.findall(r"`([a-z_]+)`", cell)}


def test_what_proves_it_are_metrics_that_exist() -> None:
    proved = answers("proved by") + [row[5] for row in rows_of_the_others().values()]
    asked = {word for word in named(proved) if not word.startswith("fairlead")}
    assert asked
    assert asked <= set(METRICS), f"there are no metrics {sorted(asked - set(METRICS))}"


def test_repairs_are_named_by_problems_that_exist() -> None:
    told = set(re.findall(r"problem ([A-Z]\w+)", PAGE))
    assert told
    assert told <= set(get_args(Problem)), f"there are no problems {sorted(told - set(get_args(Problem)))}"


def test_who_acts_first_are_controllers_that_exist() -> None:
    acting = answers("acts first") + [row[2] for row in rows_of_the_others().values()]
    known = set(CONTROLLERS)
    assert named(acting)
    assert named(acting) <= known, f"there are no controllers {sorted(named(acting) - known)}"


@pytest.mark.parametrize("cell", answers("must hold") + [row[4] for row in rows_of_the_others().values()])
def test_what_must_hold_names_promises_that_exist(cell: str) -> None:
    found = re.findall(r"\b([SL])(\d+)\b", cell)
    assert found or "called lost" in cell
    assert all(1 <= int(number) <= (20 if kind == "S" else 12) for kind, number in found)
