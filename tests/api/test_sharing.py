"""What watches share: events made once for all who show the same, told in turns where there are many of them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec
import pytest
from starlette.requests import Request

from fairlead.api import sharing
from fairlead.api.calls import Call, Services, Target
from fairlead.api.catalogue import OWN
from fairlead.api.frontdoor import FrontDoor
from fairlead.api.rules import PlainRules
from fairlead.api.sharing import Stretches, Turns, chunked
from fairlead.api.watching import _Stream
from fairlead.authority.local import LocalPlane
from fairlead.ports import SystemClock, SystemIds, Tasks
from tests.api.doors import ADA, GROUP, Door, allow_all, call, open_door, scope_of, watching, workload

WORKLOADS = f"{GROUP}/namespaces/risk/workloads"
MERGE = "application/merge-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"


class Streams:
    """Watches of one door's workloads, told by hand."""

    def __init__(self, door: Door) -> None:
        self.stretches = Stretches()
        self.front = FrontDoor({"global": LocalPlane(door.authority(), SystemClock())}, SystemClock())
        self._services = Services(self.front, PlainRules(allow_all), SystemClock(), SystemIds())

    async def open(self, tenant: str | None = "risk", query: str = "", accept: str = "*/*", *, mine: bool = False) -> _Stream:
        scope = scope_of("GET", WORKLOADS, f"watch=true&{query}", {"accept": accept})
        one = Call(Request(scope), self._services, ADA, Target(OWN["workloads"], tenant, "", ""))
        if mine:
            one.rows = lambda change: change.name != "hidden"
        stream = _Stream(one, self.stretches)
        await stream.begin()
        return stream

    async def tell(self, *streams: _Stream) -> list[list[bytes]]:
        """All that each has not been told yet."""
        member, out = self.front.members[0], []
        for stream in streams:
            feed = member.plane.follow(["workloads"], stream.seen[0])
            out.append(await stream.told(member, feed.take_nowait(), feed.revision))
            feed.close()
        return out


def events(chunks: list[bytes]) -> list[tuple[str, str]]:
    found = [msgspec.json.decode(line) for line in b"".join(chunks).splitlines()]
    return [(event["type"], event["object"]["metadata"]["name"]) for event in found]


async def test_what_two_watches_show_alike_is_made_once() -> None:
    async with open_door() as door:
        streams = Streams(door)
        one, two = await streams.open(), await streams.open()
        for name in ("a", "b"):
            await call(door, "POST", WORKLOADS, workload(name))
        first, second = await streams.tell(one, two)
        assert first is second
        assert events(first) == [("ADDED", "a"), ("ADDED", "b")]
        assert one.seen == two.seen
        await call(door, "POST", WORKLOADS, workload("c"))
        assert [events(each) for each in await streams.tell(two, one)] == [[("ADDED", "c")]] * 2
        assert (streams.stretches.made_total, streams.stretches.shared_total) == (2, 2)


@pytest.mark.parametrize(
    "other",
    [
        {"tenant": "other"},
        {"tenant": None},
        {"query": "labelSelector=x%3D1"},
        {"query": "fieldSelector=metadata.name%3Da"},
        {"accept": PARTIAL},
        {"accept": TABLE},
        {"mine": True},
    ],
)
async def test_watches_that_show_something_else_share_nothing(other: dict[str, Any]) -> None:
    async with open_door() as door:
        streams = Streams(door)
        one, two = await streams.open(), await streams.open(**other)
        for name in ("a", "hidden"):
            await call(door, "POST", WORKLOADS, workload(name))
        plain, otherwise = await streams.tell(one, two)
        assert events(plain) == [("ADDED", "a"), ("ADDED", "hidden")]
        assert streams.stretches.shared_total == 0
        if other == {"mine": True}:
            assert events(otherwise) == [("ADDED", "a")]
        elif "tenant" not in other or other["tenant"]:
            assert otherwise != plain


@pytest.mark.parametrize("own", [{"accept": TABLE}, {"mine": True}])
async def test_what_depends_on_who_asks_or_when_is_not_even_shared_with_its_like(own: dict[str, Any]) -> None:
    async with open_door() as door:
        streams = Streams(door)
        one, two = await streams.open(**own), await streams.open(**own)
        await call(door, "POST", WORKLOADS, workload("a"))
        await streams.tell(one, two)
        assert (streams.stretches.made_total, streams.stretches.shared_total) == (0, 0)


