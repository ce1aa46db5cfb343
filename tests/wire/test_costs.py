"""What a manifest costs that was written to cost much: words are found only for what is told."""

from __future__ import annotations

import difflib
import tracemalloc
from typing import Any

import pytest

from fairlead.model.report import FAULTS_MAX
from fairlead.wire import limits
from fairlead.wire.manifest import Decoded, decode_plain
from tests.wire.manifests import HEAD


def _misspelt(count: int) -> dict[str, Any]:
    return {**HEAD, "kind": "Workload", "metadata": {"name": "x"}, "spec": {f"replicasx{n}": 0 for n in range(count)}}


@pytest.mark.parametrize("mode", ["strict", "warn"])
def test_names_are_suggested_for_the_first_unknown_fields_only(mode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    real = difflib.get_close_matches

    def counted(word: str, *rest: Any, **more: Any) -> list[str]:
        looked.append(word)
        return real(word, *rest, **more)

    monkeypatch.setattr(difflib, "get_close_matches", counted)
    got = decode_plain(_misspelt(5_000), field_validation=mode)
    faults = [fault for fault in (got.warnings if isinstance(got, Decoded) else got) if "unknown" in fault.message]
    assert faults[0].message == "unknown field; did you mean replicas?"
    assert FAULTS_MAX - 5 < len(faults) <= FAULTS_MAX
    assert len(looked) < 50


def test_no_paths_are_made_for_faults_that_are_only_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    real = limits.child

    def counted(path: str, key: object) -> str:
        made.append(key)
        return real(path, key)

    monkeypatch.setattr(limits, "child", counted)
    decode_plain({**_misspelt(0), "spec": {"replicas": "many", "template": {"command": [0] * 20_000}}})
    assert len(made) < 10 * FAULTS_MAX


def test_a_wide_list_far_down_is_walked_without_naming_every_value() -> None:
    tree: Any = [float("nan"), *range(20_000)]
    for _ in range(limits.DEPTH_MAX - 8):
        tree = {"k" * 80: tree}
    tracemalloc.start()
    try:
        got = decode_plain({**_misspelt(0), "spec": tree})
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert not isinstance(got, Decoded)
    assert got[0].path.endswith("[0]")
    assert most < 20_000_000
