"""Whatever comes: a Status with a code below 500, in words, never a stack trace; where a field is wrong, it is named."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from tests.api.doors import GROUP, Answer, Door, call, node, open_door, workload

NAMESPACE = f"{GROUP}/namespaces/risk"
JSON, YAML = "application/json", "application/yaml"
MERGE, PATCH, APPLY = "application/merge-patch+json", "application/json-patch+json", "application/apply-patch+yaml"

RAW: list[bytes] = [
    b"", b" ", b"{", b"}", b"null", b"[]", b"1", b'"x"', b"true", b"\xff\xfe\x00", b"\x00", b'{"a":', b"[" * 50_000,
    b'{"a":' * 5_000 + b"1" + b"}" * 5_000, b"1e999", b'{"spec":{"replicas":1e999}}', b'{"spec":{"replicas":NaN}}',
    b'{"metadata":{"name":"\\ud800"}}', b'{"metadata":{"name":"a","name":"b"}}',
    b'{"metadata":{"name":"' + b"n" * 100_000 + b'"}}',
    b"k8s\x00\x0a\x01", b"a: &a [*a]", b"a: !!python/object/apply:os.system [id]", b"a: 1\n---\nb: 2", b"\t- x", b"? {a: b}\n: c",
    b'{"' + b"k" * 70_000 + b'":1}', b'{"spec":{"replicas":' + b"9" * 400 + b"}}",
]  # fmt: skip
TREES: list[Any] = [
    {}, {"metadata": None}, {"metadata": []}, {"metadata": {"name": 7}}, {"metadata": {"name": None}}, {"metadata": {"name": ""}},
    {"metadata": {"name": "../x"}}, {"metadata": {"name": "UPPER"}}, {"metadata": {"labels": []}},
    {"metadata": {"labels": {"a": 1}}}, {"metadata": {"labels": {"a b": "c"}}}, {"metadata": {"annotations": "x"}},
    {"metadata": {"finalizers": "x"}}, {"metadata": {"finalizers": [7]}}, {"metadata": {"ownerReferences": {"a": 1}}},
    {"metadata": {"ownerReferences": [None]}}, {"metadata": {"resourceVersion": 5}}, {"metadata": {"resourceVersion": "x"}},
    {"metadata": {"resourceVersion": "9" * 2_000}}, {"metadata": {"uid": []}}, {"metadata": {"namespace": 5}},
    {"metadata": {"generation": "x"}}, {"metadata": {"creationTimestamp": "yesterday"}}, {"metadata": {"managedFields": 5}},
    {"metadata": {"managedFields": [{"manager": 7, "fieldsV1": []}]}}, {"metadata": {"generateName": 5}}, {"kind": 5},
    {"kind": "Pod"}, {"apiVersion": "v9"}, {"apiVersion": []}, {"spec": None}, {"spec": []}, {"spec": "x"},
    {"spec": {"replicas": "x"}},
    {"spec": {"replicas": -1}}, {"spec": {"replicas": 2**70}}, {"spec": {"replicas": 1.5}}, {"spec": {"replicas": True}},
    {"spec": {"template": {"command": "x"}}}, {"spec": {"template": {"env": [{"value": "no name"}]}}},
    {"spec": {"resources": {"requests": {"cpu": "lots"}}}}, {"spec": {"resources": {"requests": {"cpu": -5}}}},
    {"spec": {"resources": {"requests": []}}}, {"spec": {"placement": {"spread": [{"maxSkew": 0}]}}},
    {"spec": {"placement": {"residency": {"enforcement": "Maybe"}}}}, {"spec": {"job": {"deadlineTime": "soon"}}},
    {"spec": {"node": 5}}, {"spec": {"slot": "x"}}, {"status": []}, {"status": {"replicas": "x"}},
    {"status": {"conditions": [5]}},
    [{"op": "add"}], [{"op": "fly", "path": "/a"}], [{"op": "add", "path": "a", "value": 1}], [{"op": "remove", "path": ""}],
    [{"op": "replace", "path": "", "value": 5}], [{"op": "add", "path": "/spec/replicas/x", "value": 1}], [5], [None],
    [{"op": "add", "path": "/spec/template/command/99999999999999999999", "value": 1}], [{"op": "test",
    "path": "/~2", "value": 1}],
    [{"op": "move", "from": "/metadata", "path": "/metadata/labels"}], [{"op": "copy", "from": "", "path": "/spec/a"}],
    [{"op": "replace", "path": "/metadata/name", "value": "other"}], [{"op": "remove", "path": "/metadata"}],
    {"propagationPolicy": 5}, {"propagationPolicy": "Sideways"}, {"preconditions": []},
    {"preconditions": {"uid": 5}}, {"dryRun": "All"},
    {"dryRun": [5]}, {"dryRun": ["Some"]}, {"gracePeriodSeconds": "x"}, {"lease": 5}, {"evidence": None},
]  # fmt: skip
REQUESTS = [
    ("POST", "/workloads", (JSON, YAML)),
    ("POST", "/schedulingrequests", (JSON,)),
    ("PUT", "/workloads/api", (JSON, YAML)),
    ("PUT", "/workloads/api/status", (JSON,)),
    ("PUT", "/workloads/api/scale", (JSON,)),
    ("PATCH", "/workloads/api", (MERGE, PATCH, APPLY, "application/strategic-merge-patch+json")),
    ("PATCH", "/workloads/api/scale", (MERGE, PATCH)),
    ("PATCH", "/workloads/api/status", (MERGE, PATCH)),
    ("DELETE", "/workloads/nothing", (JSON, YAML)),
    ("POST", "/bindings/api-0/eviction", (JSON, YAML)),
    ("POST", "/schedulingrequests/api-0/binding", (JSON,)),
]
MEDIA = (
    "text/html",
    "application/xml",
    "application/vnd.kubernetes.protobuf",
    "x" * 3000,
    "",
    "application/json; charset=utf-16",
)


@pytest_asyncio.fixture
async def door() -> AsyncIterator[Door]:
    async with open_door("us", "eu") as made:
        assert (await call(made, "POST", f"{NAMESPACE}/workloads", workload("api"))).status == 201
        assert (await call(made, "POST", f"{GROUP}/nodes", node("us-n1", "us"))).status == 201
        yield made


def check(got: Answer, what: str) -> None:
    assert got.status < 500, f"{what}: {got.status} {got.body[:300]!r}"
    assert got.headers["content-type"].startswith("application/json"), what
    tree = got.json
    if got.status >= 400:
        assert tree["kind"] == "Status", what
        assert tree["message"], what
        assert tree["code"] == got.status
        assert "Traceback" not in tree["message"], what
        if got.status == 422:
            assert tree["details"]["causes"][0]["message"], what


@pytest.mark.parametrize(("method", "path", "media"), REQUESTS, ids=lambda value: str(value)[:40])
async def test_no_body_makes_the_server_fail(door: Door, method: str, path: str, media: tuple[str, ...]) -> None:
    query = "?fieldManager=ci" if method == "PATCH" else "?dryRun=All" if method == "PUT" else ""
    for form in media:
        for body in (*RAW, *(msgspec.json.encode(tree) for tree in TREES)):
            got = await call(door, method, f"{NAMESPACE}{path}{query}", body, media=form)
            check(got, f"{method} {path} {form} {body[:120]!r}")
    assert (await call(door, "GET", f"{NAMESPACE}/workloads/api")).status == 200


@pytest.mark.parametrize("media", MEDIA, ids=lambda media: media[:40] or "none")
async def test_no_content_type_makes_the_server_fail(door: Door, media: str) -> None:
    for method, path, _ in REQUESTS:
        for body in (b"{}", b"\x00\x01", b"k8s\x00"):
            got = await call(door, method, f"{NAMESPACE}{path}", body, headers={"content-type": media})
            check(got, f"{method} {path} {media[:40]} {body!r}")


@pytest.mark.parametrize(
    ("tree", "field"),
    [
        ({"spec": {"replicas": "x"}}, "spec.replicas"),
        ({"spec": {"resources": {"requests": {"cpu": "lots"}}}}, "spec.resources.requests.cpu"),
        ({"spec": {"placement": {"spread": [{"maxSkew": 0}]}}}, "spec.placement.spread[0].maxSkew"),
        ({"spec": {"template": {"env": [{"value": "x"}]}}}, "spec.template.env[0].name"),
        ({"metadata": {"labels": {"a": 1}}}, "metadata.labels.a"),
        ({"metadata": {"labels": {"a b": "c"}}}, "metadata.labels"),
    ],
)
async def test_the_field_that_is_wrong_is_named_whatever_the_verb(door: Door, tree: Any, field: str) -> None:
    base = workload("api")
    whole = {**base, **{key: {**base[key], **value} for key, value in tree.items()}}
    answers = [
        await call(door, "POST", f"{NAMESPACE}/workloads", {**whole, "metadata": {**whole["metadata"], "name": "new"}}),
        await call(door, "PUT", f"{NAMESPACE}/workloads/api", whole),
        await call(door, "PATCH", f"{NAMESPACE}/workloads/api", tree, media=MERGE),
        await call(door, "PATCH", f"{NAMESPACE}/workloads/api?fieldManager=ci&force=true", whole, media=APPLY),
    ]
    for got in answers:
        assert got.status == 422, got.body
        fields = [cause["field"] for cause in got.json["details"]["causes"]]
        assert any(one.startswith(field) for one in fields), fields
        assert field in got.json["message"]
    for got, name in zip(answers, ("new", "api", "api", "api"), strict=True):
        assert (got.json["details"]["kind"], got.json["details"]["name"]) == ("workloads", name)
        assert got.json["message"].startswith(f'Workload "{name}" is invalid: ')


async def test_the_object_is_named_whatever_of_it_cannot_be_read(door: Door) -> None:
    named = {"metadata": {"name": "new"}}
    for query, body in (
        ("", {**named, "spec": []}),
        ("", {**named, "kind": "Pod"}),
        ("", {"metadata": {"name": "new", "namespace": "ads"}}),
        ("", {"metadata": {"name": "new", "resourceVersion": "5"}, "spec": workload("new")["spec"]}),
        ("?fieldValidation=Strict", {**named, "spec": {"replicos": 1}}),
        ("?fieldValidation=Perhaps", named),
    ):
        got = await call(door, "POST", f"{NAMESPACE}/workloads{query}", body)
        assert got.status in (400, 422), got.body
        assert got.json["details"]["name"] == "new", body
    number = b'{"spec":{"replicas":1e999}}'
    for path in ("/workloads/api", "/workloads/api/scale"):
        got = await call(door, "PATCH", f"{NAMESPACE}{path}", number, media=MERGE)
        assert (got.status, got.json["message"][:26]) == (422, 'Workload "api" is invalid:'), got.body
    names: list[Any] = [7, None, [], "n" * 100_000]
    for name in names:
        got = await call(door, "POST", f"{NAMESPACE}/workloads", {"metadata": {"name": name}, "spec": []})
        assert len(got.json["details"]["name"]) <= 253, "what is no name is not repeated at any length"


async def test_no_path_and_no_query_makes_the_server_fail(door: Door) -> None:
    draw = random.Random(7)
    words = ["apis", "fairlead.dev", "v1alpha1", "namespaces", "risk", "workloads", "api", "status", "why",
             "decisions", "%00", "..",
             "nodes", "api", "v1", "events", "receipts", "openapi", "v3", "%F0%9F%98%80", "", "x" * 300]  # fmt: skip
    names = ["labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "resourceVersionMatch", "at",
             "region", "slot",
             "dryRun", "fieldManager", "fieldValidation", "since", "includeObject", "timeoutSeconds", "pretty"]  # fmt: skip
    values = [
        "",
        "0",
        "-1",
        "1e9",
        "9" * 40,
        "null",
        "%00",
        "%FF",
        "a=b,c",
        "All",
        "x" * 500,
        "true",
        "2026-01-01T00:00:00Z",
        "(",
        "!",
    ]
    for _ in range(600):
        path = "/" + "/".join(draw.choice(words) for _ in range(draw.randint(1, 8)))
        query = "&".join(f"{draw.choice(names)}={draw.choice(values)}" for _ in range(draw.randint(0, 4)))
        method = draw.choice(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"])
        got = await call(door, method, f"{path}?{query}", b"{}" if method not in ("GET", "HEAD") else None)
        assert got.status < 500, f"{method} {path}?{query}: {got.body[:200]!r}"
    # A version that is ahead of the plane is waited for, and then 504 by Kubernetes' own rule: not asked here.
    for query in (f"{name}={value}" for name in names for value in values if (name, value) != ("resourceVersion", "9" * 40)):
        for path in ("/workloads", "/workloads/api", "/workloads/api/decisions", "/workloads/api/why"):
            check(await call(door, "GET", f"{NAMESPACE}{path}?{query}"), f"{path}?{query}")


async def test_a_body_that_is_too_large_or_too_deep_is_told_its_bound(door: Door) -> None:
    big = b'{"metadata":{"name":"big","annotations":{"a":"' + b"x" * (4 << 20) + b'"}}}'
    got = await call(door, "POST", f"{NAMESPACE}/workloads", big)
    assert (got.status, got.json["reason"]) == (413, "RequestEntityTooLarge")
    deep: Any = "x"
    for _ in range(80):
        deep = {"a": deep}
    for method, media in (("POST", JSON), ("PUT", JSON), ("PATCH", MERGE), ("PATCH", APPLY)):
        path = f"{NAMESPACE}/workloads" + ("/api?fieldManager=ci" if method != "POST" else "")
        got = await call(door, method, path, {"metadata": {"name": "api"}, "spec": deep}, media=media)
        assert got.status in (400, 422), got.body
        assert "deep" in got.json["message"] or "levels" in got.json["message"], got.json["message"]
