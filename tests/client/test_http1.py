"""HTTP/1.1 as servers speak it, well and badly, read byte by byte from a real socket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from fairlead.client.http1 import Http
from fairlead.client.transport import CannotConnect, Dropped


class Scripted:
    """Answers each request with the next text; counts connections, keeps what it was sent."""

    def __init__(self, answers: list[bytes], piece: int) -> None:
        self._answers = answers
        self._piece = piece
        self.connections = 0
        self.heads: list[str] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while self._answers:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = next((int(line[16:]) for line in head.split("\r\n") if line.lower().startswith("content-length: ")), 0)
                self.heads.append(head + (await reader.readexactly(length)).decode())
                text = self._answers.pop(0)
                for start in range(0, len(text), self._piece):
                    writer.write(text[start : start + self._piece])
                    await writer.drain()
                if b"CLOSE" in text or not text:
                    break
        writer.close()


@contextlib.asynccontextmanager
async def scripted(*answers: bytes, piece: int = 7) -> AsyncIterator[tuple[Scripted, Http]]:
    made = Scripted(list(answers), piece)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    http = Http(made.url + "/base/", None, {"User-Agent": "test"})
    try:
        yield made, http
    finally:
        await http.close()
        server.close()


async def asked(http: Http, method: str = "GET", path: str = "/x", body: bytes = b"") -> tuple[int, bytes]:
    async with asyncio.timeout(120), http.request(method, path, {"a b": "ä&"} if body else {}, {"X": "y"}, body) as answer:
        return answer.status, await answer.read()


@pytest.mark.parametrize(
    ("text", "status", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, b"hello"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, b""),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n", 200, b"abcde"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n0\r\nTrailer: z\r\n\r\n", 200, b""),
        (b"HTTP/1.1 200 OK\r\nX: CLOSE\r\n\r\nto the end", 200, b"to the end"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok", 201, b"ok"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (b"HTTP/1.0 404\r\nContent-Length: 1\r\n\r\n!", 404, b"!"),
    ],
)
@pytest.mark.parametrize("piece", [1, 1000])
async def test_an_answer_is_read_whole_however_it_is_cut(text: bytes, status: int, body: bytes, piece: int) -> None:
    async with scripted(text, piece=piece) as (_, http):
        assert await asked(http) == (status, body)


@pytest.mark.parametrize(
    "text",
    [
        b"", b"SSH-2.0-OpenSSH CLOSE\r\n\r\n", b"HTTP/1.1 abc CLOSE\r\n\r\n",
        b"HTTP/1.1 200 OK CLOSE\r\nContent-Length: 9\r\n\r\nhalf",
        b"HTTP/1.1 200 OK CLOSE\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK CLOSE\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK CLOSE\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf", b"HTTP/1.1 200 OK CLOSE\r\nhalf a head",
    ],
)  # fmt: skip
async def test_an_answer_that_is_none_or_breaks_off_is_dropped(text: bytes) -> None:
    async with scripted(text) as (_, http):
        with pytest.raises(Dropped):
            await asked(http)


async def test_a_connection_carries_one_request_after_the_other() -> None:
    good = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    async with scripted(good, good, b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", good) as (
        server,
        http,
    ):
        for _ in range(4):
            assert await asked(http) == (200, b"ok")
        assert server.connections == 2, "the third answer closed the first one"


async def test_an_answer_that_is_left_half_read_is_not_read_on_by_the_next_request() -> None:
    long = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + b"x" * 100
    async with scripted(long, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") as (server, http):
        async with http.request("GET", "/x", {}, {}, b"") as answer:
            assert answer.status == 200
        assert await asked(http) == (200, b"ok")
        assert server.connections == 2


async def test_what_is_sent() -> None:
    async with scripted(b"HTTP/1.1 200 OK\r\nWarning: one\r\nWARNING: two\r\nContent-Length: 0\r\n\r\n") as (server, http):
        async with http.request("PUT", "/p", {"a b": "ä&"}, {"X": "y"}, b"body") as answer:
            assert answer.headers("warning") == ["one", "two"]
            assert answer.header("nothing") == ""
        head = server.heads[0]
        assert head.startswith("PUT /base/p?a+b=%C3%A4%26 HTTP/1.1\r\n")
        assert {"User-Agent: test", "X: y", "Content-Length: 4", f"Host: {server.url[7:]}"} <= set(head.split("\r\n"))
        assert head.endswith("\r\n\r\nbody")


@pytest.mark.parametrize("server", ["http://127.0.0.1:9", "http://[::1]:9", "http://no-such-host.invalid"])
async def test_nobody_there_is_told_before_anything_is_sent(server: str) -> None:
    with pytest.raises(CannotConnect) as told:
        await asked(Http(server, None, {}))
    assert str(told.value)
    assert not told.value.untrusted


@pytest.mark.parametrize("server", ["", "ftp://x", "localhost:80", "https://"])
async def test_what_is_no_url_is_told(server: str) -> None:
    with pytest.raises(CannotConnect, match="not a URL"):
        Http(server, None, {})
