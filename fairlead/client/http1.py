"""The little of HTTP/1.1 that a client of the resource API needs, over asyncio's own streams: requests, answers, endless answers.

Here because a command of the command line lives for a tenth of a second, and importing a whole HTTP library takes twice that.
Owns connections and the reading of messages; knows nothing of what they say, repeats nothing and follows nothing. Called by
rest.py alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from types import TracebackType
from typing import Final, NamedTuple
from urllib.parse import urlencode, urlsplit

from fairlead.client.local import path_of, short
from fairlead.client.transport import CannotConnect, Dropped

HEAD_BYTES_MAX: Final = 256 * 1024
IDLE_MAX: Final = 4  # connections kept for the next request
CHUNK: Final = 256 * 1024
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class _Connection(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def is_good(self) -> bool:
        return not self.writer.is_closing() and not self.reader.at_eof()


class Answer:
    """One answer. Its body is read once: whole, or in pieces as they come."""

    def __init__(self, status: int, headers: list[tuple[str, str]], reader: asyncio.StreamReader, has_body: bool) -> None:
        self.status = status
        self._headers = headers
        self._reader = reader
        self.finished = not has_body  # the connection can carry another request

    def header(self, name: str) -> str:
        return next(iter(self.headers(name)), "")

    def headers(self, name: str) -> list[str]:
        return [value for key, value in self._headers if key == name]

    @property
    def keeps_alive(self) -> bool:
        return self.finished and self.header("connection").lower() != "close"

    async def read(self) -> bytes:
        return b"".join([piece async for piece in self.pieces()])

    async def pieces(self) -> AsyncIterator[bytes]:
        if self.finished:
            return
        with _broken():
            if "chunked" in self.header("transfer-encoding").lower():
                async for piece in self._chunks():
                    yield piece
            elif length := self.header("content-length"):
                left = int(length)
                while left:
                    piece = await self._reader.read(min(left, CHUNK))
                    if not piece:
                        raise Dropped("the answer ended before its end")
                    left -= len(piece)
                    yield piece
            else:
                while piece := await self._reader.read(CHUNK):
                    yield piece
                return  # ended by the end of the connection, which carries nothing more
        self.finished = True

    async def _chunks(self) -> AsyncIterator[bytes]:
        while True:
            line = await self._reader.readuntil(b"\r\n")
            left = int(line.split(b";")[0], 16)
            if not left:
                while await self._reader.readuntil(b"\r\n") != b"\r\n":
                    pass
                return
            while left:
                piece = await self._reader.read(min(left, CHUNK))
                if not piece:
                    raise Dropped("the answer ended before its end")
                left -= len(piece)
                yield piece
            await self._reader.readexactly(2)


@contextlib.contextmanager
def _broken() -> Iterator[None]:
    try:
        yield
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
        raise Dropped(str(error) or type(error).__name__) from error


class Http:
    """Requests to one server."""

    def __init__(self, server: str, tls: ssl.SSLContext | None, headers: Mapping[str, str]) -> None:
        self._socket = path_of(server)
        parts = urlsplit("http://localhost" if self._socket else server)
        if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
            raise CannotConnect(f"{server!r} is not a URL such as https://HOST:PORT")
        self._host = parts.hostname
        self._port = parts.port or _DEFAULT_PORTS[parts.scheme]
        self._base = parts.path.rstrip("/")
        self._tls = (tls or ssl.create_default_context()) if parts.scheme == "https" else None
        self._headers = {"Host": parts.netloc.rpartition("@")[2], **headers}
        self._idle: list[_Connection] = []

    async def close(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            await _closed(connection)

    def request(self, method: str, path: str, params: Mapping[str, str], headers: Mapping[str, str], body: bytes) -> Exchange:
        """To be entered. Raises CannotConnect before anything was sent, and Dropped after."""
        target = f"{self._base}{path}" + (f"?{urlencode(params)}" if params else "")
        sized = {"Content-Length": str(len(body))} if body or method not in ("GET", "HEAD") else {}
        lines = [f"{method} {target} HTTP/1.1", *(f"{k}: {v}" for k, v in {**self._headers, **headers, **sized}.items())]
        return Exchange(self, method, "\r\n".join([*lines, "", ""]).encode("latin-1") + body)

    def keep(self, connection: _Connection) -> bool:
        """False: it is of no more use."""
        if not connection.is_good() or len(self._idle) >= IDLE_MAX:
            return False
        self._idle.append(connection)
        return True

    async def connection(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_good():
                return connection
            await _closed(connection)
        try:
            if self._socket:
                with short(self._socket) as path:
                    return _Connection(*await asyncio.open_unix_connection(path, limit=HEAD_BYTES_MAX))
            return _Connection(*await asyncio.open_connection(self._host, self._port, ssl=self._tls, limit=HEAD_BYTES_MAX))
        except ssl.SSLError as error:
            raise CannotConnect(getattr(error, "verify_message", "") or str(error), untrusted=True) from error
        except OSError as error:
            raise CannotConnect(error.strerror or str(error)) from error


class Exchange:
    """One request and its answer. No generator, so that one which is left in the middle of an endless answer ends at once, even
    when the loop itself is ending."""

    def __init__(self, http: Http, method: str, text: bytes) -> None:
        self._http = http
        self._method = method
        self._text = text
        self._connection: _Connection | None = None
        self._answer: Answer | None = None

    async def __aenter__(self) -> Answer:
        self._connection = connection = await self._http.connection()
        try:
            with _broken():
                connection.writer.write(self._text)
                await connection.writer.drain()
                self._answer = await _head(connection.reader, self._method)
        except BaseException:
            connection.writer.transport.abort()
            raise
        return self._answer

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        connection, answer = self._connection, self._answer
        assert connection is not None, "it was entered"
        if answer is None or not answer.keeps_alive or not self._http.keep(connection):
            connection.writer.transport.abort()  # what is left of the answer is of no interest, nor is a goodbye


async def _head(reader: asyncio.StreamReader, method: str) -> Answer:
    while True:
        raw = await reader.readuntil(b"\r\n\r\n")
        first, *rest = raw.decode("latin-1").split("\r\n")
        version, _, told = first.partition(" ")
        if not version.startswith("HTTP/1."):
            raise ValueError(f"an answer that is no HTTP: {first[:60]!r}")
        status = int(told[:3])
        if status >= 200:  # what comes before is only about the way
            break
    headers = [(name.strip().lower(), value.strip()) for name, colon, value in (line.partition(":") for line in rest) if colon]
    return Answer(status, headers, reader, method != "HEAD" and status not in (204, 304))


async def _closed(connection: _Connection) -> None:
    connection.writer.close()
    with contextlib.suppress(OSError, ssl.SSLError, asyncio.TimeoutError):
        async with asyncio.timeout(0.2):  # a goodbye that nobody answers is not waited for
            await connection.writer.wait_closed()