async def test_a_watch_that_comes_from_elsewhere_is_told_what_it_has_not_seen() -> None:
    async with open_door() as door:
        streams = Streams(door)
        early = await streams.open()
        await call(door, "POST", WORKLOADS, workload("a"))
        late = await streams.open()
        await call(door, "POST", WORKLOADS, workload("b"))
        both, last = await streams.tell(early, late)
        assert events(both) == [("ADDED", "a"), ("ADDED", "b")]
        assert events(last) == [("ADDED", "b")]


async def test_one_whose_end_was_told_by_sharing_is_added_when_it_comes_again() -> None:
    async with open_door() as door:
        streams = Streams(door)
        await call(door, "POST", WORKLOADS, workload("a"))
        one, two = await streams.open(), await streams.open()
        await call(door, "DELETE", f"{WORKLOADS}/a")
        await call(door, "PATCH", f"{WORKLOADS}/a", {"metadata": {"finalizers": None}}, media=MERGE)
        for told in await streams.tell(one, two):
            assert events(told)[-1] == ("DELETED", "a")
        await call(door, "POST", WORKLOADS, workload("a"))
        for told in await streams.tell(two, one):  # now it is the other that makes it
            assert events(told) == [("ADDED", "a")]


def test_what_is_kept_is_bounded_in_number_and_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "STRETCHES_MAX", 3)
    monkeypatch.setattr(sharing, "STRETCH_BYTES_MAX", 100)
    stretches = Stretches()
    for key in range(5):
        stretches.keep(key, [b"x"])
    assert [stretches.find(key) is not None for key in range(5)] == [False, False, True, True, True]
    stretches.keep("large", [b"x" * 60, b"y" * 39])
    assert [stretches.find(key) is not None for key in (2, 3, 4, "large")] == [False, False, True, True]
    stretches.keep("larger", [b"x" * 101])
    assert stretches.find("larger") is None


def test_lines_are_sent_together_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "CHUNK_BYTES", 10)
    assert chunked([]) == []
    assert chunked([b"1234\n", b"12345\n", b"1\n", b"x" * 20, b"end\n"]) == [b"1234\n12345\n", b"1\n" + b"x" * 20, b"end\n"]


async def test_many_watches_hear_everything_in_order_in_their_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "TURN_WATCHES", 2)
    monkeypatch.setattr(sharing, "WATCH_S", 0.004)
    async with open_door() as door, contextlib.AsyncExitStack() as stack:
        await call(door, "POST", WORKLOADS, workload("a"))
        version = (await call(door, "GET", WORKLOADS)).json["metadata"]["resourceVersion"]
        path = f"{WORKLOADS}?resourceVersion={version}"
        streams = [await stack.enter_async_context(watching(door, path)) for _ in range(5)]
        for n in range(20):
            await call(door, "PATCH", f"{WORKLOADS}/a", {"metadata": {"labels": {"n": str(n)}}}, media=MERGE)
        for stream in streams:
            heard = [(await stream.next())["object"]["metadata"]["labels"]["n"] for _ in range(20)]
            assert heard == [str(n) for n in range(20)]


async def test_few_watches_wait_for_no_turn_and_many_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "TURN_WATCHES", 2)
    turns = Turns(SystemClock())
    first = [turns.join(), turns.join()]
    assert turns.period_s == 0
    await first[0].wait()
    third = turns.join()
    assert first[0] is first[1] is not third
    assert turns.period_s == 3 * sharing.WATCH_S
    turns.leave(third)
    assert (turns.period_s, turns.count) == (0, 1)


async def test_who_waits_for_a_turn_goes_on_when_the_one_that_would_wake_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "TURN_WATCHES", 2)
    monkeypatch.setattr(sharing, "WATCH_S", 1000.0)
    turns = Turns(SystemClock())
    turn, _, _ = turns.join(), turns.join(), turns.join()
    async with Tasks() as tasks:
        waker = tasks.start(turn.wait(), "waker")
        await asyncio.sleep(0)
        other = tasks.start(turn.wait(), "other")
        await asyncio.sleep(0)
        waker.cancel()
        async with asyncio.timeout(60):
            await other
