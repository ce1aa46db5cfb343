"""Planes and pictures for the tests of this folder: a region whose endpoints a test writes, and which it can cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from fairlead.client.plane import Expired
from fairlead.model.kinds.work import Endpoint, Endpoints, EndpointsSpec
from fairlead.model.meta import Metadata
from fairlead.serving.directory import Member, Picture, Source
from fairlead.sim.loop import SimLoop


class Row:
    def __init__(self, tenant: str, name: str, position: int, hot: Endpoints | None) -> None:
        self.plural = "endpoints"
        self.tenant, self.name, self.position, self.hot = tenant, name, position, hot
        self.raw = None if hot is None else b"stored"


def endpoints(tenant: str, workload: str, version: int, slots: Iterable[int], address: str = "10.0.0.1") -> Endpoints:
    found = tuple(Endpoint(slot=s, node=f"n{s}", address=address, ports={"http": 8000 + s}) for s in slots)
    return Endpoints(metadata=Metadata(name=workload, namespace=tenant), spec=EndpointsSpec(version=version, endpoints=found))


class SimClock:
    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def monotonic(self) -> float:
        return self._loop.time()

    def wall(self) -> float:
        return 1_700_000_000.0 + self._loop.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class FakeFeed:
    def __init__(self, plane: FakePlane, after: int) -> None:
        self._plane = plane
        self._signal = asyncio.Event()
        self._rows = [row for row in plane.history if row.position > after]
        self._ended = False
        self.revision = after

    def tell(self, row: Row) -> None:
        self._rows.append(row)
        self._signal.set()

    def end(self) -> None:
        self._ended = True
        self._signal.set()

    def take_nowait(self) -> Sequence[Row]:
        self._signal.clear()
        if self._ended and not self._rows:
            raise Expired("list again", 0)
        rows, self._rows = self._rows, []
        return self._plane.readable(rows)

    async def wait(self) -> None:
        await self._signal.wait()

    def poke(self) -> None:
        self._signal.set()

    def close(self) -> None:
        self._plane.feeds.remove(self)


class FakePlane:
    """Cut off in two ways: `break_()` ends feeds as a broken connection does; `silent` answers nothing at all.
    And `unreadable`: what it says is of a form that is not known here."""

    vouches = True

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], Row] = {}
        self.history: list[Row] = []
        self.feeds: list[FakeFeed] = []
        self.down = self.silent = self.unreadable = False
        self.lists_total = 0
        self._position = 0

    def put(self, value: Endpoints, *, quietly: bool = False) -> None:
        self._change(value.metadata.namespace, value.metadata.name, value, quietly)

    def delete(self, tenant: str, name: str, *, quietly: bool = False) -> None:
        self._change(tenant, name, None, quietly)

    def _change(self, tenant: str, name: str, value: Endpoints | None, quietly: bool) -> None:
        self._position += 1
        row = Row(tenant, name, self._position, value)
        self.history.append(row)
        if value is None:
            self.kept.pop((tenant, name), None)
        else:
            self.kept[tenant, name] = row
        for feed in self.feeds if not quietly else ():
            feed.tell(row)

    def break_(self) -> None:
        self.down = True
        self.expire()

    def expire(self) -> None:
        for feed in self.feeds:
            feed.end()

    async def _reach(self) -> None:
        if self.silent:
            await asyncio.Event().wait()
        if self.down:
            raise Expired("no connection", 0)

    async def list(self, plural: str) -> Sequence[Row]:
        assert plural == "endpoints"
        await self._reach()
        self.lists_total += 1
        return self.readable([*self.kept.values()])

    def readable(self, rows: Sequence[Row]) -> Sequence[Row]:
        """As decoding does it, where these come from afar."""
        if self.unreadable and rows:
            raise msgspec.ValidationError("Expected `object`, got `int` - at `$.spec`")
        return rows

    def follow(self, plurals: Sequence[str], after: int, *, nodes: Sequence[str] = ()) -> FakeFeed:
        feed = FakeFeed(self, after)
        self.feeds.append(feed)
        return feed

    async def get(self, plural: str, tenant: str, name: str, revision: int = 0) -> Row | None:
        await self._reach()
        return self.kept.get((tenant, name))

    def revision(self) -> int:
        return self._position

    async def submit(self, commands: Any) -> Any:
        raise AssertionError("a directory writes nothing")

    async def time_at(self, revision: int) -> int:
        raise AssertionError("a directory asks for the present")

    def plane_ms(self) -> int:
        return 0

    async def heard(self, since_ms: int) -> Iterable[tuple[str, int]]:
        return ()


def member(region: str, slot: int, address: str = "10.0.0.1", **ports: int) -> Member:
    return Member(region, slot, f"{region}-n{slot}", address, tuple((ports or {"http": 8000 + slot}).items()))


def picture(*members: Member, regions: dict[str, float | None] | None = None, name: tuple[str, str] = ("risk", "api")) -> Picture:
    """`regions`: the age of each; those of the members are fresh if nothing is said."""
    ages = {m.region: 0.0 for m in members} | (regions or {})
    sources = tuple(
        Source(region, "Unknown" if age is None else "Stale" if age else "Current", age, 1)
        for region, age in sorted(ages.items())
    )
    return Picture(*name, len(sources), sources, members)


class Pictures:
    """A directory that holds still."""

    def __init__(self, *pictures_: Picture) -> None:
        self.pictures = {(p.tenant, p.workload): p for p in pictures_}

    def picture(self, tenant: str, workload: str) -> Picture | None:
        return self.pictures.get((tenant, workload))

    def knows_tenant(self, tenant: str) -> bool:
        return any(known == tenant for known, _ in self.pictures)
