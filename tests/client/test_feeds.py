"""Feeds over a channel: one that is closed costs the other end nothing more, and none grows without bound on either end."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.authority import feeds as feeds_module
from fairlead.client import remote_feed
from fairlead.client.channel import ANSWER, CHANGES, CHANGES_MAX, REFUSAL, Row, decode, encode
from fairlead.client.plane import Expired
from fairlead.client.remote_feed import RemoteFeed
from fairlead.model import codec
from tests.authority.planes import OPERATOR, ok
from tests.client.test_line import HELLO, OtherEnd
from tests.client.test_remote import reconnected, remote_plane, tenant


def standing() -> list[str]:
    """Tasks of feeds, in this process: the plane's end is here too."""
    names = [task.get_name() for task in asyncio.all_tasks()]
    return sorted(name for name in names if name == "tick" or name.startswith("follow"))


def taken(feed: RemoteFeed) -> list[str]:
    return [change.name for change in feed.take_nowait()]


async def until_standing(count: int) -> None:
    async with asyncio.timeout(30):
        while len(standing()) != count:
            await asyncio.sleep(0.001)


async def test_a_feed_that_is_closed_leaves_nothing_behind_at_the_other_end() -> None:
    async with remote_plane() as (plane, remote, _):
        kept = remote.follow(("tenants",), remote.revision())
        await until_standing(2)
        for _ in range(20):
            feed = remote.follow(("tenants", "nodes"), remote.revision())
            feed.close()
            feed.close()
        followed = [remote.follow(("tenants",), remote.revision()) for _ in range(20)]
        await until_standing(2 + 2 * 20)
        for feed in followed:
            feed.close()
        await until_standing(2)
        ok(await plane.send(OPERATOR, tenant("risk").body))
        told: list[str] = []
        async with asyncio.timeout(30):
            while not told:
                await kept.wait()
                told = taken(kept)
        assert told == ["risk"], "the others' end is not this one's"


async def test_to_a_server_that_knows_no_end_of_feeds_nothing_is_said_of_it() -> None:
    end = OtherEnd()
    for version in (1, 2):
        end.answers["hello"] = lambda number, version=version: [[number, ANSWER, {**HELLO, "version": version}]]  # type: ignore[misc]
        end.answers["now"] = lambda number: [[number, ANSWER, [7, 1]]]
        async with end.called() as remote:
            await remote.wait_connected()
            feed = remote.follow(("nodes",), 7)
            feed.close()
            assert await remote.now() == 7
    assert [frame[1] for frame in end.heard] == ["hello", "follow", "now", "hello", "follow", "unfollow", "now"]


async def test_one_feed_too_many_of_a_connection_ends_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds_module, "FEEDS_MAX", 3)
    async with remote_plane() as (_, remote, _):
        followed = [remote.follow(("tenants",), remote.revision()) for _ in range(4)]
        async with asyncio.timeout(30):
            await followed[3].wait()
        with pytest.raises(Expired, match="3 feeds of this connection are open already"):
            followed[3].take_nowait()
        followed[0].close()
        again = remote.follow(("tenants",), remote.revision())
        async with asyncio.timeout(30):
            await again.wait()
            assert again.take_nowait() == []


async def test_one_who_cannot_end_feeds_is_hung_up_on_when_it_has_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds_module, "FEEDS_MAX", 3)
    monkeypatch.setattr("fairlead.client.line.VERSION", 1)
    async with remote_plane() as (_, remote, exchange):
        remote._unfollows = False
        for _ in range(4):
            remote.follow(("tenants",), remote.revision()).close()
        async with asyncio.timeout(30):
            await reconnected(remote)
        await until_standing(0)
        assert exchange.services["a"].connections == 1


async def test_a_number_that_is_followed_already_and_an_end_that_names_none_do_no_harm() -> None:
    async with remote_plane() as (plane, _, exchange):
        channel = await exchange.dial("a")
        revision = plane.authority.view().revision
        await channel.send(encode([7, "follow", ["tenants"], revision]))
        await channel.send(encode([7, "follow", ["tenants"], revision]))
        assert decode(await channel.receive())[:3] == [7, REFUSAL, "Invalid"]
        for arguments in ([], [[7]], ["7"], [8]):
            await channel.send(encode([9, "unfollow", *arguments]))
        ok(await plane.send(OPERATOR, tenant("risk").body))
        told: list[str] = []
        async with asyncio.timeout(30):
            while not told:
                number, kind, _, rows = decode(await channel.receive())
                assert (number, kind) == (7, CHANGES)
                told += [row[2] for row in rows]
        assert told == ["risk"]


async def test_heartbeats_and_feeds_are_none_of_the_requests_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    async with remote_plane() as (_, remote, _):
        monkeypatch.setattr("fairlead.authority.service.REQUESTS_MAX", 0)
        assert await remote.now() == 0, "no request is taken"
        assert await remote.heartbeat([("n1", 1)]) is not None
        feed = remote.follow(("tenants",), remote.revision())
        async with asyncio.timeout(30):
            await feed.wait()
        assert feed.take_nowait() == []


async def test_a_reader_that_takes_nothing_must_list_again_and_its_feed_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten: list[int] = []
    feed = RemoteFeed(forgotten.append, 1, 0)
    raw = codec.encode(tenant("risk").body.object)  # type: ignore[union-attr]
    row = Row("tenants", "", "risk", 5, raw)
    monkeypatch.setattr(remote_feed, "WAITING_BYTES_MAX", 10 * (remote_feed.ROW_BYTES + len(raw)))
    for _ in range(3):
        feed.told(5, [row] * 10)
        assert len(taken(feed)) == 10
    feed.told(6, [row] * 10)
    assert forgotten == []
    feed.told(7, [row])
    assert forgotten == [1]
    await feed.wait()
    with pytest.raises(Expired, match="fell too far behind"):
        feed.take_nowait()
    assert feed.revision == 5


def test_a_bound_on_what_waits_is_more_than_one_frame_brings() -> None:
    assert remote_feed.WAITING_BYTES_MAX > 4 * CHANGES_MAX * (remote_feed.ROW_BYTES + 1_000)


async def test_one_that_fell_behind_is_ended_at_the_other_end_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_feed, "WAITING_BYTES_MAX", remote_feed.ROW_BYTES)
    async with remote_plane() as (plane, remote, _):
        feed = remote.follow(("tenants",), remote.revision())
        await until_standing(2)
        ok(await plane.send(OPERATOR, tenant("risk").body))
        await until_standing(0)
        with pytest.raises(Expired):
            feed.take_nowait()
