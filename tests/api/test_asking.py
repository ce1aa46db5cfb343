"""why, decisions, eviction and binding: a region at work behind a front door in another process, as far as the door can tell."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fairlead.api.access import Identity
from fairlead.api.app import make_app
from fairlead.api.frontdoor import FrontDoor
from fairlead.authority.judge import Settings
from fairlead.authority.local import LocalPlane
from fairlead.authority.service import PlaneService
from fairlead.client.remote import RemotePlane
from fairlead.controllers.disruption import DisruptionController
from fairlead.model.commands import PutStatus
from fairlead.model.kinds.intent import JobRule, PendingReason, StageCounts, WorkloadStatus
from fairlead.model.lifecycle import Role
from fairlead.ports import SystemClock, Tasks
from fairlead.scheduler.scheduler import Scheduler, SchedulerSettings
from fairlead.store.decisions.log import DecisionLog
from tests.api import doors
from tests.api.doors import GROUP, Answer, Door, allow_all, authenticate, workload
from tests.authority.planes import REGION, ok, running_plane
from tests.client.queues import Exchange
from tests.controllers.running import RegionRig, all_controllers, region

NAMESPACE = f"{GROUP}/namespaces/risk"


class Rig(NamedTuple):
    door: Door
    region: RegionRig
    uid: str
    exchange: Exchange

    async def call(self, method: str, path: str, body: Any = None, **more: Any) -> Answer:
        return await doors.call(self.door, method, f"{NAMESPACE}{path}", body, **more)


@contextlib.asynccontextmanager
async def at_work(folder: Path, *, disruption: bool = True, authorise: Any = allow_all) -> AsyncIterator[Rig]:
    """A workload `api` made at the front door; the region's controllers, a scheduler that keeps its decisions, and agents."""
    clock, log = SystemClock(), DecisionLog(folder / "decisions")
    async with running_plane(settings=Settings(plane="global", region="global")) as home, region() as r, Tasks() as tasks:
        exchange = Exchange(tasks)
        exchange.services[REGION] = PlaneService(r.plane.authority, clock, log)
        remote = RemotePlane([REGION], exchange.dial, clock, random.Random(1), "door")
        tasks.start(remote.run(), "remote")
        await remote.wait_connected()
        front = FrontDoor({"global": LocalPlane(home.authority, clock), REGION: remote}, clock)
        door = Door({"global": home, REGION: r.plane}, {}, make_app(front, authenticate, authorise, clock=clock))
        for each in all_controllers():
            if disruption or not isinstance(each, DisruptionController):
                r.control(each)
        settings = SchedulerSettings(hear_s=0.02, renew_s=0.2)
        made = Scheduler(r.local, r.plane.clock, random.Random(1), settings, decisions=log)
        r.schedulers.append(made)
        r.tasks.start(made.run(), "scheduler")
        got = await doors.call(door, "POST", f"{NAMESPACE}/workloads", workload("api"))
        assert got.status == 201, got.body
        yield Rig(door, r, got.json["metadata"]["uid"], exchange)
        for part in (*r.runtimes, *r.schedulers):
            part.stop()
        tasks.cancel()
    log.close()


async def asked_until(rig: Rig, path: str, holds: Any) -> Any:
    """Decisions are written a moment after what they led to."""
    async with asyncio.timeout(30):
        while True:
            got = await rig.call("GET", path)
            assert got.status == 200, got.body
            if holds(got.json):
                return got.json
            await asyncio.sleep(0.01)


# --- why and decisions ---------------------------------------------------------------------------------------------------


async def test_what_waits_says_why_since_when_who_is_next_and_what_was_decided(tmp_path: Path) -> None:
    async with at_work(tmp_path) as rig:
        await rig.region.order("api", 1, uid=rig.uid)
        for name in ("n0", "n1", "n2"):
            await rig.region.set_node(name, unschedulable=True)
        await rig.region.order("api", 2, uid=rig.uid)
        found = await asked_until(rig, "/workloads/api/why", lambda got: has_decision(got, "api-1"))
        slot = next(one for one in found["status"]["slots"] if one["name"] == "api-1")
        assert (slot["region"], slot["state"]) == (REGION, "Pending")
        assert slot["reason"] not in ("", "Pending")
        assert {"sinceTime", "nextOwner"} <= set(slot)
        decision = slot["lastDecision"]
        assert decision["outcome"] == slot["reason"]
        assert decision["nodes"]["feasible"] == 0
        assert sum(decision["nodes"]["ruledOut"].values()) == 3, "every node, with what ruled it out"
        assert decision["evidence"]["observedRevision"] != "0"
        one = (await rig.call("GET", "/schedulingrequests/api-1/why")).json
        assert one["status"]["slots"][0]["name"] == "api-1"
        assert one["status"]["summary"].startswith("api-1 is Pending: ")


