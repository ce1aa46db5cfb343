"""A region in another process, as far as the door can tell: over a channel that breaks and is dialled again."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest

from fairlead.api.app import make_app
from fairlead.api.frontdoor import FrontDoor
from fairlead.authority.judge import Settings
from fairlead.authority.local import LocalPlane
from fairlead.authority.service import PlaneService
from fairlead.client.answers import Now, as_a
from fairlead.client.channel import REQUESTS_MAX
from fairlead.client.plane import Expired, Overloaded
from fairlead.client.remote import RemotePlane
from fairlead.client.remote_feed import RemoteChange, RemoteFeed
from fairlead.client.resources import Unreachable
from fairlead.model.commands import Delete, Put
from fairlead.ports import SystemClock, Tasks
from tests.api.doors import GROUP, Door, allow_all, authenticate, call, node, watching, workload
from tests.authority.planes import OPERATOR, ok, running_plane
from tests.client.queues import Exchange

NODES = f"{GROUP}/nodes"
MERGE = "application/merge-patch+json"


@contextlib.asynccontextmanager
async def door_to_a_region() -> AsyncIterator[tuple[Door, RemotePlane, Exchange]]:
    clock = SystemClock()
    near, far = Settings(plane="global", region="global"), Settings(region="eu")
    async with running_plane(settings=near) as home, running_plane(settings=far) as region, Tasks() as tasks:
        exchange = Exchange(tasks)
        exchange.services["eu"] = PlaneService(region.authority, clock)
        remote = RemotePlane(["eu"], exchange.dial, clock, random.Random(1), "door")
        tasks.start(remote.run(), "remote")
        await remote.wait_connected()
        front = FrontDoor({"global": LocalPlane(home.authority, clock), "eu": remote}, clock)
        yield Door({"global": home, "eu": region}, {}, make_app(front, authenticate, allow_all, clock=clock)), remote, exchange
        tasks.cancel()


async def test_every_verb_reaches_the_region() -> None:
    async with door_to_a_region() as (door, _, _):
        made = await call(door, "POST", NODES, node("eu-n1", "eu"), headers={"idempotency-key": "k"})
        assert made.status == 201
        assert (await call(door, "GET", f"{NODES}/eu-n1")).json == made.json
        patched = await call(door, "PATCH", f"{NODES}/eu-n1", {"spec": {"unschedulable": True}}, media=MERGE)
        assert patched.json["spec"]["unschedulable"] is True
        assert (await call(door, "PUT", f"{NODES}/eu-n1", made.json)).status == 409
        applied = {"metadata": {"labels": {"rack": "7"}}}
        path = f"{NODES}/eu-n1?fieldManager=ci"
        assert (await call(door, "PATCH", path, applied, media="application/apply-patch+yaml")).status == 200
        assert (await call(door, "GET", "/receipts/k")).json["status"]["outcome"] == "Accepted"
        assert [item["metadata"]["name"] for item in (await call(door, "GET", NODES)).json["items"]] == ["eu-n1"]
        assert (await call(door, "DELETE", f"{NODES}/eu-n1")).json["status"] == "Success"
        assert (await call(door, "GET", f"{NODES}/eu-n1")).status == 404


async def test_a_watch_tells_added_modified_and_deleted_apart_from_afar() -> None:
    async with door_to_a_region() as (door, _, _):
        version = (await call(door, "GET", NODES)).json["metadata"]["resourceVersion"]
        async with watching(door, f"{NODES}?resourceVersion={version}") as stream:
            await call(door, "POST", NODES, node("eu-n1", "eu"))
            await call(door, "PATCH", f"{NODES}/eu-n1", {"metadata": {"labels": {"a": "b"}}}, media=MERGE)
            await call(door, "DELETE", f"{NODES}/eu-n1")
            events = [await stream.next() for _ in range(3)]
            assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
            assert events[2]["object"]["metadata"]["labels"] == {"a": "b"}, "the last that was known of it"


async def test_a_watch_goes_on_over_a_broken_connection_and_a_list_says_what_it_knows() -> None:
    async with door_to_a_region() as (door, remote, exchange):
        await call(door, "POST", NODES, node("eu-n1", "eu"))
        version = (await call(door, "GET", NODES)).json["metadata"]["resourceVersion"]
        async with watching(door, f"{NODES}?resourceVersion={version}") as stream:
            service = exchange.services.pop("eu")
            await exchange.cut()
            async with asyncio.timeout(60):
                while remote.connected:
                    await asyncio.sleep(0.001)
            got = await call(door, "GET", NODES)
            assert [item["metadata"]["name"] for item in got.json["items"]] == ["eu-n1"]
            assert "eu is unreachable" in got.warnings[0]
            assert (await call(door, "POST", f"{GROUP}/namespaces/risk/workloads", workload("api"))).status == 201
            exchange.services["eu"] = service
            await remote.wait_connected()
            await call(door, "POST", NODES, node("eu-n3", "eu"))
            event = await stream.next()
            assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "eu-n3")
        assert (await call(door, "GET", NODES)).warnings == []


async def test_more_readers_at_once_than_a_region_takes_requests_all_get_the_whole_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fairlead.api.room.REQUESTS_MAX", 4 * REQUESTS_MAX)  # they are all one caller's, who has half of it
    async with door_to_a_region() as (door, _, _):
        for name in ("eu-n1", "eu-n2"):
            await call(door, "POST", NODES, node(name, "eu"))
        async with Tasks() as tasks:
            reading = [tasks.start(call(door, "GET", f"{NODES}/eu-n1"), "get") for _ in range(REQUESTS_MAX)]
            reading += [tasks.start(call(door, "GET", NODES), "list") for _ in range(REQUESTS_MAX)]
        assert {task.result().status for task in reading} == {200}
        assert {len(task.result().json["items"]) for task in reading[REQUESTS_MAX:]} == {2}


async def test_a_region_with_too_much_to_do_is_429_and_neither_past_nor_away(monkeypatch: pytest.MonkeyPatch) -> None:
    async with door_to_a_region() as (door, remote, _):
        await call(door, "POST", NODES, node("eu-n1", "eu"))
        await call(door, "GET", NODES)

        async def refused(*arguments: Any, **options: Any) -> Any:
            raise Overloaded("128 requests are under way already")

        for name in ("get", "page", "exported"):
            monkeypatch.setattr(remote, name, refused)
        for path in (f"{NODES}/eu-n1", NODES, f"{NODES}?watch=true", f"{NODES}/eu-n1?at={1 << 64}", "/history?region=eu"):
            got = await call(door, "GET", path)
            assert (got.status, got.json["details"]["causes"][0]["reason"]) == (429, "Overloaded"), path
            assert int(got.headers["retry-after"]) >= 1
            assert got.warnings == []


async def test_what_is_written_and_cannot_be_shown_for_want_of_room_is_not_said_to_be_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with door_to_a_region() as (door, remote, _):

        async def refused(*arguments: Any, **options: Any) -> Any:
            if len(arguments) > 3:  # as it was left: the reads before the write are answered
                raise Overloaded("128 requests are under way already")
            return None

        monkeypatch.setattr(remote, "get", refused)
        assert (await call(door, "POST", NODES, node("eu-n1", "eu"))).status == 504, "nobody can say yet"
        assert door.planes["eu"].authority.view().get("nodes", "", "eu-n1") is not None


def unread(remote: RemotePlane, monkeypatch: pytest.MonkeyPatch, error: Exception, name: str) -> None:
    """What that node was before can no longer be read."""
    real = remote.get

    async def get(plural: str, tenant: str, asked: str, revision: int = 0) -> RemoteChange | None:
        if asked == name:
            raise error
        return await real(plural, tenant, asked, revision)

    monkeypatch.setattr(remote, "get", get)


@pytest.mark.parametrize(
    ("error", "code"),
    [(Expired("the history is gone", 0), 410), (Unreachable("eu"), 410), (Overloaded("too much"), 429)],
    ids=["expired", "unreachable", "overloaded"],
)
async def test_a_deletion_of_what_cannot_be_read_any_more_ends_the_watch_and_is_not_passed_over(
    monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    async with door_to_a_region() as (door, remote, _):
        for name in ("eu-n1", "eu-n2"):
            await call(door, "POST", NODES, node(name, "eu"))
        version = (await call(door, "GET", NODES)).json["metadata"]["resourceVersion"]
        with monkeypatch.context() as broken:
            async with watching(door, f"{NODES}?resourceVersion={version}&allowWatchBookmarks=true") as stream:
                unread(remote, broken, error, "eu-n2")
                async with Tasks() as tasks:
                    for name in ("eu-n1", "eu-n2"):
                        tasks.start(door.planes["eu"].send(OPERATOR, Delete("Node", "", name)), name)
                told = await stream.next()
                assert (told["type"], told["object"]["metadata"]["name"]) == ("DELETED", "eu-n1")
                ended = await stream.next()
                assert (ended["type"], ended["object"]["code"]) == ("ERROR", code)
                last = (await stream.next())["object"]["metadata"]["resourceVersion"]
                async with asyncio.timeout(30):
                    await stream.ended.wait()
        async with watching(door, f"{NODES}?resourceVersion={last}") as stream:
            again = await stream.next()
            assert (again["type"], again["object"]["metadata"]["name"]) == ("DELETED", "eu-n2"), "nothing was lost by it"


async def relabel(door: Door, labels: dict[str, str]) -> None:
    """At the region itself."""
    region = door.planes["eu"]
    found = region.authority.view().get("nodes", "", "eu-n1")
    assert found is not None
    metadata = msgspec.structs.replace(found.hot.metadata, labels=labels)
    ok(await region.send(OPERATOR, Put("Node", msgspec.structs.replace(found.hot, metadata=metadata), "update")))


async def test_of_what_was_shown_it_is_known_that_it_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    async with door_to_a_region() as (door, remote, _):
        labelled = node("eu-n1", "eu")
        labelled["metadata"]["labels"] = {"rack": "7"}
        await call(door, "POST", NODES, labelled)
        async with watching(door, f"{NODES}?labelSelector=rack%3D7") as stream:
            assert (await stream.next())["type"] == "ADDED"
            unread(remote, monkeypatch, Unreachable("eu"), "eu-n1")
            for labels in ({"rack": "7", "row": "1"}, {"rack": "8"}):
                await relabel(door, labels)
            events = [await stream.next() for _ in range(2)]
            assert [event["type"] for event in events] == ["MODIFIED", "DELETED"]
            assert events[1]["object"]["metadata"]["labels"] == {"rack": "8"}


async def test_a_watch_whose_feed_is_refused_for_want_of_room_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with door_to_a_region() as (door, remote, _):
        version = (await call(door, "GET", NODES)).json["metadata"]["resourceVersion"]
        real, refused = remote.follow, list[RemoteFeed]()

        def follow(plurals: Sequence[str], after: int, *, nodes: Sequence[str] = ()) -> RemoteFeed:
            feed = real(plurals, after, nodes=nodes)
            if len(refused) < 3:
                refused.append(feed)
                feed.end(Overloaded("128 requests are under way already", 0.001))
            return feed

        monkeypatch.setattr(remote, "follow", follow)
        async with watching(door, f"{NODES}?resourceVersion={version}") as stream:
            await call(door, "POST", NODES, node("eu-n1", "eu"))
            assert (await stream.next())["type"] == "ADDED"
        assert len(refused) == 3


async def test_a_region_says_itself_for_how_long_nobody_could_write_there(monkeypatch: pytest.MonkeyPatch) -> None:
    async with door_to_a_region() as (door, remote, _):
        assert await remote.ask_unwritable_s() is None
        monkeypatch.setattr(type(door.planes["eu"].authority), "store_silent_s", 12.5)
        assert await remote.ask_unwritable_s() == 12.5
        monkeypatch.undo()
    assert as_a(Now)([1, 1]).unwritable_ms is None, "one of an earlier version says nothing of it"
