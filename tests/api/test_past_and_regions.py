"""`?at=`, `?region=` and Idempotency-Key: what the API has on top of Kubernetes', on one and on several planes."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from fairlead.api.frontdoor import FrontDoor
from fairlead.model.commands import Command, Outcome, PutStatus
from fairlead.model.kinds.intent import RegionCounts, StageCounts, WorkloadStatus
from fairlead.model.lifecycle import Role
from tests.api.doors import GROUP, Cuttable, Door, call, node, open_door, watching, workload
from tests.authority.planes import ok

WORKLOADS = f"{GROUP}/namespaces/risk/workloads"
MERGE = "application/merge-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def names(got: Any) -> list[str]:
    assert got.status == 200, got.body
    return [item["metadata"]["name"] for item in got.json["items"]]


async def two_nodes(door: Door) -> None:
    for region in ("us", "eu"):
        assert (await call(door, "POST", f"{GROUP}/nodes", node(f"{region}-n1", region))).status == 201


# --- one region ----------------------------------------------------------------------------------------------------------


async def test_a_read_of_one_region_asks_that_region_and_no_other() -> None:
    async with open_door("us", "eu") as door:
        await two_nodes(door)
        assert names(await call(door, "GET", f"{GROUP}/nodes?region=us")) == ["us-n1"]
        door.cuttable["eu"].cut()
        got = await call(door, "GET", f"{GROUP}/nodes?region=us")
        assert (names(got), got.warnings) == (["us-n1"], []), "that eu is away is no concern of this question"
        assert (await call(door, "GET", f"{GROUP}/nodes/nothing?region=us")).status == 404, "503 only if eu might have it"
        assert (await call(door, "GET", f"{GROUP}/nodes/us-n1?region=eu")).status == 503
        door.cuttable["eu"].mend()
        assert (await call(door, "GET", f"{GROUP}/nodes/us-n1?region=eu")).status == 404


class CutBehind(Cuttable):
    """A region whose connection breaks as soon as it has done what it was sent."""

    async def submit(self, commands: list[Command]) -> list[Outcome]:
        outcomes = await super().submit(commands)
        self.cut()
        return outcomes


async def test_what_a_region_may_have_done_is_never_told_as_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_door("us", "eu") as door:
        await two_nodes(door)
        monkeypatch.setattr(door.cuttable["eu"], "__class__", CutBehind)
        close, key = {"spec": {"unschedulable": True}}, {"idempotency-key": "close-it", "content-type": MERGE}
        for attempt in ("it is sent", "it is repeated, and was done"):
            got = await call(door, "PATCH", f"{GROUP}/nodes/eu-n1", close, headers=key)
            assert (got.status, got.json["details"]["causes"][0]["reason"]) == (504, "OutcomeUnknown"), attempt
            assert "/receipts/close-it" in got.json["message"]
            door.cuttable["eu"].mend()
            monkeypatch.setattr(door.cuttable["eu"], "receipt", _cut_after(door.cuttable["eu"].receipt, door.cuttable["eu"]))
        assert (await call(door, "GET", f"{GROUP}/nodes/eu-n1")).json["spec"]["unschedulable"]


async def test_a_region_that_was_away_before_anything_was_sent_did_nothing() -> None:
    async with open_door("us", "eu") as door:
        await two_nodes(door)
        door.cuttable["eu"].cut()
        got = await call(door, "PATCH", f"{GROUP}/nodes/eu-n1", {"spec": {"unschedulable": True}}, media=MERGE)
        assert (got.status, got.json["details"]["causes"][0]["reason"]) == (503, "RegionUnreachable")


def _cut_after(ask: Callable[..., Any], plane: Cuttable) -> Callable[..., Any]:
    async def asked(*arguments: Any) -> Any:
        answer = await ask(*arguments)
        plane.cut()
        return answer

    return asked


async def test_a_region_that_is_not_there_is_told_with_those_that_are() -> None:
    async with open_door("us", "eu") as door:
        for path in ("/nodes", "/nodes/n", "/workloads"):
            got = await call(door, "GET", f"{GROUP}{path}?region=mars")
            assert got.status == 400, got.body
            assert "us, eu" in got.json["message"]


async def test_of_global_kinds_those_that_concern_the_region_are_listed() -> None:
    async with open_door("us", "eu") as door:
        for name in ("here", "there", "anywhere"):
            allowed = {"here": ["us"], "there": ["eu"]}.get(name, [])
            made = workload(name, placement={"regions": {"allowed": allowed}})
            assert (await call(door, "POST", WORKLOADS, made)).status == 201
        await call(door, "POST", f"{GROUP}/tenants", {"metadata": {"name": "risk"}})
        assert names(await call(door, "GET", f"{WORKLOADS}?region=us")) == ["anywhere", "here"]
        controller = await door.home.as_role(Role.WORKLOAD)
        counts = RegionCounts(region="eu", replicas=StageCounts(desired=1))
        ok(await door.home.send(controller, PutStatus("Workload", "risk", "anywhere", WorkloadStatus(regions=(counts,)))))
        assert names(await call(door, "GET", f"{WORKLOADS}?region=us")) == ["here"], "it was given to eu"
        by_name = await call(door, "GET", f"{WORKLOADS}?region=us&fieldSelector=metadata.name%3Danywhere")
        assert names(by_name) == ["anywhere"], "a name is looked for wherever it is, or a wait for it would think it gone"
        tenants = await call(door, "GET", f"{GROUP}/tenants?region=us")
        assert names(tenants) == ["risk"]
        assert "belong to no region" in tenants.warnings[0]


async def test_a_watch_of_one_region_shows_that_region_only() -> None:
    async with open_door("us", "eu") as door, watching(door, f"{GROUP}/nodes?region=eu") as stream:
        await two_nodes(door)
        assert (await stream.next())["object"]["metadata"]["name"] == "eu-n1"


async def test_a_write_goes_to_the_region_that_is_asked_for_and_never_to_another() -> None:
    async with open_door("us", "eu") as door:
        other = await call(door, "POST", f"{GROUP}/nodes?region=eu", node("us-n1", "us"))
        assert (other.status, other.json["details"]["causes"][0]["field"]) == (422, "spec.region")
        await two_nodes(door)
        change = {"metadata": {"labels": {"a": "b"}}}
        missed = await call(door, "PATCH", f"{GROUP}/nodes/us-n1?region=eu", change, media=MERGE)
        assert missed.status == 404
        assert (await call(door, "PATCH", f"{GROUP}/nodes/us-n1?region=us", change, media=MERGE)).status == 200
        assert (await call(door, "DELETE", f"{GROUP}/nodes/us-n1?region=eu")).status == 404
        assert (await call(door, "DELETE", f"{GROUP}/nodes?region=eu")).status == 200
        assert names(await call(door, "GET", f"{GROUP}/nodes")) == ["us-n1"]


# --- the past ------------------------------------------------------------------------------------------------------------


async def test_the_past_is_read_by_version_and_time_on_every_read(tmp_path: Path) -> None:
    async with open_door("us", "eu", archive=tmp_path) as door:
        await two_nodes(door)
        made = (await call(door, "POST", WORKLOADS, workload("api", replicas=2))).json
        nodes = (await call(door, "GET", f"{GROUP}/nodes")).json
        then = nodes["metadata"]["resourceVersion"]
        await call(door, "DELETE", f"{GROUP}/nodes/us-n1")
        await call(door, "PATCH", f"{WORKLOADS}/api", {"spec": {"replicas": 5}}, media=MERGE)
        version = made["metadata"]["resourceVersion"]
        for sub in ("", "/status", "/scale"):
            assert (await call(door, "GET", f"{WORKLOADS}/api{sub}?at={version}")).json["spec"]["replicas"] == 2
        assert names(await call(door, "GET", f"{GROUP}/nodes?at={then}")) == ["us-n1", "eu-n1"]
        own = nodes["items"][0]["metadata"]["resourceVersion"]
        assert (await call(door, "GET", f"{GROUP}/nodes/us-n1?at={own}")).status == 200, "one object's own version is enough"
        assert names(await call(door, "GET", f"{GROUP}/nodes?at={own}&region=us")) == ["us-n1"]
        table = await call(door, "GET", f"{GROUP}/nodes?at={then}", headers={"accept": TABLE})
        assert len(table.json["rows"]) == 2


async def test_a_table_of_the_past_says_how_old_things_were_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_door("us", archive=tmp_path) as door:
        made = (await call(door, "POST", WORKLOADS, workload("api"))).json["metadata"]
        real = FrontDoor.plane_ms
        monkeypatch.setattr(FrontDoor, "plane_ms", lambda self: real(self) + 3 * 3_600_000)  # three hours later

        async def ages(query: str) -> list[str]:
            headers = {"accept": TABLE}
            answers = [await call(door, "GET", f"{path}{query}", headers=headers) for path in (WORKLOADS, f"{WORKLOADS}/api")]
            at = [column["name"] for column in answers[0].json["columnDefinitions"]].index("Age")
            return [row["cells"][at] for answer in answers for row in answer.json.get("rows", ())]

        assert await ages("") == ["3h", "3h"]
        assert await ages(f"?at={made['resourceVersion']}") == ["0s", "0s"]
        moment = datetime.datetime.fromisoformat(made["creationTimestamp"]) + datetime.timedelta(seconds=1)
        by_time = f"?at={moment.strftime('%Y-%m-%dT%H:%M:%S.%fZ')}"
        async with asyncio.timeout(20):
            while not await ages(by_time):  # the archive is a little behind
                await asyncio.sleep(0.05)
        assert await ages(by_time) == ["1s", "1s"]


@pytest.mark.parametrize(
    ("at", "code"),
    [
        ("1", 410), ("17592186099999", 410), ("99999999999999999999", 410), ("2020-01-01T00:00:00Z", 410),
        ("0001-01-01T00:00:00Z", 410), ("2999-01-01T00:00:00Z", 400), ("9" * 1400, 400), ("-1", 400), ("now", 400),
    ],
)  # fmt: skip
async def test_a_past_that_is_not_kept_or_never_was_is_told(tmp_path: Path, at: str, code: int) -> None:
    async with open_door(archive=tmp_path) as door:
        await call(door, "POST", WORKLOADS, workload("api"))
        for path, accept in product((f"{WORKLOADS}/api", WORKLOADS), ("application/json", TABLE)):
            got = await call(door, "GET", f"{path}?at={at}", headers={"accept": accept})
            assert got.status == code, got.body
            assert got.json["kind"] == "Status"


async def test_a_version_that_says_nothing_of_a_plane_is_not_taken_for_now() -> None:
    async with open_door("us", "eu") as door:
        await two_nodes(door)
        own = (await call(door, "GET", f"{GROUP}/nodes/us-n1")).json["metadata"]["resourceVersion"]
        got = await call(door, "GET", f"{GROUP}/nodes?at={own}")
        assert got.status == 400
        assert "says nothing of eu" in got.json["message"]
        assert (await call(door, "GET", f"{GROUP}/nodes/us-n1?at=5")).status == 400


async def test_what_is_remembered_of_a_region_that_is_away_is_not_taken_for_the_past() -> None:
    async with open_door("us", "eu") as door:
        await two_nodes(door)
        then = (await call(door, "GET", f"{GROUP}/nodes")).json["metadata"]["resourceVersion"]
        own = (await call(door, "GET", f"{GROUP}/nodes/eu-n1")).json["metadata"]["resourceVersion"]
        await call(door, "PATCH", f"{GROUP}/nodes/eu-n1", {"spec": {"unschedulable": True}}, media=MERGE)
        assert names(await call(door, "GET", f"{GROUP}/nodes?at={then}")) == ["us-n1", "eu-n1"]
        await call(door, "GET", f"{GROUP}/nodes")  # this is what is remembered
        door.cuttable["eu"].cut()
        for path in (f"nodes?at={then}", f"nodes/eu-n1?at={own}", f"nodes?resourceVersion={then}&resourceVersionMatch=Exact"):
            got = await call(door, "GET", f"{GROUP}/{path}")
            assert (got.status, "eu cannot be reached" in got.body.decode()) == (503, True), got.body
        assert names(await call(door, "GET", f"{GROUP}/nodes?at={then}&region=us")) == ["us-n1"]


async def test_the_past_is_neither_written_nor_watched() -> None:
    async with open_door() as door:
        made = (await call(door, "POST", WORKLOADS, workload("api"))).json
        version = made["metadata"]["resourceVersion"]
        for method in ("PUT", "PATCH", "DELETE"):
            got = await call(door, method, f"{WORKLOADS}/api?at={version}", made, media=MERGE if method == "PATCH" else None)
            assert (got.status, got.json["message"][:3]) == (400, "at:")
        assert (await call(door, "GET", f"{WORKLOADS}?watch=true&at={version}")).status == 400


async def test_a_moment_of_the_past_is_read_once_the_archive_has_it(tmp_path: Path) -> None:
    async with open_door(archive=tmp_path) as door:
        await call(door, "POST", WORKLOADS, workload("api", replicas=2))
        async with asyncio.timeout(30):
            while True:
                when = datetime.datetime.now(datetime.UTC).isoformat().replace("+", "%2B")
                got = await call(door, "GET", f"{WORKLOADS}/api?at={when}")
                if got.status == 200:
                    break
                assert got.status in (404, 410), got.body
        await call(door, "PATCH", f"{WORKLOADS}/api", {"spec": {"replicas": 5}}, media=MERGE)
        assert (await call(door, "GET", f"{WORKLOADS}/api?at={when}")).json["spec"]["replicas"] == 2


# --- once and only once --------------------------------------------------------------------------------------------------


async def repeated(door: Door, method: str, path: str, body: Any, other: Any, media: str | None = None) -> None:
    """The same again gets the first answer, whatever happened since; another body under the same key is refused."""
    headers = {"idempotency-key": f"key-{method}-{path[-8:]}"}
    first = await call(door, method, path, body, media=media, headers=headers)
    assert first.status == 200, first.body
    if method != "DELETE":
        await call(door, "PATCH", path.removesuffix("/scale"), {"spec": {"replicas": 77}}, media=MERGE)
    second = await call(door, method, path, body, media=media, headers=headers)
    assert (second.status, second.json) == (first.status, first.json)
    third = await call(door, method, path, other, media=media, headers=headers)
    assert (third.status, third.json["details"]["causes"][0]["reason"]) == (422, "IdReused")
    assert "another request" in third.json["message"]


async def test_a_key_stands_for_one_request_whatever_the_verb() -> None:
    async with open_door("us", "eu") as door:
        made = (await call(door, "POST", WORKLOADS, workload("api"))).json
        changed = {**made, "spec": {**made["spec"], "replicas": 4}}
        await repeated(door, "PUT", f"{WORKLOADS}/api", changed, {**made, "spec": {**made["spec"], "replicas": 5}})
        await repeated(door, "PATCH", f"{WORKLOADS}/api", {"spec": {"replicas": 6}}, {"spec": {"replicas": 7}}, MERGE)
        await repeated(door, "PATCH", f"{WORKLOADS}/api/scale", {"spec": {"replicas": 8}}, {"spec": {"replicas": 9}}, MERGE)
        await repeated(door, "DELETE", f"{WORKLOADS}/api", {}, {"propagationPolicy": "Foreground"})
        assert (await call(door, "POST", f"{GROUP}/namespaces/risk/configs", config("c"))).status == 201
        await repeated(door, "DELETE", f"{GROUP}/namespaces/risk/configs/c", {}, {"propagationPolicy": "Foreground"})


def config(name: str) -> dict[str, Any]:
    return {"apiVersion": "fairlead.dev/v1alpha1", "kind": "Config", "metadata": {"name": name}, "spec": {"data": {}}}


async def test_one_key_on_two_paths_is_two_requests() -> None:
    async with open_door() as door:
        headers = {"idempotency-key": "k"}
        for name in ("a", "b"):
            await call(door, "POST", WORKLOADS, workload(name))
        body = {"spec": {"replicas": 3}}
        assert (await call(door, "PATCH", f"{WORKLOADS}/a", body, media=MERGE, headers=headers)).status == 200
        assert (await call(door, "PATCH", f"{WORKLOADS}/b", body, media=MERGE, headers=headers)).status == 422
        assert (await call(door, "GET", f"{WORKLOADS}/b")).json["spec"].get("replicas") == 1


async def test_a_change_with_a_key_is_made_again_when_somebody_else_was_faster() -> None:
    async with open_door() as door:
        await call(door, "POST", WORKLOADS, workload("api"))

        async def add(key: str) -> int:
            body = {"metadata": {"labels": {key: "x"}}}
            got = await call(door, "PATCH", f"{WORKLOADS}/api", body, media=MERGE, headers={"idempotency-key": key})
            return got.status

        codes = await asyncio.gather(*(add(f"k{n}") for n in range(4)))
        assert codes == [200, 200, 200, 200]
        labels = (await call(door, "GET", f"{WORKLOADS}/api")).json["metadata"]["labels"]
        assert len(labels) == 4


async def test_a_key_is_for_one_object() -> None:
    async with open_door() as door:
        for name in ("a", "b"):
            await call(door, "POST", WORKLOADS, workload(name))
        got = await call(door, "DELETE", WORKLOADS, headers={"idempotency-key": "all"})
        assert got.status == 400
        assert len(names(await call(door, "GET", WORKLOADS))) == 2
