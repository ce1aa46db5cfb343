"""A plane that begins a new incarnation while it is read: what was read before is of that one, and says so (P6, P19, S15)."""

from __future__ import annotations

from msgspec.structs import replace

from fairlead.api.frontdoor import FrontDoor
from fairlead.authority.authority import Authority
from fairlead.authority.local import LocalPlane
from fairlead.client.remote_feed import RemoteChange
from fairlead.model.commands import Put
from fairlead.model.ids import incarnation_of
from fairlead.model.registry import KINDS
from fairlead.ports import SystemClock
from tests.api.doors import Cuttable, call, node, open_door, watching
from tests.api.test_remote_region import NODES, door_to_a_region
from tests.authority.planes import OPERATOR, ok

INFO = KINDS["nodes"]


def begins(authority: Authority, incarnation: int) -> None:
    """As after a restore."""
    authority._candidate.memory.ctx.begin(incarnation)


async def test_an_object_that_was_read_before_keeps_the_revision_at_which_it_was_read() -> None:
    async with open_door("us") as door:
        await call(door, "POST", NODES, node("us-n1", "us"))
        front = FrontDoor({"us": LocalPlane(door.authority("us"), SystemClock())}, SystemClock())
        one, _ = await front.get(INFO, "", "us-n1")
        listed = (await front.list(INFO, "")).items[0]
        assert one is not None
        begins(door.authority("us"), 2)
        assert [incarnation_of(item.revision) for item in (one, one.opened(one.change.raw or b""), listed)] == [1, 1, 1]
        again, _ = await front.get(INFO, "", "us-n1")
        assert again is not None
        assert incarnation_of(again.revision) == 2


async def test_what_is_remembered_of_a_plane_that_is_away_is_of_the_incarnation_it_was_read_in() -> None:
    async with open_door("us", "eu") as door:
        await call(door, "POST", NODES, node("us-n1", "us"))
        region = Cuttable(LocalPlane(door.authority("us"), SystemClock()))
        front = FrontDoor({"global": LocalPlane(door.authority(), SystemClock()), "us": region}, SystemClock())
        await front.list(INFO, "")
        front.members[1].saw(2 << 44)  # a write was answered from there, and then it went away
        region.cut()
        one, warnings = await front.get(INFO, "", "us-n1")
        assert one is not None
        assert warnings
        listed = (await front.list(INFO, "")).items[0]
        assert [incarnation_of(item.revision) for item in (one, listed)] == [1, 1]


async def test_a_plane_in_another_process_says_itself_in_which_incarnation_it_was_read() -> None:
    async with door_to_a_region() as (door, remote, _):
        await call(door, "POST", NODES, node("eu-n1", "eu"))
        front = FrontDoor({"global": LocalPlane(door.authority(), SystemClock()), "eu": remote}, SystemClock())
        begins(door.authority("eu"), 2)
        assert incarnation_of(remote.revision()) == 1, "nobody has told this side yet"
        ahead, _ = await front.get(INFO, "", "eu-n1")
        front.members[1].saw(3 << 44)
        behind, _ = await front.get(INFO, "", "eu-n1")
        assert ahead is not None
        assert behind is not None
        assert [incarnation_of(item.revision) for item in (ahead, behind)] == [2, 2]


async def test_a_server_that_does_not_say_so_is_taken_to_be_where_it_was_heard_to_be() -> None:
    async with door_to_a_region() as (door, remote, _):
        await call(door, "POST", NODES, node("eu-n1", "eu"))
        found = await remote.get("nodes", "", "eu-n1")
        assert isinstance(found, RemoteChange)
        assert found.incarnation == 1
        found.incarnation = 0
        member = FrontDoor({"eu": remote}, SystemClock()).members[0]

        async def get(plural: str, tenant: str, name: str, revision: int = 0) -> RemoteChange | None:
            return found

        remote.get = get  # type: ignore[method-assign]
        item = await member.get("nodes", "", "eu-n1")
        assert item is not None
        assert incarnation_of(item.revision) == 1


async def test_what_was_before_a_change_is_asked_for_in_the_incarnation_of_the_change() -> None:
    async with open_door("us") as door:
        await call(door, "POST", NODES, node("us-n1", "us"))
        version = (await call(door, "GET", NODES)).json["metadata"]["resourceVersion"]
        async with watching(door, f"{NODES}?resourceVersion={version}&labelSelector=rack%3D7") as stream:
            door.cuttable["us"].revision = lambda: 2 << 44  # type: ignore[method-assign]  # heard of by another way already
            found = door.authority("us").view().get("nodes", "", "us-n1")
            assert found is not None
            labelled = replace(found.hot, metadata=replace(found.hot.metadata, labels={"rack": "7"}))
            ok(await door.planes["us"].send(OPERATOR, Put("Node", labelled)))
            assert (await stream.next())["type"] == "ADDED"
