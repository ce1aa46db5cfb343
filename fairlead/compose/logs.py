"""What a workload's processes wrote, over HTTP: found on whichever plane has the slot, brought from the agent that runs it.

GET /apis/fairlead.dev/v1alpha1/namespaces/TENANT/workloads/NAME/log, with slot, tailLines, follow and stream. Plain text, byte
for byte as it was written. The caller must be allowed `get workloads/logs` in that tenant.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, Protocol

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from fairlead.api.access import Authenticate, Authorise
from fairlead.client.plane import Change, Expired
from fairlead.client.resources import Unreachable
from fairlead.ports import Clock

PATH: Final = "/apis/fairlead.dev/v1alpha1/namespaces/{tenant}/workloads/{name}/log"
CHUNK: Final = 64 * 1024
TAIL_BYTES: Final = 256 * 1024  # looked through for the last lines
POLL_S: Final = 0.25
_LIVE: Final = frozenset({"Starting", "Ready", "Serving", "Draining", "Failed", "Succeeded"})


class LogSource(Protocol):
    """A plane that can be asked for bindings and for what their processes wrote."""

    async def get(self, plural: str, tenant: str, name: str, revision: int = 0) -> Change | None: ...

    async def list(self, plural: str) -> Any: ...

    async def logs(self, tenant: str, name: str, stream: str, offset: int, limit: int) -> tuple[int, bytes, int]: ...


def log_route(sources: Mapping[str, LogSource], authenticate: Authenticate, authorise: Authorise, clock: Clock) -> Route:
    async def endpoint(request: Request) -> Response:
        tenant, name = request.path_params["tenant"], request.path_params["name"]
        identity: Any = authenticate(request)
        if identity is None:
            return PlainTextResponse("no token and no client certificate\n", 401)
        if not authorise(identity, "get", "workloads", tenant, name, "logs"):
            return PlainTextResponse(f"{identity.name} may not read the logs of {tenant}/{name}\n", 403)
        try:
            wanted = _Wanted(request)
        except ValueError as error:
            return PlainTextResponse(f"{error}\n", 400)
        found = await _find(sources, tenant, name, wanted.slot)
        if found is None:
            return PlainTextResponse(f"no slot of {tenant}/{name} runs or ran anywhere that can be reached\n", 404)
        source, slot = found
        try:
            offset = await _start(source, tenant, slot, wanted)
        except FileNotFoundError:
            return PlainTextResponse(f"nothing of {slot} is kept\n", 404)
        except Unreachable as error:
            return PlainTextResponse(f"{error}\n", 503)
        return StreamingResponse(_text(source, tenant, slot, wanted, offset, clock), media_type="text/plain; charset=utf-8")

    return Route(PATH, endpoint, methods=["GET"])


class _Wanted:
    def __init__(self, request: Request) -> None:
        given = request.query_params
        self.slot = _number(given.get("slot"), "slot")
        self.tail = _number(given.get("tailLines"), "tailLines")
        self.follow = given.get("follow", "false") in ("true", "1")
        self.stream = given.get("stream", "stdout")
        if self.stream not in ("stdout", "stderr"):
            raise ValueError(f"stream is stdout or stderr, not {self.stream!r}")


def _number(text: str | None, name: str) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or len(text) > 9:
        raise ValueError(f"{name} is a whole number, not {text!r}")
    return int(text)


async def _find(
    sources: Mapping[str, LogSource], tenant: str, workload: str, slot: int | None
) -> tuple[LogSource, str] | None:  # fmt: skip
    """The slot asked for, else the lowest one that runs. A plane that is away is passed over."""
    best: tuple[int, LogSource, str] | None = None
    for source in sources.values():
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
        except (Expired, Unreachable):
            continue
    return (best[1], best[2]) if best is not None else None


async def _start(source: LogSource, tenant: str, slot: str, wanted: _Wanted) -> int:
    """Where to begin: at the start, or so many lines before the end."""
    if wanted.tail is None:
        return (await source.logs(tenant, slot, wanted.stream, 0, 1))[0]
    offset, data, _ = await source.logs(tenant, slot, wanted.stream, -TAIL_BYTES, TAIL_BYTES)
    lines = data.splitlines(keepends=True)
    skipped = lines[: max(0, len(lines) - wanted.tail)]
    return offset + sum(len(line) for line in skipped)


async def _text(
    source: LogSource, tenant: str, slot: str, wanted: _Wanted, offset: int, clock: Clock
) -> AsyncIterator[bytes]:  # fmt: skip
    while True:
        try:
            _, data, offset = await source.logs(tenant, slot, wanted.stream, offset, CHUNK)
        except (FileNotFoundError, Unreachable):
            return
        if data:
            yield data
        elif not wanted.follow:
            return
        else:
            await clock.sleep(POLL_S)
