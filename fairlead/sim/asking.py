"""Owns how simulated people ask: through the production client of the resource API, over the simulated network.

The client repeats a request under its key, asks for its receipt and says what it came to; here that is only put into words that
can be held against the journal. Beside it, copies of a request that the network delivers once more, which no client sent. Never
decides what is asked. Called by people.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from types import TracebackType
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import msgspec

from fairlead.client.channel import Closed
from fairlead.client.rest import RestClient
from fairlead.client.rest_errors import ApiError, OutcomeUnknown, Unreachable
from fairlead.client.rest_shapes import JSON, MERGE_PATCH, Link, Resource, Write, Written
from fairlead.client.transport import CannotConnect, Dropped
from fairlead.ports import Clock, Ids
from fairlead.sim.machines import Running
from fairlead.sim.network import End, Network
from fairlead.sim.outside import Names, SimHttp

TIMEOUT_S: Final = 10.0
NOBODY_THERE: Final = 503  # as the status of what reached no server: nothing was changed


class Ask(NamedTuple):
    """One write that somebody wants done."""

    method: str  # POST, PATCH or DELETE
    path: str
    body: Any
    token: str = ""  # of whoever asks; empty: the administrator's

    @property
    def tenant(self) -> str:
        return self.path.split("/")[5] if "/namespaces/" in self.path else ""

    @property
    def resource(self) -> Resource:
        plural = self.path.split("/")[6 if self.tenant else 4]
        return Resource(plural, plural.removesuffix("s"), namespaced=bool(self.tenant))

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class Told(NamedTuple):
    """What a write came to, as far as whoever asked can know."""

    status: int
    object: Mapping[str, Any] = {}
    sure: bool = True  # False: an earlier attempt may still be carried out, whatever this one came to
    shown: bool = True  # False: only its receipt was seen, and the object as it is by now


class Asking:
    """Clients of one program, one for each server it knows."""

    def __init__(self, network: Network, running: Running, names: Names, token: str, clock: Clock, ids: Ids) -> None:
        self._network, self._running, self._names = network, running, names
        self._token = token
        self._clock, self._ids = clock, ids
        self._raw = SimHttp(network, running, names)

    async def write(self, address: str, ask: Ask, key: str, jitter: Callable[[], float]) -> Told | None:
        """None: nobody can say what it came to."""
        client = RestClient(
            Link(address, token=ask.token or self._token), clock=self._clock, ids=self._ids, jitter=jitter, timeout_s=TIMEOUT_S,
            carry=lambda link, headers: Carrying(self._network, self._running, self._names, link.server, headers),
        )  # fmt: skip
        try:
            async with client:
                written = await _sent(client, ask, Write(key=key))
        except ApiError as error:
            return Told(error.code, sure=not error.in_doubt_key)
        except Unreachable:
            return Told(NOBODY_THERE)
        except OutcomeUnknown:
            return None
        return Told(201 if written.created else 200, written.object, shown=not written.receipt)

    async def copy(self, address: str, ask: Ask, key: str) -> Told | None:
        """The same once more, as a network may deliver it: no client hears of it or repeats it."""
        body = msgspec.json.encode(ask.body) if ask.body is not None else b""
        return await self.send(address, ask.method, ask.path, body, key, ask.token)

    async def send(self, address: str, method: str, path: str, body: bytes, key: str, token: str = "") -> Told | None:
        """Those very bytes, once."""
        media = MERGE_PATCH if method == "PATCH" else JSON
        headers = [("authorization", f"Bearer {token or self._token}"), ("content-type", media), ("idempotency-key", key)]
        try:
            answer = await self._raw.request(address, method, path, headers=headers, body=body)
        except (OSError, Closed, TimeoutError):
            return None
        return Told(answer.status, msgspec.json.decode(answer.body) if answer.status < 400 else {})


async def _sent(client: RestClient, ask: Ask, how: Write) -> Written:
    match ask.method:
        case "POST":
            return await client.create(ask.resource, ask.tenant, ask.body, how)
        case "PATCH":
            return await client.patch(ask.resource, ask.tenant, ask.name, ask.body, how)
        case "DELETE":
            return await client.delete(ask.resource, ask.tenant, ask.name, how)
    raise AssertionError(f"nobody asks for {ask.method}")


class Carrying:
    """fairlead.client.transport.Transport: a connection for each request, as HTTP messages and not as their bytes."""

    def __init__(self, network: Network, running: Running, names: Names, address: str, headers: Mapping[str, str]) -> None:
        self._network, self._running, self._names = network, running, names
        self._address = address
        self._headers = headers

    def request(self, method: str, path: str, params: Mapping[str, str], headers: Mapping[str, str], body: bytes) -> _Exchange:
        message = (method, path, urlencode(params).encode(), [*self._headers.items(), *headers.items()], body)
        return _Exchange(self._dial, message)

    async def _dial(self) -> End:
        return await self._network.dial(self._running, self._address, "http", None, self._names[self._address])

    async def close(self) -> None:
        """No connection outlives its request."""


class _Exchange:
    def __init__(self, dial: Callable[[], Any], message: tuple[Any, ...]) -> None:
        self._dial = dial
        self._message = message
        self._end: End | None = None

    async def __aenter__(self) -> _Answer:
        try:
            self._end = end = await self._dial()
        except (OSError, Closed) as error:
            raise CannotConnect(str(error)) from error
        try:
            await end.send(self._message)
            start = await end.receive()
        except (OSError, Closed) as error:
            await end.close()
            raise Dropped(str(error)) from error
        except asyncio.CancelledError:
            await end.close()
            raise
        return _Answer(end, start["status"], [(name.decode(), value.decode()) for name, value in start["headers"]])

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._end is not None:
            await self._end.close()


class _Answer:
    def __init__(self, end: End, status: int, headers: list[tuple[str, str]]) -> None:
        self._end = end
        self._headers = headers
        self.status = status

    def header(self, name: str) -> str:
        return next(iter(self.headers(name)), "")

    def headers(self, name: str) -> list[str]:
        return [value for key, value in self._headers if key == name]

    async def read(self) -> bytes:
        return b"".join([piece async for piece in self.pieces()])

    async def pieces(self) -> AsyncIterator[bytes]:
        more = True
        while more:
            try:
                message = await self._end.receive()
            except (OSError, Closed) as error:
                raise Dropped(str(error)) from error
            more = message.get("more_body", False)
            yield message.get("body", b"")
