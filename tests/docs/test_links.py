"""Every link of a document leads somewhere: to a file that is there, and to a heading that is in it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    path
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]
    if not any(part.startswith(".venv") for part in path.parts)
)
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def anchor(heading: str) -> str:
    """What a heading is linked by, as forges make it: lower case, joined by hyphens, without punctuation."""
    shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip()).lower()
    return re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")


@cache
def anchors(document: Path) -> frozenset[str]:
    text = FENCED.sub("", document.read_text())
    return frozenset(map(anchor, re.findall(r"^#+ (.+)$", text, re.MULTILINE)))


def broken(document: Path) -> list[str]:
    found = []
    for target, heading in LINK.findall(document.read_text()):
        if "://" in target:
            continue
        file = (document.parent / target).resolve() if target else document
        if not file.exists() or (heading and file.suffix == ".md" and heading not in anchors(file)):
            found.append(f"{target}#{heading}" if heading else target)
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_link_leads_to_a_file_and_a_heading_that_are_there(document: Path) -> None:
    assert broken(document) == []


def test_a_missing_file_and_a_missing_heading_are_both_named(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# What `it` is, and why\n[a](page.md#what-it-is-and-why) [b](#what-it-is-and-why) [c](gone.md) [d](#gone) [e](http://else/#x)\n"
    )
    assert broken(page) == ["gone.md", "#gone"]
