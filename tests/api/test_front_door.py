"""Two planes and more behind one door: which serves what, versions as vectors, partial answers while one is away."""

from __future__ import annotations

import re
from typing import Any

import pytest

from fairlead.api.frontdoor import FrontDoor
from fairlead.api.versions import component, parse
from fairlead.authority.local import LocalPlane
from fairlead.client.plane import Expired, Overloaded
from fairlead.client.resources import ChangePage, Unreachable
from fairlead.model.commands import Put
from fairlead.model.kinds.capacity import Node, NodeSpec
from fairlead.model.meta import Metadata
from fairlead.model.registry import BY_KIND
from fairlead.model.resources import Resources
from fairlead.ports import SystemClock
from tests.api.doors import GROUP, call, node, open_door, watching, workload
from tests.authority.planes import OPERATOR, ok

POOLS = f"{GROUP}/nodepools"
NODES = f"{GROUP}/nodes"
WORKLOADS = f"{GROUP}/namespaces/risk/workloads"


async def test_global_kinds_come_from_the_global_plane_and_regional_ones_from_the_regions() -> None:
    async with open_door("us", "eu") as door:
        await call(door, "POST", WORKLOADS, workload("api"))
        await call(door, "POST", NODES, node("us-n1", "us"))
        await call(door, "POST", NODES, node("eu-n1", "eu"))
        assert door.authority().view().get("workloads", "risk", "api") is not None
        assert door.authority("us").view().get("nodes", "", "us-n1") is not None
        assert door.authority("eu").view().get("nodes", "", "eu-n1") is not None
        names = [item["metadata"]["name"] for item in (await call(door, "GET", NODES)).json["items"]]
        assert names == ["us-n1", "eu-n1"]


async def test_a_list_carries_a_vector_and_an_object_its_own_planes_part() -> None:
    async with open_door("us", "eu") as door:
        await call(door, "POST", NODES, node("us-n1", "us"))
        listed = (await call(door, "GET", NODES)).json
        version = listed["metadata"]["resourceVersion"]
        assert component(version, 1) == door.authority("us").view().revision
        assert component(version, 2) == door.authority("eu").view().revision
        own = listed["items"][0]["metadata"]["resourceVersion"]
        assert component(own, 1) > 0
        assert component(own, 2) == 0
        assert parse(own) < parse(version)


async def test_a_write_may_carry_either_form_of_version() -> None:
    async with open_door("us", "eu") as door:
        made = (await call(door, "POST", NODES, node("eu-n1", "eu"))).json
        vector = (await call(door, "GET", NODES)).json["metadata"]["resourceVersion"]
        assert component(vector, 2) == component(made["metadata"]["resourceVersion"], 2)
        made["metadata"]["resourceVersion"] = vector
        made["spec"]["unschedulable"] = True
        assert (await call(door, "PUT", f"{NODES}/eu-n1", made)).status == 200
        assert (await call(door, "PUT", f"{NODES}/eu-n1", made)).status == 409


async def test_pages_go_from_plane_to_plane() -> None:
    async with open_door("us", "eu") as door:
        for region in ("us", "eu"):
            for n in range(3):
                await call(door, "POST", NODES, node(f"{region}-n{n}", region))
        names, token, pages = [], "", 0
        while pages == 0 or token:
            got = (await call(door, "GET", f"{NODES}?limit=2&continue={token}")).json
            names += [item["metadata"]["name"] for item in got["items"]]
            token, pages = got["metadata"].get("continue", ""), pages + 1
        assert names == ["us-n0", "us-n1", "us-n2", "eu-n0", "eu-n1", "eu-n2"]
        assert pages == 3


async def test_a_new_regional_object_says_its_region_in_its_spec_or_its_name() -> None:
    async with open_door("us", "eu") as door:
        pools = f"{GROUP}/nodepools"
        assert (await call(door, "POST", pools, {"metadata": {"name": "eu-gpu"}})).status == 201
        assert door.authority("eu").view().get("nodepools", "", "eu-gpu") is not None
        lost = await call(door, "POST", pools, {"metadata": {"name": "gpu"}})
        assert lost.status == 422
        assert lost.json["details"]["causes"][0]["field"] == "metadata.name"