def has_decision(got: Any, name: str) -> bool:
    """And the slot says so already: its status is written a moment after."""
    slots = [one for one in got["status"]["slots"] if one["name"] == name]
    return any(one.get("lastDecision", {}).get("outcome") == one["reason"] for one in slots)


async def test_the_controllers_own_account_comes_first_and_nothing_is_said_of_what_serves(tmp_path: Path) -> None:
    async with at_work(tmp_path) as rig:
        unseen = (await rig.call("GET", "/workloads/api/why")).json["status"]["summary"]
        assert "generation 1 has not been looked at yet" in unseen
        await rig.region.order("api", 2, uid=rig.uid)
        await rig.region.until(lambda: len(rig.region.serving()) == 2)
        controller = await rig.door.home.as_role(Role.WORKLOAD)
        reason = PendingReason(reason="WaitingForQuota", count=1, next_owner="quota-controller", detail="2 CPU are missing")
        status = WorkloadStatus(observed_generation=1, replicas=StageCounts(desired=3), pending=(reason,))
        ok(await rig.door.home.send(controller, PutStatus("Workload", "risk", "api", status)))
        found = (await rig.call("GET", "/workloads/api/why")).json
        assert found["status"]["summary"] == "1 of 3 wait: WaitingForQuota: 2 CPU are missing; next is quota-controller"
        assert found["status"]["pending"][0]["nextOwner"] == "quota-controller"
        assert found["status"]["slots"] == []


async def test_a_placed_slot_that_does_not_serve_says_who_makes_its_next_step(tmp_path: Path) -> None:
    async with at_work(tmp_path) as rig:
        rig.region.agent.broken = {1}
        await rig.region.order("api", 1, uid=rig.uid)
        got = await asked_until(
            rig, "/workloads/api/why", lambda got: any(one["state"] == "Starting" for one in got["status"]["slots"])
        )
        # Requests and bindings are read one after the other: what was bound in between is for once in both.
        slot = next(one for one in got["status"]["slots"] if one["state"] == "Starting")
        assert {one["name"] for one in got["status"]["slots"]} == {"api-0"}
        assert (slot["reason"], slot["nextOwner"]) == ("WaitingForProbes", "agent")
        assert slot["node"].startswith("n")
        assert "sinceTime" in slot


async def test_decisions_are_listed_by_workload_slot_and_node_and_in_pages(tmp_path: Path) -> None:
    async with at_work(tmp_path) as rig:
        await rig.region.order("api", 5, uid=rig.uid)
        whole = await asked_until(rig, "/workloads/api/decisions", lambda got: len(got["items"]) >= 5)
        bound = {one["spec"]["slot"]: one["spec"] for one in whole["items"] if one["spec"]["outcome"] == "Bound"}
        assert sorted(bound) == [f"risk/api-{n}" for n in range(5)]
        assert all(one["region"] == REGION and one["node"] for one in bound.values())
        pages, token = list[str](), ""
        while True:
            page = (await rig.call("GET", f"/workloads/api/decisions?limit=2&continue={token}")).json
            pages += [one["spec"]["slot"] for one in page["items"]]
            token = page["metadata"].get("continue", "")
            if not token:
                break
        assert sorted(pages) == sorted(one["spec"]["slot"] for one in whole["items"])
        one = (await rig.call("GET", "/workloads/api/decisions?slot=3")).json["items"]
        assert {each["spec"]["slot"] for each in one} == {"risk/api-3"}
        assert (await rig.call("GET", "/bindings/api-3/decisions")).json["items"] == one
        generation = one[0]["spec"]["generation"]
        assert (await rig.call("GET", f"/workloads/api/decisions?slot=3&generation={generation}")).json["items"] == one
        assert (await rig.call("GET", f"/workloads/api/decisions?generation={generation + 1}")).json["items"] == []
        node = bound["risk/api-3"]["node"]
        on_node = (await doors.call(rig.door, "GET", f"{GROUP}/nodes/{node}/decisions")).json["items"]
        assert "risk/api-3" in {each["spec"]["slot"] for each in on_node}
        assert (await rig.call("GET", "/workloads/api/decisions?until=2020-01-01T00:00:00Z")).json["items"] == []
        assert (await rig.call("GET", f"/workloads/api/decisions?region={REGION}&outcome=Nothing")).json["items"] == []


