"""Follows the Endpoints of every region's plane and merges them into one picture per workload.

Owns what is known of each region and since when. A region that cannot be reached keeps its last known endpoints, shown with
their age: its processes may well go on serving. Never writes to a plane and never asks an endpoint. Read by dns.py, feed.py and
the API.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from fairlead.client.channel import Closed
from fairlead.client.plane import Change, Expired, Plane
from fairlead.model.kinds.work import Endpoints
from fairlead.ports import Clock, Random, Tasks

log = logging.getLogger(__name__)

Name = tuple[str, str]  # tenant, workload
State = Literal["Current", "Stale", "Unknown"]

CONFIRM_S: Final = 2.0  # how often a region in which nothing changes is asked whether it is there
ANSWER_S: Final = 2.0  # and how long its answer may take
LIST_S: Final = 10.0
STALE_S: Final = 6.0  # a confirmation, its time limit and one attempt to list again: a blip is no news
RELIST_S: Final = (0.05, 0.2, 0.5, 1.0, 2.0)  # before listing again, with jitter; the last one repeats
UNREADABLE_S: Final = 30.0  # and where what was listed could not be read: asking at once again only moves it once more


class Member(msgspec.Struct, frozen=True, gc=False):
    """One endpoint of a workload, with the region that names it."""

    region: str
    slot: int
    node: str
    address: str
    ports: tuple[tuple[str, int], ...] = ()

    def port(self, name: str) -> int | None:
        """By name; without one, the first."""
        if not name:
            return self.ports[0][1] if self.ports else None
        return next((number for known, number in self.ports if known == name), None)


class Source(msgspec.Struct, frozen=True, gc=False):
    """What one region's word on a workload is worth. `age_s` None: it was never heard."""

    region: str
    state: State
    age_s: float | None = None
    version: int = 0  # of its Endpoints; 0: it names none


class Picture(msgspec.Struct, frozen=True, gc=False):
    tenant: str
    workload: str
    version: int  # the sum of the regions' own, each of which grows with every change there
    sources: tuple[Source, ...] = ()
    members: tuple[Member, ...] = ()  # by region and slot

    def source(self, region: str) -> Source | None:
        return next((source for source in self.sources if source.region == region), None)


class Table(msgspec.Struct):
    """What is known of one region."""

    region: str
    heard_s: float | None = None  # when it last confirmed, on our own clock
    endpoints: dict[Name, Endpoints] = {}
    positions: dict[Name, int] = {}

    def age_s(self, now_s: float) -> float | None:
        """0 for as long as a silence is no news."""
        if self.heard_s is None:
            return None
        age_s = now_s - self.heard_s
        return age_s if age_s > STALE_S else 0.0

    def state(self, now_s: float) -> State:
        match self.age_s(now_s):
            case None:
                return "Unknown"
            case 0.0:
                return "Current"
            case _:
                return "Stale"


def members_of(region: str, endpoints: Endpoints) -> list[Member]:
    return [Member(region, e.slot, e.node, e.address, tuple(e.ports.items())) for e in endpoints.spec.endpoints]


def merge(tables: Iterable[Table], name: Name, now_s: float) -> Picture | None:
    """All regions on one workload; None where no region knows it. The order of the tables does not matter."""
    ordered = sorted(tables, key=lambda table: table.region)
    if not any(name in table.endpoints for table in ordered):
        return None
    sources: list[Source] = []
    members: list[Member] = []
    for table in ordered:
        found = table.endpoints.get(name)
        version = found.spec.version if found is not None else 0
        sources.append(Source(table.region, table.state(now_s), table.age_s(now_s), version))
        if found is not None:
            members += sorted(members_of(table.region, found), key=lambda member: member.slot)
    return Picture(*name, sum(source.version for source in sources), tuple(sources), tuple(members))


def merge_all(tables: Sequence[Table], now_s: float) -> dict[Name, Picture]:
    names = sorted({name for table in tables for name in table.endpoints})
    return {name: picture for name in names if (picture := merge(tables, name, now_s)) is not None}


def relist(table: Table, rows: Iterable[Change]) -> set[Name]:
    """Takes a whole list in place of what was known; the workloads that look different now."""
    before, table.endpoints, table.positions = table.endpoints, {}, {}
    for row in rows:
        if row.raw is not None and isinstance(row.hot, Endpoints):
            table.endpoints[row.tenant, row.name] = row.hot
            table.positions[row.tenant, row.name] = row.position
    names = before.keys() | table.endpoints.keys()
    return {name for name in names if _spec(before, name) != _spec(table.endpoints, name)}


def apply(table: Table, change: Change) -> Name | None:
    """One change of a feed; the workload, where it looks different now. What the list already held is passed over."""
    name = change.tenant, change.name
    if change.position <= table.positions.get(name, -1):
        return None
    before = _spec(table.endpoints, name)
    table.positions[name] = change.position
    if change.raw is None:
        table.endpoints.pop(name, None)
        del table.positions[name]
    elif isinstance(change.hot, Endpoints):
        table.endpoints[name] = change.hot
    return name if _spec(table.endpoints, name) != before else None


def _spec(endpoints: Mapping[Name, Endpoints], name: Name) -> object:
    found = endpoints.get(name)
    return None if found is None else found.spec


