"""What a workload's processes wrote, over HTTP: found on whichever plane has the slot, brought from the agent that runs it.

GET /apis/fairlead.dev/v1alpha1/namespaces/TENANT/workloads/NAME/log, with Kubernetes' parameters (docs/cli.md lists them). Plain
text, byte for byte as it was written; failures are `Status` objects. The caller must be allowed `get workloads/logs` in that
tenant, and is asked again for as long as it follows. Which slot it is, log_slots.py finds; what of a stream is wanted is
decided in log_spans.py.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from fairlead.api.access import Authenticate, Authorise, Identity, refuse_impersonation
from fairlead.api.app import refusal
from fairlead.api.calls import add_warnings
from fairlead.api.failures import Failure, busy
from fairlead.api.rules import Ask, Rules, rules_of
from fairlead.client.plane import Overloaded
from fairlead.client.resources import Unreachable
from fairlead.compose.log_slots import RETRY_S, Found, LogSource, Search
from fairlead.compose.log_spans import MARKS_BYTES, TAIL_BYTES, Lines, Marks, Wanted, marks_of, pieces_of, span_of, tail_from
from fairlead.ports import Clock, Random

PATH: Final = "/apis/fairlead.dev/v1alpha1/namespaces/{tenant}/workloads/{name}/log"
TEXT: Final = "text/plain; charset=utf-8"
CHUNK: Final = 64 * 1024
AGAIN_S: Final = 10.0  # after which another stream may have ended
POLL_S: Final = 0.25
KEPT_MIN: Final = 10  # agents keep what has ended so long, unless they are told otherwise
LOOK_S: Final = 1.0  # between two looks at whether who follows may still read
REFUSALS_MAX: Final = 2  # in a row: rules that are just read anew refuse everybody for a moment
ANSWER_S: Final = 6.0  # an agent has five seconds for an answer, the way to it one: a network that is cut says nothing at all
FOLLOW_S: Final = 4 * 3600.0  # then whoever still wants it asks again
FOLLOWERS_MAX: Final = 500  # each asks an agent four times a second
FOLLOWING_MAX: Final = 50  # of one caller


def log_route(
    sources: Mapping[str, LogSource], authenticate: Authenticate, authorise: Authorise, clock: Clock, random: Random
) -> Route:
    rules, followers = rules_of(authorise), Followers()

    async def endpoint(request: Request) -> Response:
        try:
            return await _answer(request, sources, authenticate, rules, followers, clock)
        except Failure as failure:
            return refusal(failure.spread(random).about("workloads", request.path_params["name"]))

    return Route(PATH, endpoint, methods=["GET"])


async def _answer(
    request: Request, sources: Mapping[str, LogSource], authenticate: Authenticate, rules: Rules, followers: Followers,
    clock: Clock,
) -> Response:  # fmt: skip
    tenant, name = request.path_params["tenant"], request.path_params["name"]
    found: Any = authenticate(request)
    identity = await found if inspect.isawaitable(found) else found
    if identity is None:
        raise Failure(401, "Unauthorized: no token and no client certificate")
    refuse_impersonation(request, identity)
    ask = Ask("get", "workloads", tenant, name, "logs")
    if not rules.allows(identity, ask):
        raise Failure(403, f'User "{identity.name}" cannot get resource "workloads/logs" in the namespace "{tenant}"')
    wanted = Wanted.of(request.query_params)
    if wanted.follow:
        followers.check(identity.name)
    search = Search(sources, request.query_params.get("region", ""), tenant, name, wanted.slot)
    kept = await _kept(await search.found(), search, wanted, clock)
    text = _limited(_in_order(kept, _Leave(rules, identity, ask, clock), clock), wanted)
    if wanted.follow:
        followers.check(identity.name)  # others may have come meanwhile
        response: Response = _Following(text, followers, identity.name)
    else:
        response = StreamingResponse(text, media_type=TEXT)
    add_warnings(response, search.warnings())
    return response


async def _kept(slot: Found, search: Search, wanted: Wanted, clock: Clock) -> list[_Stream]:
    """What there is to read of that slot, asked of its region before anything is promised."""
    streams = [_Stream(slot.source, slot.name, search.tenant, stream, wanted, clock) for stream in wanted.streams]
    try:
        kept = [stream for stream in streams if await stream.begin()]
    except Overloaded as error:
        raise busy(slot.region, error.retry_after_s) from None
    except Unreachable as error:
        if not slot.source.connected:
            raise search.cut_off([slot.region]) from None
        raise Failure(503, f"{slot.region}: {error}", retry_after_s=RETRY_S) from None
    if not kept:
        search.refuse_if_away()
        raise Failure(404, f"nothing that {slot.name} wrote is kept: it did not start, or ended more than {KEPT_MIN} minutes ago")
    return kept


# --- who follows -----------------------------------------------------------------------------------------------------------


class Followers:
    """How many streams are followed at this server, and by whom."""

    def __init__(self) -> None:
        self.by: dict[str, int] = {}

    def check(self, name: str) -> None:
        if self.by.get(name, 0) >= FOLLOWING_MAX:
            raise Failure(429, f"{name} follows {FOLLOWING_MAX} streams here already; end one of them", retry_after_s=AGAIN_S)
        if sum(self.by.values()) >= FOLLOWERS_MAX:
            raise Failure(429, f"{FOLLOWERS_MAX} streams are followed here already", retry_after_s=AGAIN_S)

    def come(self, name: str) -> None:
        self.by[name] = self.by.get(name, 0) + 1

    def gone(self, name: str) -> None:
        self.by[name] -= 1
        if not self.by[name]:
            del self.by[name]


class _Following(StreamingResponse):
    """Counted until it has ended, in whichever way."""

    def __init__(self, text: AsyncIterator[bytes], followers: Followers, name: str) -> None:
        super().__init__(text, media_type=TEXT)
        self._followers = followers
        self._name = name
        followers.come(name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._followers.gone(self._name)


class _Leave:
    """Whether a caller may read on: its credential and the rules are looked at again, and nothing is followed for ever."""

    def __init__(self, rules: Rules, identity: Identity, ask: Ask, clock: Clock) -> None:
        self._rules = rules
        self._identity = identity
        self._ask = ask
        self._clock = clock
        self._until = clock.monotonic() + FOLLOW_S
        self._next = clock.monotonic() + LOOK_S
        self._refusals = 0

    def lasts(self) -> bool:
        now = self._clock.monotonic()
        if now >= self._until:
            return False
        if now < self._next:
            return True
        self._next = now + LOOK_S
        if self._rules.ended(self._identity):
            return False
        self._refusals = 0 if self._rules.allows(self._identity, self._ask) else self._refusals + 1
        return self._refusals < REFUSALS_MAX


# --- what it wrote -------------------------------------------------------------------------------------------------------


class _Stream:
    """One stream of one slot, as far as it is wanted."""

    def __init__(self, source: LogSource, slot: str, tenant: str, stream: str, wanted: Wanted, clock: Clock) -> None:
        self._source = source
        self._slot = slot
        self._tenant = tenant
        self._name = stream
        self._wanted = wanted
        self._clock = clock
        self._offset = 0
        self._end: int | None = None
        self._lines = Lines(0)
        self._marks: Marks = []

    async def _logs(self, stream: str, offset: int, limit: int) -> tuple[int, bytes, int]:
        try:
            async with asyncio.timeout(ANSWER_S):
                return await self._source.logs(self._tenant, self._slot, stream, offset, limit)
        except TimeoutError as error:
            raise Unreachable(f"there is no answer within {ANSWER_S:.0f} seconds") from error

    async def _read_marks(self) -> None:
        _, data, _ = await self._logs(f"times.{self._name}", -MARKS_BYTES, MARKS_BYTES)
        self._marks = marks_of(data)

    async def begin(self) -> bool:
        """Where to begin and end; False where nothing is kept. Raises before anything is promised."""
        try:
            self._offset, self._end = await self._begin()
        except FileNotFoundError:
            return False
        self._lines = Lines(self._offset)
        return True

    async def _begin(self) -> tuple[int, int | None]:
        wanted = self._wanted
        if wanted.needs_times:
            await self._read_marks()
        first, end = span_of(wanted, self._marks, int(self._clock.wall() * 1000))
        if first is None:
            first = (await self._logs(self._name, -1, 1))[2]
        elif not first:
            first = (await self._logs(self._name, 0, 1))[0]  # what came before is gone
        if wanted.tail is not None:
            first = await self._tail(wanted.tail, first, end)
        return first, end

    async def _tail(self, lines: int, first: int, end: int | None) -> int:
        offset = -TAIL_BYTES if end is None else max(first, end - TAIL_BYTES)
        offset, data, _ = await self._logs(self._name, offset, TAIL_BYTES)
        skipped = max(0, first - offset)
        data = data[skipped : None if end is None else max(0, end - offset)]
        return tail_from(offset + skipped, data, lines)

    async def more(self) -> list[tuple[int, bytes]] | None:
        """What follows, with its times. Nothing: there is no more just now; None: nor will there be."""
        wanted, end = self._wanted, self._end
        if end is not None and self._offset >= end:
            return None
        limit = CHUNK if end is None else min(CHUNK, end - self._offset)
        try:
            at, data, following = await self._logs(self._name, self._offset, limit)
            if data and wanted.needs_times and wanted.follow:
                await self._read_marks()
        except Overloaded:
            return []  # asked again in a while
        except (FileNotFoundError, Unreachable):
            return None
        self._offset = following
        if not data and not wanted.follow:
            return None
        out: list[tuple[int, bytes]] = []
        for ms, part in pieces_of(at, data, self._marks):
            out.append((ms, self._lines.stamped(at, part, self._marks) if wanted.timestamps else part))
            at += len(part)
        return out


async def _in_order(streams: list[_Stream], leave: _Leave, clock: Clock) -> AsyncIterator[bytes]:
    """Of several streams, whichever piece was written first."""
    waiting: dict[_Stream, deque[tuple[int, bytes]]] = {stream: deque() for stream in streams}
    idle: set[_Stream] = set()  # said that there is nothing just now; asked again when the others have nothing either
    while waiting and leave.lasts():
        for stream in [one for one, pieces in waiting.items() if not pieces and one not in idle]:
            got = await stream.more()
            if got is None:
                del waiting[stream]
            elif got:
                waiting[stream].extend(got)
            else:
                idle.add(stream)
        ready = [pieces for pieces in waiting.values() if pieces]
        if ready:
            yield min(ready, key=lambda pieces: pieces[0][0]).popleft()[1]
        elif waiting:
            idle.clear()
            await clock.sleep(POLL_S)


async def _limited(text: AsyncIterator[bytes], wanted: Wanted) -> AsyncIterator[bytes]:
    """Not more bytes than wanted; of several streams' last lines, the last ones of all."""
    left = wanted.limit
    if wanted.tail is not None and not wanted.follow and len(wanted.streams) > 1:
        text = _last_lines([part async for part in text], wanted.tail)
    async for part in text:
        shown = part if left is None else part[:left]
        left = None if left is None else left - len(shown)
        yield shown
        if left == 0:
            return


async def _last_lines(parts: list[bytes], lines: int) -> AsyncIterator[bytes]:
    whole = b"".join(parts)
    yield whole[tail_from(0, whole, lines) :]
