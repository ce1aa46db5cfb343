"""One picture of a plane for all controllers of a process: who is woken, what each sees of it, and what its loss means."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from fairlead.client.plane import Expired
from fairlead.controllers.cache import Cache, Indexes, Item, Name, Objects
from fairlead.controllers.contract import Result, View
from fairlead.controllers.picture import SLICE, Picture, PictureFeed
from fairlead.controllers.runtime import Runtime
from fairlead.model.ids import revision
from fairlead.ports import SystemClock, Tasks

WAIT_S = 30.0


class Row:
    tenant = ""

    def __init__(self, plural: str, name: str, position: int, hot: Any) -> None:
        self.plural, self.name, self.position, self.hot = plural, name, position, hot
        self.raw = b"x" if hot is not None else None


class HandFeed:
    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.signal = asyncio.Event()
        self.revision = 0
        self.error: Exception | None = None
        self.closed = False

    def put(self, *rows: Row) -> None:
        self.rows += rows
        self.signal.set()

    def take_nowait(self) -> list[Row]:
        self.signal.clear()
        if self.error is not None:
            raise self.error
        rows, self.rows = self.rows, []
        self.revision = max([row.position for row in rows], default=self.revision)
        return rows

    async def wait(self) -> None:
        await self.signal.wait()

    def poke(self) -> None:
        self.signal.set()

    def close(self) -> None:
        self.closed = True


class HandPlane:
    at = 100

    def __init__(self) -> None:
        self.feeds: list[HandFeed] = []
        self.listed: dict[str, list[Row]] = {}
        self.lists = 0

    def follow(self, plurals: Any, after: int) -> HandFeed:
        self.feeds.append(HandFeed())
        return self.feeds[-1]

    async def list(self, plural: str) -> list[Row]:
        self.lists += 1
        return self.listed.get(plural, [])

    def revision(self) -> int:
        return self.at

    def plane_ms(self) -> int:
        return 1


class Looker:
    """Somebody before a picture, and what it was told."""

    def __init__(self, picture: Picture, *plurals: str) -> None:
        self.told: list[tuple[Any, Any]] = []
        self.busy: list[bool] = []
        self._picture = picture
        self.feed = PictureFeed(picture)
        self.concerned = True
        picture.join(self.feed, plurals, self._hear)

    def _hear(self, old: Item | None, new: Item | None, by_resync: bool) -> bool:
        self.told.append((old.hot if old else None, new.hot if new else None))
        return self.concerned


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not true():
            await asyncio.sleep(0)


async def opened(plane: HandPlane, tasks: Tasks, *plurals: str) -> Picture:
    picture = Picture(plane, SystemClock())  # type: ignore[arg-type]
    picture.include(plurals)
    await picture.open()
    tasks.start(picture.run(), "picture")
    return picture


async def test_only_those_whom_a_change_concerns_are_woken_and_the_plane_is_followed_once() -> None:
    plane = HandPlane()
    async with Tasks() as tasks:
        picture = await opened(plane, tasks, "nodes", "grants")
        both, nodes, deaf = Looker(picture, "nodes", "grants"), Looker(picture, "nodes"), Looker(picture, "grants")
        deaf.concerned = False
        plane.feeds[0].put(Row("grants", "g", 7, "one"))
        await until(lambda: bool(both.told))
        assert (both.told, nodes.told, deaf.told) == ([(None, "one")], [], [(None, "one")])
        async with asyncio.timeout(WAIT_S):
            await both.feed.wait()
        waiting = [asyncio.ensure_future(each.feed.wait()) for each in (nodes, deaf)]
        await asyncio.sleep(0)
        assert not any(each.done() for each in waiting)
        assert len(plane.feeds) == 1
        for each in waiting:
            each.cancel()
        tasks.cancel()


async def test_nobody_is_asked_before_all_that_came_together_is_in_the_picture() -> None:
    plane = HandPlane()
    async with Tasks() as tasks:
        picture = await opened(plane, tasks, "nodes")
        seen: list[int] = []
        feed = PictureFeed(picture)

        def hear(old: Item | None, new: Item | None, by_resync: bool) -> bool:
            seen.append(len(picture.objects.kind("nodes")))
            return True

        picture.join(feed, ("nodes",), hear)
        count = 2 * SLICE + 1
        plane.feeds[0].put(*(Row("nodes", f"n{number}", number + 1, "x") for number in range(count)))
        await until(lambda: len(seen) == count)
        assert set(seen) == {count}
        await until(lambda: not picture.busy and picture.revision == count)
        tasks.cancel()


async def test_whoever_raises_ends_alone_and_whoever_looks_at_a_lost_picture_starts_over() -> None:
    plane = HandPlane()
    async with Tasks() as tasks:
        picture = await opened(plane, tasks, "nodes")
        good, bad = Looker(picture, "nodes"), PictureFeed(picture)

        def fails(old: Item | None, new: Item | None, by_resync: bool) -> bool:
            raise ZeroDivisionError

        picture.join(bad, ("nodes",), fails)
        plane.feeds[0].put(Row("nodes", "n", 7, "x"))
        await until(lambda: bool(good.told))
        with pytest.raises(ZeroDivisionError):
            bad.take_nowait()
        assert good.feed.take_nowait() == ()
        plane.feeds[0].error = Expired("fell behind", 0)
        plane.feeds[0].poke()
        async with asyncio.timeout(WAIT_S):
            await good.feed.wait()
        with pytest.raises(Expired):
            good.feed.take_nowait()
        with pytest.raises(Expired):
            _ = good.feed.revision
        with pytest.raises(Expired):
            Looker(picture, "nodes")
        assert plane.feeds[0].closed
        plane.listed["nodes"] = [Row("nodes", "m", 9, "y")]
        await picture.open()
        assert list(picture.objects.kind("nodes")) == [("", "m")], "what was known before is forgotten"
        plane.feeds[1].put(Row("nodes", "o", 10, "z"))
        late = Looker(picture, "nodes")
        await until(lambda: late.told == [(None, "z")])
        tasks.cancel()


class Asked:
    name = "node"
    named = ("nodes",)
    follows = ("nodes", "bindings")
    follows_other: tuple[str, ...] = ()
    indexes: Indexes = {}
    indexes_other: Indexes = {}
    hears = False

    def __init__(self) -> None:
        self.versions: list[Any] = []

    def keys(self, view: View, item: Item, other: bool) -> Iterable[Name]:
        self.versions.append(item.hot)
        return (item.key,)

    def resync(self, view: View) -> Iterable[Name]:
        return ()

    def reconcile(self, key: Name, view: View, now_ms: int) -> Result:
        return Result()


async def test_a_plane_that_goes_on_with_another_history_while_it_is_listed_is_listed_again() -> None:
    """The feed is of the history before. Whoever looked would take what a restored plane says for something of that one."""

    class Restored(HandPlane):
        async def list(self, plural: str) -> list[Row]:
            self.at = revision(2, 90)
            return await super().list(plural)

        def follow(self, plurals: Any, after: int) -> HandFeed:
            feed = super().follow(plurals, after)
            feed.revision = after
            return feed

    plane = Restored()
    plane.at = revision(1, 100)
    picture = Picture(plane, SystemClock())  # type: ignore[arg-type]
    picture.include(["nodes"])
    with pytest.raises(Expired, match="new incarnation"):
        await picture.open()
    assert plane.feeds[0].closed
    await picture.open()
    assert picture.revision == revision(2, 90)


async def test_of_a_kind_whose_names_tell_the_keys_one_version_is_asked_for_and_of_others_both() -> None:
    plane, asked = HandPlane(), Asked()
    async with Tasks() as tasks:
        picture = await opened(plane, tasks, "nodes", "bindings")
        runtime = Runtime(asked, plane, SystemClock(), random.Random(1), picture=picture)  # type: ignore[arg-type]
        picture.join(PictureFeed(picture), asked.follows, runtime._told)
        plane.feeds[0].put(Row("nodes", "n", 1, "a"), Row("bindings", "b", 2, "c"))
        await until(lambda: len(asked.versions) == 2)
        plane.feeds[0].put(Row("nodes", "n", 3, "b"), Row("bindings", "b", 4, "d"), Row("nodes", "n", 5, None))
        await until(lambda: len(asked.versions) == 6)
        assert asked.versions == ["a", "c", "b", "c", "d", "b"]
        assert len(runtime.queue) == 2
        tasks.cancel()


async def test_a_change_nobody_told_is_found_by_one_list_for_all() -> None:
    plane = HandPlane()
    async with Tasks() as tasks:
        plane.listed["nodes"] = [Row("nodes", "gone", 3, "x")]
        picture = await opened(plane, tasks, "nodes")
        one, two = Looker(picture, "nodes"), Looker(picture, "nodes")
        plane.listed["nodes"] = [Row("nodes", "new", 5, "y")]
        before = plane.lists
        await picture.list_again(3600.0)
        assert plane.lists == before, "it was listed a moment ago"
        await picture.list_again(0.0)
        assert one.told == two.told == [(None, "y"), ("x", None)]
        assert plane.lists == before + 1
        tasks.cancel()


def test_a_cache_shows_only_the_kinds_its_controller_follows_and_its_own_indexes() -> None:
    objects = Objects()
    objects.apply(Row("nodes", "n", 1, "zone-a"))
    objects.apply(Row("grants", "g", 2, "x"))
    first = Cache({"nodes": {"zone": lambda item: item.hot}}, objects, ("nodes",))
    other = Cache({"grants": {"zone": lambda item: item.name}}, objects, ("grants",))
    assert first.item("grants", "", "g") is None
    assert [item.name for item in first.by("nodes", "zone", "zone-a")] == ["n"], "indexes hold what was there before"
    assert [item.name for item in other.by("grants", "zone", "g")] == ["g"]
    objects.apply(Row("nodes", "n", 3, "zone-b"))
    assert (first.any("nodes", "zone", "zone-a"), first.any("nodes", "zone", "zone-b")) == (False, True)
