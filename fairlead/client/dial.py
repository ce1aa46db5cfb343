"""Opens channels over WebSockets. The one place in the client that knows how frames travel in production."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Mapping
from typing import Final

import aiohttp

from fairlead.client.channel import FRAME_BYTES_MAX, Channel, Closed

PATH: Final = "/fairlead/v1/channel"
PROTOCOL: Final = "fairlead.v1"
CONNECT_S: Final = 5.0
HEARTBEAT_S: Final = 10.0  # a ping this often, so that a half-open connection is noticed


class SocketChannel:
    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket

    async def send(self, frame: bytes) -> None:
        try:
            await self._socket.send_bytes(frame)
        except (ConnectionError, RuntimeError, aiohttp.ClientError) as error:
            raise Closed(str(error)) from error

    async def receive(self) -> bytes:
        try:
            message = await self._socket.receive()  # answers a ping by itself, into a connection that may be gone by then
        except (ConnectionError, RuntimeError, aiohttp.ClientError) as error:
            raise Closed(str(error)) from error
        if message.type is aiohttp.WSMsgType.BINARY:
            return bytes(message.data)
        raise Closed(f"{message.type.name} {self._socket.close_code or ''}".strip())

    async def close(self) -> None:
        with contextlib.suppress(ConnectionError, RuntimeError, aiohttp.ClientError):  # the other end was first
            await self._socket.close()


class Dialer:
    """Addresses are `https://HOST:PORT` or, on loopback only, `http://HOST:PORT`. A function is asked for its context before each
    connection, so that new certificates are used without a restart."""

    def __init__(
        self, tls: ssl.SSLContext | Callable[[], ssl.SSLContext] | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        self._tls = tls
        self._headers = dict(headers or {})
        self._session: aiohttp.ClientSession | None = None

    async def dial(self, address: str) -> Channel:
        if self._session is None:
            self._session = aiohttp.ClientSession()
        try:
            tls = self._tls if isinstance(self._tls, ssl.SSLContext) or self._tls is None else self._tls()
            async with asyncio.timeout(CONNECT_S):  # a network that is cut says nothing at all
                socket = await self._session.ws_connect(
                    address.rstrip("/") + PATH,
                    protocols=(PROTOCOL,),
                    headers=self._headers,
                    ssl=tls if tls is not None else True,
                    max_msg_size=FRAME_BYTES_MAX,
                    heartbeat=HEARTBEAT_S,
                    timeout=aiohttp.ClientWSTimeout(ws_close=1.0),
                )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Closed(f"{address}: {error}") from error
        return SocketChannel(socket)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
