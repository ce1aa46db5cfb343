"""Whoever creates an override is told what it touches, also in a dry run; what only others may see is not told."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.api.calls import Call
from fairlead.api.failures import busy
from fairlead.model.commands import Put, PutStatus
from fairlead.model.kinds.intent import RegionCounts, StageCounts, WorkloadStatus
from fairlead.model.kinds.repair import Repair, RepairSpec
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from tests.api.doors import GROUP, Answer, Door, call, open_door, workload
from tests.authority.planes import ok

NAMESPACE = f"{GROUP}/namespaces/risk"


async def ordered(door: Door, kind: str, *, where: str = "overrides?dryRun=All", **more: Any) -> Answer:
    """`more`: fields of its scope, but `parameters`."""
    parameters = more.pop("parameters", {})
    spec = {"kind": kind, "reason": "flood", "ttlSeconds": 60, "scope": more or {"tenants": ["risk"]}, "parameters": parameters}
    got = await call(door, "POST", f"{NAMESPACE}/{where}", {"metadata": {"name": "stop"}, "spec": spec})
    assert got.status == 201, got.body
    return got


def told(answer: Answer) -> list[str]:
    return [each.removeprefix('299 - "').removesuffix('"') for each in answer.warnings]


async def api_runs(door: Door, **counts: int) -> None:
    """Workload api with slots in us."""
    body = workload("api", replicas=4, recovery={"minServing": 2})
    assert (await call(door, "POST", f"{NAMESPACE}/workloads", body)).status == 201
    status = WorkloadStatus(regions=(RegionCounts("us", StageCounts(**counts)),))
    controller = await door.home.as_role(Role.WORKLOAD)
    ok(await door.home.send(controller, PutStatus("Workload", "risk", "api", status)))


@pytest.mark.parametrize(
    ("kind", "scope", "line"),
    [
        ("hold", {}, "nothing new of them is bound; 1 slot that waits now will go on"),
        ("freeze", {}, "what is wanted of them stays where it is: rollouts, drains and moves wait; what is lost is repaired"),
        ("autoscaler-pause", {}, "the replicas of services among them stay as they are; no node is added for what waits of them"),
        ("repair-approval", {"regions": ["us"]}, "1 Repair of what is theirs is open and will wait as well"),
        ("recovery", {"regions": ["us"], "tenants": ["risk"]},
         "once another person approves it, the minimum of 1 workload is ordered elsewhere as if us were lost, "
         "and nothing of others there"),
        ("zone-avoidance", {"zones": ["a"]}, "nodes in a take nothing new of them, how many is not known; what runs there stays"),
    ],
)  # fmt: skip
async def test_the_server_says_what_an_override_touches_in_the_words_of_its_kind(
    kind: str, scope: dict[str, Any], line: str
) -> None:
    async with open_door("us", "eu") as door:
        await api_runs(door, bound=3, serving=2, pending=1)
        for region in ("us", "eu"):
            made = Repair(Metadata(name="orphan-1"), RepairSpec("LeakedReservation", "bindings/risk/api-0"))
            mender = await door.planes[region].as_role(Role.REPAIR)
            ok(await door.planes[region].send(mender, Put("Repair", made)))
        tried = told(await ordered(door, kind, **scope))
        assert tried[0] == "this override touches 1 workload of risk with 3 slots in us, 2 of them serving: risk/api"
        assert line in tried
        assert (await call(door, "GET", f"{NAMESPACE}/overrides/stop")).status == 404, "it was only tried"
        assert told(await ordered(door, kind, where="overrides", **scope)) == tried, "the write says the same"


async def test_an_emergency_quota_is_told_with_the_limits_before_and_after() -> None:
    async with open_door() as door:
        limits = {"metadata": {"name": "q"}, "spec": {"limits": {"cpu": "10", "memory": "8Gi"}}}
        assert (await call(door, "POST", f"{NAMESPACE}/quotas", limits)).status == 201
        got = await ordered(door, "emergency-quota", tenants=["risk"], parameters={"cpu": "20"})
        assert told(got) == ["limits of tenant risk, once another person approves it: cpu 10 -> 30"]


async def test_what_the_caller_may_not_list_is_not_counted_for_it() -> None:
    def blind(identity: Any, verb: str, plural: str, tenant: str, name: str, subresource: str) -> bool:
        return plural == "overrides" or verb == "create"

    async with open_door("us", authorise=blind) as door:
        await api_runs(door, bound=3)
        for kind in ("hold", "repair-approval", "emergency-quota"):
            parameters = {"cpu": "1"} if kind == "emergency-quota" else {}
            (line,) = told(await ordered(door, kind, tenants=["risk"], parameters=parameters))
            assert "not yours to see" in line or "are not told" in line
            assert "api" not in line


async def test_a_region_that_cannot_be_asked_for_repairs_is_said() -> None:
    async with open_door("us", "eu") as door:
        door.cuttable["eu"].cut()
        assert told(await ordered(door, "repair-approval"))[-1].endswith("will wait as well; eu could not be asked")


async def test_an_override_that_was_made_is_said_to_be_made_though_nothing_could_be_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def too_busy(call: Call, *_: Any) -> list[str]:
        raise busy("global", 1.0)

    monkeypatch.setattr("fairlead.api.reaching._work", too_busy)
    async with open_door() as door:
        got = await ordered(door, "hold", where="overrides")
        assert told(got) == ["what this override touches could not be counted just now"]
