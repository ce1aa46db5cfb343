"""Server-side apply: who owns what after each write, conflicts, force, removal, and the way from client-side apply."""

from __future__ import annotations

from typing import Any

from fairlead.api.catalogue import LAST_APPLIED
from fairlead.model.commands import Put
from tests.api.doors import GROUP, Answer, Door, call, open_door, workload
from tests.authority.planes import OPERATOR, ok

PATH = f"{GROUP}/namespaces/risk/workloads/api"
APPLY = "application/apply-patch+yaml"


async def applied(door: Door, body: Any, manager: str = "ci", **query: str) -> Answer:
    words = "".join(f"&{key}={value}" for key, value in query.items())
    return await call(door, "PATCH", f"{PATH}?fieldManager={manager}{words}", body, media=APPLY)


def owners(answer: Answer) -> dict[str, set[str]]:
    """manager -> the spec fields it owns, one level deep."""
    out: dict[str, set[str]] = {}
    for entry in answer.json["metadata"].get("managedFields", []):
        spec = entry["fieldsV1"].get("f:spec", {})
        out.setdefault(f"{entry['manager']}/{entry['operation']}", set()).update(key[2:] for key in spec)
    return out


async def test_apply_creates_and_owns_exactly_what_it_says() -> None:
    async with open_door() as door:
        got = await applied(door, workload("api", replicas=2))
        assert got.status == 201
        assert owners(got) == {"ci/Apply": {"replicas", "template", "resources"}}


async def test_applying_the_same_again_changes_nothing() -> None:
    async with open_door() as door:
        first = await applied(door, workload("api", replicas=2))
        again = await applied(door, workload("api", replicas=2))
        assert again.status == 200
        assert again.json == first.json


async def test_two_managers_may_say_the_same_and_conflict_when_they_differ() -> None:
    async with open_door() as door:
        await applied(door, workload("api", replicas=2))
        shared = await applied(door, workload("api", replicas=2), "other")
        assert shared.status == 200
        clash = await applied(door, workload("api", replicas=5), "other")
        assert (clash.status, clash.json["reason"]) == (409, "Conflict")
        (cause,) = clash.json["details"]["causes"]
        assert cause == {
            "reason": "FieldManagerConflict",
            "message": 'conflict with "ci" using fairlead.dev/v1alpha1',
            "field": ".spec.replicas",
        }
        forced = await applied(door, workload("api", replicas=5), "other", force="true")
        assert forced.json["spec"]["replicas"] == 5
        assert "replicas" not in owners(forced)["ci/Apply"]


async def test_what_a_manager_no_longer_says_is_removed_unless_another_owns_it() -> None:
    async with open_door() as door:
        await applied(door, workload("api", replicas=2, workloadClass="batch", labels={"a": "1", "b": "2"}))
        await applied(door, {"spec": {"replicas": 2}}, "other")
        got = await applied(door, workload("api", labels={"a": "1"}))
        assert got.json["spec"]["workloadClass"] == "standard", "back to its default"
        assert got.json["spec"]["replicas"] == 2, "the other manager still wants it"
        assert got.json["metadata"]["labels"] == {"a": "1"}


async def test_lists_with_keys_are_merged_by_key() -> None:
    async with open_door() as door:
        body = workload("api")
        body["spec"]["template"]["env"] = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
        await applied(door, body)
        other = {"spec": {"template": {"env": [{"name": "C", "value": "3"}]}}}
        got = await applied(door, other, "other")
        assert [item["name"] for item in got.json["spec"]["template"]["env"]] == ["A", "B", "C"]
        body["spec"]["template"]["env"] = [{"name": "B", "value": "9"}]
        got = await applied(door, body)
        assert got.json["spec"]["template"]["env"] == [{"name": "B", "value": "9"}, {"name": "C", "value": "3"}]


async def test_a_list_without_keys_belongs_to_one_manager_as_a_whole() -> None:
    async with open_door() as door:
        await applied(door, workload("api"))
        clash = await applied(door, {"spec": {"template": {"command": ["/bin/other"]}}}, "other")
        assert clash.status == 409
        assert clash.json["details"]["causes"][0]["field"] == ".spec.template.command"


