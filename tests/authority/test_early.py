"""Feeds of the authority's own process: what is judged is told at once there and nowhere else, and taken back for good."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.authority import early
from fairlead.authority.local import LocalPlane
from fairlead.client.plane import Expired
from fairlead.model.commands import Command, IdempotencyKey
from fairlead.model.meta import Evidence
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.faults import DISK_FULL, HandFaults
from tests.authority.planes import OPERATOR, PlaneForTest, no, ok, running_plane
from tests.authority.test_commit_faults import put, tenant


def planes_of(plane: PlaneForTest) -> tuple[LocalPlane, LocalPlane]:
    """As its own components see it, and as everybody else does."""
    return LocalPlane(plane.authority, plane.clock, early=True), LocalPlane(plane.authority, plane.clock)


async def test_a_change_is_told_early_while_the_store_is_at_it_and_to_others_when_it_is_durable() -> None:
    faults = HandFaults()
    async with running_plane(MemoryStore(MemoryDisk(), faults)) as plane:
        soon, later = (each.follow(("tenants",), each.revision()) for each in planes_of(plane))
        soon.take_nowait(), later.take_nowait()
        gate = faults.hold("commit")
        sending = asyncio.ensure_future(put(plane, "a"))
        await faults.wait_held("commit")
        async with asyncio.timeout(30):
            await soon.wait()
        assert [change.name for change in soon.take_nowait()] == ["a"]
        assert later.take_nowait() == []
        assert not sending.done()
        assert soon.revision > later.revision
        gate.set()
        ok(await sending)
        assert [change.name for change in later.take_nowait()] == ["a"]
        assert soon.take_nowait() == [], "it is not told twice"
        assert soon.revision == later.revision


async def test_whoever_follows_late_is_told_what_is_under_way_as_well() -> None:
    faults = HandFaults()
    async with running_plane(MemoryStore(MemoryDisk(), faults)) as plane:
        soon, _ = planes_of(plane)
        gate = faults.hold("commit")
        sending = asyncio.ensure_future(put(plane, "a"))
        await faults.wait_held("commit")
        assert [change.name for change in soon.follow(("tenants",), soon.revision()).take_nowait()] == ["a"]
        gate.set()
        ok(await sending)


async def test_a_batch_taken_back_ends_early_feeds_and_refuses_what_was_decided_on_it() -> None:
    faults = HandFaults()
    async with running_plane(MemoryStore(MemoryDisk(), faults)) as plane:
        soon, later = (each.follow(("tenants",), each.revision()) for each in planes_of(plane))
        later.take_nowait()
        gate = faults.hold("commit")
        faults.once("commit", DISK_FULL)
        first = asyncio.ensure_future(put(plane, "a"))
        await faults.wait_held("commit")
        soon.take_nowait()
        seen = Evidence(observed_revision=soon.revision)
        durable = Evidence(observed_revision=later.revision)
        stands = [asyncio.ensure_future(plane.send(OPERATOR, tenant(n), IdempotencyKey(n), durable)) for n in "cde"]
        rests = asyncio.ensure_future(plane.send(OPERATOR, tenant("b"), IdempotencyKey("b"), seen))
        for _ in range(50):
            await asyncio.sleep(0)
        gate.set()
        no(await first, "StoreUnavailable")
        for each in stands:
            ok(await each)
        no(await rests, "StaleEvidence")  # by now there is something else at the position it names
        with pytest.raises(Expired):
            soon.take_nowait()
        with pytest.raises(Expired):
            _ = soon.revision  # nobody can name a position that did not come about
        assert [change.name for change in later.take_nowait()] == ["c", "d", "e"]
        ok(await plane.send(OPERATOR, tenant("f"), IdempotencyKey("f"), Evidence(observed_revision=later.revision)))


async def test_a_feed_that_nobody_takes_from_ends_and_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early, "WAITING_MAX", 3)
    async with running_plane(MemoryStore(MemoryDisk())) as plane:
        soon, _ = planes_of(plane)
        feed = soon.follow(("tenants",), soon.revision())
        for name in "abcd":
            ok(await put(plane, name))
        assert feed.oldest_untaken() is None
        with pytest.raises(Expired):
            feed.take_nowait()


async def test_within_a_take_kinds_come_in_the_order_they_were_asked_for() -> None:
    async with running_plane(MemoryStore(MemoryDisk())) as plane:
        soon, _ = planes_of(plane)
        feed = soon.follow(("grants", "nodes", "tenants"), soon.revision())
        ok(await put(plane, "a"))
        await plane.add_node("n1")
        await plane.grant("a")
        kinds = [change.plural for change in feed.take_nowait()]
        assert kinds == sorted(kinds)
        assert set(kinds) == {"grants", "nodes", "tenants"}


async def test_the_changes_of_one_call_come_in_their_order() -> None:
    async with running_plane() as plane:
        for where, each in zip(("near", "far"), planes_of(plane), strict=True):
            feed = each.follow(("tenants",), each.revision())
            feed.take_nowait()
            names = [f"{where}-{number}" for number in range(5)]
            for outcome in await plane.authority.submit([Command(OPERATOR, tenant(name)) for name in names]):
                ok(outcome)
            assert [change.name for change in feed.take_nowait()] == names
