"""The dashboards of deploy/dashboards are those of the code and ask for metrics that exist; Prometheus understands every
question."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from fairlead.observe.dashboards import DASHBOARDS, FOLDER, out_of_date
from fairlead.observe.metrics import METRICS, PREFIX

ASKED = [(board.name, expression) for board in DASHBOARDS for panel in board.panels for expression in panel.asks.values()]
SUFFIXES = ("_bucket", "_count", "_sum")
NEEDS_PROMTOOL = pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool: `make setup` brings it")


def metric_of(name: str) -> str:
    base = name.removeprefix(PREFIX)
    for suffix in SUFFIXES:
        if base not in METRICS:
            base = base.removesuffix(suffix)
    return base


def test_the_files_are_what_the_code_says() -> None:
    assert out_of_date() == [], "run `make docs`"
    assert sorted(path.stem for path in FOLDER.glob("*.json")) == ["binding", "readiness", "scheduling", "serving", "startup"]


@pytest.mark.parametrize(("board", "expression"), ASKED)
def test_every_question_is_about_metrics_that_exist_and_labels_that_they_have(board: str, expression: str) -> None:
    names = re.findall(r"fairlead_[a-z0-9_]+", expression)
    assert names
    grouped = {label.strip() for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(",")}
    for name in names:
        assert metric_of(name) in METRICS, f"{board}: there is no metric {name}"
        known = {*METRICS[metric_of(name)].labels, "plane", "instance", "le"}
        filtered = {label for inside in re.findall(r"\{([^}]*)\}", expression) for label in re.findall(r"(\w+)=~?", inside)}
        assert filtered | grouped <= known, f"{board}: {name} has no labels {sorted((filtered | grouped) - known)}"


@NEEDS_PROMTOOL
def test_prometheus_understands_every_question(tmp_path: Path) -> None:
    rules = [{"record": f"asked:{at}", "expr": text.replace("$plane", ".*")} for at, (_, text) in enumerate(ASKED)]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboards", "rules": rules}]}))
    done = subprocess.run(["promtool", "check", "rules", str(file)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_part_of_a_replicas_way_is_on_a_dashboard_of_its_own() -> None:
    for stage, board in (
        ("scheduling", "scheduling"),
        ("startup", "startup"),
        ("readiness", "readiness"),
        ("serving", "serving"),
    ):
        text = (FOLDER / f"{board}.json").read_text()
        assert f'stage=\\"{stage}\\"' in text
    for path in FOLDER.glob("*.json"):
        panels = json.loads(path.read_text())["panels"]
        places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
        assert len(places) == len(panels), "no panel lies on another"
