"""get and list: forms, pages, selectors, versions, and the past."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairlead.api.columns import age, instant_of
from fairlead.api.frontdoor import Cursor
from fairlead.api.reading import token_of
from tests.api.doors import GROUP, Door, call, open_door, own_tenant_only, workload

WORKLOADS = f"{GROUP}/namespaces/risk/workloads"
TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}


async def made(door: Door, *names: str, **spec: Any) -> list[Any]:
    return [(await call(door, "POST", WORKLOADS, workload(name, **spec))).json for name in names]


async def test_an_object_is_read_as_it_was_created_with_its_defaults_written_out() -> None:
    async with open_door() as door:
        (created,) = await made(door, "api")
        got = await call(door, "GET", f"{WORKLOADS}/api")
        assert got.json == created
        assert got.json["spec"]["replicas"] == 1
        assert got.json["metadata"]["generation"] == 1
        assert "suspend" not in got.json["spec"], "what is empty is left out"


async def test_what_is_not_there_is_a_status_with_404() -> None:
    async with open_door() as door:
        got = await call(door, "GET", f"{WORKLOADS}/api")
        assert got.status == 404
        assert got.json["kind"] == "Status"
        assert got.json["reason"] == "NotFound"
        assert got.json["details"] == {"name": "api", "group": "fairlead.dev", "kind": "workloads"}


@pytest.mark.parametrize("path", ["/", "/apis/other/v1/x", f"{GROUP}/unknown", f"{WORKLOADS}/a/b/c/d", f"{WORKLOADS}/a/unknown"])
async def test_an_unknown_path_is_a_status_with_404(path: str) -> None:
    async with open_door() as door:
        got = await call(door, "GET", path)
        assert (got.status, got.json["kind"]) == (404, "Status")


async def test_nobody_is_answered_who_is_not_known() -> None:
    async with open_door() as door:
        for path in ("/api", "/apis", "/openapi/v3", WORKLOADS):
            got = await call(door, "GET", path, token="wrong")
            assert (got.status, got.json["reason"]) == (401, "Unauthorized")


async def test_a_caller_of_one_tenant_sees_nothing_of_another_by_any_verb() -> None:
    async with open_door(authorise=own_tenant_only) as door:
        await made(door, "api")
        other = f"{GROUP}/namespaces/other/workloads"
        for method, path in (
            ("GET", other), ("GET", f"{other}/api"), ("GET", f"{GROUP}/workloads"), ("GET", f"{other}?watch=true"),
            ("POST", other), ("PUT", f"{other}/api"), ("PATCH", f"{other}/api"), ("DELETE", f"{other}/api"), ("DELETE", other),
            ("GET", f"{other}/api/scale"), ("PATCH", f"{other}/api/scale"), ("PUT", f"{other}/api/status"),
        ):  # fmt: skip
            media = "application/merge-patch+json" if method == "PATCH" else None
            got = await call(door, method, path, workload("api"), token="eve-token", media=media)
            assert (got.status, got.json["reason"]) == (403, "Forbidden"), (method, path)
        assert (await call(door, "GET", f"{WORKLOADS}/api", token="eve-token")).status == 200


async def test_a_list_comes_in_pages_that_all_show_one_instant() -> None:
    async with open_door() as door:
        await made(door, "a", "b", "c", "d", "e")
        first = (await call(door, "GET", f"{WORKLOADS}?limit=2")).json
        await made(door, "bb", "z")
        await call(door, "DELETE", f"{GROUP}/namespaces/risk/workloads/d")
        second = (await call(door, "GET", f"{WORKLOADS}?limit=2&continue={first['metadata']['continue']}")).json
        third = (await call(door, "GET", f"{WORKLOADS}?limit=2&continue={second['metadata']['continue']}")).json
        names = [[item["metadata"]["name"] for item in page["items"]] for page in (first, second, third)]
        assert names == [["a", "b"], ["c", "d"], ["e"]]
        assert "continue" not in third["metadata"]
        assert first["metadata"]["resourceVersion"] == third["metadata"]["resourceVersion"]


@pytest.mark.parametrize("token", ["x", "%00", "gqFhAQ", "A" * 9000, "k5GSAAEAoKA"])
async def test_a_forged_continue_token_is_refused_or_harmless(token: str) -> None:
    async with open_door() as door:
        got = await call(door, "GET", f"{WORKLOADS}?limit=2&continue={token}")
        assert got.status in (200, 400, 410)


@pytest.mark.parametrize(
    ("pins", "member"),
    [
        (((0, 1), (10**6, 1)), 0),
        (((0, 1), (1, 1)), 0),
        (((-1, 1),), 0),
        (((0, -1),), 0),
        (((0, 1),), 7),
    ],
)
async def test_a_continue_token_speaks_of_the_planes_that_are_asked_and_of_no_others(pins: Any, member: int) -> None:
    async with open_door("eu") as door:
        got = await call(door, "GET", f"{WORKLOADS}?limit=2&continue={token_of(Cursor(pins, member, '', ''))}")
        assert (got.status, got.json["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("labelSelector=tier%3Dgold", ["a"]),
        ("labelSelector=tier!%3Dgold", ["b", "c"]),
        ("labelSelector=tier", ["a", "b"]),
        ("labelSelector=!tier", ["c"]),
        ("labelSelector=tier%20in%20(gold,tin),tier", ["a", "b"]),
        ("labelSelector=tier%20notin%20(gold)", ["b", "c"]),
        ("fieldSelector=metadata.name%3Db", ["b"]),
        ("fieldSelector=metadata.name!%3Db", ["a", "c"]),
        ("fieldSelector=metadata.namespace%3Dother", []),
        ("fieldSelector=spec.workloadClass%3Dbatch", ["c"]),
        ("fieldSelector=spec.workloadClass%3Dbatch,metadata.name%3Da", []),
    ],
)
async def test_selectors_choose(query: str, names: list[str]) -> None:
    async with open_door() as door:
        await made(door, "a", labels={"tier": "gold"})
        await made(door, "b", labels={"tier": "tin"})
        await made(door, "c", workloadClass="batch")
        got = (await call(door, "GET", f"{WORKLOADS}?{query}")).json
        assert [item["metadata"]["name"] for item in got["items"]] == names


@pytest.mark.parametrize(
    "query",
    [
        "labelSelector=a%20in%20(b", "labelSelector=,", "labelSelector=a%3D%3D%3Db", "fieldSelector=nothing%3D1",
        "fieldSelector=metadata.name", "limit=-1", "limit=x", "resourceVersion=abc", "resourceVersionMatch=Exact",
        "resourceVersion=1&resourceVersionMatch=Sometimes", "at=yesterday", "at=2026-01-01T00:00:00", "watch=maybe",
    ],
)  # fmt: skip
async def test_what_cannot_be_understood_is_400(query: str) -> None:
    async with open_door() as door:
        got = await call(door, "GET", f"{WORKLOADS}?{query}")
        assert (got.status, got.json["reason"]) == (400, "BadRequest")


async def test_a_table_has_the_columns_of_its_kind_and_metadata_in_its_rows() -> None:
    async with open_door() as door:
        await made(door, "api", labels={"tier": "gold"})
        table = (await call(door, "GET", WORKLOADS, headers=TABLE)).json
        assert table["kind"] == "Table"
        narrow = [c["name"].upper() for c in table["columnDefinitions"] if not c["priority"]]
        assert narrow == ["NAME", "TENANT", "CLASS", "DESIRED", "BOUND", "READY", "SERVING", "REASON", "AGE"]
        (row,) = table["rows"]
        assert len(row["cells"]) == len(table["columnDefinitions"])
        assert row["object"]["metadata"]["labels"] == {"tier": "gold"}
        bare = (await call(door, "GET", f"{WORKLOADS}?includeObject=None", headers=TABLE)).json
        assert "object" not in bare["rows"][0]
        whole = (await call(door, "GET", f"{WORKLOADS}/api?includeObject=Object", headers=TABLE)).json
        assert whole["rows"][0]["object"]["spec"]["replicas"] == 1


async def test_metadata_alone_is_given_to_whoever_asks_for_it() -> None:
    async with open_door() as door:
        await made(door, "api")
        accept = {"accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
        got = (await call(door, "GET", WORKLOADS, headers=accept)).json
        assert got["kind"] == "PartialObjectMetadataList"
        assert got["items"][0]["kind"] == "PartialObjectMetadata"
        assert "spec" not in got["items"][0]


async def test_a_form_nobody_serves_is_406() -> None:
    async with open_door() as door:
        got = await call(door, "GET", WORKLOADS, headers={"accept": "application/xml"})
        assert (got.status, got.json["reason"]) == (406, "NotAcceptable")


async def test_an_object_keeps_its_version_while_others_change() -> None:
    async with open_door() as door:
        (api,) = await made(door, "api")
        await made(door, "web")
        got = (await call(door, "GET", f"{WORKLOADS}/api")).json
        assert got["metadata"]["resourceVersion"] == api["metadata"]["resourceVersion"]


async def test_a_list_not_older_than_what_was_seen_is_given_and_one_from_the_future_is_504() -> None:
    async with open_door() as door:
        (api,) = await made(door, "api")
        seen = int(api["metadata"]["resourceVersion"])
        assert (await call(door, "GET", f"{WORKLOADS}?resourceVersion={seen}")).status == 200
        got = await call(door, "GET", f"{WORKLOADS}?resourceVersion={seen + 10_000}")
        assert (got.status, got.json["reason"]) == (504, "Timeout")
        assert got.json["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


async def test_an_exact_version_shows_what_was_then() -> None:
    async with open_door() as door:
        (api,) = await made(door, "api")
        await made(door, "web")
        version = api["metadata"]["resourceVersion"]
        got = (await call(door, "GET", f"{WORKLOADS}?resourceVersion={version}&resourceVersionMatch=Exact")).json
        assert [item["metadata"]["name"] for item in got["items"]] == ["api"]


async def test_at_shows_an_object_as_it_was(tmp_path: Path) -> None:
    async with open_door(archive=tmp_path) as door:
        (api,) = await made(door, "api")
        version = api["metadata"]["resourceVersion"]
        await call(door, "PATCH", f"{WORKLOADS}/api", {"spec": {"replicas": 5}}, media="application/merge-patch+json")
        assert (await call(door, "GET", f"{WORKLOADS}/api")).json["spec"]["replicas"] == 5
        assert (await call(door, "GET", f"{WORKLOADS}/api?at={version}")).json["spec"]["replicas"] == 1
        assert (await call(door, "GET", f"{WORKLOADS}?at={version}")).json["items"][0]["spec"]["replicas"] == 1


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (5, "5s"),
        (119, "119s"),
        (125, "2m5s"),
        (180, "3m"),
        (3600, "60m"),
        (4 * 3600 + 60, "4h1m"),
        (40 * 3600, "40h"),
        (5e5, "5d"),
    ],
)
def test_ages_are_worded_as_kubectl_words_them(seconds: float, words: str) -> None:
    assert age(instant_of(0), int(seconds * 1000)) == words


async def test_a_secret_is_never_shown_and_a_value_that_comes_back_hidden_is_kept() -> None:
    async with open_door() as door:
        secrets = f"{GROUP}/namespaces/risk/secrets"
        body = {"metadata": {"name": "db"}, "spec": {"data": {"password": "hunter2"}}}
        made_one = await call(door, "POST", secrets, body)
        assert made_one.status == 201
        for path in (f"{secrets}/db", secrets, f"{secrets}?watch=true&timeoutSeconds=1"):
            assert b"hunter2" not in (await call(door, "GET", path)).body
        shown = made_one.json
        shown["spec"]["data"]["user"] = "app"
        assert (await call(door, "PUT", f"{secrets}/db", shown)).status == 200
        kept = door.authority().view().get("secrets", "risk", "db")
        assert kept is not None
        assert kept.decode().spec.data == {"password": "hunter2", "user": "app"}
