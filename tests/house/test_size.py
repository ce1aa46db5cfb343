"""The tail is what we watch: long files and long functions need a reason, and may only shrink."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from tests.house.banned import ROOT, production_files

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60


@dataclass(frozen=True, slots=True)
class Allowance:
    lines: int  # what it may have at most; lower it when the code shrinks
    reason: str  # one a reader would accept


# "path" for a file, "path::qualified.name" for a function.
EXCEPTIONS: dict[str, Allowance] = {}


def _sizes() -> dict[str, int]:
    sizes: dict[str, int] = {}
    for path in production_files():
        name = path.relative_to(ROOT).as_posix()
        source = path.read_text()
        sizes[name] = len(source.splitlines())
        sizes.update({f"{name}::{qualified}": lines for qualified, lines in _functions(ast.parse(source), "")})
    return sizes


def _functions(node: ast.AST, prefix: str) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            qualified = f"{prefix}{child.name}"
            if not isinstance(child, ast.ClassDef):
                found.append((qualified, (child.end_lineno or child.lineno) - child.lineno + 1))
            found.extend(_functions(child, qualified + "."))
    return found


def _limit(name: str) -> int:
    return FUNCTION_LINES_MAX if "::" in name else FILE_LINES_MAX


def test_long_files_and_functions_have_a_reason_and_do_not_grow() -> None:
    too_long = [
        f"{name}: {lines} lines, at most {EXCEPTIONS[name].lines if name in EXCEPTIONS else _limit(name)}"
        for name, lines in _sizes().items()
        if lines > (EXCEPTIONS[name].lines if name in EXCEPTIONS else _limit(name))
    ]
    assert not too_long, "split it, or give the reason in tests/house/test_size.py:\n" + "\n".join(too_long)


def test_an_exception_goes_when_its_reason_is_gone() -> None:
    sizes = _sizes()
    stale = [name for name in EXCEPTIONS if sizes.get(name, 0) <= _limit(name)]
    assert not stale, "no longer needed: " + ", ".join(stale)
