"""One object, shown in the words of the file it was applied from: only where they mean what is stored."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.api.catalogue import LAST_APPLIED
from tests.api.doors import GROUP, Door, call, open_door, workload

PATH = f"{GROUP}/namespaces/risk/workloads"


def said(**spec: Any) -> dict[str, Any]:
    made = workload("api")
    return {**made, "spec": {**made["spec"], **spec}}


async def shown(door: Door, stored: dict[str, Any], text: str) -> dict[str, Any]:
    made = {**stored, "metadata": {**stored["metadata"], "annotations": {LAST_APPLIED: text}}}
    assert (await call(door, "POST", PATH, made)).status == 201
    got = await call(door, "GET", f"{PATH}/api")
    assert got.status == 200, got.body
    spec: dict[str, Any] = got.json["spec"]
    return spec


def text_of(tree: Any) -> str:
    return msgspec.json.encode(tree).decode()


async def test_what_means_the_same_is_shown_as_it_was_said_and_the_rest_as_it_is() -> None:
    async with open_door() as door:
        file = said(suspend=False, replicas=7, resources={"requests": {"cpu": "0.5", "memory": "1024Mi"}})
        spec = await shown(door, {**file, "spec": {**file["spec"], "replicas": 2}}, text_of(file))
        assert (spec["suspend"], spec["resources"]["requests"]) == (False, {"cpu": "0.5", "memory": "1024Mi"})
        assert spec["replicas"] == 2, "it says seven, and two are stored"
        assert spec["workloadClass"] == "standard", "what it leaves out is shown as ever"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no json",
        "[1]",
        "[" * 100_000,
        text_of({**said(suspend=False), "kind": "Config"}),
        text_of({**said(suspend=False), "spec": 7}),
        text_of(said(suspend=False, fromTheFuture=1)),
        text_of(said(suspend=None)),
    ],
    ids=["empty", "no-json", "a-list", "deep", "another-kind", "no-spec", "unknown-field", "null"],
)
async def test_a_file_that_says_nothing_of_it_changes_nothing(text: str) -> None:
    async with open_door() as door:
        assert "suspend" not in await shown(door, said(), text)
