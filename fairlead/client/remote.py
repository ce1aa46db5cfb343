"""A plane in another process: the calls of plane.py over a channel that is dialled again whenever it breaks.

What was under way when a connection broke has an unknown outcome, and says so; feeds end and their owners list again. Several
addresses may be given: the leader is looked for among them. The connection is line.py's. Called by schedulers, controllers,
agents and front doors.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from fairlead.client.answers import (
    Now,
    Output,
    Piece,
    Rows,
    as_a,
    as_it_is,
    nothing,
    outcome_or_none,
    outcomes_of,
    row_or_none,
    steps_of,
)
from fairlead.client.channel import Closed
from fairlead.client.decisions import DecisionQuery, ExplainedPage
from fairlead.client.line import NO_ANSWER, Ask, Line, NotSent
from fairlead.client.line import Dial as Dial
from fairlead.client.outcomes import encode_commands
from fairlead.client.plane import Expired, Overloaded
from fairlead.client.remote_feed import Heard, RemoteChange, RemoteFeed, change_of, heard_or_none
from fairlead.client.resources import ChangePage, Unreachable
from fairlead.model import codec
from fairlead.model.commands import Command, Outcome, Refused, Unknown
from fairlead.model.ids import split_revision
from fairlead.model.lifecycle import Role
from fairlead.observe.timeline import Step

T = TypeVar("T")

_PEOPLE: Final = frozenset({Role.USER, Role.OPERATOR})


class RemotePlane(Line):
    async def submit(self, commands: list[Command]) -> list[Outcome]:
        if not commands:
            return []
        nobody = Refused("NotLeader", "no leader of this plane can be reached", retry_after_s=1.0)
        if not await self._connection():
            return [nobody for _ in commands]
        try:
            places = self._writes if commands[0].caller.role in _PEOPLE else self._system
            sent, count = encode_commands(commands), len(commands)
            return await self._ask("submit", sent, read=outcomes_of(count), places=places, calls=count)
        except Overloaded as error:
            return [Refused("Overloaded", str(error), retry_after_s=error.retry_after_s) for _ in commands]
        except NotSent:
            return [nobody for _ in commands]
        except Closed as error:
            return [Unknown(str(error)) for _ in commands]
        except Ask as error:
            return [Refused(error.reason, str(error)) for _ in commands]

    async def list(self, plural: str) -> Sequence[RemoteChange]:
        out: list[RemoteChange] = []
        tenant = name = ""
        history = 0
        while True:
            try:
                await self._connection()
                page = await self._ask("list", plural, tenant, name, read=as_a(Rows), places=self._system)
            except (Closed, Ask) as error:
                raise Expired(f"{plural} could not be listed: {error}", 0) from error
            self._revision = max(self._revision, page.revision)
            newest = split_revision(self._revision)[0]
            if split_revision(page.revision)[0] != newest or history not in (0, newest):
                raise Expired(f"{plural} were listed in two incarnations of the plane; list again", 0)
            history = newest
            out += [change_of(row) for row in page.rows]
            tenant, name = page.next_tenant, page.next_name
            if not name:
                return out

    async def get(self, plural: str, tenant: str, name: str, revision: int = 0) -> RemoteChange | None:
        try:
            await self._connection()
            found = await self._ask("get", plural, tenant, name, revision, read=row_or_none, places=self._reads)
        except (Closed, Ask) as error:
            raise Expired(f"{plural}/{tenant}/{name} could not be read: {error}", 0) from error
        if found is None:
            return None
        change = change_of(found)
        change.incarnation = found.incarnation
        return change

    def follow(self, plurals: Sequence[str], after: int, *, nodes: Sequence[str] = ()) -> RemoteFeed:
        number, frame = self._numbered("follow", [[*plurals], after, [*nodes]])
        feed = RemoteFeed(self.forget, number, after)
        if self._channel is None or not self._connected.is_set():
            feed.end(Expired("there is no connection", 0))
            return feed
        self._feeds[number] = feed
        self.calls_total += 1
        self._outgoing.put_nowait(frame)
        return feed

    def forget(self, number: int) -> None:
        if self._feeds.pop(number, None) is not None and self._unfollows:
            self._outgoing.put_nowait(self._numbered("unfollow", [number])[1])

    def revision(self) -> int:
        return self._revision

    def plane_ms(self) -> int:
        return self._plane_ms + int((self._clock.monotonic() - self._at) * 1000)

    @property
    def vouches(self) -> bool:
        return self.connected

    async def now(self) -> int:
        """How far the plane has come, as it says itself; 0: it cannot be asked just now."""
        try:
            now = await self._ask("now", read=as_a(Now))
        except NO_ANSWER:
            return 0
        self._note(now.revision, now.plane_ms)
        return now.revision

    async def heard(self, since_ms: int) -> Sequence[tuple[str, int]]:
        try:
            now = await self._ask("now", read=as_a(Now))
            self._note(now.revision, now.plane_ms)
            return await self._ask("heard", since_ms, read=as_a(list[tuple[str, int]]))
        except NO_ANSWER:
            return []  # soft: nothing was heard

    async def heartbeat(self, nodes: Sequence[tuple[str, int]]) -> Heard | None:
        """None where no leader vouches for it."""
        try:
            return await self._ask("heartbeat", [*nodes], read=heard_or_none)
        except NO_ANSWER:
            return None

    async def tell(self, figures: dict[str, float]) -> None:
        """What this end counts of itself. Soft: told again later."""
        with contextlib.suppress(*NO_ANSWER):
            await self._ask("figures", figures, read=nothing)

    async def bound_to(self, nodes: Sequence[str]) -> tuple[int, Sequence[RemoteChange]]:
        """(revision, the bindings on those nodes as they stood then)."""
        found = await self._found("bound_to", [*nodes])
        return found.revision, [change_of(row) for row in found.rows]

    async def named(self, plural: str, tenant: str, names: Sequence[str]) -> tuple[int, Sequence[RemoteChange]]:
        """(revision, the objects there are of these names)."""
        found = await self._found("named", plural, tenant, [*names])
        return found.revision, [change_of(row) for row in found.rows]

    async def _found(self, operation: str, *arguments: Any) -> Rows:
        try:
            await self._connection()
            return await self._ask(operation, *arguments, read=as_a(Rows), places=self._system)
        except (Closed, Ask) as error:
            raise Expired(f"{operation}: {error}", 0) from error

    # --- what the resource API asks beyond that (fairlead/client/resources.py) -------------------------------------------

    async def page(
        self,
        plural: str,
        tenant: str | None = None,
        *,
        after: tuple[str, str] = ("", ""),
        limit: int = 500,
        revision: int = 0,
    ) -> ChangePage:
        page = await self._resource("page", plural, tenant, [*after], limit, revision, read=as_a(Rows))
        self._revision = max(self._revision, page.revision)
        return ChangePage([change_of(row) for row in page.rows], page.revision, page.next_tenant, page.next_name)

    async def ask_unwritable_s(self) -> float | None:
        unwritable_ms = (await self._resource("now", read=as_a(Now))).unwritable_ms
        return None if unwritable_ms is None else unwritable_ms / 1000

    async def receipt(self, actor: str, key: str) -> Outcome | None:
        return await self._resource("receipt", actor, key, read=outcome_or_none)

    async def revision_at(self, time_ms: int) -> int:
        return await self._resource("revision_at", time_ms, read=as_a(int))

    async def time_at(self, revision: int) -> int:
        return await self._resource("time_at", revision, read=as_a(int))

    async def steps(self, tenant: str, workload: str, since_ms: int) -> Sequence[Step]:
        return await self._resource("steps", tenant, workload, since_ms, read=steps_of)

    async def exported(self, since_ms: int, token: str = "", offset: int = 0) -> tuple[str, int, bytes]:
        found = await self._resource("exported", since_ms, token, offset, read=as_a(Piece))
        return found.token, found.size, found.data

    async def decisions(self, query: DecisionQuery) -> ExplainedPage:
        asked = msgspec.structs.asdict(query)
        return codec.convert(await self._resource("decisions", asked, read=as_it_is), ExplainedPage)

    async def logs(self, tenant: str, name: str, stream: str, offset: int, limit: int) -> tuple[int, bytes, int]:
        """(offset, text, where to go on) of what a slot wrote. Raises FileNotFoundError or Unreachable."""
        try:
            await self._connection()
            found = await self._ask("logs", tenant, name, stream, offset, limit, read=as_a(Output), places=self._reads)
        except Ask as error:
            raise FileNotFoundError(str(error)) if error.reason in ("NotFound", "Invalid") else Unreachable(str(error)) from error
        except Closed as error:
            raise Unreachable(str(error)) from error
        return found.offset, found.text, found.next

    async def _resource(self, operation: str, *arguments: Any, read: Callable[[Any], T]) -> T:
        if not await self._connection():
            raise Unreachable("no leader of this plane can be reached")
        try:
            return await self._ask(operation, *arguments, read=read, places=self._reads)
        except Closed as error:
            raise Unreachable(str(error)) from error
        except Ask as error:
            if error.reason == "Expired":
                raise Expired(str(error), 0) from error
            raise Unreachable(str(error)) from error
