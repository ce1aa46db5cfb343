"""schemathesis over the served OpenAPI: whatever it thinks of, the server never fails, and always answers with JSON."""

from __future__ import annotations

import asyncio
import importlib
import re
from types import SimpleNamespace
from typing import Any

import hypothesis
import pytest
from hypothesis import HealthCheck

from tests.api.doors import GROUP, call, listening, open_door, workload

schemathesis: Any = importlib.import_module("schemathesis")
ASKED_BY = {"Authorization": "Bearer ada-token"}
TOO_LARGE = re.compile(r"Too large resource version: (?P<wanted>\d+), current: (?P<current>\d+)")


def is_excused(case: Any, got: Any) -> bool:
    """It asks for what no plane has reached yet, and that is what it is told. Nothing else here is for time to mend: every region
    there is answers."""
    said = TOO_LARGE.search(got.text)
    asked = "resourceVersion" in (case.query or {})
    return bool(got.status_code == 504 and asked and said and int(said["wanted"]) > int(said["current"]))


@pytest.mark.parametrize(
    ("status", "query", "said", "wanted"),
    [
        (504, {"resourceVersion": "9"}, "Too large resource version: 9, current: 4", True),
        (504, {"resourceVersion": "3"}, "Too large resource version: 3, current: 4", False),
        (504, {}, "Too large resource version: 9, current: 4", False),
        (504, {"resourceVersion": "9"}, "nobody can say yet whether this took effect", False),
        (503, {"resourceVersion": "9"}, "us cannot be reached", False),
    ],
)
def test_only_a_version_ahead_of_the_planes_excuses_an_answer(status: int, query: Any, said: str, wanted: bool) -> None:
    assert is_excused(SimpleNamespace(query=query), SimpleNamespace(status_code=status, text=said)) is wanted


def fuzz(base: str, examples: int) -> list[str]:
    schema = schemathesis.openapi.from_url(f"{base}/openapi/v3{GROUP}", headers=ASKED_BY)
    failures: list[str] = []

    def judge(case: Any) -> None:
        if case.query:
            case.query.pop("watch", None)  # it would go on
        got = case.call(base_url=base, headers=ASKED_BY, timeout=20)
        kind = got.headers.get("content-type", [""])[0]
        if got.status_code >= 500 and not is_excused(case, got):
            failures.append(f"{case.method} {case.path}: {got.status_code} {got.text[:200]}")
        elif kind and not kind.startswith("application/json"):
            failures.append(f"{case.method} {case.path}: {kind}")

    settings = hypothesis.settings(
        max_examples=examples, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    for result in schema.get_all_operations():
        settings(hypothesis.given(case=result.ok().as_strategy())(judge))()
    return failures


@pytest.mark.parametrize("examples", [2, pytest.param(50, marks=pytest.mark.soak)])
async def test_no_request_makes_the_server_fail(examples: int) -> None:
    async with open_door("us", "eu") as door, listening(door.app, None) as server:
        await call(door, "POST", f"{GROUP}/namespaces/risk/workloads", workload("api"))
        failures = await asyncio.to_thread(fuzz, f"http://127.0.0.1:{server.port}", examples)
        assert not failures, "\n".join(failures[:10])
        assert (await call(door, "GET", f"{GROUP}/workloads")).status == 200
