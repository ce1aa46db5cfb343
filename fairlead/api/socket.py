"""The component channel on the wire: one WebSocket per component or agent, binary frames. Owns the path and the bounds; who may
connect is decided by whoever mounts it, what is answered by the plane's service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from fairlead.client.channel import FRAME_BYTES_MAX, Channel, Closed

PATH: Final = "/fairlead/v1/channel"
PROTOCOL: Final = "fairlead.v1"
POLICY_VIOLATION: Final = 1008
TOO_LARGE: Final = 1009

Serve = Callable[[Channel, WebSocket], Awaitable[None]]
Admit = Callable[[WebSocket], Awaitable[str]]  # empty: welcome; else why not


class SocketChannel:
    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket

    async def send(self, frame: bytes) -> None:
        try:
            await self._socket.send_bytes(frame)
        except (WebSocketDisconnect, RuntimeError) as error:  # Starlette raises RuntimeError after a close of our own
            raise Closed(str(error)) from error

    async def receive(self) -> bytes:
        try:
            frame = await self._socket.receive_bytes()
        except (WebSocketDisconnect, RuntimeError, KeyError) as error:  # KeyError: a text frame, which nobody sends
            raise Closed(str(error)) from error
        if len(frame) > FRAME_BYTES_MAX:
            await self._socket.close(TOO_LARGE)
            raise Closed(f"a frame of {len(frame)} bytes")
        return frame

    async def close(self) -> None:
        if self._socket.client_state is WebSocketState.CONNECTED and self._socket.application_state is WebSocketState.CONNECTED:
            try:
                await self._socket.close()
            except (WebSocketDisconnect, RuntimeError):
                return


def channel_route(serve: Serve, admit: Admit) -> WebSocketRoute:
    async def endpoint(socket: WebSocket) -> None:
        why_not = await admit(socket)
        if why_not:
            await socket.close(POLICY_VIOLATION, why_not[:120])
            return
        await socket.accept(subprotocol=PROTOCOL)
        await serve(SocketChannel(socket), socket)

    return WebSocketRoute(PATH, endpoint)