class Listener:
    """Names of workloads that changed since they were last taken, each once."""

    def __init__(self) -> None:
        self._names: dict[Name, None] = {}
        self._signal = asyncio.Event()

    def tell(self, names: Iterable[Name]) -> None:
        self._names.update(dict.fromkeys(names))
        if self._names:
            self._signal.set()

    def take_nowait(self) -> list[Name]:
        self._signal.clear()
        taken, self._names = list(self._names), {}
        return taken

    async def wait(self) -> None:
        await self._signal.wait()


class Directory:
    def __init__(self, planes: Mapping[str, Plane], clock: Clock, random: Random) -> None:
        self._planes = dict(planes)
        self._clock = clock
        self._random = random
        self._tables = {region: Table(region) for region in sorted(planes)}
        self._listeners: list[Listener] = []
        self._kept: dict[Name, tuple[int, Picture]] = {}  # with the second they were made in
        self._workloads: dict[str, dict[str, int]] = {}  # tenant -> workload -> how many regions know it
        self._unreadable: set[str] = set()  # regions of which it was said that their endpoints cannot be read

    # --- reading ---------------------------------------------------------------------------------------------------------

    def picture(self, tenant: str, workload: str) -> Picture | None:
        if workload not in self._workloads.get(tenant, ()):
            return None
        name, now_s = (tenant, workload), self._clock.monotonic()
        kept = self._kept.get(name)
        if kept is not None and kept[0] == int(now_s):  # ages are told by the second
            return kept[1]
        made = merge(self._tables.values(), name, now_s)
        assert made is not None, "a workload that is counted is known to some region"
        self._kept[name] = int(now_s), made
        return made

    def pictures(self) -> dict[Name, Picture]:
        return merge_all(list(self._tables.values()), self._clock.monotonic())

    def regions(self) -> tuple[Source, ...]:
        """How well each region is known, in order of name."""
        now_s = self._clock.monotonic()
        return tuple(Source(t.region, t.state(now_s), t.age_s(now_s)) for t in self._tables.values())

    def knows_tenant(self, tenant: str) -> bool:
        return tenant in self._workloads

    def listen(self) -> Listener:
        """Told of every workload there is, then of every one that changes."""
        listener = Listener()
        listener.tell(name for table in self._tables.values() for name in table.endpoints)
        self._listeners.append(listener)
        return listener

    # --- following -------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Follows every region, each on its own, for as long as its owner lets it run."""
        async with Tasks() as tasks:
            for region in self._planes:
                tasks.start(self._keep_following(region), f"endpoints of {region}")

    async def _keep_following(self, region: str) -> None:
        tries = 0
        while True:
            listed = self._tables[region].heard_s
            try:
                await self._follow(self._planes[region], self._tables[region])
            except (Expired, Closed, OSError, TimeoutError) as error:
                log.debug("the endpoints of %s are listed again: %s", region, error or type(error).__name__)
            except (msgspec.MsgspecError, ValueError) as error:
                self._tell_unreadable(region, error)
            tries = 0 if self._tables[region].heard_s != listed else tries + 1
            pauses_s = (*RELIST_S, UNREADABLE_S) if region in self._unreadable else RELIST_S
            await self._clock.sleep(pauses_s[min(tries, len(pauses_s) - 1)] * (0.5 + self._random.random()))

    def _tell_unreadable(self, region: str, error: Exception) -> None:
        """Once for as long as it lasts. A region that speaks of what is not known here is silent to us, and to nobody else."""
        if region not in self._unreadable:
            log.error("the endpoints of %s cannot be read, and its last known ones are kept: %s", region, error)
        self._unreadable.add(region)

    async def _follow(self, plane: Plane, table: Table) -> None:
        """One list and what follows it. Ends by Expired, or by TimeoutError where a plane says nothing at all."""
        await self._confirm(plane)  # waits for a connection, so that the revision below is the plane's own
        feed = plane.follow(("endpoints",), plane.revision())
        try:
            async with asyncio.timeout(LIST_S):
                rows = await plane.list("endpoints")
            self._changed(relist(table, rows))
            while True:
                changes = feed.take_nowait()
                table.heard_s = self._clock.monotonic()
                self._unreadable.discard(table.region)
                self._changed({name for change in changes if (name := apply(table, change)) is not None})
                try:
                    async with asyncio.timeout(CONFIRM_S * (0.75 + self._random.random() / 2)):
                        await feed.wait()
                except TimeoutError:
                    await self._confirm(plane)
        finally:
            feed.close()

    async def _confirm(self, plane: Plane) -> None:
        async with asyncio.timeout(ANSWER_S):
            await plane.get("endpoints", "", "none")

    def _changed(self, names: set[Name]) -> None:
        if not names:
            return
        for name in sorted(names):
            self._kept.pop(name, None)
            self._count(name)
        for listener in self._listeners:
            listener.tell(sorted(names))

    def _count(self, name: Name) -> None:
        tenant, workload = name
        count = sum(name in table.endpoints for table in self._tables.values())
        if count:
            self._workloads.setdefault(tenant, {})[workload] = count
            return
        known = self._workloads.get(tenant, {})
        known.pop(workload, None)
        if not known:
            self._workloads.pop(tenant, None)
