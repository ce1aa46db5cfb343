"""Runbooks: every one is listed, has its parts, and every command in it is one that exists. That they work is tested on the real
platform (tests/platform/test_scenarios.py)."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from fairlead.cli import frame
from fairlead.cli.reference_cli import commands
from tests.docs.runbooks import FOLDER, RUNBOOKS, lines_of

PARTS = ("**When**", "**What it means**", "**What to do**", "**Over when**", "**Undo**")
ALL = dict(commands(frame.fairlead))
ROOT = FOLDER.parents[2]
RULES = [rule for group in yaml.safe_load((ROOT / "deploy" / "alerts.yml").read_text())["groups"] for rule in group["rules"]]
ALERTS: list[dict[str, Any]] = [rule for rule in RULES if "alert" in rule]


def test_there_is_a_runbook_for_each_of_these_and_it_is_listed() -> None:
    wanted = (
        "recovery-override", "zone-avoidance", "autoscaler-pause", "repair-approval", "store-failover", "restore",
        "stuck-finalizer", "quota-emergency", "policy-rollback", "break-glass", "broken-promise", "drifted-ledger", "full-disk",
        "overload", "controller-stalled", "certificate-rotation", "leaked-key", "plugin-left-out",
        "two-writers",
    )  # fmt: skip
    assert sorted(wanted) == sorted(RUNBOOKS)
    listed = (FOLDER / "README.md").read_text()
    assert all(f"({name}.md)" in listed for name in wanted)


@pytest.mark.parametrize("rule", ALERTS, ids=[str(rule["alert"]) for rule in ALERTS])
def test_the_page_that_an_alert_leads_to_names_it(rule: dict[str, Any]) -> None:
    leads_to = ROOT / rule["annotations"]["runbook"]
    assert re.search(rf"\b{rule['alert']}\b", leads_to.read_text()), f"{leads_to.name} does not speak of {rule['alert']}"


@pytest.mark.parametrize("name", RUNBOOKS)
def test_a_runbook_says_when_what_how_and_how_it_ends(name: str) -> None:
    text = (FOLDER / f"{name}.md").read_text()
    assert [part for part in PARTS if part not in text] == []
    assert lines_of(name), "a runbook without a command is a letter"


@pytest.mark.parametrize(("name", "line"), [(name, line) for name in RUNBOOKS for line in lines_of(name)])
def test_every_command_of_a_runbook_is_understood(name: str, line: str, tmp_path: Path) -> None:
    (tmp_path / "us-west.history").touch()
    words = shlex.split(line.replace("$STATE", str(tmp_path)))
    assert words.pop(0) == "fairlead"
    path: tuple[str, ...] = ()
    while words and (*path, words[0]) in ALL:
        path = (*path, words.pop(0))
    command = ALL[path]
    assert not isinstance(command, click.Group), f"{line}: a command is missing"
    command.make_context(path[-1], words)  # raises on a flag or a value that is none
