"""create, replace, patch, delete, status, scale: what is answered, what is stored, and what happens between two writers."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from fairlead.api.openapi import document
from fairlead.model.commands import Put
from fairlead.model.kinds.intent import Workload
from fairlead.model.kinds.ledger import Event, EventSpec
from fairlead.model.meta import Metadata
from tests.api.doors import GROUP, Answer, Door, call, node, open_door, workload
from tests.authority.planes import OPERATOR, ok

WORKLOADS = f"{GROUP}/namespaces/risk/workloads"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"


async def patched(door: Door, path: str, body: Any, media: str = MERGE, **more: Any) -> Answer:
    return await call(door, "PATCH", path, body, media=media, **more)


async def test_a_name_is_made_where_only_its_beginning_is_given() -> None:
    async with open_door() as door:
        body = {**workload(""), "metadata": {"generateName": "job-"}}
        one, two = [(await call(door, "POST", WORKLOADS, body)).json["metadata"]["name"] for _ in range(2)]
        assert one != two
        assert one.startswith("job-")
        assert len(one) == len("job-") + 5


async def test_what_exists_cannot_be_created_again() -> None:
    async with open_door() as door:
        await call(door, "POST", WORKLOADS, workload("api"))
        got = await call(door, "POST", WORKLOADS, workload("api"))
        assert (got.status, got.json["reason"]) == (409, "AlreadyExists")
        assert got.json["message"] == 'workloads.fairlead.dev "api" already exists'


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "Node"}, "is not a fairlead.dev/v1alpha1, Kind=Workload"),
        ({"apiVersion": "v2"}, "is not a fairlead.dev/v1alpha1, Kind=Workload"),
        ({"metadata": {"name": "api", "namespace": "other"}}, "is not that of the request"),
        ({"metadata": {"name": "api", "resourceVersion": "7"}}, "resourceVersion should not be set"),
        ({"metadata": []}, "metadata must be an object"),
    ],
)
async def test_a_body_that_does_not_belong_here_is_400(change: dict[str, Any], message: str) -> None:
    async with open_door() as door:
        got = await call(door, "POST", WORKLOADS, {**workload("api"), **change})
        assert (got.status, got.json["reason"]) == (400, "BadRequest")
        assert message in got.json["message"]


async def test_every_fault_of_an_object_is_told_with_its_field() -> None:
    async with open_door() as door:
        body = workload("api", replicas="many", rollout={"maxSurge": []})
        got = await call(door, "POST", WORKLOADS, body)
        assert (got.status, got.json["reason"]) == (422, "Invalid")
        assert {cause["field"] for cause in got.json["details"]["causes"]} == {"spec.replicas", "spec.rollout.maxSurge"}
        judged = await call(door, "POST", WORKLOADS, workload("api", replicas=-1))
        assert judged.status == 422
        assert judged.json["details"]["causes"][0]["field"] == "spec.replicas"


async def test_unknown_fields_are_an_error_a_warning_or_nothing_as_asked() -> None:
    async with open_door() as door:
        body = workload("api", bogus=1)
        strict = await call(door, "POST", f"{WORKLOADS}?fieldValidation=Strict", body)
        assert strict.status == 400
        assert 'strict decoding error: unknown field "spec.bogus"' in strict.json["message"]
        warned = await call(door, "POST", WORKLOADS, body)
        assert warned.status == 201
        assert warned.warnings == ['299 - "unknown field \\"spec.bogus\\""']
        assert "bogus" not in warned.json["spec"]
        silent = await call(door, "PUT", f"{WORKLOADS}/api?fieldValidation=Ignore", body)
        assert (silent.status, silent.warnings) == (200, [])


async def test_a_write_of_an_older_version_is_a_conflict_and_one_without_a_version_overwrites() -> None:
    async with open_door() as door:
        old = (await call(door, "POST", WORKLOADS, workload("api"))).json
        await patched(door, f"{WORKLOADS}/api", {"spec": {"replicas": 2}})
        got = await call(door, "PUT", f"{WORKLOADS}/api", old)
        assert (got.status, got.json["reason"]) == (409, "Conflict")
        del old["metadata"]["resourceVersion"]
        assert (await call(door, "PUT", f"{WORKLOADS}/api", old)).json["spec"]["replicas"] == 1


async def test_of_many_that_rest_on_one_version_exactly_one_is_written() -> None:
    async with open_door() as door:
        base = (await call(door, "POST", WORKLOADS, workload("api"))).json
        bodies = [{**base, "spec": {**base["spec"], "replicas": n}} for n in range(2, 12)]
        answers = await asyncio.gather(*(call(door, "PUT", f"{WORKLOADS}/api", body) for body in bodies))
        assert sorted(answer.status for answer in answers) == [200] + [409] * 9


async def test_of_many_that_patch_different_fields_none_is_lost() -> None:
    async with open_door() as door:
        await call(door, "POST", WORKLOADS, workload("api"))
        patches = [{"metadata": {"labels": {f"l{n}": "x"}}} for n in range(4)]
        answers = await asyncio.gather(*(patched(door, f"{WORKLOADS}/api", body) for body in patches))
        assert [answer.status for answer in answers] == [200] * 4
        got = (await call(door, "GET", f"{WORKLOADS}/api")).json
        assert got["metadata"]["labels"] == {f"l{n}": "x" for n in range(4)}


async def test_a_write_that_changes_nothing_keeps_the_version_and_one_of_the_spec_raises_the_generation() -> None:
    async with open_door() as door:
        first = (await call(door, "POST", WORKLOADS, workload("api"))).json
        same = (await call(door, "PUT", f"{WORKLOADS}/api", first)).json
        assert same["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        again = (await patched(door, f"{WORKLOADS}/api", {"spec": {"replicas": 1}})).json
        assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        labelled = (await patched(door, f"{WORKLOADS}/api", {"metadata": {"labels": {"a": "b"}}})).json
        assert labelled["metadata"]["generation"] == 1
        scaled = (await patched(door, f"{WORKLOADS}/api", {"spec": {"replicas": 2}})).json
        assert scaled["metadata"]["generation"] == 2


async def test_a_dry_run_shows_what_would_be_and_changes_nothing() -> None:
    async with open_door() as door:
        made = await call(door, "POST", f"{WORKLOADS}?dryRun=All", workload("api"))
        assert made.status == 201
        assert made.json["metadata"]["finalizers"] == ["fairlead.dev/slots-released"]
        assert (await call(door, "GET", f"{WORKLOADS}/api")).status == 404
        stored = (await call(door, "POST", WORKLOADS, workload("api"))).json
        would = (await patched(door, f"{WORKLOADS}/api?dryRun=All", {"spec": {"replicas": 9}})).json
        assert would["spec"]["replicas"] == 9
        assert would["metadata"]["generation"] == 2
        assert would["metadata"]["resourceVersion"] == stored["metadata"]["resourceVersion"]
        await call(door, "DELETE", f"{WORKLOADS}/api", {"dryRun": ["All"]})
        await call(door, "DELETE", f"{WORKLOADS}/api?dryRun=All")
        assert (await call(door, "GET", f"{WORKLOADS}/api")).json == stored
        assert (await call(door, "POST", f"{WORKLOADS}?dryRun=Some", workload("x"))).status == 400
        refused = await call(door, "POST", f"{WORKLOADS}?dryRun=All", workload("x", replicas=-1))
        assert refused.status == 422, "a dry run is judged too"


async def test_patches_of_kinds_and_formats_that_take_none_are_415() -> None:
    async with open_door("us") as door:
        await call(door, "POST", WORKLOADS, workload("api"))
        for media in ("application/strategic-merge-patch+json", "application/json", "text/plain"):
            got = await patched(door, f"{WORKLOADS}/api", {}, media)
            assert (got.status, got.json["reason"]) == (415, "UnsupportedMediaType")
        for plural in ("bindings", "schedulingrequests", "events"):
            got = await patched(door, f"{GROUP}/namespaces/risk/{plural}/x", {})
            assert got.status == 415, plural


async def test_a_json_patch_tests_and_changes() -> None:
    async with open_door() as door:
        await call(door, "POST", WORKLOADS, workload("api"))
        operations = [
            {"op": "test", "path": "/spec/replicas", "value": 1},
            {"op": "replace", "path": "/spec/replicas", "value": 4},
        ]
        assert (await patched(door, f"{WORKLOADS}/api", operations, JSON_PATCH)).json["spec"]["replicas"] == 4
        again = await patched(door, f"{WORKLOADS}/api", operations, JSON_PATCH)
        assert (again.status, again.json["reason"]) == (422, "Invalid")


async def test_the_name_and_tenant_of_an_object_cannot_be_patched_away() -> None:
    async with open_door() as door:
        await call(door, "POST", WORKLOADS, workload("api"))
        bodies: list[Any] = [
            {"metadata": {"name": "other"}},
            {"metadata": {"namespace": "other"}},
            {"kind": "Node"},
            {"metadata": []},
        ]
        for body in bodies:
            assert (await patched(door, f"{WORKLOADS}/api", body)).status == 400
        assert (await patched(door, f"{WORKLOADS}/api", {"metadata": {"uid": "x"}})).status in (409, 422)


# --- delete ------------------------------------------------------------------------------------------------------------


async def test_an_object_with_finalizers_is_marked_and_one_without_is_gone() -> None:
    async with open_door() as door:
        await call(door, "POST", WORKLOADS, workload("api"))
        marked = await call(door, "DELETE", f"{WORKLOADS}/api")
        assert "deletionTimestamp" in marked.json["metadata"]
        taken_off = await patched(door, f"{WORKLOADS}/api", {"metadata": {"finalizers": None}})
        assert taken_off.status == 200
        assert (await call(door, "GET", f"{WORKLOADS}/api")).status == 404
        configs = f"{GROUP}/namespaces/risk/configs"
        made = (await call(door, "POST", configs, {"metadata": {"name": "c"}, "spec": {"data": {"k": "v"}}})).json
        gone = await call(door, "DELETE", f"{configs}/c")
        assert gone.json["status"] == "Success"
        assert gone.json["details"]["uid"] == made["metadata"]["uid"]
        assert (await call(door, "DELETE", f"{configs}/c")).status == 404


async def test_preconditions_of_a_deletion_are_kept() -> None:
    async with open_door() as door:
        made = (await call(door, "POST", WORKLOADS, workload("api"))).json["metadata"]
        for wrong in ({"uid": "other"}, {"resourceVersion": str(int(made["resourceVersion"]) + 1)}):
            got = await call(door, "DELETE", f"{WORKLOADS}/api", {"preconditions": wrong})
            assert (got.status, got.json["reason"]) == (409, "Conflict")
        right = {"uid": made["uid"], "resourceVersion": made["resourceVersion"]}
        assert (await call(door, "DELETE", f"{WORKLOADS}/api", {"preconditions": right})).status == 200
        wrong_options: list[Any] = [{"propagationPolicy": "Sideways"}, {"preconditions": 3}, {"dryRun": "All"}, []]
        for bad in wrong_options:
            assert (await call(door, "DELETE", f"{WORKLOADS}/api", bad)).status == 400


async def test_a_collection_is_deleted_as_far_as_the_selector_goes() -> None:
    async with open_door() as door:
        configs = f"{GROUP}/namespaces/risk/configs"
        for name, tier in (("a", "x"), ("b", "y"), ("c", "x")):
            await call(
                door, "POST", configs, {"metadata": {"name": name, "labels": {"tier": tier}}, "spec": {"data": {"k": "v"}}}
            )
        got = await call(door, "DELETE", f"{configs}?labelSelector=tier%3Dx")
        assert [item["metadata"]["name"] for item in got.json["items"]] == ["a", "c"]
        left = (await call(door, "GET", configs)).json["items"]
        assert [item["metadata"]["name"] for item in left] == ["b"]


# --- idempotency -------------------------------------------------------------------------------------------------------


async def test_a_repeated_create_with_one_key_makes_one_object_and_gives_the_same_answer() -> None:
    async with open_door() as door:
        body = {**workload(""), "metadata": {"generateName": "job-"}}
        headers = {"idempotency-key": "k-1"}
        first = await call(door, "POST", WORKLOADS, body, headers=headers)
        second = await call(door, "POST", WORKLOADS, body, headers=headers)
        assert (first.status, second.status) == (201, 201)
        assert first.json == second.json
        assert len((await call(door, "GET", WORKLOADS)).json["items"]) == 1
        other = await call(door, "POST", WORKLOADS, workload("other"), headers=headers)
        assert other.status == 422
        assert other.json["details"]["causes"][0]["reason"] == "IdReused"


async def test_a_repeated_patch_with_one_key_changes_once() -> None:
    async with open_door() as door:
        await call(door, "POST", WORKLOADS, workload("api"))
        operations = [{"op": "add", "path": "/spec/template/command/-", "value": "more"}]
        headers = {"idempotency-key": "k-2"}
        for _ in range(3):
            got = await patched(door, f"{WORKLOADS}/api", operations, JSON_PATCH, headers=headers)
            assert got.json["spec"]["template"]["command"] == ["/bin/api", "more"]
        await call(door, "DELETE", f"{WORKLOADS}/api", headers={"idempotency-key": "k-3"})
        assert (await call(door, "DELETE", f"{WORKLOADS}/api", headers={"idempotency-key": "k-3"})).status == 200


async def test_a_receipt_tells_its_sender_what_a_key_came_to_and_nobody_else() -> None:
    async with open_door() as door:
        made = (await call(door, "POST", WORKLOADS, workload("api"), headers={"idempotency-key": "k-4"})).json
        receipt = (await call(door, "GET", "/receipts/k-4")).json
        assert receipt["status"]["outcome"] == "Accepted"
        assert receipt["status"]["uid"] == made["metadata"]["uid"]
        assert (await call(door, "GET", "/receipts/k-4", token="eve-token")).status == 404
        assert (await call(door, "GET", "/receipts/unknown")).status == 404


# --- subresources ------------------------------------------------------------------------------------------------------


async def test_scale_is_read_and_written_as_autoscaling_v1() -> None:
    async with open_door() as door:
        await call(door, "POST", WORKLOADS, workload("api", replicas=2))
        scale = (await call(door, "GET", f"{WORKLOADS}/api/scale")).json
        assert (scale["kind"], scale["apiVersion"], scale["spec"]) == ("Scale", "autoscaling/v1", {"replicas": 2})
        assert (await patched(door, f"{WORKLOADS}/api/scale", {"spec": {"replicas": 3}})).json["spec"]["replicas"] == 3
        stale = await call(door, "PUT", f"{WORKLOADS}/api/scale", {**scale, "spec": {"replicas": 4}})
        assert stale.status == 409
        assert (await patched(door, f"{WORKLOADS}/api/scale", {"spec": {"replicas": "x"}})).status == 400
        assert (await patched(door, f"{WORKLOADS}/api/scale", {"spec": {"replicas": -1}})).status == 422
        assert (await call(door, "GET", f"{WORKLOADS}/api")).json["spec"]["replicas"] == 3


async def test_status_belongs_to_its_owner_and_the_rest_is_ignored_there() -> None:
    async with open_door("us") as door:
        await call(door, "POST", f"{GROUP}/nodes", node("us-n1", "us"))
        path = f"{GROUP}/nodes/us-n1/status"
        mine = {"status": {"health": "Ready", "schedulable": True, "session": 1}, "spec": {"zone": "other"}}
        assert (await patched(door, path, mine)).status == 403, "an operator does not own it"
        got = await patched(door, path, mine, token="node-token")
        assert got.status == 200
        assert got.json["status"]["health"] == "Ready"
        assert got.json["spec"]["zone"] == "a"
        ignored = await patched(door, f"{GROUP}/nodes/us-n1", {"status": {"health": "Lost"}})
        assert ignored.json["status"]["health"] == "Ready"


async def test_a_dry_run_of_a_status_is_judged_shown_and_not_stored() -> None:
    async with open_door("us") as door:
        await call(door, "POST", f"{GROUP}/nodes", node("us-n1", "us"))
        path = f"{GROUP}/nodes/us-n1/status?dryRun=All"
        status = {"status": {"health": "Ready", "schedulable": True, "session": 1}}
        assert (await patched(door, path, status)).status == 403, "whose it is not may not try it either"
        got = await patched(door, path, status, token="node-token")
        assert (got.status, got.json["status"]["health"]) == (200, "Ready")
        assert "health" not in (await call(door, "GET", f"{GROUP}/nodes/us-n1")).json.get("status", {})


# --- namespaces, events, limits ----------------------------------------------------------------------------------------


async def test_a_namespace_is_a_tenant() -> None:
    async with open_door() as door:
        made = await call(
            door, "POST", "/api/v1/namespaces", {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "hunt"}}
        )
        assert made.status == 201
        assert made.json["status"] == {"phase": "Active"}
        assert (await call(door, "GET", f"{GROUP}/tenants/hunt")).json["kind"] == "Tenant"
        names = [item["metadata"]["name"] for item in (await call(door, "GET", "/api/v1/namespaces")).json["items"]]
        assert names == ["hunt", "risk"]
        assert (await call(door, "DELETE", "/api/v1/namespaces/hunt")).status == 200
        assert (await call(door, "GET", f"{GROUP}/tenants/hunt")).status == 404


async def test_a_namespace_comes_in_protobuf_too() -> None:
    async with open_door() as door:
        metadata = b"\x0a\x04hunt" + b"\x5a\x08\x0a\x01a\x12\x03b-c"
        obj = b"\x0a" + bytes([len(metadata)]) + metadata
        kind = b"\x0a\x02v1\x12\x09Namespace"
        body = b"k8s\x00" + b"\x0a" + bytes([len(kind)]) + kind + b"\x12" + bytes([len(obj)]) + obj
        made = await call(door, "POST", "/api/v1/namespaces", body, media="application/vnd.kubernetes.protobuf")
        assert made.status == 201
        assert made.json["metadata"]["labels"] == {"a": "b-c"}
        for broken in (body[:-3], b"k8s\x00\xff\xff", b"", b"k8s\x00" + b"\xff" * 40):
            got = await call(door, "POST", "/api/v1/namespaces", broken, media="application/vnd.kubernetes.protobuf")
            assert got.status == 400


async def test_our_events_are_found_by_the_object_they_are_about() -> None:
    async with open_door() as door:
        for name, about in (("e1", "workloads/risk/api"), ("e2", "workloads/risk/web"), ("e3", "nodes//n1")):
            spec = EventSpec(regarding=about, reason="Tried", note="it was tried", reporter="scheduler")
            event = Event(metadata=Metadata(name=name, namespace="risk"), spec=spec)
            ok(await door.home.send(OPERATOR, Put("Event", event)))
        selector = "involvedObject.name%3Dapi,involvedObject.kind%3DWorkload,involvedObject.uid%3Dwhatever"
        got = (await call(door, "GET", f"/api/v1/namespaces/risk/events?fieldSelector={selector}")).json["items"]
        assert [event["metadata"]["name"] for event in got] == ["e1"]
        assert got[0]["involvedObject"]["kind"] == "Workload"
        absent = (await call(door, "GET", "/api/v1/events?fieldSelector=involvedObject.namespace%3D")).json["items"]
        assert [event["metadata"]["name"] for event in absent] == ["e3"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400), (b"{", 400), (b"[]", 400), (b"null", 400), (b"1", 400), (b'"x"', 400), (b"\xff\xfe", 400),
        (b"[" * 100_000, 400), (b'{"a":' * 100 + b"1" + b"}" * 100, 400), (b'{"metadata":{"name":"\\ud800"}}', 422),
        (b"x" * (3 * 1024 * 1024 + 1), 413), (b'{"metadata":{"name":"api"},"spec":{"replicas":1e999}}', 422),
        (b'{"metadata":{"name":"api"},"spec":{"replicas":99999999999999999999}}', 422),
        (b'{"metadata":{"name":"api","name":"b"}}', 422), (b'{"metadata":{"name":"../x"}}', 422),
    ],
)  # fmt: skip
async def test_whatever_the_body_is_the_answer_is_a_status(body: bytes, status: int) -> None:
    async with open_door() as door:
        got = await call(door, "POST", WORKLOADS, body)
        assert (got.status, got.json["kind"]) == (status, "Status")


async def test_yaml_is_read_where_it_says_so_and_aliases_are_refused() -> None:
    async with open_door() as door:
        text = b"metadata: {name: api}\nspec: {resources: {requests: {cpu: 1}}, template: {command: [/bin/api]}}\n"
        assert (await call(door, "POST", WORKLOADS, text, media="application/yaml")).status == 201
        bomb = b"a: &a [1]\nb: *a\n"
        got = await call(door, "POST", WORKLOADS, bomb, media="application/yaml")
        assert got.status == 400
        assert "aliases" in got.json["message"] or "anchors" in got.json["message"]


def test_the_patch_operation_promises_what_kubectl_decides_by() -> None:
    paths = document("fairlead.dev", "v1alpha1")["paths"]
    patch = paths[f"{GROUP}/namespaces/{{namespace}}/workloads/{{name}}"]["patch"]
    assert "fieldValidation" in [parameter["name"] for parameter in patch["parameters"]]
    assert not any("strategic" in media for media in patch["requestBody"]["content"])
    assert isinstance(patch["x-kubernetes-group-version-kind"], dict)
    schema = document("fairlead.dev", "v1alpha1")["components"]["schemas"]["dev.fairlead.v1alpha1.Workload"]
    assert schema["x-kubernetes-group-version-kind"] == [{"group": "fairlead.dev", "version": "v1alpha1", "kind": "Workload"}]


def test_what_was_stored_before_managers_were_kept_can_still_be_read() -> None:
    record = Workload(metadata=Metadata(name="api", namespace="risk"))
    assert msgspec.to_builtins(record)["metadata"] == {"name": "api", "namespace": "risk"}
