"""The ban-list: names that would let time, chance or a stray task reach production code outside the ports.

Owns the list, its exceptions and the syntax-tree walk that applies them. Never imports the code it reads. Called by
test_banned.py and, with file names, by hand: `python -m tests.house.banned fairlead/authority/hub.py`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# A name stands for itself and for everything below it: "random" also bans random.Random.
BANNED = {
    "time": "read a Clock from fairlead.ports; the simulator has no other clock",
    "datetime.datetime.now": "plane time comes from the authority, wall time for display from Clock",
    "datetime.datetime.utcnow": "plane time comes from the authority, wall time for display from Clock",
    "datetime.datetime.today": "plane time comes from the authority, wall time for display from Clock",
    "datetime.date.today": "plane time comes from the authority, wall time for display from Clock",
    "random": "draw from a Random port, one stream per purpose, so that a seed reproduces the run",
    "numpy.random": "draw from a Random port, one stream per purpose, so that a seed reproduces the run",
    "uuid": "ids come from the Ids port",
    "secrets": "ids come from the Ids port",
    "os.urandom": "ids come from the Ids port",
    "os.getrandom": "ids come from the Ids port",
    "asyncio.sleep": "wait on a Clock, or better on the event that makes the wait end",
    "asyncio.wait_for": "on 3.11 it can swallow a cancellation; use asyncio.timeout",
    "asyncio.wait": "its sets of tasks have no order; use a TaskGroup",
    "asyncio.create_task": "a task nobody awaits loses its exception; use a TaskGroup, or spawn from fairlead.ports",
    "asyncio.ensure_future": "a task nobody awaits loses its exception; use a TaskGroup, or spawn from fairlead.ports",
}

# Where a banned name is the point of the module. Short on purpose: each line is a hole in the simulator's wall.
ALLOWED: dict[str, dict[str, str]] = {
    "fairlead/ports.py": {
        "*": "holds the real implementations of the ports",
    },
    "fairlead/main.py": {
        "*": "the composition root starts the tasks and hands out the real clock",
    },
    "fairlead/agent/drivers/shim.py": {
        "time": "a program of its own between agent and instance: real by nature, never simulated, and too small to import ports",
    },
    "fairlead/sim/walls.py": {
        "time": "takes these names away from whoever is inside, and so must name them",
        "random": "the same",
        "secrets": "the same",
        "uuid": "the same",
    },
    "fairlead/sim/loop.py": {
        "random": "owns the seeded generators every draw of a simulation comes from",
        "asyncio.sleep": "the one way for simulated code to let virtual time pass",
        "asyncio.create_task": "is the loop: tasks of simulated processes are made here",
    },
}


@dataclass(frozen=True, slots=True)
class Finding:
    path: str
    line: int
    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.name} is banned: {self.reason}"


def production_files() -> list[Path]:
    return sorted((ROOT / "fairlead").rglob("*.py"))


def find_banned(source: str, path: str) -> list[Finding]:
    """Every banned name in one file, allowed or not, in the order of its lines."""
    tree = ast.parse(source)
    aliases = _aliases(tree)
    groups = _task_group_names(tree)
    found = set(_imports(tree, path)) | set(_uses(tree, path, aliases, groups))
    return sorted(found, key=lambda finding: (finding.line, finding.name))


def not_allowed(findings: list[Finding]) -> list[Finding]:
    return [f for f in findings if not _allowance(f.path, f.name)]


def _allowance(path: str, name: str) -> str | None:
    entries = ALLOWED.get(path, {})
    return next((entry for entry in entries if entry == "*" or name == entry or name.startswith(entry + ".")), None)


def _banned_as(name: str) -> str | None:
    return next((entry for entry in BANNED if name == entry or name.startswith(entry + ".")), None)


def _finding(path: str, line: int, name: str) -> Iterator[Finding]:
    entry = _banned_as(name)
    if entry is not None:
        yield Finding(path, line, name, BANNED[entry])


def _imports(tree: ast.AST, path: str) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                # `import time` alone is reported where it is used; modules banned whole are reported here.
                yield from _finding(path, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield from _finding(path, node.lineno, f"{node.module}.{alias.name}")


def _uses(tree: ast.AST, path: str, aliases: dict[str, str], groups: set[str]) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute):
            continue
        name = _dotted(node, aliases)
        if name is not None:
            yield from _finding(path, node.lineno, name)
        if node.attr in {"create_task", "ensure_future"} and name != f"asyncio.{node.attr}":
            receiver = _last_name(node.value)
            if receiver not in groups:
                reason = BANNED["asyncio.create_task"]
                yield Finding(path, node.lineno, f"asyncio.{node.attr}", reason)


def _aliases(tree: ast.AST) -> dict[str, str]:
    """What each imported local name stands for."""
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.split(".")[0]
                aliases[alias.asname or root] = alias.name if alias.asname else root
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return aliases


def _task_group_names(tree: ast.AST) -> set[str]:
    """Names that hold a TaskGroup in this file: bound by `async with`, or annotated so."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.withitem) and node.optional_vars is not None:
            if "TaskGroup" in ast.unparse(node.context_expr):
                names.add(_last_name(node.optional_vars))
        elif isinstance(node, ast.arg) and node.annotation is not None:
            if "TaskGroup" in ast.unparse(node.annotation):
                names.add(node.arg)
        elif isinstance(node, ast.AnnAssign) and "TaskGroup" in ast.unparse(node.annotation):
            names.add(_last_name(node.target))
    for node in ast.walk(tree):  # `self._group = group`
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id in names:
            names.update(_last_name(target) for target in node.targets)
    return names


def _dotted(node: ast.expr, aliases: dict[str, str]) -> str | None:
    if isinstance(node, ast.Name):
        return aliases.get(node.id)
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value, aliases)
        return f"{base}.{node.attr}" if base else None
    return None


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def main(arguments: list[str]) -> int:
    paths = [Path(argument).resolve() for argument in arguments] or production_files()
    findings = [
        finding for path in paths for finding in not_allowed(find_banned(path.read_text(), path.relative_to(ROOT).as_posix()))
    ]
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
