"""What a workload's processes wrote, over HTTP: found on whichever plane has the slot, brought from the agent that runs it.

GET /apis/fairlead.dev/v1alpha1/namespaces/TENANT/workloads/NAME/log, with Kubernetes' parameters (docs/cli.md lists them). Plain
text, byte for byte as it was written; failures are `Status` objects. The caller must be allowed `get workloads/logs` in that
tenant. What of a stream is wanted is decided in log_spans.py.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from fairlead.api.access import Authenticate, Authorise, refuse_impersonation
from fairlead.api.app import refusal
from fairlead.api.failures import Failure, busy
from fairlead.client.decisions import DecisionQuery, ExplainedPage
from fairlead.client.plane import Change, Expired, Overloaded
from fairlead.client.resources import Unreachable
from fairlead.compose.log_spans import MARKS_BYTES, TAIL_BYTES, Lines, Marks, Wanted, marks_of, pieces_of, span_of, tail_from
from fairlead.model.lifecycle import SlotState
from fairlead.ports import Clock

PATH: Final = "/apis/fairlead.dev/v1alpha1/namespaces/{tenant}/workloads/{name}/log"
CHUNK: Final = 64 * 1024
POLL_S: Final = 0.25
SLOTS_SHOWN: Final = 20
KEPT_MIN: Final = 10  # agents keep what has ended so long, unless they are told otherwise
_LIVE: Final = frozenset({"Starting", "Ready", "Serving", "Draining", "Failed", "Succeeded"})


class LogSource(Protocol):
    """A plane that can be asked for bindings, for what their processes wrote, and for where those were that are gone."""

    async def get(self, plural: str, tenant: str, name: str, revision: int = 0) -> Change | None: ...

    async def list(self, plural: str) -> Any: ...

    async def logs(self, tenant: str, name: str, stream: str, offset: int, limit: int) -> tuple[int, bytes, int]: ...

    async def decisions(self, query: DecisionQuery) -> ExplainedPage: ...


def log_route(sources: Mapping[str, LogSource], authenticate: Authenticate, authorise: Authorise, clock: Clock) -> Route:
    async def endpoint(request: Request) -> Response:
        try:
            return await _answer(request, sources, authenticate, authorise, clock)
        except Failure as failure:
            return refusal(failure.about("workloads", request.path_params["name"]))

    return Route(PATH, endpoint, methods=["GET"])


async def _answer(
    request: Request, sources: Mapping[str, LogSource], authenticate: Authenticate, authorise: Authorise, clock: Clock
) -> Response:
    tenant, name = request.path_params["tenant"], request.path_params["name"]
    found: Any = authenticate(request)
    identity = await found if inspect.isawaitable(found) else found
    if identity is None:
        raise Failure(401, "Unauthorized: no token and no client certificate")
    refuse_impersonation(request, identity)
    if not authorise(identity, "get", "workloads", tenant, name, "logs"):
        raise Failure(403, f'User "{identity.name}" cannot get resource "workloads/logs" in the namespace "{tenant}"')
    wanted = Wanted.of(request.query_params)
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
    text = _limited(_in_order(kept, wanted, clock), wanted)
    return StreamingResponse(text, media_type="text/plain; charset=utf-8")


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
            for change in await source.list("bindings"):
                name, _, index = change.name.rpartition("-")
                live = change.hot is not None and change.hot.state.value in _LIVE
                if (change.tenant, name) == (tenant, workload) and live and (best is None or int(index) < best[0]):
                    best = (int(index), source, change.name)
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
    for source in sources.values():
        try:
            found = (await source.decisions(asked)).items
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
    for source in sources.values():
        with suppress(Expired, Unreachable):
            names = [change.name.rpartition("-") for change in await source.list("bindings") if change.tenant == tenant]
            there |= {int(index) for name, _, index in names if name == workload}
    shown = ", ".join(map(str, sorted(there)[:SLOTS_SHOWN])) + (", ..." if len(there) > SLOTS_SHOWN else "")
    known = f"its slots are {shown}" if there else f"nor is any other; {why}"
    return f"slot {slot} of {tenant}/{workload} is not bound anywhere that can be reached; {known}"


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


async def _in_order(streams: list[_Stream], wanted: Wanted, clock: Clock) -> AsyncIterator[bytes]:
    """Of several streams, whichever piece was written first."""
    waiting: dict[_Stream, deque[tuple[int, bytes]]] = {stream: deque() for stream in streams}
    idle: set[_Stream] = set()  # said that there is nothing just now; asked again when the others have nothing either
    while waiting:
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
