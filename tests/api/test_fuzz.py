"""schemathesis over the served OpenAPI: whatever it thinks of, the server never fails, and always answers with JSON."""

from __future__ import annotations

import asyncio
import importlib
import json
from typing import Any

import hypothesis
import pytest
from hypothesis import HealthCheck

from fairlead.api.openapi import text
from tests.api.doors import GROUP, call, listening, open_door, workload

schemathesis: Any = importlib.import_module("schemathesis")
SOME = ("/workloads", "/nodes", "/bindings")  # people's, with every subresource; a region's; one only machines write


def fuzz(base: str, kinds: tuple[str, ...], examples: int) -> list[str]:
    schema = schemathesis.openapi.from_dict(json.loads(text("fairlead.dev", "v1alpha1")))
    failures: list[str] = []

    def judge(case: Any) -> None:
        if case.query:
            case.query.pop("watch", None)  # it would go on
        got = case.call(base_url=base, headers={"Authorization": "Bearer ada-token"}, timeout=20)
        kind = got.headers.get("content-type", [""])[0]
        if got.status_code >= 500 and got.status_code not in (503, 504):
            failures.append(f"{case.method} {case.path}: {got.status_code} {got.text[:200]}")
        elif kind and not kind.startswith("application/json"):
            failures.append(f"{case.method} {case.path}: {kind}")

    settings = hypothesis.settings(
        max_examples=examples, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    for result in schema.get_all_operations():
        operation = result.ok()
        if any(kind in operation.path for kind in kinds):
            settings(hypothesis.given(case=operation.as_strategy())(judge))()
    return failures


@pytest.mark.parametrize(
    ("kinds", "examples"), [(SOME, 5), pytest.param(("/",), 50, marks=pytest.mark.soak)], ids=["some", "all"]
)
async def test_no_request_makes_the_server_fail(kinds: tuple[str, ...], examples: int) -> None:
    async with open_door("us", "eu") as door, listening(door.app, None) as server:
        await call(door, "POST", f"{GROUP}/namespaces/risk/workloads", workload("api"))
        failures = await asyncio.to_thread(fuzz, f"http://127.0.0.1:{server.port}", kinds, examples)
        assert not failures, "\n".join(failures[:10])
        assert (await call(door, "GET", f"{GROUP}/workloads")).status == 200
