"""docs/cli.md and docs/reference/cli.md name commands and flags that exist, and all of them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from fairlead.cli import frame
from fairlead.cli.reference_cli import commands

DOCS = Path(__file__).resolve().parents[2] / "docs"
ALL = dict(commands(frame.fairlead))


def examples() -> list[str]:
    blocks = re.findall(r"^```\n(.*?)^```", (DOCS / "cli.md").read_text(), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.startswith("fairlead ")]


def test_the_page_has_examples_at_all() -> None:
    assert len(examples()) > 30


@pytest.mark.parametrize("line", examples())
def test_every_example_is_a_command_line_that_is_understood(line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    path: tuple[str, ...] = ()
    while words and (*path, words[0]) in ALL:
        path = (*path, words.pop(0))
    command = ALL[path]
    assert not isinstance(command, click.Group), f"{line}: a command is missing"
    command.make_context(path[-1], words)  # raises on a flag or a value that is none


@pytest.mark.parametrize("path", list(ALL), ids=" ".join)
def test_every_command_and_flag_is_in_the_reference(path: tuple[str, ...]) -> None:
    text = (DOCS / "reference" / "cli.md").read_text()
    _, found, rest = text.partition(f"\n## fairlead {' '.join(path)}\n")
    assert found, f"fairlead {' '.join(path)} is not in the reference: run `make docs`"
    section = rest.partition("\n## ")[0] + text.partition("## Connection flags")[2].partition("\n## ")[0]
    missing = [
        name for each in ALL[path].params if isinstance(each, click.Option) for name in each.opts if f"`{name}`" not in section
    ]
    assert missing == []
