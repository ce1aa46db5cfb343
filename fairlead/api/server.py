"""The HTTP server around an application: uvicorn with TLS, bounds before authentication, and a shutdown that ends watches.

Owns connections: how many, how long a handshake and a head may take and how large a head may be, how much may come that is no
request, how long nothing may be asked, how long a client may take nothing of an answer, the client's certificate for whoever
authenticates, graceful ends. Never looks at a request's meaning; how large and slow a body may be is in calls.py. Called by the
composition root; not part of the simulator.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.flow_control import FlowControl

from fairlead.api.identity import PeerProtocol

HANDSHAKE_S: Final = 10.0  # for a TLS handshake; the loop's own bound is a minute
GOODBYE_S: Final = 5.0  # for a client to answer the end of a TLS connection
HEAD_S: Final = 10.0  # for a request's head to arrive, the first one and each on a kept connection
HEAD_BYTES_MAX: Final = 64 * 1024
HEADERS_MAX: Final = 100
_PIECE_BYTES: Final = 4 * 1024  # of what was read, given to the parser at a time: so many heads may wait behind a request
KEEP_ALIVE_S: Final = 75
TAKE_S: Final = 30.0  # a client that takes nothing of its answer for so long has gone
CONNECTIONS_MAX: Final = 10_000  # five thousand agents, a thousand watchers, and room
GRACE_S: Final = 5  # for requests under way when the server is told to stop
FRAME_BYTES_MAX: Final = 8 << 20


class _Flow(FlowControl):
    """uvicorn goes on reading with every request it begins, whatever waits behind it."""

    holds = False  # what was read waits to be parsed: no more of it

    def resume_reading(self) -> None:
        if not self.holds:
            super().resume_reading()


class BoundedHttp(PeerProtocol):
    """uvicorn bounds neither the time nor the size of a request's head and trailers, nor how many requests wait behind one, and
    any byte stops its clock for idle connections: a stranger could hold connections and fill memory for ever."""

    _late: asyncio.TimerHandle | None = None
    _stuck: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _idle_bytes = 0  # since something last came of what arrived: a head, a piece of a body, the beginning of a chunk
    _waiting = b""  # read, and behind a request that waits itself
    _upgraded = False
    flow: _Flow

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _Flow(transport)
        # uvicorn tells the last one that there is room for, when it asks; whoever comes after it is not waited for.
        if self.limit_concurrency is not None and len(self.connections) > self.limit_concurrency:
            self.connections.discard(self)  # it takes nobody's place while it goes
            self._refuse("503 Service Unavailable")
            return
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._waiting = b""
        self._head_came()
        self._taken()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stuck is None:
            self._stuck = self.loop.call_later(TAKE_S, self.transport.abort)

    def resume_writing(self) -> None:
        self._taken()
        super().resume_writing()

    def _taken(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def data_received(self, data: bytes) -> None:
        self._waiting = self._waiting + data if self._waiting else data
        self._parse_some()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._parse_some()

    def handle_websocket_upgrade(self) -> None:
        self._upgraded = True
        super().handle_websocket_upgrade()

    def _parse_some(self) -> None:
        """As far as there is room: while requests of one piece wait behind the one under way, what comes after them stays as it
        is. Reading goes on with whatever is begun last."""
        data, start = self._waiting, 0
        while start < len(data) and not (self.pipeline or self._upgraded or self.transport.is_closing()):
            self._parse(data[start : start + _PIECE_BYTES])
            start += _PIECE_BYTES
        over = self._upgraded or self.transport.is_closing()
        self._waiting = b"" if over else data[start:]
        self.flow.holds = bool(self._waiting)
        if self.flow.holds:
            self.flow.pause_reading()

    def _parse(self, piece: bytes) -> None:
        self._idle_bytes += len(piece)
        idle, self.timeout_keep_alive_task = self.timeout_keep_alive_task, None
        super().data_received(piece)
        if idle is not None:
            if self._is_idle:
                self.timeout_keep_alive_task = idle  # the rest of what was answered already, or nothing that is a request
            else:
                idle.cancel()
        if self._idle_bytes > HEAD_BYTES_MAX + _PIECE_BYTES and not self._upgraded:
            self._refuse("431 Request Header Fields Too Large")

    @property
    def _is_idle(self) -> bool:
        """Nothing is asked, and nothing is about to be."""
        under_way = self.cycle is not None and not self.cycle.response_complete
        return self._late is None and not under_way and not self._upgraded

    def on_message_begin(self) -> None:
        self._head_bytes = 0
        if self._late is None:
            self._await_head()
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._late is None:
            return  # a trailer, behind a body: what the application was told of the request stays as it is
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._head_came()
        if self.transport.is_closing():
            return
        if self._head_bytes > HEAD_BYTES_MAX or len(self.headers) > HEADERS_MAX:
            self._refuse("431 Request Header Fields Too Large")
            return
        super().on_headers_complete()

    def _count(self, size: int) -> None:
        self._head_bytes += size

    def _await_head(self) -> None:
        self._late = self.loop.call_later(HEAD_S, self._head_is_late)

    def _head_is_late(self) -> None:
        if self.pipeline:  # it may be here already, and is not read before its turn
            self._await_head()
        else:
            self._refuse("408 Request Timeout")

    def on_chunk_header(self) -> None:
        self._idle_bytes = 0

    def on_body(self, body: bytes) -> None:
        self._idle_bytes = 0
        if not self.transport.is_closing():  # else it was refused, and nobody waits for a body
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self.transport.is_closing():
            super().on_message_complete()

    def _head_came(self) -> None:
        self._idle_bytes = 0
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _refuse(self, status: str, body: bytes = b"") -> None:
        self._head_came()
        if not self.transport.is_closing():
            head = f"HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
            self.transport.write(head.encode() + body)
            self.transport.close()


class _Config(uvicorn.Config):
    """uvicorn makes TLS contexts from files; ours comes made, so that its owner can load a renewed certificate into it."""

    context: ssl.SSLContext | None = None

    def load(self) -> None:
        super().load()
        self.ssl = self.context

    @property
    def is_ssl(self) -> bool:
        return False  # of the files that are not given


class Server(uvicorn.Server):
    """`serve()` runs it; `stop()` ends it gracefully: watches with a last chunk, requests within their grace."""

    protocol: type[BoundedHttp] = BoundedHttp

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the program's: it stops this server when everything else is ready for it."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, with bounds on the handshake, which it has no setting for."""
        await self.lifespan.startup()
        config = self.config
        tls: dict[str, Any] = (
            {} if config.ssl is None else {"ssl_handshake_timeout": HANDSHAKE_S, "ssl_shutdown_timeout": GOODBYE_S}
        )
        where: dict[str, Any] = {"sock": sockets[0]} if sockets else {"host": config.host, "port": config.port}

        def protocol() -> asyncio.Protocol:
            return self.protocol(config=config, server_state=self.server_state, app_state=self.lifespan.state)

        loop = asyncio.get_running_loop()
        local = sockets is not None and sockets[0].family == socket.AF_UNIX
        create: Any = loop.create_unix_server if local else loop.create_server
        self.servers = [await create(protocol, ssl=config.ssl, backlog=config.backlog, **where, **tls)]
        self.started = True

    def stop(self) -> None:
        self._drain()
        self.should_exit = True

    def _drain(self) -> None:
        app: Any = self.config.app
        watches = getattr(getattr(app, "state", None), "watches", None)
        if watches is not None:
            watches.drain()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._drain()
        await super().shutdown(sockets)

    @property
    def port(self) -> int:
        """Of the first listener; known once `started`."""
        found: int = self.servers[0].sockets[0].getsockname()[1]
        return found


def make_server(
    app: Starlette,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    tls: ssl.SSLContext | None = None,
    insecure_ok: bool = False,
    connections_max: int = CONNECTIONS_MAX,
) -> Server:
    """A server that listens on loopback only, unless it speaks TLS. `tls` may be given renewed certificates while it runs."""
    if tls is None and not insecure_ok and host not in ("127.0.0.1", "::1", "localhost"):
        raise ValueError(f"refusing to listen on {host} without TLS")
    config = _Config(
        app,
        host=host,
        port=port,
        http=BoundedHttp,
        ws="wsproto",
        ws_max_size=FRAME_BYTES_MAX,
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=True,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
        limit_concurrency=connections_max,
    )
    config.context = tls
    return Server(config)