@pytest.mark.parametrize(
    "path",
    [
        "/workloads/api/decisions?limit=9999", "/workloads/api/decisions?slot=x", "/workloads/api/decisions?since=now",
        "/workloads/api/decisions?continue=%00", "/workloads/api/decisions?continue=eyJhIjoiYiJ9",
        "/workloads/api/decisions?at=5", f"/workloads/api/decisions?slot={'9' * 5000}", f"/workloads/api/why?slot={'9' * 5000}",
    ],
)  # fmt: skip
async def test_a_question_that_cannot_be_answered_is_400(path: str) -> None:
    async with doors.open_door("us") as door:
        await doors.call(door, "POST", f"{NAMESPACE}/workloads", workload("api"))
        got = await doors.call(door, "GET", f"{NAMESPACE}{path}")
        assert (got.status, got.json["reason"]) == (400, "BadRequest"), got.body


async def test_a_region_that_is_away_is_a_warning_and_other_methods_are_405(tmp_path: Path) -> None:
    async with doors.open_door("us") as door:
        await doors.call(door, "POST", f"{NAMESPACE}/workloads", workload("api"))
        door.cuttable["us"].cut()
        for sub in ("why", "decisions"):
            got = await doors.call(door, "GET", f"{NAMESPACE}/workloads/api/{sub}")
            assert got.status == 200
            assert "us is unreachable" in got.warnings[0]
            assert (await doors.call(door, "POST", f"{NAMESPACE}/workloads/api/{sub}", {})).status == 405
        assert (await doors.call(door, "GET", f"{NAMESPACE}/workloads/nothing/why")).status == 404


async def test_who_may_not_see_a_workload_learns_nothing_about_it() -> None:
    def nobody_else(identity: Identity, verb: str, plural: str, tenant: str, name: str, subresource: str) -> bool:
        return identity.name == "ada"

    async with doors.open_door("us", authorise=nobody_else) as door:
        await doors.call(door, "POST", f"{NAMESPACE}/workloads", workload("api"))
        for path in ("workloads/api/why", "workloads/api/decisions"):
            assert (await doors.call(door, "GET", f"{NAMESPACE}/{path}", token="eve-token")).status == 403
        for path in ("bindings/api-0/eviction", "schedulingrequests/api-0/binding"):
            assert (await doors.call(door, "POST", f"{NAMESPACE}/{path}", {}, token="eve-token")).status in (403, 422)


# --- evictions -----------------------------------------------------------------------------------------------------------


async def test_an_eviction_within_the_budget_moves_the_slot(tmp_path: Path) -> None:
    async with at_work(tmp_path) as rig:
        await rig.region.order("api", 3, uid=rig.uid, min_serving=1)
        await rig.region.until(lambda: len(rig.region.serving()) == 3)
        token = rig.region.slots()[1].token
        dry = await rig.call("POST", "/bindings/api-1/eviction?dryRun=All", {"spec": {"reason": "try"}})
        assert (dry.status, dry.json["spec"]["reason"]) == (201, "try")
        assert rig.region.get("evictionrequests", "api-1") is None
        got = await rig.call("POST", "/bindings/api-1/eviction", {"spec": {"reason": "noisy"}})
        assert got.status == 201, got.body
        await rig.region.until(lambda: (s := rig.region.slots().get(1)) is not None and s.token != token, "another life")
        await rig.region.until(lambda: len(rig.region.serving()) == 3)


async def test_an_eviction_that_would_break_a_budget_is_429_with_its_name_and_leaves_nothing_behind(tmp_path: Path) -> None:
    async with at_work(tmp_path) as rig:
        await rig.region.order("api", 2, uid=rig.uid, min_serving=2)
        await rig.region.until(lambda: len(rig.region.serving()) == 2)
        kubernetes = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "api-0", "namespace": "risk"}}
        for body in (kubernetes, None):
            got = await rig.call("POST", "/bindings/api-0/eviction", body)
            assert (got.status, got.json["reason"]) == (429, "TooManyRequests"), got.body
            assert "disruption budget of risk/api: 2 serve, minServing is 2" in got.json["message"]
            assert got.json["details"]["causes"][0]["reason"] == "DisruptionBudget"
            assert int(got.headers["retry-after"]) >= 1
            assert rig.region.get("evictionrequests", "api-0") is None
        assert rig.region.serving() == [0, 1]
        assert [name for name, _ in rig.region.agent.starts] == ["api-0", "api-1"], "nothing is started for it"


async def test_an_eviction_that_nobody_rules_on_is_filed_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.api.asking.RULING_S", 0.1)
    async with at_work(tmp_path, disruption=False) as rig:
        await rig.region.order("api", 2, uid=rig.uid)
        await rig.region.until(lambda: len(rig.region.serving()) == 2)
        got = await rig.call("POST", "/bindings/api-0/eviction")
        assert got.status == 202
        assert "nobody has ruled" in got.warnings[0]
        assert (await rig.call("POST", "/bindings/api-0/eviction")).status == 202, "the same request stands"
        assert (await rig.call("POST", "/bindings/nothing/eviction")).status == 404
        assert (await rig.call("POST", "/bindings/api-1/eviction", {"spec": {"reason": 7}})).json["details"]["causes"][0][
            "field"
        ] == "spec.reason"
        assert (await rig.call("GET", "/bindings/api-0/eviction")).status == 405


