"""The pages about protocol rules and faults have every id once, and name code and tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fairlead.sim.coverage import FAULTS, NOT_INJECTED

ROOT = Path(__file__).resolve().parents[2]
DESIGN = ROOT / "docs" / "design"
RULES = "".join((DESIGN / name).read_text() for name in ("protocols.md", "protocols-capacity.md"))
SECTIONS = re.findall(r"^## (P\d+) (.*?)(?=^## |\Z)", RULES, re.MULTILINE | re.DOTALL)
FAULT_ROWS = re.findall(r"^\| (F\d+) \|.*\| (.+?) \|$", (DESIGN / "faults.md").read_text(), re.MULTILINE)
PATH = re.compile(r"`((?:fairlead|tests)/[\w/.]+)(?:::(\w+))?`")


def test_every_rule_is_there_once_and_in_order() -> None:
    assert [name for name, _ in SECTIONS] == [f"P{number}" for number in range(1, 22)]


@pytest.mark.parametrize(("name", "text"), SECTIONS, ids=[name for name, _ in SECTIONS])
def test_a_rule_names_its_code_and_a_test_of_it(name: str, text: str) -> None:
    code, _, test = text.partition("Test:")
    assert PATH.findall(code.partition("Code:")[2]), f"{name} names no code"
    assert PATH.findall(test), f"{name} names no test"
    for path, function in PATH.findall(text):
        assert (ROOT / path).exists(), f"{name}: there is no {path}"
        assert not function or re.search(rf"^(?:async )?def {function}\(", (ROOT / path).read_text(), re.MULTILINE), function


def test_every_fault_is_there_and_says_who_strikes() -> None:
    assert tuple(name for name, _ in FAULT_ROWS) == FAULTS
    for name, by in FAULT_ROWS:
        if name in NOT_INJECTED:
            assert by == "-"
            continue
        sources = [(ROOT / path).read_text() for path, _ in PATH.findall(by)]
        assert sources, f"{name} names nobody"
        assert all(name in source for source in sources), f"{name}: {by} does not count it"
