"""Sets are not iterated in control paths: their order is another one in every process, and a seed would mean two things.

Looks at what the syntax shows to be a set: one written down, built by `set` or a comprehension, an annotated parameter or
variable, and what those are combined to. What ends in no order again (a set, a sum, `sorted`) is let through. What a function
returns it does not know: the comparison of runs under other hash seeds does (`fairlead sim determinism`).
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATHS = ("authority", "controllers", "scheduler", "decide", "agent")
ALLOWED = {
    "fairlead/agent/drivers/cgroups.py": "real groups of real processes, each removed for itself",
    "fairlead/agent/drivers/directories.py": "each is asked for itself, and all must pass",
    "fairlead/agent/drivers/processes.py": "all of them are killed",
}
SETS = ("set", "frozenset")
ORDERLESS = ("any", "all", "sum", "min", "max", "len", "sorted", "Counter", *SETS)  # what takes in any order
LISTING = ("list", "tuple", "iter", "enumerate", "dict.fromkeys")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def iterated(source: str) -> list[int]:
    """The lines in which a set is gone through in its own order."""
    found = [
        line for each in ast.walk(ast.parse(source)) if isinstance(each, Function) for line in _in(each, frozenset(_names(each)))
    ]
    return sorted(set(found))


def _names(function: Function) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and _is_set(node.value, ()):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and _says_set(node.annotation):
            yield node.target.id
        elif isinstance(node, ast.arg) and node.annotation is not None and _says_set(node.annotation):
            yield node.arg


def _says_set(annotation: ast.expr) -> bool:
    return ast.unparse(annotation).partition("[")[0] in SETS


def _is_set(node: ast.expr, names: Collection[str]) -> bool:
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Call(func=ast.Name(id=name)):
            return name in SETS
        case ast.BinOp(left=left, op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor(), right=right):
            return _is_set(left, names) or _is_set(right, names)
        case ast.Name(id=name):
            return name in names
        case _:
            return False


def _in(function: Function, names: Collection[str]) -> Iterator[int]:
    free = {id(argument) for node in ast.walk(function) if _called(node) in ORDERLESS for argument in _arguments(node)}
    for node in ast.walk(function):
        match node:
            case ast.For(iter=over) | ast.AsyncFor(iter=over) | ast.Starred(value=over) if id(node) not in free:
                over_all = [] if isinstance(node, ast.Starred) and _in_a_set(function, node) else [over]
            case ast.ListComp(generators=parts) | ast.GeneratorExp(generators=parts) | ast.DictComp(generators=parts):
                over_all = [part.iter for part in parts] if id(node) not in free else []
            case ast.Call() if _called(node) in LISTING and id(node) not in free:
                over_all = _arguments(node)
            case _:
                over_all = []
        yield from (over.lineno for over in over_all if _is_set(over, names))


def _in_a_set(function: Function, star: ast.Starred) -> bool:
    return any(star in node.elts for node in ast.walk(function) if isinstance(node, ast.Set))


def _called(node: ast.AST) -> str:
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""


def _arguments(node: ast.AST) -> list[ast.expr]:
    return list(node.args) if isinstance(node, ast.Call) else []


def test_no_control_path_goes_through_a_set_in_its_own_order() -> None:
    files = [path for part in PATHS for path in sorted((ROOT / "fairlead" / part).rglob("*.py"))]
    found = {path.relative_to(ROOT).as_posix(): lines for path in files if (lines := iterated(path.read_text()))}
    assert not {f"{path}:{line}" for path, lines in found.items() if path not in ALLOWED for line in lines}, "sort it"
    assert found.keys() == ALLOWED.keys(), "an exception that is not needed any more"


def test_what_goes_through_a_set_is_seen_and_what_does_not_is_not() -> None:
    bad = (
        "for x in {1, 2}: pass",
        "for x in set(y): pass",
        "a = {z for z in y}\n for x in a: pass",
        "a = set(y) | w\n b = [x for x in a]",
        "b = {x: 1 for x in frozenset(y) - w}",
        "a: set[str] = w\n b = list(a)",
        "b = [*{1, 2}]",
        "b = dict.fromkeys(set(y))",
        "print(x for x in set(y))",
    )
    good = (
        "for x in sorted({1, 2}): pass",
        "for x in [1]: pass",
        "a = set(y)\n b = sum(x for x in a)",
        "b = {x for x in set(y)}",
        "a = set(y)\n b = {*a, 1}",
        "b = sorted(list(set(y)))",
        "b = len(set(y))",
        "a = 3 - 2\n b = [x for x in range(a)]",
    )
    assert [body for body in bad if not iterated(f"def f(y, w):\n {body}\n")] == []
    assert [body for body in good if iterated(f"def f(y, w):\n {body}\n")] == []
    assert iterated("def f(y: set[str]):\n  for x in y: pass\n") == [2]
