"""What a stranger may send on a connection, how long one may last that asks nothing, and how many requests wait on it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from starlette.responses import Response

from fairlead.api import server
from tests.api.doors import listening

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]
GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
ENOUGH = 1_000_000


class Listening:
    def __init__(self, port: int, protocols: list[server.BoundedHttp], scopes: list[Any]) -> None:
        self.port = port
        self.protocols = protocols
        self.scopes = scopes

    async def connect(self) -> Pair:
        return await asyncio.open_connection("127.0.0.1", self.port)


Work = Callable[[Any], Awaitable[None]]


async def at_once(receive: Any) -> None:
    return None


async def whole_body(receive: Any) -> None:
    while (await receive()).get("more_body"):
        pass


@contextlib.asynccontextmanager
async def turning_away(
    monkeypatch: pytest.MonkeyPatch, work: Work = at_once, connections_max: int = server.CONNECTIONS_MAX
) -> AsyncIterator[Listening]:
    """A server that answers everybody with 401, after some work."""
    protocols: list[server.BoundedHttp] = []
    scopes: list[Any] = []

    class Told(server.BoundedHttp):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            protocols.append(self)
            super().connection_made(transport)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scopes.append(scope)
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
            await receive()
            return
        await work(receive)
        await Response(b"no", 401)(scope, receive, send)

    monkeypatch.setattr(server.Server, "protocol", Told)
    async with listening(app, None, connections_max) as listener:  # type: ignore[arg-type]
        yield Listening(listener.port, protocols, scopes)


async def ended(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(30):
        try:
            return await reader.read()
        except ConnectionError:
            return b""


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not true():
            await asyncio.sleep(0.005)


@pytest.mark.parametrize(
    "beginning",
    [b"0\r\nA: ", b"0\r\n" + b"A: b\r\n" * 20_000, b"1;", b"0\r\n\r\n" + b"\r\n" * 50_000],
    ids=["one long trailer", "many trailers", "an extension of a chunk", "empty lines"],
)
async def test_what_comes_to_nothing_is_not_taken_without_end(beginning: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    async with turning_away(monkeypatch) as listener:
        reader, writer = await listener.connect()
        writer.write(CHUNKED)
        assert b"401" in await reader.readline()
        writer.write(beginning + b"a" * 200_000)
        await ended(reader)
        writer.close()
        assert listener.protocols[0].transport.is_closing()


async def test_a_trailer_changes_nothing_of_what_the_application_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async with turning_away(monkeypatch, whole_body) as listener:
        reader, writer = await listener.connect()
        writer.write(CHUNKED)
        await until(lambda: len(listener.scopes) == 1)
        writer.write(b"2\r\nhi\r\n0\r\nAuthorization: Bearer x\r\n\r\n" + GET)
        for _ in range(2):
            assert b"401" in await reader.readline()
            await reader.readuntil(b"no")
        assert [name for name, _ in listener.scopes[0]["headers"]] == [b"host", b"transfer-encoding"]
        writer.close()


@pytest.mark.parametrize("dribble", [b"\r\n", b"1\r\na\r\n"], ids=["empty lines", "a body that was answered already"])
async def test_no_byte_holds_a_connection_on_which_nothing_is_asked(dribble: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "KEEP_ALIVE_S", 0.4)
    async with turning_away(monkeypatch) as listener:
        reader, writer = await listener.connect()
        writer.write(CHUNKED if dribble[:1] == b"1" else GET)
        await reader.readuntil(b"no")
        writer.write(dribble)
        await ended(reader)
        writer.close()


async def test_a_request_on_a_kept_connection_has_all_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "KEEP_ALIVE_S", 0.2)
    slow: list[float] = [0.0, 0.6]

    async def work(receive: Any) -> None:
        await asyncio.sleep(slow.pop(0))

    async with turning_away(monkeypatch, work) as listener:
        reader, writer = await listener.connect()
        for _ in range(2):
            writer.write(GET)
            await reader.readuntil(b"no")
        await ended(reader)
        writer.close()


async def test_a_channel_on_a_kept_connection_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "KEEP_ALIVE_S", 0.2)
    async with turning_away(monkeypatch) as listener:
        reader, writer = await listener.connect()
        writer.write(GET)
        await reader.readuntil(b"no")
        key = b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n" + key)
        assert b"101" in await reader.readline()
        await reader.readuntil(b"\r\n\r\n")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await reader.read()
        writer.close()


async def test_requests_sent_ahead_are_all_answered_and_few_of_them_wait_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    async with turning_away(monkeypatch) as listener:
        reader, writer = await listener.connect()
        count, most = 6_000, 0
        writer.write(GET * count)
        async with asyncio.timeout(30):
            for _ in range(count):
                most = max(most, len(listener.protocols[0].pipeline))
                await reader.readuntil(b"no")
        assert 1 < most < 400
        assert len(listener.scopes) == count
        writer.close()


async def test_what_waits_its_turn_is_left_with_the_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(receive: Any) -> None:
        await whole_body(receive)
        for _ in range(5):  # the loop has time to read more
            await asyncio.sleep(0)

    async with turning_away(monkeypatch, work) as listener:
        reader, writer = await listener.connect()
        count, most = 3_000, 0
        writer.write(GET.replace(b"host: x", b"host: " + b"x" * 1_000) * count)
        async with asyncio.timeout(30):
            for _ in range(count):
                most = max(most, len(listener.protocols[0]._waiting))
                await reader.readuntil(b"no")
        assert 0 < most < ENOUGH
        writer.close()


async def test_a_head_that_waits_its_turn_is_not_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_S", 0.2)
    gate = asyncio.Event()

    async def work(receive: Any) -> None:
        await gate.wait()

    async with turning_away(monkeypatch, work) as listener:
        reader, writer = await listener.connect()
        writer.write(GET * 2 + GET.replace(b"host: x", b"host: " + b"x" * 10_000))
        await until(lambda: bool(listener.protocols and listener.protocols[0].pipeline))
        await asyncio.sleep(0.5)
        gate.set()
        async with asyncio.timeout(30):
            for _ in range(3):
                assert b"401" in await reader.readline()
                await reader.readuntil(b"no")
        writer.close()


async def test_a_body_behind_another_request_comes_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    async with turning_away(monkeypatch, whole_body) as listener:
        reader, writer = await listener.connect()
        large = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % ENOUGH + b"a" * ENOUGH
        writer.write(GET + large + large + GET)
        async with asyncio.timeout(30):
            for _ in range(4):
                assert b"401" in await reader.readline()
                await reader.readuntil(b"no")
        writer.close()


async def test_one_connection_too_many_is_refused_before_it_says_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    async with turning_away(monkeypatch, connections_max=3) as listener:
        held = [await listener.connect() for _ in range(3)]
        await until(lambda: len(listener.protocols) == 3)
        reader, writer = await listener.connect()
        assert (await ended(reader)).startswith(b"HTTP/1.1 503")
        writer.close()
        for _, other in held[:2]:
            other.close()
        await until(lambda: len(listener.protocols[0].connections) == 1)
        reader, writer = await listener.connect()
        writer.write(GET)
        assert b"401" in await reader.readline()
        for _, other in (held[2], (reader, writer)):
            other.close()