async def test_one_name_cannot_be_two_objects() -> None:
    async with open_door("us", "eu") as door:
        ok(
            await door.planes["us"].send(
                OPERATOR, Put("Node", Node(metadata=Metadata(name="eu-n1"), spec=NodeSpec(allocatable=Resources(1000, 1))))
            )
        )
        got = await call(door, "POST", NODES, node("eu-n1", "eu"))
        assert (got.status, got.json["reason"]) == (409, "AlreadyExists")


@pytest.mark.parametrize(
    ("name", "where"), [("n1", "eu"), ("us-n1", "eu"), ("eu-west-n1", "eu"), ("eu-n1", "eu-west"), ("eun1", "eu")]
)
@pytest.mark.parametrize("asked", [False, True])
async def test_a_node_begins_with_the_name_of_its_own_region(name: str, where: str, asked: bool) -> None:
    async with open_door("us", "eu", "eu-west") as door:
        lost = await call(door, "POST", f"{NODES}?region={where}" if asked else NODES, node(name, where))
        assert (lost.status, lost.json["details"]["causes"][0]["field"]) == (422, "metadata.name")
        assert f"must begin with {where}- or {where}., the name of its region" in lost.json["message"]
        for good in (f"{where}-n2", f"{where}.n2"):
            assert (await call(door, "POST", NODES, node(good, where))).status == 201


async def test_a_join_token_is_for_a_node_that_no_other_region_can_have() -> None:
    async with open_door("eu", "eu-west") as door:
        profile = {"node": "eu-west-1", "region": "eu", "capacity": {"cpu": "1"}}
        spec = {"purpose": "Join", "hash": "sha256:" + "0" * 64, "expiryTime": "2099-01-01T00:00:00Z", "profile": profile}
        tokens = f"{GROUP}/namespaces/fairlead-system/tokens"
        lost = await call(door, "POST", tokens, {"metadata": {"name": "a"}, "spec": spec})
        assert (lost.status, lost.json["details"]["causes"][0]["field"]) == (422, "spec.profile.node")
        spec["profile"] = {**profile, "node": "eu-1"}
        assert (await call(door, "POST", tokens, {"metadata": {"name": "a"}, "spec": spec})).status == 201


async def test_a_name_without_its_region_is_not_given_while_a_region_cannot_be_asked() -> None:
    async with open_door("us", "eu") as door:
        door.cuttable["eu"].cut()
        made = [(await call(door, "POST", f"{POOLS}?region=us", {"metadata": {"name": name}})).status
                for name in ("gpu", "eu-gpu", "us-gpu")]  # fmt: skip
        assert made == [503, 503, 201], "eu may have the first two"
        door.cuttable["eu"].mend()
        assert (await call(door, "POST", f"{POOLS}?region=us", {"metadata": {"name": "gpu"}})).status == 201


async def test_what_every_plane_has_of_its_own_is_told_apart_by_a_prefix() -> None:
    async with open_door("us", "eu") as door:
        names = [item["metadata"]["name"] for item in (await call(door, "GET", f"{GROUP}/planes")).json["items"]]
        assert names == ["self", "us.self", "eu.self"]
        assert (await call(door, "GET", f"{GROUP}/planes/eu.self")).json["spec"]["region"] == "eu"
        assert (await call(door, "GET", f"{GROUP}/planes/self")).json["spec"]["plane"] == "global"


