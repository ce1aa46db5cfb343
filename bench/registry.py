"""Which benchmarks there are, and the shape they share. Owns names and options; measures nothing.

A benchmark is a module with `OPTIONS`, a tuple of Option, and `async def main(**options) -> dict`, whose answer has the shape
of `bench.planes.result`. If its results hold a list `failures` that is not empty, the run failed (exit code 8). The module's
docstring is its help. Called by `fairlead bench NAME --json ...`.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

NAMES = (
    "commit", "load", "watch", "schedule", "openb", "azure", "decisions", "contention", "api", "recovery", "observe", "grid",
    "fairness", "sim", "overload",
)  # fmt: skip


class Option(NamedTuple):
    """`--name`, with dashes for underscores. Its type is the default's."""

    name: str
    default: int | float | str | bool
    help: str
    choices: tuple[str, ...] = ()


def names() -> list[str]:
    """Those whose module is there."""
    here = Path(__file__).parent
    return [name for name in NAMES if (here / f"{name}.py").exists()]


def load(name: str) -> ModuleType:
    return importlib.import_module(f"bench.{name}")
