"""One test for every cell of the degraded-mode table (fairlead/decide/degraded.py): a real scheduler and a real authority."""

from __future__ import annotations

import asyncio
from functools import cache
from itertools import product
from pathlib import Path

import pytest

from fairlead.decide.built_in_policy import BUILT_IN
from fairlead.decide.degraded import KINDS, RULES, Mode, cell, rendered
from tests.autonomy.modes import SHOWN, Fates, in_mode

MODES = [Mode(*bits) for bits in product((True, False), repeat=5)]
AUTONOMOUS = {each.name: each.local_autonomy for each in BUILT_IN.workload_classes}
DOCS = Path(__file__).parents[2] / "docs" / "autonomy.md"


@cache
def seen(mode: Mode) -> tuple[Fates, dict[tuple[str, str], str]]:
    return asyncio.run(in_mode(mode))


def name_of(mode: Mode) -> str:
    return "without " + (", ".join(name for name, there in mode._asdict().items() if not there) or "nothing")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", MODES, ids=name_of)
def test_new_work_meets_the_fate_that_the_table_says_at_the_scheduler_and_at_commit(mode: Mode, kind: str) -> None:
    fates, answers = seen(mode)
    wanted = cell(mode, AUTONOMOUS[KINDS[kind]])
    for which in ("within", "above"):
        fate = getattr(wanted, which)
        assert fates[kind, which] == fate, which
        if fate.what == "Held":
            assert SHOWN[answers[kind, which]] == fate.reason, which


def test_every_rule_is_the_first_for_some_mode() -> None:
    used = {id(cell(mode, autonomous)) for mode in MODES for autonomous in (True, False)}
    assert used == {id(rule.cell) for rule in RULES}


def test_the_document_has_the_table_as_it_is() -> None:
    assert rendered() in DOCS.read_text()
