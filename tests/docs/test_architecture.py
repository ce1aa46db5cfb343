"""ARCHITECTURE.md describes the tree that is there: paths exist, packages are in the map."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text()
PATH = re.compile(r"`((?:fairlead|tests|docs|requirements|\.ci|\.importlinter)(?:/[\w./-]*)?)`")


def named_paths() -> list[str]:
    return sorted(set(PATH.findall(TEXT)))


def test_the_map_names_paths_at_all() -> None:
    assert len(named_paths()) > 20  # else the expression above no longer matches how they are written


@pytest.mark.parametrize("path", named_paths())
def test_every_path_named_in_the_map_exists(path: str) -> None:
    # `fairlead` alone is the console script, which is in no directory.
    assert path == "fairlead" or (ROOT / path).exists()


def test_every_package_is_in_the_map() -> None:
    top = [entry for entry in (ROOT / "fairlead").iterdir() if not entry.name.startswith(("_", "."))]
    packages = [f"fairlead/{entry.name}/" for entry in top if (entry / "__init__.py").exists()]
    missing = [package for package in packages if f"`{package}`" not in TEXT]
    assert not missing, f"say in ARCHITECTURE.md what these own: {missing}"
