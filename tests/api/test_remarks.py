"""What is accepted of a workload and does not hold as it is said: a warning beside the answer, which is what was asked for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.doors import GROUP, call, open_door, workload

WORKLOADS = f"{GROUP}/namespaces/risk/workloads"


async def test_what_is_said_of_a_rollout_and_does_not_hold_for_what_runs_once_is_a_warning() -> None:
    async with open_door() as door:
        rule = {"maxSurge": 1, "maxUnavailable": 0}
        once = workload("once", execution="Exclusive", replicas=2, rollout=rule, disruption={"minServing": 2})
        told = await call(door, "POST", WORKLOADS, once)
        assert told.status == 201
        said = [each.removeprefix('299 - "').partition(":")[0] for each in told.warnings]
        assert said == ["spec.rollout.maxSurge", "spec.rollout.maxUnavailable", "spec.disruption.minServing"]
        for quiet in (workload("plain", execution="Exclusive", rollout={"maxSurge": 0}), workload("api", rollout=rule)):
            assert (await call(door, "POST", WORKLOADS, quiet)).warnings == []


@pytest.mark.parametrize(
    ("spec", "why", "instead"),
    [
        ({"gang": True}, "a gang is not recovered", "leave out gang"),
        ({"execution": "Exclusive"}, "exclusive: region is not recovered", "make it anew with exclusive: global"),
        ({"job": {"completions": 2}, "replicas": None}, "a job is not recovered", "run it as a service"),
    ],
)
async def test_a_minimum_to_recover_of_what_is_not_recovered_is_accepted_with_a_warning_that_says_what_to_do(
    spec: dict[str, Any], why: str, instead: str
) -> None:
    async with open_door() as door:
        body = workload("api", recovery={"budgetName": "critical", "minServing": 1}, **spec)
        body["spec"] = {field: value for field, value in body["spec"].items() if value is not None}
        told = await call(door, "POST", WORKLOADS, body)
        assert told.status == 201, told.json
        (said,) = told.warnings
        assert said.startswith(f'299 - "spec.recovery: {why}')
        assert f"{instead}" in said
        assert said.endswith('or leave out recovery"'), "the header holds all of it"


async def test_a_budget_without_a_minimum_is_said_to_recover_nothing_and_recovery_that_holds_is_not_talked_about() -> None:
    async with open_door() as door:
        once = {"execution": "Exclusive", "exclusive": "global"}
        for number, more in enumerate(({}, once)):
            body = workload(f"api-{number}", recovery={"budgetName": "critical", "minServing": 1}, **more)
            assert (await call(door, "POST", WORKLOADS, body)).warnings == []
        (said,) = (await call(door, "POST", WORKLOADS, workload("api", recovery={"budgetName": "critical"}))).warnings
        assert said.startswith('299 - "spec.recovery.minServing: is 0: nothing is recovered')
