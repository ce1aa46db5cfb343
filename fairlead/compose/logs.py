"""What a workload's processes wrote, over HTTP: found on whichever plane has the slot, brought from the agent that runs it.

GET /apis/fairlead.dev/v1alpha1/namespaces/TENANT/workloads/NAME/log, with Kubernetes' parameters (docs/cli.md lists them). Plain
text, byte for byte as it was written; failures are `Status` objects. The caller must be allowed `get workloads/logs` in that
tenant, and is asked again for as long as it follows. What of a stream is wanted is decided in log_spans.py.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, Protocol

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from fairlead.api.access import Authenticate, Authorise, Identity, refuse_impersonation
from fairlead.api.app import refusal
from fairlead.api.failures import Failure, busy
from fairlead.api.rules import Ask, Rules, rules_of
from fairlead.client.decisions import DecisionQuery, ExplainedPage
from fairlead.client.plane import Change, Expired, Overloaded
from fairlead.client.resources import ChangePage, Unreachable
from fairlead.compose.log_spans import MARKS_BYTES, TAIL_BYTES, Lines, Marks, Wanted, marks_of, pieces_of, span_of, tail_from
from fairlead.model.lifecycle import SlotState
from fairlead.ports import Clock, Random

PATH: Final = "/apis/fairlead.dev/v1alpha1/namespaces/{tenant}/workloads/{name}/log"
TEXT: Final = "text/plain; charset=utf-8"
CHUNK: Final = 64 * 1024
AGAIN_S: Final = 10.0  # after which another stream may have ended
POLL_S: Final = 0.25
SLOTS_SHOWN: Final = 20
KEPT_MIN: Final = 10  # agents keep what has ended so long, unless they are told otherwise
LOOK_S: Final = 1.0  # between two looks at whether who follows may still read
REFUSALS_MAX: Final = 2  # in a row: rules that are just read anew refuse everybody for a moment
FOLLOW_S: Final = 4 * 3600.0  # then whoever still wants it asks again
FOLLOWERS_MAX: Final = 500  # each asks an agent four times a second
FOLLOWING_MAX: Final = 50  # of one caller
PAGE: Final = 1_000
PAGES_MAX: Final = 5  # of slots of one workload on one plane
_LIVE: Final = frozenset({"Starting", "Ready", "Serving", "Draining", "Failed", "Succeeded"})


class LogSource(Protocol):
    """A plane that can be asked for bindings, for what their processes wrote, and for where those were that are gone."""

    async def get(self, plural: str, tenant: str, name: str, revision: int = 0) -> Change | None: ...

    async def page(
        self, plural: str, tenant: str | None = None, *, after: tuple[str, str] = ("", ""), limit: int = 500, revision: int = 0
    ) -> ChangePage: ...

    async def logs(self, tenant: str, name: str, stream: str, offset: int, limit: int) -> tuple[int, bytes, int]: ...

    async def decisions(self, query: DecisionQuery) -> ExplainedPage: ...


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
    asked = _asked(sources, request.query_params.get("region", ""))
    slot = await _find(asked, tenant, name, wanted.slot) or await _find_ended(asked, tenant, name, wanted.slot)
    if slot is None:
        raise Failure(404, await _no_such(asked, tenant, name, wanted.slot))
    streams = [_Stream(*slot, tenant, stream, wanted, clock) for stream in wanted.streams]
    try:
        kept = [stream for stream in streams if await stream.begin()]
    except Overloaded as error:
        raise busy("its region", error.retry_after_s) from None
    except Unreachable as error:
        raise Failure(503, str(error), retry_after_s=2.0) from None
    if not kept:
        raise Failure(404, f"nothing that {slot[1]} wrote is kept: it did not start, or ended more than {KEPT_MIN} minutes ago")
    text = _limited(_in_order(kept, _Leave(rules, identity, ask, clock), clock), wanted)
    if not wanted.follow:
        return StreamingResponse(text, media_type=TEXT)
    followers.check(identity.name)  # others may have come meanwhile
    return _Following(text, followers, identity.name)


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


# --- which slot ------------------------------------------------------------------------------------------------------------


def _asked(sources: Mapping[str, LogSource], region: str) -> Mapping[str, LogSource]:
    if region and region not in sources:
        raise Failure(400, f"region: there is no region {region[:60]!r} behind this server; there are: {', '.join(sources)}")
    return {region: sources[region]} if region else sources


async def _find(
    sources: Mapping[str, LogSource], tenant: str, workload: str, slot: int | None
) -> tuple[LogSource, str] | None:  # fmt: skip
    """The slot asked for, else the lowest one that runs. A plane that is away is passed over."""
    best: tuple[int, LogSource, str] | None = None
    for region, source in sources.items():
        try:
            if slot is not None:
                if await source.get("bindings", tenant, f"{workload}-{slot}") is not None:
                    return source, f"{workload}-{slot}"
                continue
            lowest = await _lowest(source, tenant, workload)
            if lowest is not None and (best is None or lowest < best[0]):
                best = (lowest, source, f"{workload}-{lowest}")
        except Overloaded as error:
            raise busy(region, error.retry_after_s) from None
        except (Expired, Unreachable):
            continue
    return (best[1], best[2]) if best is not None else None


async def _find_ended(
    sources: Mapping[str, LogSource], tenant: str, workload: str, slot: int | None
) -> tuple[LogSource, str] | None:  # fmt: skip
    """The slot asked for, else the one that was placed last, where no binding tells any more: the decisions do."""
    best: tuple[int, LogSource, str] | None = None
    name = f"{workload}-{slot}" if slot is not None else ""
    asked = DecisionQuery(tenant=tenant, workload=workload, slot=name, outcome=SlotState.BOUND.value, limit=1)
    for region, source in sources.items():
        try:
            found = (await source.decisions(asked)).items
        except Overloaded as error:
            raise busy(region, error.retry_after_s) from None
        except (Expired, Unreachable):
            continue
        if found and (best is None or found[0].decided.time_ms > best[0]):
            best = (found[0].decided.time_ms, source, found[0].attempt.name)
    return (best[1], best[2]) if best is not None else None


async def _no_such(sources: Mapping[str, LogSource], tenant: str, workload: str, slot: int | None) -> str:
    why = f"see `fairlead why wl/{workload} -n {tenant}`"
    if slot is None:
        return f"no slot of {tenant}/{workload} runs or ran anywhere that can be reached; {why}"
    there: set[int] = set()
    for region, source in sources.items():
        try:
            there |= (await _slots(source, tenant, workload)).keys()
        except Overloaded as error:
            raise busy(region, error.retry_after_s) from None
        except (Expired, Unreachable):
            continue
    shown = ", ".join(map(str, sorted(there)[:SLOTS_SHOWN])) + (", ..." if len(there) > SLOTS_SHOWN else "")
    known = f"its slots are {shown}" if there else f"nor is any other; {why}"
    return f"slot {slot} of {tenant}/{workload} is not bound anywhere that can be reached; {known}"


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
        return await self._source.logs(self._tenant, self._slot, stream, offset, limit)

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
