"""The component channel over a unix socket: how a rig's processes reach a plane server as schedulers and agents would.

Owns the framing of a byte stream and nothing else: the calls are fairlead/client/remote.py's at one end and
fairlead/authority/service.py's at the other. Test code, not a product API. Used by plane_server.py and scheduler_process.py.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from fairlead.authority.service import PlaneService
from fairlead.client.channel import FRAME_BYTES_MAX, Channel, Closed
from fairlead.client.remote import RemotePlane
from fairlead.ports import SystemClock

_LOST = (ConnectionError, asyncio.IncompleteReadError, OSError)


class StreamChannel:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, frame: bytes) -> None:
        try:
            self._writer.write(len(frame).to_bytes(4, "big") + frame)
            await self._writer.drain()
        except _LOST as error:
            raise Closed(str(error)) from error

    async def receive(self) -> bytes:
        try:
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            assert size <= FRAME_BYTES_MAX, f"a frame of {size} bytes"
            return await self._reader.readexactly(size)
        except _LOST as error:
            raise Closed(str(error)) from error

    async def close(self) -> None:
        self._writer.transport.abort()


async def dial(path: str) -> Channel:
    return StreamChannel(*await asyncio.open_unix_connection(path))


def plane_at(path: str, name: str, seed: int = 1) -> RemotePlane:
    """Its `run` keeps the connection."""
    return RemotePlane([path], dial, SystemClock(), random.Random(seed), name)


async def serve(service: PlaneService, path: Path) -> asyncio.Server:
    path.unlink(missing_ok=True)  # a killed predecessor could not

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await service.serve(StreamChannel(reader, writer))

    return await asyncio.start_unix_server(connected, str(path))
