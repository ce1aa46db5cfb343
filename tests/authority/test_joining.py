"""What the components of a plane's own process make of a change goes to the store with it, in one batch, and holds it up by a few
turns of the loop at most."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlead.authority import joining
from fairlead.authority.early import Early
from fairlead.authority.hot import hot_of
from fairlead.authority.joining import TURNS, Joining
from fairlead.authority.local import LocalPlane
from fairlead.authority.state import Rec, State
from fairlead.client.plane import Feed
from fairlead.model.commands import Accepted, Command
from fairlead.model.lifecycle import Role, SlotState
from fairlead.ports import Tasks
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.faults import DISK_FULL, HandFaults
from tests.authority.planes import OPERATOR, FakeClock, PlaneForTest, bind_of, no, ok, running_plane
from tests.authority.test_commit_faults import put, tenant


@pytest.fixture
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the turns count: a machine that pauses ends no wait."""
    monkeypatch.setattr(joining, "OPEN_S", 3600.0)


pytestmark = pytest.mark.usefixtures("_patient")


async def answer(plane: PlaneForTest, feed: Feed, until: str) -> None:
    """Makes b of a, c of b, and so on: each when it is told of the one before."""
    async with Tasks() as tasks:
        while True:
            await feed.wait()
            for change in feed.take_nowait():
                if change.name >= until:
                    return
                following = Command(OPERATOR, tenant(chr(ord(change.name) + 1)))
                tasks.start(plane.authority.submit([following]), "following")


async def test_a_chain_of_answers_is_one_batch_with_what_it_answers() -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        near = LocalPlane(plane.authority, plane.clock, early=True)
        feed = near.follow(("tenants",), near.revision())
        feed.take_nowait()
        async with asyncio.timeout(60), Tasks() as tasks:
            tasks.start(answer(plane, feed, "d"), "component")
            ok(await put(plane, "a"))
            found = (await plane.authority.view().page("tenants")).items
        assert [each.name for each in found] == ["a", "b", "c", "d"], "all of it is durable when the first is answered"
        assert len({batch_of(disk, each) for each in found}) == 1


async def test_what_joined_a_batch_is_taken_back_with_it() -> None:
    faults = HandFaults()
    async with running_plane(MemoryStore(MemoryDisk(), faults)) as plane:
        near = LocalPlane(plane.authority, plane.clock, early=True)
        feed = near.follow(("tenants",), near.revision())
        feed.take_nowait()
        faults.once("commit", DISK_FULL)
        async with asyncio.timeout(60):
            first = asyncio.ensure_future(put(plane, "a"))
            await feed.wait()
            feed.take_nowait()
            (second,) = await plane.authority.submit([Command(OPERATOR, tenant("b"))])
            no(await first, "StoreUnavailable")
            no(second, "StoreUnavailable")
        assert (await plane.authority.view().page("tenants")).items == []
        ok(await put(plane, "c"))


async def test_whoever_answers_for_ever_does_not_hold_a_batch_up_for_ever() -> None:
    clock = FakeClock()
    early = Early(State(hot_of))
    feed = early.follow(("tenants",), 0)
    open_batch = Joining(early, clock)
    open_batch.judged([rec("tenants")])
    open_batch.begin()
    assert open_batch.waits()
    clock.offset += joining.OPEN_S / 2
    open_batch.judged([rec("tenants")])
    open_batch.go_on()
    assert open_batch.waits()
    clock.offset += joining.OPEN_S
    open_batch.judged([rec("tenants")])
    open_batch.go_on()
    assert not open_batch.waits()
    assert len(feed.take_nowait()) == 3


async def test_a_batch_waits_for_those_who_were_told_and_as_many_turns_as_an_answer_takes() -> None:
    early = Early(State(hot_of))
    early.follow(("tenants",), 0)
    open_batch = Joining(early, FakeClock())
    open_batch.judged([rec("nodes")])
    open_batch.begin()
    assert not open_batch.waits(), "nobody was told"
    open_batch.judged([rec("tenants")])
    open_batch.begin()
    assert [open_batch.waits() for _ in range(TURNS + 1)] == [True] * TURNS + [False]


async def test_a_batch_that_binds_goes_without_what_is_said_about_it() -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        await plane.add_node("n1")
        ok(await put(plane, "a"))
        await plane.grant("a")
        ok(await plane.request("a", "w", 0, await plane.as_role(Role.ASSIGNMENT)))
        scheduler = await plane.as_role(Role.SCHEDULER)
        near = LocalPlane(plane.authority, plane.clock, early=True)
        feed = near.follow(("bindings",), near.revision())
        feed.take_nowait()
        async with asyncio.timeout(60):
            binding = asyncio.ensure_future(plane.send(scheduler, bind_of("a", "w-0", "n1")))
            await feed.wait()
            feed.take_nowait()
            (said,) = await plane.authority.submit([Command(OPERATOR, tenant("b"))])
            assert isinstance(said, Accepted)
            ok(await binding)
        view = plane.authority.view()
        bound, told = view.get("bindings", "a", "w-0"), view.get("tenants", "", "b")
        assert bound is not None
        assert told is not None
        assert batch_of(disk, bound) < batch_of(disk, told)


async def test_what_is_held_back_of_a_batch_that_binds_is_told_with_what_was_judged_beside_it() -> None:
    early = Early(State(hot_of))
    feed = early.follow(("bindings", "tenants"), 0)
    open_batch = Joining(early, FakeClock())
    open_batch.judged([rec("tenants"), rec("bindings", Bound())])
    open_batch.begin()
    assert not open_batch.waits()
    assert feed.take_nowait() == []
    open_batch.tell_rest()
    assert [each.plural for each in feed.take_nowait()] == ["bindings", "tenants"]
    assert not open_batch.tell_rest()


def batch_of(disk: MemoryDisk, change: Rec) -> int:
    """Where the batch begins that made it durable."""
    return next(entry.batch.first for entry in disk.journal if entry.batch.first <= change.position <= entry.batch.last)


class Bound:
    """What the state keeps of a binding, as far as it matters here."""

    state = SlotState.BOUND


def rec(plural: str, hot: Any = None) -> Rec:
    return Rec(plural, "", "a", 1, None, hot or b"")
