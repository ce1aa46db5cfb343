"""Reads at an earlier revision or time: from memory as far back as it goes, else from the archive.

Owns which of the two is asked. Everything raises Expired for what is no longer kept, and says how far back history reaches. Asked
by the client interface (local.py) and by the component channel.
"""

from __future__ import annotations

from collections.abc import Callable

from fairlead.authority.history import History
from fairlead.authority.hub import Expired
from fairlead.authority.reader import View
from fairlead.authority.state import ADDED, Rec
from fairlead.model.ids import key, split_key, split_revision
from fairlead.model.ids import revision as revision_of


class Past:
    def __init__(
        self, view: Callable[[int], View], history: History | None, landed_ms: Callable[[int], int], plane_ms: Callable[[], int]
    ) -> None:
        """`landed_ms`: when a position became durable, 0 where that is not remembered."""
        self._view = view
        self._history = history
        self._landed_ms = landed_ms
        self._plane_ms = plane_ms

    async def get(self, plural: str, tenant: str, name: str, revision: int) -> Rec | None:
        """One object at any earlier revision within retention; 0: now."""
        try:
            return self._view(revision).get(plural, tenant, name)
        except Expired:
            if self._history is None:
                raise
            found = await self._history.get(key(plural, tenant, name), revision)
            return None if found is None else Rec(plural, tenant, name, found[0], found[1], None, None, ADDED)

    async def list(self, plural: str, tenant: str | None, revision: int) -> list[Rec]:
        """The objects of one kind at any earlier revision within retention; from the archive it takes seconds."""
        try:
            view, after, out = self._view(revision), ("", ""), list[Rec]()
            while True:
                page = await view.page(plural, tenant, after=after)
                out += page.items
                if not page.next_name:
                    return out
                after = (page.next_tenant, page.next_name)
        except Expired:
            if self._history is None:
                raise
            rows = await self._history.state_at(revision, plural, tenant)
            return [Rec(*split_key(name), position, raw, None, None, ADDED) for name, position, raw in rows]

    async def revision_at(self, time_ms: int) -> int:
        """The newest revision at or before that plane time."""
        if self._history is None:
            raise Expired("this server keeps no history", 0)
        point = await self._history.point_at(time_ms)
        return revision_of(point.incarnation, point.position)

    async def time_at(self, revision: int) -> int:
        """The plane time at which that revision was committed."""
        found = await self._history.time_at(revision) if self._history is not None else None
        if found is None:  # the archive is a little behind
            found = self._landed_ms(split_revision(revision)[1]) or self._plane_ms()
        return found