async def test_a_region_that_is_away_makes_a_partial_answer_with_a_warning_and_an_age() -> None:
    async with open_door("us", "eu") as door:
        for region in ("us", "eu"):
            await call(door, "POST", NODES, node(f"{region}-n1", region))
        before = (await call(door, "GET", NODES)).json["metadata"]["resourceVersion"]
        door.cuttable["eu"].cut()
        got = await call(door, "GET", NODES)
        assert got.status == 200
        assert [item["metadata"]["name"] for item in got.json["items"]] == ["us-n1", "eu-n1"], "what is remembered is shown"
        assert "eu is unreachable; its nodes are shown as of 0 seconds ago" in got.warnings[0]
        assert component(got.json["metadata"]["resourceVersion"], 2) == component(before, 2), "its part stands still"
        one = await call(door, "GET", f"{NODES}/eu-n1")
        assert one.status == 200
        assert one.warnings
        pools = await call(door, "GET", f"{GROUP}/nodepools")
        assert pools.status == 200
        assert "are not shown" in pools.warnings[0]
        assert (await call(door, "GET", WORKLOADS)).warnings == []
        door.cuttable["eu"].mend()
        back = await call(door, "GET", NODES)
        assert (len(back.json["items"]), back.warnings) == (2, [])


async def test_what_is_shown_of_a_region_that_is_away_says_so_in_its_row_and_in_the_object() -> None:
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"
    async with open_door("us", "eu") as door:
        for region in ("us", "eu"):
            await call(door, "POST", NODES, node(f"{region}-n1", region))
            await call(door, "POST", POOLS, {**node(f"{region}-p1", ""), "kind": "NodePool", "spec": {}})
        for kind in (NODES, POOLS):
            await call(door, "GET", kind)
        door.cuttable["eu"].cut()
        us, eu = (await call(door, "GET", NODES)).json["items"]
        assert "evidence" not in us
        assert (eu["evidence"]["plane"], eu["evidence"]["ageSeconds"] < 5) == ("eu", True)
        assert (await call(door, "GET", f"{NODES}/eu-n1")).json["evidence"]["plane"] == "eu"
        rows = [row["cells"] for row in (await call(door, "GET", NODES, headers={"accept": table})).json["rows"]]
        assert rows[0][1] != rows[1][1] == "Unknown (0s old)", "a health that nobody has heard is none"
        rows = [row["cells"] for row in (await call(door, "GET", POOLS, headers={"accept": table})).json["rows"]]
        assert rows[1][1] == f"{rows[0][1]} (0s old)", "a kind without a state"


async def test_what_only_an_absent_region_could_have_is_503_and_never_404() -> None:
    async with open_door("us", "eu") as door:
        door.cuttable["eu"].cut()
        got = await call(door, "GET", f"{NODES}/eu-n9")
        assert (got.status, got.headers["retry-after"]) == (503, "2")
        assert got.json["details"]["causes"][0] == {"reason": "RegionUnreachable", "message": "eu", "field": ""}
        write = await call(door, "POST", NODES, node("eu-n1", "eu"))
        assert write.status == 503
        assert (await call(door, "POST", NODES, node("us-n1", "us"))).status == 201
        door.cuttable["eu"].mend()
        assert (await call(door, "GET", f"{NODES}/eu-n9")).status == 404


async def test_a_plane_that_goes_away_in_the_middle_of_a_write_leaves_open_what_came_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def gone(*_: object, **__: object) -> None:
        raise Unreachable("eu")

    async with open_door("us", "eu") as door:
        await call(door, "POST", NODES, node("eu-n1", "eu"))
        monkeypatch.setattr(door.cuttable["eu"], "submit", gone)
        change, media = {"spec": {"unschedulable": True}}, "application/merge-patch+json"
        got = await call(door, "PATCH", f"{NODES}/eu-n1", change, media=media)
        assert (got.status, got.json["details"]["causes"][0]["reason"]) == (504, "OutcomeUnknown")


async def test_a_regions_own_server_serves_everything_from_its_one_plane() -> None:
    async with open_door("us") as door:
        front = FrontDoor({"us": LocalPlane(door.authority("us"), SystemClock())}, SystemClock())
        assert [m.name for m in front.serving(BY_KIND["Workload"])] == ["us"]
        assert [m.name for m in front.serving(BY_KIND["Node"])] == ["us"]
        listing = await front.list(BY_KIND["Plane"], None)
        assert [item.served.metadata.name for item in listing.items] == ["self"]


