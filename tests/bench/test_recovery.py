"""What `fairlead bench recovery` compares: the same planes before the loss and after it."""

from __future__ import annotations

from typing import Any

import pytest

from bench.recovery import LOST, REGIONS, Bench, broken, unseen


class Rig:
    """Every plane has used a second, and the lost one a thousand."""

    def cpu_s(self) -> dict[str, float]:
        return dict.fromkeys(("global", *REGIONS), 1.0) | {LOST: 1000.0, "hosts-west": 50.0}


class Api:
    async def metrics(self, plane: str) -> dict[str, dict[str, float]]:
        return {"fairlead_commands_total": {"": 1000.0 if plane == LOST else 1.0}}


async def test_load_is_that_of_the_planes_which_survive_before_the_loss_as_after_it() -> None:
    rig, api = Rig(), Api()
    bench = Bench(rig, api, {"workloads": 10, "critical": 20})  # type: ignore[arg-type]
    before: Any = (bench._cpu_s(), await bench._commands())
    bench.there.remove(LOST)
    assert before == (bench._cpu_s(), await bench._commands()) == (3.0, 3.0)


def test_it_fails_where_one_does_not_come_back_a_promise_is_broken_or_load_is_more_than_three_times_that_before() -> None:
    steady = {"commands": (100.0, 300.0), "cpu": (0.5, 1.5)}
    assert broken(0, 400, 0.0, steady) == []
    assert broken(1, 400, 0.0, steady) == ["1 of 400 critical workloads did not get their minimum"]
    assert broken(0, 400, 2.0, steady) == ["2 promises were found broken"]
    (more,) = broken(0, 400, 0.0, steady | {"cpu": (0.5, 1.51)})
    assert more.startswith("cpu 1.51 a second after the loss")
    (nothing,) = broken(0, 400, 0.0, steady | {"commands": (0.0, 5.0)})
    assert "nothing to compare with" in nothing


class Patrols:
    """How often each region's patrol has looked; one that has not yet says nothing at all, of breaches neither."""

    def __init__(self, looks: dict[str, float]) -> None:
        self.looks = looks

    async def metrics(self, plane: str) -> dict[str, dict[str, float]]:
        return {"fairlead_invariant_checks_total": {"": self.looks[plane]}} if plane in self.looks else {}


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ({"east": 1, "north": 2}, {"east": 2, "north": 3}, []),
        ({}, {"east": 1, "north": 1}, []),
        ({"east": 1, "north": 2}, {"east": 2, "north": 2}, ["north"]),
        ({}, {}, ["east", "north"]),
    ],
    ids=["both", "both for the first time", "one before the loss only", "nobody"],
)
async def test_where_no_patrol_has_looked_since_the_loss_nothing_found_is_a_failure(
    before: dict[str, float], after: dict[str, float], named: list[str]
) -> None:
    nothing: Any = None
    found = list[dict[str, float]]()
    for looks in (before, after):
        patrols: Any = Patrols({**looks, LOST: 9.0 + len(found)})
        bench = Bench(nothing, patrols, {"workloads": 10, "critical": 20})
        bench.there.remove(LOST)
        found.append(await bench.looks())
    assert unseen(*found) == [f"nobody looked for broken promises in {region} after the loss" for region in named]
