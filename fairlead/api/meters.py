"""What the API counts: requests by verb, resource and code, how long they took, how many are under way.

An ASGI layer around the application, so that no handler knows of it. Labels come from the catalogue and from HTTP's own words;
whatever a stranger makes up is "other". Put around the application by the composition root; read by fairlead/compose/metrics.py.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairlead.api.calls import QUERY_BYTES_MAX
from fairlead.api.catalogue import GROUPS
from fairlead.observe.histogram import Histogram
from fairlead.ports import Clock

_FIXED: Final = {
    "api": "discovery", "apis": "discovery", "openapi": "openapi", "version": "version", "metrics": "metrics",
    "livez": "health", "healthz": "health", "readyz": "health",
}  # fmt: skip
_OF_ONE: Final = {"GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_OF_MANY: Final = {"GET": "list", "HEAD": "list", "POST": "create", "DELETE": "deletecollection"}
_WATCHING: Final = (b"true", b"1")
OTHER: Final = "other"


class ApiMeters:
    def __init__(self) -> None:
        self.requests: dict[tuple[str, str, int], int] = {}
        self.durations: dict[tuple[str, str], Histogram] = {}
        self.in_flight: dict[str, int] = {}

    def began(self, verb: str) -> None:
        self.in_flight[verb] = self.in_flight.get(verb, 0) + 1

    def ended(self, verb: str, resource: str, code: int, seconds: float) -> None:
        self.in_flight[verb] -= 1
        key = (verb, resource, code)
        self.requests[key] = self.requests.get(key, 0) + 1
        if verb == "watch":
            return  # it takes as long as its client likes
        histogram = self.durations.get((verb, resource))
        if histogram is None:
            histogram = self.durations[verb, resource] = Histogram()
        histogram.observe(seconds)


def labels_of(method: str, path: str, query: bytes) -> tuple[str, str]:
    """(verb, resource) of a request, whoever sent it: from closed sets, so that nobody can fill our memory with labels."""
    segments = path.strip("/").split("/")
    rest: list[str]
    match segments:
        case ["api", version, *rest] if rest:
            resources = GROUPS.get(("", version))
        case ["apis", group, version, *rest] if rest:
            resources = GROUPS.get((group, version))
        case _:
            return _OF_ONE.get(method, OTHER), _FIXED.get(segments[0], OTHER)
    if rest[0] == "namespaces" and len(rest) > 2:
        rest = rest[2:]
    resource = resources.get(rest[0]) if resources is not None else None
    if resource is None:
        return _OF_ONE.get(method, OTHER), OTHER
    sub = resource.sub(rest[2]) if len(rest) > 2 else None
    plural = f"{resource.plural}/{sub.name}" if sub is not None else resource.plural
    if len(rest) > 1:
        return _OF_ONE.get(method, OTHER), plural
    verb = _OF_MANY.get(method, OTHER)
    if verb == "list" and is_watch(query):
        verb = "watch"
    return verb, plural


def is_watch(query: bytes) -> bool:
    """As the handlers read it: of a word that stands there twice, the last counts."""
    if b"watch=" not in query or len(query) > QUERY_BYTES_MAX:
        return False
    said = [value for name, value in parse_qsl(query, keep_blank_values=True) if name == b"watch"]
    return bool(said) and said[-1] in _WATCHING


class Metered:
    def __init__(self, app: ASGIApp, meters: ApiMeters, clock: Clock) -> None:
        self._app = app
        self._meters = meters
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        verb, resource = labels_of(scope["method"], scope["path"], scope.get("query_string", b""))
        code = 0  # the client went before there was one

        async def counted(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = message["status"]
            await send(message)

        began = self._clock.monotonic()
        self._meters.began(verb)
        try:
            await self._app(scope, receive, counted)
        finally:
            self._meters.ended(verb, resource, code, self._clock.monotonic() - began)
