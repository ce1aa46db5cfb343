"""A lost region: every workload with a recovery minimum must have it again, not the sample alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.drills.census import Answer, Look
from fairlead.drills.critical import Critical, check_recovered, critical_in
from fairlead.drills.scene import Scene
from tests.drills.test_checks import Quick

LOST, HEALTHY = "eu-central", ("us-east", "us-west")
RISK, PAY, SOLE = ("risk", "risk-api"), ("pay", "pay-api"), ("pay", "ledger")
DEADLINE_S = 300.0


def workload(named: tuple[str, str], least: int, **spec: Any) -> dict[str, Any]:
    rule = {"minServing": least, "deadlineSeconds": 300} if least else {}
    return {"metadata": {"namespace": named[0], "name": named[1]}, "spec": {"replicas": 6, "recovery": rule} | spec}


def assigned(named: tuple[str, str], region: str = LOST) -> dict[str, Any]:
    return {"metadata": {"namespace": named[0]}, "spec": {"workload": named[1], "region": region, "slots": [{"first": 0}]}}


def binding(named: tuple[str, str], state: str) -> dict[str, Any]:
    return {"metadata": {"namespace": named[0]}, "spec": {"slot": {"workload": named[1]}}, "status": {"state": state}}


class Planes:
    """What they answer; `serving` by workload and region."""

    def __init__(self, serving: dict[tuple[str, str], dict[str, int]], **rows: list[dict[str, Any]]) -> None:
        self.serving, self.rows = serving, rows

    async def items(self, plural: str, tenant: str = "", plane: str = "") -> list[dict[str, Any]]:
        assert plane == "global"
        return self.rows[plural]

    async def slots(self, plural: str, tenant: str, name: str, region: str) -> list[dict[str, Any]]:
        count = self.serving[tenant, name].get(region, 0)
        return [binding((tenant, name), "Starting")] * 3 + [binding((tenant, name), "Serving")] * count


def stage(asking: Any, outside: dict[str, int]) -> Scene:
    """`outside`: how many of risk-api answer clients, by region."""
    nothing: Any = None
    clock = Quick()
    named = tuple(Answer(region, at, "n", "1.1.1", "a", 1) for region, count in outside.items() for at in range(count))
    looks = {RISK: [Look(clock.now_s + 1, named, named, 0)]}
    census: Any = SimpleNamespace(looks=looks, last=lambda one: looks[one][-1])
    return Scene(nothing, nothing, nothing, asking, census, clock, lambda text: None, "")


async def test_those_that_may_be_recovered_and_had_slots_in_the_region_are_all_found() -> None:
    rows = [
        workload(RISK, 4), workload(PAY, 2), workload(("pay", "steady"), 0), workload(("pay", "elsewhere"), 2),
        workload(("pay", "local"), 1, execution="Exclusive"), workload(SOLE, 1, execution="Exclusive", exclusive="global"),
        workload(("pay", "off"), 2, replicas=0),
    ]  # fmt: skip
    hit = [(one["metadata"]["namespace"], one["metadata"]["name"]) for one in rows if one["metadata"]["name"] != "elsewhere"]
    given = [*(assigned(one) for one in hit), assigned(("pay", "elsewhere"), "us-west")]
    found = await critical_in(stage(Planes({}, workloads=rows, assignments=given), {}), LOST)
    assert [(one.workload, one.least, one.in_all) for one in found] == [(SOLE, 1, True), (PAY, 2, False), (RISK, 4, False)]


@pytest.mark.parametrize(
    ("outside", "by_planes", "wrong"),
    [
        ({"us-east": 4, "us-west": 2}, {"us-west": 2}, []),
        ({"us-east": 4, "us-west": 2}, {"us-east": 1, "us-west": 1}, ["pay/pay-api"]),
        ({"us-east": 3, "us-west": 3}, {"us-west": 2}, ["risk/risk-api"]),
        ({}, {}, ["pay/pay-api", "risk/risk-api"]),
    ],
    ids=["all", "one of two, in no one region", "the sample", "none"],
)
async def test_each_must_have_its_minimum_in_one_region_and_is_told_of(
    outside: dict[str, int], by_planes: dict[str, int], wrong: list[str]
) -> None:
    scene = stage(Planes({PAY: by_planes, SOLE: {"us-east": 1, "us-west": 1}}), outside)
    scene.begin("lost")
    wanted = [Critical(PAY, 2, DEADLINE_S, False), Critical(RISK, 4, DEADLINE_S, False), Critical(SOLE, 2, DEADLINE_S, True)]
    await check_recovered(scene, wanted, HEALTHY)
    assert [check.name.partition(":")[0] for check in scene.checks if not check.passed] == wrong
    told = scene.figures["critical"]
    assert {name: one["passed"] for name, one in told.items()} == {one.name: one.name not in wrong for one in wanted}
    assert {name for name, one in told.items() if one["from_outside"]} == {"risk/risk-api"}


async def test_a_region_without_any_of_them_shows_nothing() -> None:
    scene = stage(Planes({}), {})
    await check_recovered(scene, [], HEALTHY)
    assert [check.passed for check in scene.checks] == [False]
