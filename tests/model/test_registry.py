"""Nothing is left out of the registry: each kind has owners and a clean-up, each side effect a repair, a deadline and a test."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.model import kinds
from fairlead.model.lifecycle import Role
from fairlead.model.registry import BY_KIND, FINALIZERS, GLOBAL, KINDS, PLANNED, REGION, SIDE_EFFECTS, KindInfo, SideEffect

ROOT = Path(__file__).resolve().parents[2]

# As docs/reference/objects.md lists them.
EFFECTS = {
    "reservation", "binding", "process", "port", "endpoint", "grant", "standing reservation", "cordon", "scaled-up node",
    "canary", "override",
}  # fmt: skip

# Records nobody observes, so nobody owns a status of theirs.
WITHOUT_STATUS_OWNER = {
    "Lease", "Event", "Decision", "Config", "Secret", "AccessRole", "AccessBinding", "ServiceAccount",
}  # fmt: skip


def _object_records() -> set[type[Any]]:
    """Every record under fairlead/model/kinds that has metadata, whether or not anybody registered it."""
    found = set()
    for module in pkgutil.iter_modules(kinds.__path__, kinds.__name__ + "."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, msgspec.Struct) and "metadata" in value.__struct_fields__:
                found.add(value)
    return found


def test_every_object_record_is_a_registered_kind_and_the_other_way_round() -> None:
    assert _object_records() == {info.record for info in KINDS.values()}


@pytest.mark.parametrize("info", KINDS.values(), ids=lambda info: info.kind)
def test_each_kind_has_planes_owners_and_a_clean_up(info: KindInfo) -> None:
    assert info.record.__name__ == info.kind
    assert info.planes <= {GLOBAL, REGION}
    assert info.planes
    assert info.spec_owners
    assert bool(info.status_owners) != (info.kind in WITHOUT_STATUS_OWNER)
    assert len(info.clean_up) > 4
    assert info.record.__struct_fields__ == ("metadata", "spec", "status")
    assert info.spec_fields
    assert "conditions" in info.status_fields


def test_plurals_kinds_and_short_names_mean_one_thing_each() -> None:
    words = [word for info in KINDS.values() for word in (info.plural, info.kind.lower(), *info.short_names)]
    repeated = {word for word in words if words.count(word) > 1} - {"endpoints"}  # its own plural
    assert not repeated
    assert {info.kind for info in KINDS.values()} == set(BY_KIND)
    assert all(re.fullmatch("[a-z]+", plural) and KINDS[plural].plural == plural for plural in KINDS)


def test_every_finalizer_a_kind_names_is_registered_with_an_owner_and_a_deadline() -> None:
    used = {name for info in KINDS.values() for name in info.finalizers}
    assert used <= set(FINALIZERS)
    for name, finalizer in FINALIZERS.items():
        assert finalizer.name == name
        assert isinstance(finalizer.owner, Role)
        assert finalizer.deadline_s > 0


def test_every_side_effect_the_issue_names_is_listed_once() -> None:
    names = [effect.name for effect in SIDE_EFFECTS]
    assert set(names) == EFFECTS
    assert len(names) == len(EFFECTS)


@pytest.mark.parametrize("effect", SIDE_EFFECTS, ids=lambda effect: effect.name)
def test_each_side_effect_has_a_repair_a_deadline_and_a_test_that_exists(effect: SideEffect) -> None:
    assert len(effect.repair) > 4
    assert isinstance(effect.owner, Role)
    assert 0 < effect.deadline_s <= 4 * 3600
    if effect.test == PLANNED:
        return
    path, _, name = effect.test.partition("::")
    file = ROOT / path
    assert file.is_file(), f"{effect.name}: {path} does not exist"
    found = re.search(rf"^(?:async )?def {re.escape(name)}\(", file.read_text(), re.MULTILINE)
    assert found, f"{effect.name}: {path} has no {name}"
