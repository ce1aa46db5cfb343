"""Parts of an object: each answers the methods that are advertised for it, and no others."""

from __future__ import annotations

from fairlead.api.catalogue import OWN
from tests.api.doors import GROUP, call, open_door, workload

WORKLOADS = f"{GROUP}/namespaces/risk/workloads"
VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "OPTIONS": ""}
PARTS = [(resource, sub) for resource in OWN.values() for sub in resource.subresources]


async def test_a_deletion_of_the_status_leaves_the_object_alone() -> None:
    async with open_door() as door:
        made = (await call(door, "POST", WORKLOADS, workload("api"))).json
        for part in ("status", "scale", "why"):
            got = await call(door, "DELETE", f"{WORKLOADS}/api/{part}")
            assert (got.status, got.json["reason"]) == (405, "MethodNotAllowed"), part
        assert (await call(door, "GET", f"{WORKLOADS}/api")).json == made


async def test_a_method_that_is_not_advertised_for_a_part_is_405() -> None:
    async with open_door() as door:
        for resource, sub in PARTS:
            place = f"{GROUP}/namespaces/risk" if resource.namespaced else GROUP
            path = f"{place}/{resource.plural}/x/{sub.name}"
            for method in (method for method, verb in VERBS.items() if verb not in sub.verbs):
                assert (await call(door, method, path, {})).status == 405, (method, path)
