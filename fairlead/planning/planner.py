"""Answers what a change would do: reads the planes, tries the change on the copies, says what became different.

Owns the reading and the patience: everything runs in slices between which the loop is given back, one trial at a time. Never
writes to a plane. Made by the composition root for the front door; called by fairlead/api/planning.py.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Final

from fairlead.client.planning import Busy, PlanBase, Planned, PlanRefused, Readable, Step, TooLarge, Unblocked
from fairlead.client.resources import Unreachable
from fairlead.decide.plugins import BUILT_INS, Registry
from fairlead.model.registry import GLOBAL, KINDS, REGION
from fairlead.planning.copied import LEFT_OUT, Copy
from fairlead.planning.looking import GROUND, Look, marks_of
from fairlead.planning.steady import Steady
from fairlead.planning.telling import Telling
from fairlead.planning.trial import Roster, Trial
from fairlead.planning.unblocking import Unblocking
from fairlead.ports import Clock

SLICE_S: Final = 0.005  # of trying, before the loop is given back (P17)
REST_S: Final = 0.005  # for everybody else, after each slice: a plan takes half the loop at most
PAGE: Final = 200  # decoded before the loop is given back
WAITING_MAX: Final = 4  # plans that wait for their turn
OBJECTS_MAX: Final = 200_000  # of all planes together; a larger platform is planned region by region


class TrialPlanner:
    def __init__(self, roster: Roster, clock: Clock, plugins: Registry = BUILT_INS) -> None:
        """`plugins`: what the policies of the planes may name, as this server has it."""
        self._roster = roster
        self._plugins = plugins
        self._clock = clock
        self._turn = asyncio.Lock()  # each trial holds a copy of everything: one at a time
        self._waiting = 0

    @contextlib.asynccontextmanager
    async def _in_turn(self) -> AsyncIterator[None]:
        if self._waiting >= WAITING_MAX:
            raise Busy(f"{self._waiting} plans wait already")
        self._waiting += 1
        try:
            await self._turn.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._turn.release()

    async def plan(self, planes: Mapping[str, Readable], steps: Sequence[Step]) -> tuple[Planned | PlanRefused, PlanBase]:
        async with self._in_turn():
            copies, unreachable = await self._copied(planes)
            base = await self._base_of(copies)
            trial = Trial(copies, self._roster, self._clock, Steady())
            await self._patiently(trial.open())
            await self._patiently(trial.settle())  # what would happen anyway happens first, so that the rest is the change's
            before, after = Look(), Look()
            await self._patiently(before.take(trial))
            refused = trial.apply(steps)
            if refused is not None:
                return refused, base
            await self._patiently(trial.settle())
            await self._patiently(after.take(trial))
            telling = Telling(before, after, trial, unreachable)
            await self._patiently(telling.tell())
            return telling.planned, base

    async def base(self, planes: Mapping[str, Readable]) -> PlanBase:
        async with self._in_turn():
            copies, _ = await self._copied(planes, only=GROUND)
            return await self._base_of(copies)

    async def unblock(
        self, plane: Readable, region: str, tenant: str, slot: str, limit: int, hidden: frozenset[str] = frozenset()
    ) -> list[Unblocked]:
        async with self._in_turn():
            copies, unreachable = await self._copied({region: plane})
            if unreachable:
                raise Unreachable(region)
            trying = Unblocking(copies[region], self._clock, Steady(), tenant, slot, hidden)
            await self._patiently(trying.tries(limit))
            return trying.found

    # --- reading -----------------------------------------------------------------------------------------------------------

    async def _copied(
        self, planes: Mapping[str, Readable], only: Sequence[str] | None = None
    ) -> tuple[dict[str, Copy], list[str]]:
        copies: dict[str, Copy] = {}
        unreachable: list[str] = []
        count = 0
        for name, plane in planes.items():
            try:
                if not plane.connected:
                    raise Unreachable(name)
                copy = Copy(name, plane.revision(), plane.plane_ms(), self._plugins)
                count += await self._read(plane, copy, only, OBJECTS_MAX - count)
            except Unreachable:
                unreachable.append(name)
                continue
            copies[name] = copy
        if not copies:  # of nothing there is neither a time nor anything to try
            raise Unreachable(", ".join(unreachable) or "every plane")
        return copies, unreachable

    async def _read(self, plane: Readable, copy: Copy, only: Sequence[str] | None, room: int) -> int:
        """All kinds at one revision: a copy must not show a slot twice, or not at all, because it moved meanwhile."""
        side = GLOBAL if copy.is_global else REGION
        count, revision = 0, 0
        wanted = [p for p, info in KINDS.items() if side in info.planes and p not in LEFT_OUT and (only is None or p in only)]
        for plural in wanted:
            after = ("", "")
            while True:
                page = await plane.page(plural, None, after=after, limit=PAGE, revision=revision)
                revision = revision or page.revision
                copy.take(page.items)
                count += len(page.items)
                if count > room:
                    raise TooLarge(f"there are more than {OBJECTS_MAX} objects")
                await self._clock.sleep(0)
                if not page.next_name:
                    break
                after = (page.next_tenant, page.next_name)
        copy.revision_read = revision
        copy.ready()
        return count

    async def _base_of(self, copies: Mapping[str, Copy]) -> PlanBase:
        marks: dict[str, dict[str, dict[str, str]]] = {}
        for name, copy in copies.items():
            rows = marks[name] = {}

            def gather(copy: Copy = copy, rows: dict[str, dict[str, str]] = rows) -> Iterator[None]:
                for plural, key, mark in marks_of(copy):
                    rows.setdefault(plural, {})[key] = mark
                    yield

            await self._patiently(gather())
        return PlanBase({name: copy.revision_read for name, copy in copies.items()}, marks)

    # --- patience ----------------------------------------------------------------------------------------------------------

    async def _patiently(self, work: Iterator[Any]) -> None:
        until = self._clock.monotonic() + SLICE_S
        for _ in work:
            if self._clock.monotonic() > until:
                await self._clock.sleep(REST_S)
                until = self._clock.monotonic() + SLICE_S