async def test_what_planes_refuse_is_the_same_answer_behind_several_as_behind_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.api.frontdoor.PATIENCE_S", 0.1)
    async with open_door("us", "eu") as door:
        for region in ("us", "eu"):
            await call(door, "POST", NODES, node(f"{region}-n1", region))
        version = int((await call(door, "GET", NODES)).json["metadata"]["resourceVersion"])
        forgotten = (1 << 64) + (1 << 128)
        asked = {
            f"{NODES}?resourceVersion={version + (5000 << 64)}": (504, "Timeout"),
            f"{NODES}?resourceVersion={forgotten}&resourceVersionMatch=Exact": (410, "Expired"),
            f"{NODES}/eu-n1?at={forgotten}": (410, "Expired"),
        }
        for path, answer in asked.items():
            got = await call(door, "GET", path)
            assert (got.status, got.json["reason"]) == answer, path

        async def busy(*_: object, **__: object) -> None:
            raise Overloaded("too much")

        async def expired(*_: object, **__: object) -> None:
            raise Expired("too old", 0)

        monkeypatch.setattr(door.cuttable["us"], "page", busy)
        monkeypatch.setattr(door.cuttable["eu"], "page", expired)
        assert {(await call(door, "GET", NODES)).status for _ in range(5)} == {429}, "the first plane's"


async def test_whoever_was_shown_what_is_remembered_goes_on_from_there() -> None:
    async with open_door("us", "eu") as door:
        for region in ("us", "eu"):
            await call(door, "POST", NODES, node(f"{region}-n1", region))
        await call(door, "GET", NODES)
        assert (await call(door, "DELETE", f"{NODES}/eu-n1")).status == 200
        door.cuttable["eu"].cut()
        listed = await call(door, "GET", NODES)
        assert [item["metadata"]["name"] for item in listed.json["items"]] == ["us-n1", "eu-n1"]
        door.cuttable["eu"].mend()
        async with watching(door, f"{NODES}?resourceVersion={listed.json['metadata']['resourceVersion']}") as stream:
            event = await stream.next()
            assert (event["type"], event["object"]["metadata"]["name"]) == ("DELETED", "eu-n1")


async def test_whoever_was_shown_nothing_of_a_region_lists_again_when_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.api.frontdoor.PAGE", 1)
    async with open_door("us", "eu") as door:
        for name in ("us-n1", "eu-n1", "eu-n2"):
            await call(door, "POST", NODES, node(name, name[:2]))
        eu = door.cuttable["eu"]
        eu.cut()
        nothing = await call(door, "GET", NODES)
        eu.mend()
        real, asked = eu.page, list[str]()

        async def first_page_only(*arguments: Any, **options: Any) -> ChangePage:
            asked.append("page")
            if len(asked) > 1:
                raise Unreachable("eu")
            return await real(*arguments, **options)

        monkeypatch.setattr(eu, "page", first_page_only)
        half = await call(door, "GET", NODES)
        monkeypatch.setattr(eu, "page", real)
        assert [[item["metadata"]["name"] for item in got.json["items"]] for got in (nothing, half)] == [
            ["us-n1"], ["us-n1", "eu-n1"],
        ]  # fmt: skip
        for listed in (nothing, half):
            got = await call(door, "GET", f"{NODES}?watch=true&resourceVersion={listed.json['metadata']['resourceVersion']}")
            assert got.status == 410


async def test_whoever_looks_at_planes_is_told_which_of_them_nobody_can_write_to_and_since_when() -> None:
    planes = f"{GROUP}/planes"
    async with open_door("us", "eu") as door:
        assert (await call(door, "GET", planes)).warnings == []
        door.cuttable["eu"].unwritable_s = 75.0
        for path in (planes, f"{planes}/eu.self"):
            (warning,) = (await call(door, "GET", path)).warnings
            assert re.search(r"eu: nobody can write since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ \(75s\): its store", warning), warning
        assert (await call(door, "GET", f"{planes}/us.self")).warnings == []
        assert (await call(door, "GET", NODES)).warnings == [], "whoever looks at something else is not"
        door.cuttable["eu"].cut()
        assert "nobody can write" not in str((await call(door, "GET", planes)).warnings), "of one that is away nobody knows"
