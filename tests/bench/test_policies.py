"""The policies that come with the project can be applied as they are, and decide what the benchmarks say they decide."""

from __future__ import annotations

import pytest

from bench.policies import FOLDER, shipped
from fairlead.decide.policy import CompiledPolicy, compile_policy


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.yaml")))
def test_a_shipped_policy_is_admitted_and_compiles(name: str) -> None:
    assert isinstance(compile_policy(shipped(name)), CompiledPolicy)


def test_packing_is_by_expected_fill_alone_so_that_its_figures_are_its_own() -> None:
    assert [(score.name, score.weight) for score in shipped("expected-fill").scores] == [("fill", 1)]
