"""One plane of a front door, and objects as they lie on it: asked with patience, remembered while it is away, shown once for all.

Owns what the door knows of each plane. Never takes several planes together: that is frontdoor.py. Called by it and by whatever
renders an item.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

import msgspec

from fairlead.api import served
from fairlead.api.failures import busy
from fairlead.api.remembering import Memory
from fairlead.api.versions import component_text
from fairlead.client.plane import Change, Expired, Overloaded
from fairlead.client.resources import ChangePage, ResourcePlane, Unreachable
from fairlead.model.ids import incarnation_of
from fairlead.model.ids import revision as revision_of
from fairlead.ports import Clock

PATIENCE_S: Final = 3.0  # how long one plane may take to answer before its part of an answer is left out
SHOWN_MAX: Final = 10_000  # objects of a plane kept as they are shown: some 30 MB
# Kinds that every plane has of its own, not as copies; the names of the regions' are given their region as prefix.
OWN_ON_EVERY_PLANE: Final = frozenset({"events", "leases", "decisions", "planes"})

T = TypeVar("T")


class Item:
    """One version of one object, and the plane it lies on. `incarnation`: of the plane when it was read; the plane may have begun
    another since, in which the same position holds something else (P6). `age_s`: it is shown from memory, as of so long ago,
    because that plane cannot be reached; None: it is as the plane has it."""

    __slots__ = ("_shown", "age_s", "change", "incarnation", "member")

    def __init__(self, member: Member, change: Change, incarnation: int, age_s: float | None = None) -> None:
        self.member = member
        self.change = change
        self.incarnation = incarnation
        self.age_s = age_s
        self._shown: _Shown | None = None

    @property
    def revision(self) -> int:
        return revision_of(self.incarnation, self.change.position)

    @property
    def resource_version(self) -> str:
        return component_text(self.member.index, self.revision)

    def _look(self) -> _Shown:
        shown = self._shown
        if shown is None:
            shown = self._shown = self.member.shown(self.change)
        return shown

    def opened(self, raw: bytes) -> Item:
        """The same version, with nothing hidden: `raw` is its open form. For one answer; nobody else is shown it."""
        item = Item(self.member, self.change, self.incarnation, self.age_s)
        item._shown = _Shown(raw, served.decode_whole(self.change.plural, raw))
        return item

    @property
    def served(self) -> Any:
        return self._look().served

    @property
    def metadata(self) -> bytes:
        """See served.metadata_of."""
        shown = self._look()
        if shown.metadata is None:
            shown.metadata = served.metadata_of(shown.served)
        return shown.metadata

    @property
    def body(self) -> bytes:
        """See served.body_of."""
        shown = self._look()
        if shown.body is None:
            shown.body = served.body_of(shown.served)
        return shown.body


class _Shown:
    """What one version of one object looks like; made once for all who read it."""

    __slots__ = ("body", "metadata", "raw", "served")

    def __init__(self, raw: bytes, served: Any) -> None:
        self.raw = raw  # so that an entry is never taken for another object's
        self.served = served
        self.body: bytes | None = None
        self.metadata: bytes | None = None


class Member:
    """One plane of the door. Its index is its place in every resourceVersion, so it never changes."""

    def __init__(self, index: int, name: str, plane: ResourcePlane, clock: Clock, prefixed: bool) -> None:
        self.index = index
        self.name = name
        self.plane = plane
        self._clock = clock
        self._prefixed = prefixed
        self._heard = clock.monotonic()
        self._cache: dict[tuple[str, str, str], _Shown] = {}
        self._known = 0  # the newest revision seen; stands still while the plane is away
        self._memory = Memory()

    @property
    def incarnation(self) -> int:
        return incarnation_of(self.revision())

    def revision(self) -> int:
        self._known = max(self._known, self.plane.revision())
        return self._known

    def saw(self, revision: int) -> None:
        self._known = max(self._known, revision)

    def shown(self, change: Change) -> _Shown:
        """The newest versions are asked for again and again: by lists, by every watch."""
        raw = change.raw
        assert raw is not None, "a deletion shows nothing"
        key = (change.plural, change.tenant, change.name)
        found = self._cache.get(key)
        if found is not None and (found.raw is raw or found.raw == raw):
            return found
        made = served.decode(change.plural, raw)
        outer = self.outer_name(change.plural, change.name)
        if outer != change.name:
            made = msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, name=outer))
        if found is None and len(self._cache) >= SHOWN_MAX:
            del self._cache[next(iter(self._cache))]
        self._cache[key] = shown = _Shown(raw, made)
        return shown

    def outer_name(self, plural: str, name: str) -> str:
        return f"{self.name}.{name}" if self._prefixed and plural in OWN_ON_EVERY_PLANE else name

    def inner_name(self, plural: str, name: str) -> str | None:
        """What the plane itself calls it; None: it cannot be this plane's."""
        if not self._prefixed or plural not in OWN_ON_EVERY_PLANE:
            return name
        return name.removeprefix(f"{self.name}.") if name.startswith(f"{self.name}.") else None

    async def ask(self, question: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Raises Unreachable when there is no answer in time, and 429 where the plane has too much to do to be asked."""
        if not self.plane.connected:
            raise Unreachable(self.name)
        try:
            async with asyncio.timeout(PATIENCE_S):
                answer = await question()
        except TimeoutError as error:
            raise Unreachable(self.name) from error
        except Overloaded as error:
            raise busy(self.name, error.retry_after_s) from error
        except Expired as error:
            if not self.plane.connected:
                raise Unreachable(self.name) from error
            raise
        self._heard = self._clock.monotonic()
        return answer

    async def get(self, plural: str, tenant: str, name: str, revision: int = 0) -> Item | None:
        """One object by what the plane itself calls it, now or at that revision. Raises as `ask` does."""
        change = await self.ask(lambda: self.plane.get(plural, tenant, name, revision))
        if change is None:
            return None
        said = getattr(
            change, "incarnation", 0
        )  # by a plane in another process: what this side knows of it may be older, or newer
        return Item(self, change, said or incarnation_of(revision or self.plane.revision()) or self.incarnation)

    def begins_list(self, plural: str, tenant: str | None, revision: int) -> None:
        """It is at that revision now, and its objects of a kind are read, of one tenant or of every tenant (None)."""
        if self._prefixed:  # one of its own process is never away
            self._memory.begin(plural, tenant, revision, self._clock.monotonic())

    def has_read(self, plural: str, tenant: str | None, revision: int, after: tuple[str, str], page: ChangePage) -> None:
        """What stands there after an object, as it stood at that revision. Remembered when all of a list that began is there."""
        if self._prefixed:
            self._memory.read(plural, tenant, revision, after, page)

    def remembered(self, plural: str, tenant: str | None) -> list[Change]:
        kept = self._memory.find(plural, tenant)
        return [] if kept is None else [c for c in kept.changes if tenant in (None, c.tenant)]

    def remembered_at(self, plural: str, tenant: str | None) -> int:
        """The revision at which that stood; 0: nothing is remembered. Whoever is shown it goes on from there, and from no later
        one: what happened since was not shown."""
        kept = self._memory.find(plural, tenant)
        return 0 if kept is None else kept.revision

    def age_s(self, plural: str, tenant: str | None) -> float | None:
        """How old what is remembered is; None: nothing is."""
        kept = self._memory.find(plural, tenant)
        return self._clock.monotonic() - kept.at_s if kept is not None else None

    def warning(self, plural: str, tenant: str | None) -> str:
        kept = self._memory.find(plural, tenant)
        now = self._clock.monotonic()
        if kept is not None:
            return f"{self.name} is unreachable; its {plural} are shown as of {now - kept.at_s:.0f} seconds ago"
        return f"{self.name} is unreachable since {now - self._heard:.0f} seconds; its {plural} are not shown"
