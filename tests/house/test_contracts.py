"""The import contracts cover every package, also the ones that did not exist when a contract was written."""

from __future__ import annotations

import configparser

from tests.house.banned import ROOT


def _contracts() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / ".importlinter")
    return parser


def _packages() -> set[str]:
    """Top-level packages and modules of fairlead/, as import names."""
    top = (ROOT / "fairlead").iterdir()
    names = {p.name.removesuffix(".py") for p in top if (p / "__init__.py").exists() or p.suffix == ".py"}
    return {f"fairlead.{name}" for name in names if not name.startswith("__")}


def test_every_package_has_a_layer() -> None:
    layers = _contracts()["importlinter:contract:layers"]["layers"]
    placed = {word.strip("()") for word in layers.split() if word != "|"}
    missing = {name for name in _packages() if not any(layer == name or layer.startswith(name + ".") for layer in placed)}
    assert not missing, f"say in .importlinter where these belong: {sorted(missing)}"


def test_every_package_but_the_roots_is_kept_from_choosing_an_engine() -> None:
    sources = set(_contracts()["importlinter:contract:engines"]["source_modules"].split())
    roots = {"fairlead.main", "fairlead.sim", "fairlead.store"}
    assert sources == _packages() - roots
