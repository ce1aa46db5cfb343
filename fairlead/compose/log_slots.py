"""Which slot of a workload is to be read, and on which plane it lies: all regions are asked at once, and none is waited for long.

Owns the search and what is said when it finds nothing. A region that does not answer is named: it may have what the others have
not. Reads no output: that is logs.py, which calls it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from fairlead.api.failures import Failure, busy
from fairlead.client.decisions import DecisionQuery, ExplainedPage
from fairlead.client.plane import Change, Expired, Overloaded
from fairlead.client.resources import ChangePage, Unreachable
from fairlead.model.lifecycle import SlotState
from fairlead.ports import Tasks

PATIENCE_S: Final = 3.0  # as the front door has it with each of its planes
RETRY_S: Final = 2.0
SLOTS_SHOWN: Final = 20
PAGE: Final = 1_000
PAGES_MAX: Final = 5  # of slots of one workload on one plane
_LIVE: Final = frozenset({"Starting", "Ready", "Serving", "Draining", "Failed", "Succeeded"})

T = TypeVar("T")


class LogSource(Protocol):
    """A plane that can be asked for bindings, for what their processes wrote, and for where those were that are gone."""

    @property
    def connected(self) -> bool: ...

    async def get(self, plural: str, tenant: str, name: str, revision: int = 0) -> Change | None: ...

    async def page(
        self, plural: str, tenant: str | None = None, *, after: tuple[str, str] = ("", ""), limit: int = 500, revision: int = 0
    ) -> ChangePage: ...

    async def logs(self, tenant: str, name: str, stream: str, offset: int, limit: int) -> tuple[int, bytes, int]: ...

    async def decisions(self, query: DecisionQuery) -> ExplainedPage: ...


class Found(NamedTuple):
    region: str
    source: LogSource
    name: str  # of the slot


class Search:
    """One search. Regions that did not answer are not asked again in it."""

    def __init__(self, sources: Mapping[str, LogSource], region: str, tenant: str, workload: str, slot: int | None) -> None:
        if region and region not in sources:
            raise Failure(400, f"region: there is no region {region[:60]!r} behind this server; there are: {', '.join(sources)}")
        self.tenant = tenant
        self._sources = {region: sources[region]} if region else sources
        self._workload = workload
        self._slot = slot
        self._away: list[str] = []

    async def found(self) -> Found:
        """The slot asked for, else the lowest one that runs; where no binding tells of one any more, the decisions do. Raises
        404, and 503 where a region that did not answer may have it."""
        found = await self._bound() or await self._ended()
        if found is None:
            self.refuse_if_away()
            raise Failure(404, await self._no_such())
        return found

    def refuse_if_away(self) -> None:
        if self._away:
            raise self.cut_off(self._away)

    def cut_off(self, regions: list[str]) -> Failure:
        names, what = ", ".join(regions), f"slot {self._slot}" if self._slot is not None else "slots"
        message = (
            f"{names} cannot be reached, and may have {what} of {self.tenant}/{self._workload}; what was written there "
            f"is kept there: ask again when {names} is back (`fairlead get regions`), or ask a server of that region itself"
        )
        cause = {"reason": "RegionUnreachable", "message": names, "field": ""}
        return Failure(503, message, causes=[cause], retry_after_s=RETRY_S)

    def warnings(self) -> list[str]:
        return [f"{region} is unreachable; what runs there was not looked at" for region in self._away]

    async def _bound(self) -> Found | None:
        if self._slot is not None:
            name = f"{self._workload}-{self._slot}"
            there = await self._of_all(lambda source: source.get("bindings", self.tenant, name))
            return next((Found(*self._at(region), name) for region, change in there.items() if change is not None), None)
        lowest = await self._of_all(lambda source: _lowest(source, self.tenant, self._workload))
        best = min(((slot, region) for region, slot in lowest.items() if slot is not None), default=None)
        return None if best is None else Found(*self._at(best[1]), f"{self._workload}-{best[0]}")

    async def _ended(self) -> Found | None:
        """The slot asked for, else the one that was placed last."""
        name = f"{self._workload}-{self._slot}" if self._slot is not None else ""
        query = DecisionQuery(tenant=self.tenant, workload=self._workload, slot=name, outcome=SlotState.BOUND.value, limit=1)
        pages = await self._of_all(lambda source: source.decisions(query))
        placed = [(page.items[0], region) for region, page in pages.items() if page.items]
        last, region = max(placed, key=lambda one: one[0].decided.time_ms, default=(None, ""))
        return None if last is None else Found(*self._at(region), last.attempt.name)

    async def _no_such(self) -> str:
        why = f"see `fairlead why wl/{self._workload} -n {self.tenant}`"
        if self._slot is None:
            return f"no slot of {self.tenant}/{self._workload} runs or ran anywhere; {why}"
        there: set[int] = set()
        for slots in (await self._of_all(lambda source: _slots(source, self.tenant, self._workload))).values():
            there |= slots.keys()
        self.refuse_if_away()
        shown = ", ".join(map(str, sorted(there)[:SLOTS_SHOWN])) + (", ..." if len(there) > SLOTS_SHOWN else "")
        known = f"its slots are {shown}" if there else f"nor is any other; {why}"
        return f"slot {self._slot} of {self.tenant}/{self._workload} is not bound anywhere; {known}"

    def _at(self, region: str) -> tuple[str, LogSource]:
        return region, self._sources[region]

    async def _of_all(self, question: Callable[[LogSource], Coroutine[Any, Any, T]]) -> dict[str, T]:
        """What each region that answers says; the others are noted. Raises 429 where one has too much to do."""
        async with Tasks() as tasks:
            asked = {
                region: tasks.start(_answer(source, question), region)
                for region, source in self._sources.items()
                if region not in self._away
            }
        answers: dict[str, T] = {}
        for region, task in asked.items():
            match task.result():
                case Overloaded() as error:
                    raise busy(region, error.retry_after_s)
                case Unreachable():
                    self._away.append(region)
                case _Told(answer):
                    answers[region] = answer
        return answers


class _Told(NamedTuple):
    answer: Any


async def _answer(
    source: LogSource, question: Callable[[LogSource], Coroutine[Any, Any, T]]
) -> _Told | Overloaded | Unreachable:  # fmt: skip
    if not source.connected:
        return Unreachable("there is no connection")
    try:
        async with asyncio.timeout(PATIENCE_S):
            return _Told(await question(source))
    except Overloaded as error:
        return error
    except (Expired, TimeoutError, Unreachable) as error:
        return Unreachable(str(error))


async def _lowest(source: LogSource, tenant: str, workload: str) -> int | None:
    slots = await _slots(source, tenant, workload)
    return min((index for index, slot in slots.items() if slot.hot is not None and slot.hot.state.value in _LIVE), default=None)


async def _slots(source: LogSource, tenant: str, workload: str) -> dict[int, Change]:
    """By index. Names are WORKLOAD-INDEX, so a workload's slots lie together."""
    prefix = f"{workload}-"
    after, found = (tenant, prefix), dict[int, Change]()
    for _ in range(PAGES_MAX):
        page = await source.page("bindings", tenant, after=after, limit=PAGE)
        for change in page.items:
            if not change.name.startswith(prefix):
                return found
            index = change.name.removeprefix(prefix)
            if index.isdecimal():
                found[int(index)] = change
        if not page.next_name:
            break
        after = (page.next_tenant, page.next_name)
    return found
