"""What a front door remembers of one plane, to be shown while that cannot be reached: whole lists, however they were read.

Clients read long lists in pages, each with a request of its own at the same revision: what came of a list is put together here
until its end is there. Owns what is kept and how much of it. Never asks the plane. Called by members.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from fairlead.client.plane import Change
from fairlead.client.resources import ChangePage

REMEMBERED_MAX: Final = 5_000  # objects of one list of a region kept to be shown while it is away
REMEMBERED_LISTS_MAX: Final = 100
READING_MAX: Final = 4 * REMEMBERED_MAX  # objects of lists whose end has not come; some clients never ask for it
READING_LISTS_MAX: Final = 100


class Kept(NamedTuple):
    """A list of a plane's objects."""

    at_s: float
    changes: list[Change]
    revision: int


class _Reading:
    """A list of which some is read, from its beginning on."""

    __slots__ = ("at_s", "changes", "upto")

    def __init__(self, at_s: float) -> None:
        self.at_s = at_s
        self.changes: list[Change] = []
        self.upto = ("", "")  # tenant and name of the last


class Memory:
    def __init__(self) -> None:
        self._kept: dict[tuple[str, str | None], Kept] = {}
        self._reading: dict[tuple[str, str | None, int], _Reading] = {}
        self._objects = 0  # in the latter

    def begin(self, plural: str, tenant: str | None, revision: int, now_s: float) -> None:
        """A list of a kind, of one tenant or of every tenant (None), is read, and the plane stands at that revision now. Pages of
        any other revision are of the past: a client may ask for whichever it likes."""
        key = plural, tenant, revision
        if key in self._reading:
            return
        self._reading[key] = _Reading(now_s)
        self._bound()

    def read(self, plural: str, tenant: str | None, revision: int, after: tuple[str, str], page: ChangePage) -> None:
        """What came after that object. Several may read the same list, one behind the other."""
        key = plural, tenant, revision
        reading = self._reading.get(key)
        if reading is None or after > reading.upto:
            return
        fresh: Sequence[Change] = page.items
        if after != reading.upto:
            fresh = [change for change in page.items if (change.tenant, change.name) > reading.upto]
        reading.changes += fresh
        self._objects += len(fresh)
        if page.next_name and len(reading.changes) <= REMEMBERED_MAX:
            reading.upto = max(reading.upto, (page.next_tenant, page.next_name))
            self._bound()
            return
        self._forget(key)
        self._keep(plural, tenant, Kept(reading.at_s, reading.changes, revision))

    def find(self, plural: str, tenant: str | None) -> Kept | None:
        """The newer of the list of just this tenant and the list of all."""
        found = [kept for key in {tenant, None} if (kept := self._kept.get((plural, key))) is not None]
        return max(found, key=lambda kept: kept.at_s) if found else None

    def _keep(self, plural: str, tenant: str | None, kept: Kept) -> None:
        before = self._kept.get((plural, tenant))
        if before is not None and before.at_s > kept.at_s:
            return  # whoever read this one took longer
        self._kept.pop((plural, tenant), None)
        if len(kept.changes) <= REMEMBERED_MAX:
            self._kept[plural, tenant] = kept
            if len(self._kept) > REMEMBERED_LISTS_MAX:
                del self._kept[next(iter(self._kept))]

    def _bound(self) -> None:
        """Those that began first go first."""
        while len(self._reading) > READING_LISTS_MAX or self._objects > READING_MAX:
            self._forget(next(iter(self._reading)))

    def _forget(self, key: tuple[str, str | None, int]) -> None:
        self._objects -= len(self._reading.pop(key).changes)
