"""Reads at a revision, lists in pages, and watches that miss nothing, repeat nothing and slow nobody down."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.authority import hub as hub_module
from fairlead.authority.candidate import Timing
from fairlead.authority.hub import Expired
from fairlead.authority.state import DELETED, MODIFIED
from fairlead.model.commands import Command, Delete, Put
from fairlead.model.ids import revision
from fairlead.model.kinds.intent import Tenant, TenantSpec
from fairlead.model.meta import Metadata
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.faults import HandFaults
from tests.authority.planes import OPERATOR, PlaneForTest, bind_of, ok, running_plane


def tenant(name: str, weight: int = 1) -> Put:
    return Put("Tenant", Tenant(metadata=Metadata(name=name), spec=TenantSpec(weight=weight)))


async def put(plane: PlaneForTest, *names: str, weight: int = 1) -> int:
    outcomes = await plane.authority.submit([Command(OPERATOR, tenant(name, weight)) for name in names])
    return max(ok(outcome).revision for outcome in outcomes)


async def test_a_view_shows_the_plane_as_it_was_at_its_revision() -> None:
    async with running_plane() as plane:
        first = await put(plane, "a", "b")
        view = plane.authority.view(first)
        await put(plane, "a", weight=7)
        ok(await plane.send(OPERATOR, Delete("Tenant", "", "b")))
        await put(plane, "c")
        assert [r.name for r in (await view.page("tenants")).items] == ["a", "b"]
        old = view.get("tenants", "", "a")
        assert old is not None
        assert old.hot.spec.weight == 1
        assert view.get("tenants", "", "c") is None
        now = plane.authority.view()
        assert [r.name for r in (await now.page("tenants")).items] == ["a", "c"]


async def test_pages_of_one_view_are_one_list_whatever_is_written_between_them() -> None:
    async with running_plane() as plane:
        names = [f"t{n:03d}" for n in range(50)]
        await put(plane, *names)
        view = plane.authority.view()
        page = await view.page("tenants", limit=20)
        seen = [r.name for r in page.items]
        for n in range(0, 50, 3):
            ok(await plane.send(OPERATOR, Delete("Tenant", "", f"t{n:03d}")))
        await put(plane, "t0205", "zz")
        while page.next_name:
            page = await view.page("tenants", limit=20, after=(page.next_tenant, page.next_name))
            seen += [r.name for r in page.items]
        assert seen == names


async def test_a_revision_that_memory_no_longer_reaches_is_expired() -> None:
    timing = Timing(lease_ttl_s=2.0, renew_s=0.5, poll_s=0.02, ring_size=20)
    async with running_plane(timing=timing) as plane:
        first = await put(plane, "a")
        view = plane.authority.view(first)
        await put(plane, *(f"t{n}" for n in range(40)))
        with pytest.raises(Expired):
            view.get("tenants", "", "a")
        with pytest.raises(Expired):
            plane.authority.view(first)
        with pytest.raises(Expired):
            plane.authority.watch("tenants", first)
        with pytest.raises(Expired):
            plane.authority.view(revision(2, 1))


async def test_a_watch_resumes_exactly_from_any_event_even_inside_a_batch() -> None:
    async with running_plane() as plane:
        start = plane.authority.view().revision
        await put(plane, *(f"t{n:02d}" for n in range(30)))
        everything = plane.authority.watch("tenants", start).take_nowait()
        assert len(everything) == 30
        assert len({rec.position for rec in everything}) == 30
        for cut in (0, 7, 29):
            resumed = plane.authority.watch("tenants", revision(1, everything[cut].position)).take_nowait()
            assert [r.name for r in resumed] == [r.name for r in everything[cut + 1 :]]


async def test_a_watch_sees_only_its_tenant_or_node_and_the_kind_of_each_change() -> None:
    from fairlead.model.lifecycle import Role

    async with running_plane() as plane:
        await plane.add_node("n1")
        await plane.add_node("n2")
        await plane.grant("risk")
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        start = plane.authority.view().revision
        everybody = plane.authority.watch("bindings", start)
        mine = plane.authority.watch("bindings", start, node="n1")
        theirs = plane.authority.watch("bindings", start, tenant="billing")
        requests = plane.authority.watch("schedulingrequests", start, tenant="risk")
        for n in range(2):
            ok(await plane.request("risk", "api", n, assigner))
            ok(await plane.send(scheduler, bind_of("risk", f"api-{n}", f"n{n + 1}")))
        assert [r.name for r in await mine.wait()] == ["api-0"]
        assert theirs.take_nowait() == []
        assert [r.name for r in everybody.take_nowait()] == ["api-0", "api-1"]
        changes = requests.take_nowait()
        assert [r.change for r in changes] == [0, DELETED, 0, DELETED]
        assert MODIFIED not in [r.change for r in changes]


async def test_a_slow_watcher_is_told_to_list_again_and_nobody_else_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "TOPIC_EVENTS_MAX", 10)
    async with running_plane() as plane:
        start = plane.authority.view().revision
        stuck, quick = plane.authority.watch("tenants", start), plane.authority.watch("tenants", start)
        seen: list[str] = []
        for n in range(40):
            await put(plane, f"t{n:02d}")
            seen += [r.name for r in quick.take_nowait()]
        assert seen == [f"t{n:02d}" for n in range(40)]
        with pytest.raises(Expired):
            stuck.take_nowait()


async def test_what_is_not_durable_is_not_seen() -> None:
    faults = HandFaults()
    async with running_plane(MemoryStore(MemoryDisk(), faults)) as plane:
        start = plane.authority.view()
        watch = plane.authority.watch("tenants", start.revision)
        gate = faults.hold("commit")
        sending = asyncio.ensure_future(put(plane, "a"))
        await faults.wait_held("commit")
        assert plane.authority.view().revision == start.revision
        assert plane.authority.view().get("tenants", "", "a") is None
        assert (await plane.authority.view().page("tenants")).items == []
        assert watch.take_nowait() == []
        late = plane.authority.watch("tenants", start.revision)
        assert late.take_nowait() == []
        assert not sending.done()
        gate.set()
        await sending
        assert [r.name for r in watch.take_nowait()] == ["a"]
        assert [r.name for r in late.take_nowait()] == ["a"]


async def test_a_watch_ends_when_its_server_stops_leading() -> None:
    async with running_plane() as plane:
        watch = plane.authority.watch("tenants", plane.authority.view().revision)
        waiting = asyncio.ensure_future(watch.wait())
        await asyncio.sleep(0)
        plane.authority.stop()
        with pytest.raises(Expired):
            await waiting


async def test_a_feed_that_begins_in_the_past_gives_what_came_since_with_it_and_waits_only_for_news() -> None:
    async with running_plane() as plane:
        before = plane.authority.view().revision
        ok(await plane.send(OPERATOR, Put("Tenant", Tenant(metadata=Metadata(name="a"), spec=TenantSpec()))))
        feed = plane.authority.follow(("tenants",), before)
        ok(await plane.send(OPERATOR, Put("Tenant", Tenant(metadata=Metadata(name="b"), spec=TenantSpec()))))
        assert [rec.name for rec in feed.take_nowait()] == ["a", "b"]
        feed.close()


async def test_whoever_asks_for_what_nobody_has_leaves_nothing_behind() -> None:
    async with running_plane() as plane:
        before = len(plane.authority._state._buckets)
        for number in range(10):
            assert plane.authority.view().get("workloads", f"nobody-{number}", "x") is None
            assert (await plane.authority.view().page("workloads", f"nobody-{number}")).items == []
        assert len(plane.authority._state._buckets) == before
