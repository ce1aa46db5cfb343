"""Which moment a question about a workload is about: now, an earlier revision or time, or when a generation was last wanted.

Owns the way from `?at=` and `?generation=` to a revision of every plane. Reads only. Called by explaining.py.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Final, NamedTuple

from fairlead.api.calls import Call
from fairlead.api.failures import Failure, not_found
from fairlead.api.members import Item, Member
from fairlead.api.reading import expired, find, moment_ms
from fairlead.api.versions import component
from fairlead.client.plane import Expired
from fairlead.client.resources import Unreachable
from fairlead.model.ids import revision as revision_of
from fairlead.model.ids import split_revision


class Moment(NamedTuple):
    """For each plane, by its index, the revision to read at; planes that are not named are read as they are."""

    revisions: dict[int, int] = {}
    ms: int = 0  # plane time; 0: now
    away: frozenset[int] = frozenset()  # planes that could not say which revision it was

    def at(self, member: Member) -> int:
        """Raises Unreachable, also of one that is back meanwhile: it must not be read as it is now."""
        if member.index in self.away:
            raise Unreachable(member.name)
        return self.revisions.get(member.index, 0)

    def now_ms(self, member: Member) -> int:
        return self.ms or member.plane.plane_ms()

    @property
    def until_ms(self) -> int | None:
        """Up to where decisions count."""
        return self.ms + 1 if self.ms else None


NOW: Final = Moment()


async def moment_of(call: Call, also: Iterable[Member]) -> Moment:
    """What `?at=` means for the planes of this call and for those. Of the latter some may be away; the others can still tell."""
    text = call.query.get("at", "")
    if not text:
        return NOW
    members = {member.index: member for member in (*call.members, *also)}
    needed = frozenset(member.index for member in call.members)
    if not text.isdigit():
        return await _at_ms(members, moment_ms(call, text), {}, needed)
    known = {index: component(text, index) for index in members if component(text, index)}
    if not known:
        raise Failure(400, "at: this version speaks of no plane that has such objects")
    index, revision = next(iter(known.items()))
    return await _at_ms(members, await _asked(members[index], partial(members[index].plane.time_at, revision)), known, needed)


async def _at_ms(members: dict[int, Member], ms: int, known: dict[int, int], needed: frozenset[int]) -> Moment:
    """Planes whose revision is not given are read at the time of those whose is."""
    out, away = dict(known), set[int]()
    for index, member in members.items():
        try:
            if index not in out:
                out[index] = await _found(member, partial(member.plane.revision_at, ms))
        except Unreachable:
            if index in needed:
                raise _unreachable(member) from None
            away.add(index)
    return Moment(out, ms, frozenset(away))


async def _asked(member: Member, question: Callable[[], Coroutine[Any, Any, int]]) -> int:
    try:
        return await _found(member, question)
    except Unreachable:
        raise _unreachable(member) from None


def _unreachable(member: Member) -> Failure:
    return Failure(503, f"{member.name} cannot be reached", retry_after_s=2.0)


async def _found(member: Member, question: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Raises Unreachable."""
    try:
        return await member.ask(question)
    except Expired as error:
        raise Failure(410, f"{member.name}: {error}") from None


async def of_generation(call: Call, also: Iterable[Member], wanted: int) -> tuple[Item, Moment]:
    """The object as it last stood while that generation was the wanted one; now, where it still is."""
    item = await find(call)
    if item.served.metadata.generation == wanted:
        return item, NOW
    if item.served.metadata.generation < wanted:
        message = f"{call.target.name} has no generation {wanted} yet: it is at {item.served.metadata.generation}"
        raise Failure(404, message, kind=call.resource.plural, name=call.target.name)
    found, replaced = await _last_with(call, item, wanted)
    ms = await _asked(item.member, partial(item.member.plane.time_at, replaced)) - 1
    moment = await _at_ms({member.index: member for member in also}, ms, {item.member.index: replaced - 1}, frozenset())
    return found, moment


async def _last_with(call: Call, item: Item, wanted: int) -> tuple[Item, int]:
    """The object in its last version of that generation, and the revision that replaced it. Generations only grow, so it is found
    by halving. What is beyond the horizon counts as before."""
    member, metadata, plural = item.member, item.served.metadata, item.change.plural
    incarnation, high = split_revision(item.revision)
    low, best = 0, None
    beyond = ""
    while low < high:
        middle = (low + high) // 2
        try:
            at = await member.get(plural, metadata.namespace, item.change.name, revision_of(incarnation, middle))
        except Expired as error:
            low, beyond = middle + 1, str(error)
            continue
        found = at if at is not None and at.change.raw is not None else None
        if found is None or found.served.metadata.uid != metadata.uid or found.served.metadata.generation <= wanted:
            low, best = middle + 1, found or best
        else:
            high = middle
    if best is not None and best.served.metadata.generation == wanted:
        return best, revision_of(incarnation, low)
    if beyond:
        raise expired(beyond)
    raise not_found(call.resource.plural, f"{metadata.name}, generation {wanted}", call.resource.group)
