"""Decision records and the glossary keep their shape, and the commit protocol's page knows every mutant."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fairlead.sim.commit_model.records import Mutant

ROOT = Path(__file__).resolve().parents[2]
RECORDS = sorted((ROOT / "docs" / "adr").glob("*.md"))
PARTS = ("**Context.**", "**Decision.**", "**Alternatives.**", "**Cost.**", "**Checked by.**")


@pytest.mark.parametrize("record", RECORDS, ids=lambda path: path.stem)
def test_a_decision_record_has_all_its_parts_on_one_page(record: Path) -> None:
    text = record.read_text()
    assert [part for part in PARTS if part not in text] == []
    assert len(text.splitlines()) <= 60


def test_decision_records_are_numbered_without_gaps_and_listed() -> None:
    assert [int(record.name[:4]) for record in RECORDS] == list(range(1, len(RECORDS) + 1))
    index = (ROOT / "docs" / "README.md").read_text()
    assert [record.name for record in RECORDS if f"adr/{record.name}" not in index] == []


def test_no_word_has_two_meanings() -> None:
    words = re.findall(r"^\| ([^|]+?) \|", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    terms = [word for word in words if word not in {"word", "---"}]
    assert len(terms) > 60
    assert sorted(terms) == sorted(set(terms))


def test_every_mutant_of_the_commit_model_is_explained() -> None:
    page = (ROOT / "docs" / "commit-protocol.md").read_text()
    assert [mutant.name for mutant in Mutant if f"`{mutant.name.lower()}`" not in page] == []
