"""Schedulers and controllers ask who was heard since the last time: never since a moment that has not come yet."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.controllers.runtime import Runtime
from fairlead.scheduler.scheduler import Scheduler

NOW_MS = 50_000


class Enough(Exception):
    pass


class Plane:
    """Says once that somebody was heard a minute from now (simulator, seed 30001 of `hints`)."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def heard(self, since_ms: int) -> list[tuple[str, int]]:
        self.asked.append(since_ms)
        if len(self.asked) == 3:
            raise Enough
        return [("n0", NOW_MS + 60_000)]

    def plane_ms(self) -> int:
        return NOW_MS


async def nothing(*facts: Any) -> None:
    pass


@pytest.mark.parametrize("kind", ["scheduler", "controller"])
async def test_nobody_is_deaf_to_the_present_because_of_somebody_who_is_heard_in_the_future(kind: str) -> None:
    plane = Plane()
    taken: list[Any] = []

    def hears(heard: Any, age_ms: int) -> list[str]:
        taken.extend(heard)
        return []

    snapshot = SimpleNamespace(now_ms=0, forget_failures=lambda: None, heard=hears)
    meters = SimpleNamespace(observed=lambda told: None)
    settings, feed = SimpleNamespace(max_age_s=30.0, hear_s=0.5), SimpleNamespace(poke=lambda: None)
    one: Any = SimpleNamespace(
        _plane=plane, _clock=SimpleNamespace(sleep=nothing), _settings=settings, _feed=feed, _report=nothing, snapshot=snapshot,
        queue=SimpleNamespace(meters=lambda now: None), meters=meters, view=SimpleNamespace(heard={}),
    )  # fmt: skip
    with pytest.raises(Enough):
        await (Scheduler._hear_loop(one) if kind == "scheduler" else Runtime._hear_loop(one, one._feed))
    assert plane.asked == [0, NOW_MS, NOW_MS]
    assert dict(taken or one.view.heard.items()) == {"n0": NOW_MS}
