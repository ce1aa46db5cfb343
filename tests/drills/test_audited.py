"""A drill ends with the history of every plane: one that is broken, cut or not there fails it."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.compose.wiring import PLANES
from fairlead.drills import running
from fairlead.observe.audit import CHECKED
from fairlead.store.contract import Batch, ObjectRow


class Kept:
    """A history whose batches count for nothing; what is unread is so as often as it is looked at."""

    begins = ""
    reaches = "1:5"

    def __init__(self, *looks: list[str]) -> None:
        self.looks = list(looks)

    def __iter__(self) -> Iterator[Batch]:
        return iter(())

    readable = __iter__

    def rows(self) -> list[ObjectRow]:
        return []

    readable_rows = rows

    def unread(self) -> list[str]:
        return self.looks.pop(0) if self.looks else []


class Clock:
    slept_s = 0.0

    async def sleep(self, seconds: float) -> None:
        self.slept_s += seconds


@pytest.mark.parametrize(
    ("looks", "revisions", "said"),
    [
        (([], []), 5, ""),
        ((["behind"], []), 5, ""),
        ((["damaged"], ["damaged"]), 5, "damaged"),
        (([],), 0, "there is no history"),
    ],
)
async def test_a_history_that_is_not_all_there_fails_the_drill(
    monkeypatch: pytest.MonkeyPatch, looks: tuple[list[str], ...], revisions: int, said: str
) -> None:
    monkeypatch.setattr(running, "read_config", lambda path, kind: SimpleNamespace(data="d"))
    monkeypatch.setattr(
        running, "audit_of", lambda kept, runs: {"revisions": revisions, "invariants": {}, "reaches": "", "unread": kept.unread()}
    )
    checks: list[tuple[str, bool, str]] = []
    scene: Any = SimpleNamespace(check=lambda *given: checks.append(given), figures={})
    layout: Any = SimpleNamespace(config_of=lambda plane: plane)
    clock: Any = Clock()
    nothing: Any = None
    await running.Running(layout, clock, nothing, lambda directory: Kept(*looks), nothing)._audit(scene)
    ((_, passed, detail),) = checks
    assert (passed, said in detail) == (not said, True)
    assert bool(clock.slept_s) is bool(looks[0]), "who is behind is given a moment"
    assert said or detail.startswith("20 effects of 4 planes; not asked: S1, S2, S3,"), "nothing was asked, and that is said"
    assert {plane: bool(of["unread"]) for plane, of in scene.figures["audit"].items()} == dict.fromkeys(PLANES, bool(said))


async def test_a_drill_says_which_promises_were_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {name: {"checked": 1, "violations": []} for name in CHECKED if name not in ("S10", "S20")}
    answers = [{**asked, "S10": {"checked": int(at == 3), "violations": []}} for at in range(len(PLANES))]
    monkeypatch.setattr(running, "read_config", lambda path, kind: SimpleNamespace(data="d"))
    monkeypatch.setattr(
        running, "audit_of", lambda kept, runs: {"revisions": 1, "invariants": answers.pop(), "reaches": "", "unread": []}
    )
    checks: list[tuple[str, bool, str]] = []
    scene: Any = SimpleNamespace(check=lambda *given: checks.append(given), figures={})
    layout: Any = SimpleNamespace(config_of=lambda plane: plane)
    nothing: Any = None
    await running.Running(layout, nothing, nothing, lambda directory: Kept(), nothing)._audit(scene)
    assert checks[0][1:] == (True, "4 effects of 4 planes; not asked: S13, S14, S15, S17, S20")
    assert scene.figures["not_asked"] == {"no_occasion": ["S20"], "no_history_shows": ["S13", "S14", "S15", "S17"]}
