"""A write that is only tried: judged as any other, and nothing of it stays."""

from __future__ import annotations

from tests.api.doors import GROUP, call, open_door, workload

WORKLOADS = f"{GROUP}/namespaces/risk/workloads"
MERGE = "application/merge-patch+json"
KEY = {"Idempotency-Key": "k1"}


async def test_trying_to_take_the_last_finalizer_off_does_not_delete() -> None:
    async with open_door() as door:
        await call(door, "POST", WORKLOADS, workload("api"))
        await call(door, "DELETE", f"{WORKLOADS}/api")
        marked = (await call(door, "GET", f"{WORKLOADS}/api")).json
        body = {"metadata": {"finalizers": None}}
        tried = await call(door, "PATCH", f"{WORKLOADS}/api?dryRun=All", body, media=MERGE)
        assert tried.status == 200
        assert (await call(door, "GET", f"{WORKLOADS}/api")).json == marked
        assert (await call(door, "PATCH", f"{WORKLOADS}/api", body, media=MERGE)).status == 200
        assert (await call(door, "GET", f"{WORKLOADS}/api")).status == 404


async def test_a_key_that_was_tried_in_vain_is_free_for_the_write_itself() -> None:
    async with open_door() as door:
        tried = await call(door, "POST", f"{WORKLOADS}?dryRun=All", workload("api", replicas=-1), headers=KEY)
        assert tried.status == 422
        assert (await call(door, "POST", WORKLOADS, workload("api"), headers=KEY)).status == 201


async def test_a_key_that_has_written_hinders_no_trial() -> None:
    async with open_door() as door:
        assert (await call(door, "POST", WORKLOADS, workload("api"), headers=KEY)).status == 201
        assert (await call(door, "POST", f"{WORKLOADS}?dryRun=All", workload("other"), headers=KEY)).status == 201
        options = {"dryRun": ["All"]}
        assert (await call(door, "DELETE", f"{WORKLOADS}/api", options, headers=KEY)).status == 200
        assert "deletionTimestamp" not in (await call(door, "GET", f"{WORKLOADS}/api")).json["metadata"]