async def test_an_update_takes_over_what_it_changes_and_nothing_else() -> None:
    async with open_door() as door:
        await applied(door, workload("api", replicas=2))
        patch = {"spec": {"replicas": 7}}
        got = await call(door, "PATCH", f"{PATH}?fieldManager=hand", patch, media="application/merge-patch+json")
        assert owners(got)["hand/Update"] == {"replicas"}
        assert "replicas" not in owners(got)["ci/Apply"]
        clash = await applied(door, workload("api", replicas=2))
        assert clash.status == 409
        assert "hand" in clash.json["details"]["causes"][0]["message"]


async def test_scale_owns_the_replicas_it_sets() -> None:
    async with open_door() as door:
        await applied(door, workload("api", replicas=2))
        headers = {"user-agent": "kubectl/v1.32 (linux)"}
        patch = {"spec": {"replicas": 3}}
        await call(door, "PATCH", f"{PATH}/scale", patch, media="application/merge-patch+json", headers=headers)
        got = await call(door, "GET", PATH)
        assert owners(got)["kubectl/Update"] == {"replicas"}


async def test_the_command_line_applies_what_it_scaled_and_undid_itself() -> None:
    async with open_door() as door:
        await applied(door, workload("api", replicas=2), "fairlead")
        scale = {"spec": {"replicas": 3}}
        merge = "application/merge-patch+json"
        await call(door, "PATCH", f"{PATH}/scale?fieldManager=fairlead", scale, media=merge)
        undo = {"metadata": {"labels": {"tier": "x"}}, "spec": {"template": {"command": ["/bin/before"]}}}
        await call(door, "PATCH", f"{PATH}?fieldManager=fairlead", undo, media=merge)
        got = await applied(door, workload("api", replicas=4), "fairlead")
        assert (got.status, got.json["spec"]["replicas"]) == (200, 4)
        assert got.json["metadata"]["labels"] == {"tier": "x"}, "what it does not say stays"
        assert owners(got) == {"fairlead/Apply": {"replicas", "template", "resources"}, "fairlead/Update": set()}
        changed = workload("api", replicas=4)
        changed["spec"]["template"]["command"] = ["/bin/after"]
        assert (await applied(door, changed, "fairlead")).status == 200
        fewer = {**changed, "spec": {key: value for key, value in changed["spec"].items() if key != "replicas"}}
        assert (await applied(door, fewer, "fairlead")).json["spec"]["replicas"] == 1, "nobody else says it"


async def test_the_command_line_still_conflicts_with_others() -> None:
    async with open_door() as door:
        await applied(door, workload("api", replicas=2), "fairlead")
        for name in ("hand", "autoscaler", "fairlead-of-mine"):
            patch = {"spec": {"replicas": 7}}
            await call(door, "PATCH", f"{PATH}?fieldManager={name}", patch, media="application/merge-patch+json")
            clash = await applied(door, workload("api", replicas=2), "fairlead")
            assert clash.status == 409
            assert name in clash.json["details"]["causes"][0]["message"]
            assert (await applied(door, workload("api", replicas=2), "fairlead", force="true")).status == 200


async def test_other_tools_are_two_managers_where_they_update_and_apply() -> None:
    """As in Kubernetes: kubectl apply --server-side conflicts with kubectl scale."""
    async with open_door() as door:
        await applied(door, workload("api", replicas=2), "kubectl")
        patch = {"spec": {"replicas": 7}}
        await call(door, "PATCH", f"{PATH}/scale?fieldManager=kubectl", patch, media="application/merge-patch+json")
        assert (await applied(door, workload("api", replicas=2), "kubectl")).status == 409


async def test_quantities_that_mean_the_same_are_no_conflict() -> None:
    async with open_door() as door:
        await applied(door, workload("api"))
        got = await applied(door, {"spec": {"resources": {"requests": {"cpu": "0.5"}}}}, "other")
        assert got.status == 200
        assert got.json["spec"]["resources"]["requests"]["cpu"] == "500m"


async def test_setting_a_field_back_to_empty_is_a_conflict_too() -> None:
    async with open_door() as door:
        await applied(door, workload("api", suspend=True))
        assert (await applied(door, {"spec": {"suspend": False}}, "other")).status == 409
        assert "suspend" not in (await applied(door, {"spec": {"suspend": False}}, "other", force="true")).json["spec"]