# --- proposals -----------------------------------------------------------------------------------------------------------


def proposal(node: str, observed: int, **fields: Any) -> dict[str, Any]:
    spec = {"node": node, "epoch": 1, "generation": 1, "policyRevision": 0, "grantVersion": 1}
    evidence = {"observedRevision": observed, "ageSeconds": 0.1}
    return {"kind": "BindingProposal", "spec": spec, "evidence": evidence, "lease": "scheduler", **fields}


async def test_a_scheduler_binds_under_its_lease_and_an_older_one_is_fenced_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(doors.TOKENS, "scheduler-token", Identity("scheduler-0", Role.SCHEDULER))
    async with region() as r:
        clock = SystemClock()
        front = FrontDoor({REGION: r.local}, clock)
        door = Door({REGION: r.plane}, {}, make_app(front, authenticate, allow_all, clock=clock))
        queue = await r.plane.as_role(Role.ASSIGNMENT)
        for index in range(2):
            ok(await r.plane.request("risk", "api", index, queue))
        epoch = (await r.plane.as_role(Role.SCHEDULER)).fencing_epoch
        path, seen = f"{NAMESPACE}/schedulingrequests/api-0/binding", r.local.revision()
        stale = await doors.call(door, "POST", path, proposal("n0", 1, fencingEpoch=epoch), token="scheduler-token")
        assert (stale.status, stale.json["details"]["causes"][0]["reason"]) == (409, "StaleEvidence")
        made = await doors.call(door, "POST", path, proposal("n0", seen, fencingEpoch=epoch), token="scheduler-token")
        assert made.status == 201, made.body
        assert (made.json["kind"], made.json["spec"]["node"]) == ("Binding", "n0")
        other = path.replace("api-0", "api-1")
        old = await doors.call(door, "POST", other, proposal("n0", seen, fencingEpoch=epoch - 1), token="scheduler-token")
        assert (old.status, old.json["details"]["causes"][0]["reason"]) == (403, "FencedOut")
        person = await doors.call(door, "POST", other, proposal("n0", seen, fencingEpoch=epoch))
        assert person.status == 403, "the step is the scheduler's, whoever else asks"
        vague = proposal("n0", seen, fencingEpoch=epoch)
        del vague["spec"]["grantVersion"]
        got = await doors.call(door, "POST", other, vague, token="scheduler-token")
        assert (got.status, got.json["details"]["causes"][0]["field"]) == (422, "spec")
        assert "grantVersion" in got.json["message"]
        assert (await doors.call(door, "POST", f"{other}?dryRun=All", vague, token="scheduler-token")).status == 400
        gone = path.replace("api-0", "api-9")
        assert (
            await doors.call(door, "POST", gone, proposal("n0", seen, fencingEpoch=epoch), token="scheduler-token")
        ).status == 404


async def test_a_slot_of_a_job_that_runs_waits_for_nothing(tmp_path: Path) -> None:
    async with at_work(tmp_path) as rig:
        await rig.region.order("api", 1, uid=rig.uid, job=JobRule())
        await rig.region.until(lambda: rig.region.plane.authority.view().get("bindings", "risk", "api-0") is not None)
        found = await asked_until(rig, "/bindings/api-0/why", lambda got: got["status"]["slots"][0]["state"] == "Ready")
        assert "api-0 is Ready: Running: it runs" in found["status"]["summary"]


# --- overrides at a region's own door ------------------------------------------------------------------------------------


async def test_an_override_at_a_regions_own_door_counts_what_is_bound_there(tmp_path: Path) -> None:
    async with at_work(tmp_path) as rig:
        await rig.region.order("api", 3, uid=rig.uid)
        await rig.region.until(lambda: len(rig.region.serving()) == 3)
        clock = SystemClock()
        front = FrontDoor({REGION: LocalPlane(rig.region.plane.authority, clock)}, clock)
        alone = Door({REGION: rig.region.plane}, {}, make_app(front, authenticate, allow_all, clock=clock))
        for name, said in (("api", "1 workload of risk with 3 slots in "), ("web", "0 workloads of risk with 0 slots")):
            spec = {"kind": "hold", "reason": "flood", "ttlSeconds": 60, "scope": {"workloads": [name]}}
            body = {"metadata": {"name": f"{REGION}-stop", "namespace": "risk"}, "spec": spec}
            got = await doors.call(alone, "POST", f"{NAMESPACE}/overrides?dryRun=All", body)
            assert got.status == 201, got.body
            assert any(f"this override touches {said}" in one for one in got.warnings), got.warnings
