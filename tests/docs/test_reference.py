"""The reference is what the model says: a page that is out of date fails here, and `make docs` writes it again."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead.cli.reference import BOX, FOLDER, PAGES, RUNNING, diagram, out_of_date
from fairlead.model.lifecycle import STEPS, SlotState
from fairlead.model.refusals import REFUSALS
from fairlead.model.registry import KINDS, SIDE_EFFECTS

ROOT = Path(__file__).resolve().parents[2]


def test_every_page_is_up_to_date() -> None:
    assert out_of_date() == [], "run `make docs`"
    assert {path.name for path in FOLDER.glob("*.md")} == set(PAGES), "a page that nothing writes"


def test_a_stale_and_a_missing_page_are_named(tmp_path: Path) -> None:
    for name, make in PAGES.items():
        (tmp_path / name).write_text(make())
    assert out_of_date(tmp_path) == []
    (tmp_path / "refusals.md").write_text("old")
    (tmp_path / "objects.md").unlink()
    assert sorted(out_of_date(tmp_path)) == ["objects.md", "refusals.md"]


def test_check_writes_nothing_and_says_so_with_its_exit_code() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fairlead.cli.reference", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, ""), done


def test_the_diagram_draws_every_step_and_no_other() -> None:
    drawn: set[tuple[SlotState | None, SlotState, str]] = set()
    for source, target, owner in re.findall(r"^\s+(\S+) --> (\S+): (\S+)$", diagram(), re.MULTILINE):
        sources = RUNNING if source == BOX else [None if source == "[*]" else SlotState(source)]
        targets = RUNNING if target == BOX else [SlotState(target)]
        drawn |= {(before, after, owner) for before in sources for after in targets}
    assert drawn == {(before, after, step.owner.value) for (before, after), step in STEPS.items()}


@pytest.mark.parametrize("kind", [info.kind for info in KINDS.values()])
def test_every_kind_has_its_section(kind: str) -> None:
    assert f"\n## {kind}\n" in (FOLDER / "objects.md").read_text()


def test_every_refusal_and_side_effect_is_listed() -> None:
    refusals, objects = (FOLDER / "refusals.md").read_text(), (FOLDER / "objects.md").read_text()
    assert [name for name in REFUSALS if f"| `{name}` |" not in refusals] == []
    assert [effect.name for effect in SIDE_EFFECTS if f"| {effect.name} |" not in objects] == []
