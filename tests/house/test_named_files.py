"""A module's docstring says who calls it and what is elsewhere: every file it names is there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.house.banned import ROOT

FILE = re.compile(r"(?<![\w/.])(?:\w+/)*\w+\.py\b")
FOLDERS = ("fairlead", "bench", "tests")


def named() -> Iterator[tuple[str, str]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            doc = ast.get_docstring(ast.parse(path.read_text())) or ""
            yield from ((path.relative_to(ROOT).as_posix(), name) for name in FILE.findall(doc))


def test_every_file_that_a_docstring_names_is_there() -> None:
    there = [path.relative_to(ROOT).as_posix() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    ends = {"/".join(path.split("/")[start:]) for path in there for start in range(path.count("/") + 1)}
    assert [f"{path} names {name}" for path, name in named() if name not in ends] == []