async def test_kubectl_may_take_over_what_its_client_side_apply_had_said() -> None:
    async with open_door() as door:
        body = workload("api", replicas=2)
        text = '{"apiVersion":"fairlead.dev/v1alpha1","kind":"Workload","metadata":{"name":"api"},"spec":{"replicas":2}}'
        made = {**body, "metadata": {**body["metadata"], "annotations": {LAST_APPLIED: text}}}
        await call(door, "POST", f"{GROUP}/namespaces/risk/workloads?fieldManager=kubectl-client-side-apply", made)
        assert (await applied(door, workload("api", replicas=4), "other")).status == 409
        got = await applied(door, workload("api", replicas=4), "kubectl")
        assert (got.status, got.json["spec"]["replicas"]) == (200, 4)
        template = {"spec": {"template": {"command": ["/bin/other"]}}}
        assert (await applied(door, template, "kubectl")).status == 409, "the annotation does not speak of it"


async def test_an_annotation_of_client_side_apply_that_is_none_says_nothing() -> None:
    async with open_door() as door:
        for number, text in enumerate(("{", "[" * 20_000, "[" * 20_000 + "]" * 20_000)):
            body = workload(f"api-{number}", replicas=2)
            made = {**body, "metadata": {**body["metadata"], "annotations": {LAST_APPLIED: text}}}
            await call(door, "POST", f"{GROUP}/namespaces/risk/workloads?fieldManager=kubectl-client-side-apply", made)
            path = f"{GROUP}/namespaces/risk/workloads/api-{number}"
            got = await call(door, "PATCH", f"{path}?fieldManager=kubectl", workload(f"api-{number}", replicas=4), media=APPLY)
            assert got.status == 409, "nothing was said of who may take over"
            assert (await call(door, "GET", path)).status == 200


async def test_managed_fields_can_be_rewritten_by_a_json_patch() -> None:
    async with open_door() as door:
        await call(door, "POST", f"{GROUP}/namespaces/risk/workloads?fieldManager=old", workload("api", replicas=2))
        live = (await call(door, "GET", PATH)).json
        entries = [{**entry, "manager": "new", "operation": "Apply"} for entry in live["metadata"]["managedFields"]]
        operations = [
            {"op": "replace", "path": "/metadata/managedFields", "value": entries},
            {"op": "replace", "path": "/metadata/resourceVersion", "value": live["metadata"]["resourceVersion"]},
        ]
        got = await call(door, "PATCH", PATH, operations, media="application/json-patch+json")
        assert list(owners(got)) == ["new/Apply"]
        stale = await call(door, "PATCH", PATH, operations, media="application/json-patch+json")
        assert stale.status == 409
        for wrong in ([{"manager": 1}], "x", [{"manager": "a", "operation": "Apply", "fieldsV1": []}], [{"operation": "Apply"}]):
            bad = [{"op": "replace", "path": "/metadata/managedFields", "value": wrong}]
            assert (await call(door, "PATCH", PATH, bad, media="application/json-patch+json")).status == 422


async def test_an_apply_must_name_its_manager_and_bring_no_managed_fields() -> None:
    async with open_door() as door:
        assert (await call(door, "PATCH", PATH, workload("api"), media=APPLY)).status == 400
        body = {**workload("api"), "metadata": {"name": "api", "managedFields": [{"manager": "x"}]}}
        assert (await applied(door, body)).status == 400
        assert (await applied(door, {**workload("api"), "metadata": {"name": "api", "resourceVersion": "12"}})).status == 404


async def test_a_component_that_writes_the_object_anew_leaves_peoples_fields_theirs() -> None:
    async with open_door() as door:
        await applied(door, workload("api", replicas=2))
        rec = door.authority().view().get("workloads", "risk", "api")
        assert rec is not None
        old = rec.decode()
        bare = type(old)(metadata=type(old.metadata)(name="api", namespace="risk", labels={"by": "machine"}), spec=old.spec)
        ok(await door.home.send(OPERATOR, Put("Workload", bare)))
        got = await call(door, "GET", PATH)
        assert owners(got) == {"ci/Apply": {"replicas", "template", "resources"}}
