"""Several planes behind one door: which plane serves which kind, and reads that take them together.

A front door with a global plane serves global kinds from it and regional kinds from the regions; a region's own server has one
plane and serves everything from that. A region that cannot be reached makes an answer partial: what is remembered of it is shown
with its age and a warning, and the rest is never held up. Called by the handlers; knows nothing of HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from fairlead.api.failures import Failure
from fairlead.api.members import OWN_ON_EVERY_PLANE, PATIENCE_S, Item, Member
from fairlead.api.versions import COMPONENT_BITS, vector_text
from fairlead.client.plane import Change, Expired
from fairlead.client.resources import ChangePage, ResourcePlane, Unreachable
from fairlead.model.commands import Command, Outcome, Refused
from fairlead.model.ids import incarnation_of
from fairlead.model.kinds.access import Token
from fairlead.model.registry import GLOBAL, KINDS, KindInfo
from fairlead.ports import Clock, Tasks

CATCH_UP_S: Final = 0.05  # between two looks at a plane that has not reached the wanted revision yet
PAGE: Final = 1_000

T = TypeVar("T")


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """Where a list goes on: the revisions it is read at, and after which object of which plane."""

    pins: tuple[tuple[int, int], ...]
    member: int
    tenant: str
    name: str


class Listing(NamedTuple):
    items: list[Item]
    resource_version: str
    pins: dict[int, int]
    cursor: Cursor | None
    warnings: list[str]


class FrontDoor:
    def __init__(self, planes: Mapping[str, ResourcePlane], clock: Clock) -> None:
        """`planes` in the order of their components, GLOBAL first where there is one: append, never reorder."""
        assert planes, "a front door has at least one plane"
        self._clock = clock
        several = len(planes) > 1
        self.members = [
            Member(i, name, plane, clock, several and name != GLOBAL) for i, (name, plane) in enumerate(planes.items())
        ]
        self._global = next((m for m in self.members if m.name == GLOBAL), None)
        self._regions = [m for m in self.members if m.name != GLOBAL]
        bits = COMPONENT_BITS * len(self.members)
        assert bits <= 64 * 64, "a resourceVersion of that many planes is not accepted back"

    def serving(self, info: KindInfo, region: str = "") -> list[Member]:
        """The planes whose objects of this kind are shown. With a region, of kinds that regions have, that one alone."""
        if region:
            chosen = self._chosen(region)
            if self.is_regional(info):
                return [chosen]
        if self._global is None or info.plural in OWN_ON_EVERY_PLANE:
            return self.members
        return [self._global] if GLOBAL in info.planes else self._regions

    def is_regional(self, info: KindInfo) -> bool:
        """Whether objects of this kind lie on the planes of regions, as far as this door shows them."""
        return self._global is None or info.plural in OWN_ON_EVERY_PLANE or GLOBAL not in info.planes

    def _chosen(self, region: str) -> Member:
        found = next((m for m in self._regions if m.name == region), None)
        if found is None:
            known = ", ".join(m.name for m in self._regions) or "none"
            raise Failure(400, f"region: there is no region {region[:60]!r} behind this server; there are: {known}")
        return found

    def plane_ms(self) -> int:
        return self.members[0].plane.plane_ms()

    # --- one object ------------------------------------------------------------------------------------------------------

    async def get(
        self, info: KindInfo, tenant: str, name: str, at: Mapping[int, int] | None = None, region: str = ""
    ) -> tuple[Item | None, list[str]]:
        """The object and warnings. A plane that is away and may have it: what is remembered of it, else 503. Nothing of
        the past is remembered: what is stood later."""
        members = [m for m in self.serving(info, region) if m.inner_name(info.plural, name) is not None]
        if at is not None:
            members = [m for m in members if m.index in at]
        answers = await _of_all(members, lambda member: self._get_from(member, info, tenant, name, at))
        for member, answer in zip(members, answers, strict=True):
            if isinstance(answer, Item):
                return answer, []
            if answer is False and at is None:
                inner = member.inner_name(info.plural, name)
                kept = next((c for c in member.remembered(info.plural, tenant) if c.name == inner), None)
                if kept is not None:
                    read_in = incarnation_of(member.remembered_at(info.plural, tenant))
                    shown = Item(member, kept, read_in, member.age_s(info.plural, tenant))
                    return shown, [member.warning(info.plural, tenant)]
        away = [m.name for m, answer in zip(members, answers, strict=True) if answer is False]
        if away:
            message = f"{', '.join(away)} cannot be reached, and may have {info.plural} {name!r}"
            cause = {"reason": "RegionUnreachable", "message": ", ".join(away), "field": ""}
            raise Failure(503, message, causes=[cause], retry_after_s=2.0)
        return None, []

    async def _get_from(
        self, member: Member, info: KindInfo, tenant: str, name: str, at: Mapping[int, int] | None
    ) -> Item | bool | None:
        """False: the plane cannot be reached."""
        inner = member.inner_name(info.plural, name)
        assert inner is not None
        try:
            return await member.get(info.plural, tenant, inner, (at or {}).get(member.index, 0))
        except Unreachable:
            return False

    def home_of_new(self, info: KindInfo, name: str, region: str, asked: str = "") -> Member:
        """Where a new object goes. A regional kind says its region, in its spec or as the prefix of its name (P19); `asked` is
        what the request itself says, and must not say another. A node begins with the name of its region whatever else says it:
        it is one name everywhere, also for a region that cannot be asked just now."""
        home = self._home_of_new(info, name, region, asked)
        if info.plural == "nodes" and self.named_after(info, name) is not home:
            message = f"must begin with {home.name}- or {home.name}., the name of its region, so that it is unique everywhere"
            raise _misnamed(info, name, "metadata.name", message)
        return home

    def check_joining(self, info: KindInfo, record: object) -> None:
        """Of a join token. That its node begins with the name of its region, everybody knows; that another region has a longer
        name which begins so, only whoever knows them all."""
        profile = record.spec.profile if isinstance(record, Token) else None
        other = self.named_after(KINDS["nodes"], profile.node) if profile is not None else None
        if isinstance(record, Token) and profile is not None and other is not None and other.name != profile.region:
            message = f"begins with the name of {other.name}, and must with that of {profile.region} alone"
            raise _misnamed(info, record.metadata.name, "spec.profile.node", message)

    def named_after(self, info: KindInfo, name: str) -> Member | None:
        """Whose name it begins with: the longest such, for the name of one region may begin with that of another."""
        named = [m for m in self.serving(info) if name.startswith((m.name + "-", m.name + "."))]
        return max(named, key=lambda m: len(m.name), default=None)

    def _home_of_new(self, info: KindInfo, name: str, region: str, asked: str) -> Member:
        members = self.serving(info)
        if asked and self.is_regional(info):
            chosen = self.serving(info, asked)[0]
            if region and region != chosen.name:
                message = f"says {region!r}, and the request {asked!r}"
                cause = {"reason": "FieldValueInvalid", "message": message, "field": "spec.region"}
                raise Failure(422, f'{info.kind} "{name}" is invalid: spec.region: {message}', causes=[cause])
            return chosen
        if len(members) == 1:
            return members[0]
        home = next((m for m in members if m.name == region), None) or self.named_after(info, name)
        if home is None:
            regions = ", ".join(m.name for m in members)
            message = f"must begin with the name of a region and a dash, so that it is unique everywhere: one of {regions}"
            raise _misnamed(info, name, "metadata.name", message)
        return home

    async def submit(self, member: Member, command: Command) -> Outcome:
        if not member.plane.connected:
            return Refused("NotLeader", f"{member.name} cannot be reached", retry_after_s=2.0)
        return (await member.plane.submit([command]))[0]

    # --- lists -----------------------------------------------------------------------------------------------------------

    async def list(
        self,
        info: KindInfo,
        tenant: str | None,
        *,
        accepts: Callable[[Item], bool] | None = None,
        limit: int = 0,
        cursor: Cursor | None = None,
        at: Mapping[int, int] | None = None,
        not_older: Mapping[int, int] | None = None,
        region: str = "",
    ) -> Listing:
        """Every matching object, or `limit` of them and where to go on."""
        members = self.serving(info, region)
        warnings: list[str] = []
        pins = dict(cursor.pins) if cursor is not None else dict(at or {})
        size = limit or PAGE
        firsts: dict[int, ChangePage | None] = {}
        if cursor is None:
            pages = await _of_all(members, lambda member: self._first_page(member, info, tenant, size, pins, not_older or {}))
            for member, page in zip(members, pages, strict=True):
                if at and page is None:
                    raise Failure(503, f"{member.name} cannot be reached", retry_after_s=2.0)
                firsts[member.index] = page
                pins[member.index] = page.revision if page is not None else 0
                if page is not None and not at:
                    member.begins_list(info.plural, tenant, page.revision)
        items: list[Item] = []
        for member in members:
            after = ("", "")
            if cursor is not None:
                if member.index < cursor.member:
                    continue
                if member.index == cursor.member:
                    after = (cursor.tenant, cursor.name)
            reader = _Reader(member, info, tenant, pins.get(member.index, 0), size)
            stopped = await reader.read(items, accepts, limit, after, firsts.get(member.index), cursor is None)
            warnings += reader.warnings
            pins[member.index] = reader.revision
            if stopped is not None:
                next_cursor = Cursor(tuple(sorted(pins.items())), member.index, *stopped)
                return Listing(items, vector_text(pins), pins, next_cursor, warnings)
        return Listing(items, vector_text(pins), pins, None, warnings)

    async def _first_page(
        self, member: Member, info: KindInfo, tenant: str | None, size: int, at: dict[int, int],
        not_older: Mapping[int, int],
    ) -> ChangePage | None:  # fmt: skip
        """None: the plane cannot be reached. Waits until it has reached what the client has seen already."""
        plane, wanted = member.plane, not_older.get(member.index, 0)
        deadline = self._clock.monotonic() + PATIENCE_S
        while True:
            try:
                page = await member.ask(lambda: plane.page(info.plural, tenant, limit=size, revision=at.get(member.index, 0)))
            except Unreachable:
                return None
            member.saw(page.revision)
            if page.revision >= wanted:
                return page
            if self._clock.monotonic() >= deadline:
                message = f"Too large resource version: {wanted}, current: {page.revision}"
                cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version", "field": ""}
                raise Failure(504, message, causes=[cause], retry_after_s=1.0)
            await self._clock.sleep(CATCH_UP_S)


def _misnamed(info: KindInfo, name: str, field: str, message: str) -> Failure:
    cause = {"reason": "FieldValueInvalid", "message": message, "field": field}
    return Failure(422, f'{info.kind} "{name}" is invalid: {field}: {message}', causes=[cause])


async def _of_all(members: Sequence[Member], ask: Callable[[Member], Coroutine[Any, Any, T]]) -> list[T]:
    """Of all planes at once: the answer takes as long as the slowest, not as all of them. Where planes refuse, the refusal of the
    first of them is the answer: whoever asks again must not hear now this, now that."""
    if len(members) == 1:
        return [await ask(members[0])]
    async with Tasks() as tasks:
        asked = [tasks.start(_answer_or_refusal(ask(member)), member.name) for member in members]
    answers: list[T] = []
    for task in asked:
        answer, refusal = task.result()
        if refusal is not None:
            raise refusal
        answers.append(answer)
    return answers


async def _answer_or_refusal(asked: Coroutine[Any, Any, T]) -> tuple[T | None, Exception | None]:
    """As data, for a group of tasks would wrap it in what no handler knows."""
    try:
        return await asked, None
    except (Expired, Failure) as refusal:
        return None, refusal


class _Reader:
    """Reads one plane's part of a list."""

    def __init__(self, member: Member, info: KindInfo, tenant: str | None, revision: int, size: int) -> None:
        self._member = member
        self._info = info
        self._tenant = tenant
        self.revision = revision  # at which everything it has shown stood; 0: it has not shown everything
        self._size = size
        self.warnings: list[str] = []

    async def read(
        self, items: list[Item], accepts: Callable[[Item], bool] | None, limit: int, after: tuple[str, str],
        first: ChangePage | None, asked: bool,
    ) -> tuple[str, str] | None:  # fmt: skip
        """Appends what matches; tells after which object it stopped because the list is full. `first` was read already if
        `asked`, and is None where the plane could not be reached."""
        page = first if asked else await self._page(after)
        age_s = None
        read_from = after
        if page is None:
            age_s = self._member.age_s(self._info.plural, self._tenant)
            self.warnings.append(self._member.warning(self._info.plural, self._tenant))
            self.revision = self._member.remembered_at(self._info.plural, self._tenant)
            page = ChangePage(self._kept(after), self.revision)
        while True:
            if not self.warnings:
                self._member.has_read(self._info.plural, self._tenant, self.revision, read_from, page)
            for change in page.items:
                item = Item(self._member, change, incarnation_of(page.revision), age_s)
                if accepts is not None and not accepts(item):
                    continue
                if limit and len(items) >= limit:
                    return after
                items.append(item)
                after = (change.tenant, change.name)
            if not page.next_name:
                return None
            read_from = (page.next_tenant, page.next_name)
            following = await self._page(read_from)
            if following is None:
                self.warnings.append(self._member.warning(self._info.plural, self._tenant))
                self.revision = 0
                return None
            page = following

    async def _page(self, after: tuple[str, str]) -> ChangePage | None:
        plane = self._member.plane
        try:
            return await self._member.ask(
                lambda: plane.page(self._info.plural, self._tenant, after=after, limit=self._size, revision=self.revision)
            )
        except Unreachable:
            return None

    def _kept(self, after: tuple[str, str]) -> list[Change]:
        return [c for c in self._member.remembered(self._info.plural, self._tenant) if (c.tenant, c.name) > after]
