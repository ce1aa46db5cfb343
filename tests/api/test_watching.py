"""watch: from the present or from a version, bookmarks, selections entered and left, ends, and planes that come and go."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from starlette.requests import Request

from fairlead.api import watching as watching_module
from fairlead.api.calls import Call, Services, Target
from fairlead.api.catalogue import OWN
from fairlead.api.frontdoor import FrontDoor
from fairlead.api.identity import PEER_LOCAL
from fairlead.api.rules import PlainRules
from fairlead.api.watches import CALLER_MAX, WATCHES_MAX
from fairlead.authority.feeds import FEEDS_MAX
from fairlead.authority.local import LocalPlane
from fairlead.ports import SystemClock, SystemIds, Tasks
from tests.api.doors import ADA, GROUP, Door, Stream, allow_all, call, node, open_door, scope_of, watching, workload

WORKLOADS = f"{GROUP}/namespaces/risk/workloads"
MERGE = "application/merge-patch+json"


async def label(door: Door, path: str, **labels: str | None) -> Any:
    return (await call(door, "PATCH", path, {"metadata": {"labels": labels}}, media=MERGE)).json


async def test_a_watch_without_a_version_begins_with_what_is_there() -> None:
    async with open_door() as door:
        await call(door, "POST", WORKLOADS, workload("a"))
        async with watching(door, WORKLOADS) as stream:
            assert (await stream.next())["type"] == "ADDED"
            await call(door, "POST", WORKLOADS, workload("b"))
            event = await stream.next()
            assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "b")
            await label(door, f"{WORKLOADS}/a", x="1")
            assert (await stream.next())["type"] == "MODIFIED"
            await call(door, "DELETE", f"{WORKLOADS}/a")
            assert (await stream.next())["object"]["metadata"]["deletionTimestamp"]
            await call(door, "PATCH", f"{WORKLOADS}/a", {"metadata": {"finalizers": None}}, media=MERGE)
            event = await stream.next()
            assert (event["type"], event["object"]["metadata"]["name"]) == ("DELETED", "a")


async def test_a_watch_goes_on_where_another_ended_and_misses_nothing() -> None:
    async with open_door() as door:
        await call(door, "POST", WORKLOADS, workload("a"))
        version = (await call(door, "GET", WORKLOADS)).json["metadata"]["resourceVersion"]
        seen: list[str] = []
        for n in range(6):
            await label(door, f"{WORKLOADS}/a", n=str(n))
            if n % 2:
                continue
            async with watching(door, f"{WORKLOADS}?resourceVersion={version}") as stream:
                while not seen or seen[-1] != str(n):
                    event = await stream.next()
                    assert event["type"] == "MODIFIED"
                    seen.append(event["object"]["metadata"]["labels"]["n"])
                    version = event["object"]["metadata"]["resourceVersion"]
        assert seen == ["0", "1", "2", "3", "4"]


async def test_what_enters_a_selection_is_added_and_what_leaves_it_is_deleted() -> None:
    async with open_door() as door:
        await call(door, "POST", WORKLOADS, workload("a"))
        version = (await call(door, "GET", WORKLOADS)).json["metadata"]["resourceVersion"]
        async with watching(door, f"{WORKLOADS}?resourceVersion={version}&labelSelector=x%3D1") as stream:
            for value, word in (("1", "ADDED"), ("2", "DELETED"), ("1", "ADDED")):
                await label(door, f"{WORKLOADS}/a", x=value)
                assert (await stream.next())["type"] == word
            await label(door, f"{WORKLOADS}/a", y="1")
            assert (await stream.next())["type"] == "MODIFIED"
            await label(door, f"{WORKLOADS}/a", x=None, y=None)
            await label(door, f"{WORKLOADS}/a", z="1")
            await label(door, f"{WORKLOADS}/a", x="1")
            assert [(await stream.next())["type"] for _ in range(2)] == ["DELETED", "ADDED"]


async def test_another_tenant_and_other_names_are_not_seen() -> None:
    async with open_door() as door, watching(door, f"{WORKLOADS}?fieldSelector=metadata.name%3Db") as stream:
        await call(door, "POST", f"{GROUP}/namespaces/other/workloads", workload("b"))
        await call(door, "POST", WORKLOADS, workload("a"))
        await call(door, "POST", WORKLOADS, workload("b"))
        event = await stream.next()
        assert event["object"]["metadata"]["namespace"] == "risk"
        assert event["object"]["metadata"]["name"] == "b"


async def test_initial_events_end_with_a_marked_bookmark() -> None:
    async with open_door() as door:
        await call(door, "POST", WORKLOADS, workload("a"))
        query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        async with watching(door, f"{WORKLOADS}?{query}") as stream:
            assert (await stream.next())["type"] == "ADDED"
            mark = await stream.next()
            assert mark["type"] == "BOOKMARK"
            assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_a_stream_ends_with_a_last_chunk_when_its_time_is_over() -> None:
    async with open_door() as door, watching(door, f"{WORKLOADS}?timeoutSeconds=1&allowWatchBookmarks=true") as stream:
        assert (await stream.next())["type"] == "BOOKMARK"
        async with asyncio.timeout(60):
            await stream.ended.wait()


async def test_a_shutdown_ends_every_stream_with_a_last_chunk() -> None:
    async with open_door() as door:
        async with watching(door, WORKLOADS) as one, watching(door, f"{GROUP}/nodes") as two:
            await call(door, "POST", WORKLOADS, workload("a"))
            await one.next()
            door.app.state.watches.drain()
            async with asyncio.timeout(60):
                await one.ended.wait()
                await two.ended.wait()
        assert len(door.app.state.watches) == 0
        assert (await call(door, "GET", f"{WORKLOADS}?watch=true")).status == 503


async def test_a_client_that_leaves_is_forgotten() -> None:
    async with open_door() as door:
        async with watching(door, WORKLOADS):
            await call(door, "POST", WORKLOADS, workload("a"))
            assert len(door.app.state.watches) == 1
        assert len(door.app.state.watches) == 0


async def test_history_that_is_gone_is_an_error_with_410() -> None:
    async with open_door() as door:
        await call(door, "POST", WORKLOADS, workload("a"))
        state = door.authority()._state
        state._ring_size = 0
        for n in range(3):
            await label(door, f"{WORKLOADS}/a", n=str(n))
        old = 1 << 44 | 1
        async with watching(door, f"{WORKLOADS}?resourceVersion={old}") as stream:
            event = await stream.next()
            assert event["type"] == "ERROR"
            assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
            await stream.ended.wait()


async def test_a_table_watch_sends_its_columns_once() -> None:
    async with open_door() as door:
        for name in ("a", "b"):
            await call(door, "POST", WORKLOADS, workload(name))
        accept = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
        got = await call(door, "GET", f"{WORKLOADS}?watch=true&timeoutSeconds=1", headers=accept)
        first, second = [msgspec.json.decode(line) for line in got.body.splitlines()]
        assert first["object"]["columnDefinitions"]
        assert second["object"]["columnDefinitions"] == []


async def test_a_client_that_takes_nothing_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching_module, "SEND_S", 0.05)
    async with open_door() as door:
        await call(door, "POST", WORKLOADS, workload("a"))
        scope = {
            "type": "http", "method": "GET", "path": WORKLOADS, "raw_path": b"", "query_string": b"watch=true", "headers": [
                (b"authorization", b"Bearer ada-token")], "scheme": "https", "server": ("d", 1), "client": ("c", 1),
            "root_path": "", "http_version": "1.1", "asgi": {"version": "3.0"},
        }  # fmt: skip
        never = asyncio.Event()

        async def receive() -> Any:
            await never.wait()

        async def send(message: Any) -> None:
            if message["type"] == "http.response.body":
                await never.wait()

        async with asyncio.timeout(60):
            await door.app(scope, receive, send)
        assert len(door.app.state.watches) == 0


async def test_a_change_that_comes_twice_is_told_once() -> None:
    """A feed that breaks and is followed again gives once more what was still on its way."""
    async with open_door() as door:
        front = FrontDoor({"global": LocalPlane(door.authority(), SystemClock())}, SystemClock())
        scope = {"type": "http", "method": "GET", "path": WORKLOADS, "headers": [], "query_string": b"watch=true"}
        services = Services(front, PlainRules(allow_all), SystemClock(), SystemIds())
        stream = watching_module._Stream(Call(Request(scope), services, ADA, Target(OWN["workloads"], "risk", "", "")))
        await stream.begin()
        feed = front.members[0].plane.follow(["workloads"], stream.seen[0])
        await call(door, "POST", WORKLOADS, workload("a"))
        await feed.wait()
        changes = feed.take_nowait()
        assert len(await stream.events(front.members[0], changes, feed.revision)) == 1
        assert await stream.events(front.members[0], changes, feed.revision) == []
        feed.close()


# --- several planes ----------------------------------------------------------------------------------------------------


async def test_events_of_two_regions_can_be_resumed_from_any_of_them() -> None:
    async with open_door("us", "eu") as door:
        nodes = f"{GROUP}/nodes"
        version = (await call(door, "GET", nodes)).json["metadata"]["resourceVersion"]
        for region in ("us", "eu"):
            await call(door, "POST", nodes, node(f"{region}-n1", region))
        seen: list[str] = []
        for _ in range(2):
            async with watching(door, f"{nodes}?resourceVersion={version}") as stream:
                event = await stream.next()
                seen.append(event["object"]["metadata"]["name"])
                version = event["object"]["metadata"]["resourceVersion"]
        assert sorted(seen) == ["eu-n1", "us-n1"]
        async with watching(door, f"{nodes}?resourceVersion={version}") as stream:
            await label(door, f"{nodes}/us-n1", x="1")
            event = await stream.next()
            assert (event["type"], event["object"]["metadata"]["name"]) == ("MODIFIED", "us-n1")


async def test_a_watch_outlives_a_region_that_is_cut_off_and_tells_what_happened_meanwhile() -> None:
    async with open_door("us", "eu") as door:
        nodes = f"{GROUP}/nodes"
        for region in ("us", "eu"):
            await call(door, "POST", nodes, node(f"{region}-n1", region))
        version = (await call(door, "GET", nodes)).json["metadata"]["resourceVersion"]
        async with watching(door, f"{nodes}?resourceVersion={version}") as stream:
            await label(door, f"{nodes}/eu-n1", x="1")
            assert (await stream.next())["object"]["metadata"]["name"] == "eu-n1"
            door.cuttable["eu"].cut()
            await door.planes["eu"].add_node("eu-n2", labels={})
            await label(door, f"{nodes}/us-n1", x="1")
            assert (await stream.next())["object"]["metadata"]["name"] == "us-n1"
            door.cuttable["eu"].mend()
            event = await stream.next()
            assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "eu-n2")


async def test_a_version_of_one_plane_alone_is_enough_for_one_name_and_too_little_for_a_list() -> None:
    async with open_door("us", "eu") as door:
        nodes = f"{GROUP}/nodes"
        for region in ("us", "eu"):
            await call(door, "POST", nodes, node(f"{region}-n1", region))
        own = (await call(door, "GET", f"{nodes}/us-n1")).json["metadata"]["resourceVersion"]
        assert (await call(door, "GET", f"{nodes}?watch=true&resourceVersion={own}")).status == 410
        async with watching(door, f"{nodes}?resourceVersion={own}&fieldSelector=metadata.name%3Dus-n1") as stream:
            await label(door, f"{nodes}/us-n1", x="1")
            assert (await stream.next())["type"] == "MODIFIED"


async def test_a_caller_with_too_many_watches_is_told_to_come_back_and_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.api.watches.CALLER_MAX", 2)
    monkeypatch.setattr("fairlead.api.watches.WATCHES_MAX", 3)
    async with open_door() as door:
        path = f"{WORKLOADS}?watch=true&resourceVersion=0"
        assert (await call(door, "GET", f"{WORKLOADS}?watch=true&resourceVersion=x")).status == 400
        async with watching(door, WORKLOADS), watching(door, WORKLOADS):
            while len(door.app.state.watches) < 2:
                await asyncio.sleep(0.001)
            got = await call(door, "GET", path)
            assert (got.status, got.json["details"]["causes"][0]["reason"]) == (429, "Overloaded")
            assert 5 <= int(got.headers["retry-after"]) == got.json["details"]["retryAfterSeconds"] <= 10
            assert "ada has 2 watches open" in got.json["message"]
            async with watching(door, WORKLOADS, token="eve-token"):
                while len(door.app.state.watches) < 3:
                    await asyncio.sleep(0.001)
                other = await call(door, "GET", path, token="node-token")
                assert (other.status, other.json["message"]) == (429, "this server has 3 watches open already")
                scope = scope_of("GET", WORKLOADS, "watch=true&resourceVersion=0&timeoutSeconds=1")
                scope["state"], stream = {PEER_LOCAL: object()}, Stream()
                async with Tasks() as tasks:
                    tasks.start(door.app(scope, stream.receive, stream.send), "local")
                    while len(door.app.state.watches) < 4:
                        await asyncio.sleep(0.001)
                    stream.leave()
        async with watching(door, WORKLOADS) as stream:
            while not stream.status:
                await asyncio.sleep(0.001)
            assert stream.status == 200, "those that have ended count no longer"


def test_the_watches_of_one_server_find_room_for_their_feeds_in_a_region() -> None:
    assert CALLER_MAX < WATCHES_MAX < FEEDS_MAX
