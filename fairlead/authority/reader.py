"""Reads at a revision: get, list in pages, slices of a long list. Nothing is copied; a view is a position and the state.

A view sees the durable head unless it was opened at an earlier revision (P3). Called by the API, controllers and schedulers.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import msgspec

from fairlead.authority.hub import Expired
from fairlead.authority.state import Rec, State, at
from fairlead.model.ids import revision, split_revision
from fairlead.ports import Clock

PAGE_MAX = 5000
_SLICE = 2000  # names looked at between two yields to the loop; about two milliseconds


class Page(msgspec.Struct, frozen=True):
    items: list[Rec]
    revision: int
    next_tenant: str = ""
    next_name: str = ""  # continue after this one; empty: the list is complete


class View:
    def __init__(self, state: State, position: int, incarnation: int, clock: Clock) -> None:
        self._state = state
        self._position = position
        self._incarnation = incarnation
        self._clock = clock

    @property
    def revision(self) -> int:
        return revision(self._incarnation, self._position)

    def get(self, plural: str, tenant: str, name: str) -> Rec | None:
        self._check()
        bucket = self._state.known(plural, tenant)
        return at(bucket.members.get(name), self._position) if bucket is not None else None

    async def page(
        self,
        plural: str,
        tenant: str | None = None,
        *,
        after: tuple[str, str] = ("", ""),
        limit: int = PAGE_MAX,
        accepts: Callable[[Rec], bool] | None = None,
    ) -> Page:
        """Up to `limit` objects in order of tenant and name, as they stood at this view's revision."""
        items: list[Rec] = []
        tenants = [tenant] if tenant is not None else [t for t in self._state.tenants_of(plural) if t >= after[0]]
        for current in tenants:
            start = after[1] if current == after[0] else ""
            full = await self._collect(plural, current, start, limit, accepts, items)
            if full:
                last = items[-1]
                return Page(items, self.revision, last.tenant, last.name)
        return Page(items, self.revision)

    async def _collect(
        self, plural: str, tenant: str, start: str, limit: int, accepts: Callable[[Rec], bool] | None, items: list[Rec]
    ) -> bool:
        """Appends matches of one bucket; true when the page is full."""
        bucket = self._state.known(plural, tenant)
        if bucket is None:
            return False
        while not bucket.names.settle(bucket.members):
            await self._clock.sleep(0)
        while True:
            self._check()
            names = list(islice(bucket.names.after(start), _SLICE))
            for name in names:
                rec = at(bucket.members.get(name), self._position)
                if rec is not None and (accepts is None or accepts(rec)):
                    items.append(rec)
                    if len(items) >= limit:
                        return True
            if len(names) < _SLICE:
                return False
            start = names[-1]
            await self._clock.sleep(0)
            while not bucket.names.settle(bucket.members):
                await self._clock.sleep(0)

    def _check(self) -> None:
        if self._position < self._state.horizon:
            raise Expired(f"revision {self.revision} is no longer in memory", self._state.horizon)


def open_view(state: State, incarnation: int, clock: Clock, wanted: int = 0) -> View:
    """A view at the durable head, or at an earlier revision of this incarnation that memory still reaches."""
    if not wanted:
        return View(state, state.durable, incarnation, clock)
    asked_incarnation, position = split_revision(wanted)
    if asked_incarnation != incarnation:
        raise Expired(f"revision {wanted} is of incarnation {asked_incarnation}; this is {incarnation}", state.horizon)
    if position > state.durable:
        raise Expired(f"revision {wanted} lies ahead of the durable head", state.horizon)
    view = View(state, position, incarnation, clock)
    view._check()
    return view
