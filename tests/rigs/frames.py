"""How the rigs talk to a plane server: length-prefixed msgpack frames on a unix socket, one question and one answer at a time.

Owns the frames, the answers and the client's end of a connection. It decides nothing: a broken connection raises, and what that
means for the commands under way is for the caller to say. Test code, not a product API. Used by plane_server.py and the rigs.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from fairlead.model import codec
from fairlead.model.commands import Accepted, Command, Outcome, Refused
from fairlead.model.journal import decode_command

FRAME_BYTES_MAX = 8 * 1024 * 1024


class Answer(msgspec.Struct, frozen=True):
    """An outcome as it crosses the socket."""

    kind: str  # accepted, refused or unknown
    revision: int = 0
    uid: str = ""
    epoch: int = 0
    replayed: bool = False
    reason: str = ""
    detail: str = ""


class Status(msgspec.Struct, frozen=True):
    leading: bool
    epoch: int
    revision: int
    counts: dict[str, int]


Broken = (ConnectionError, asyncio.IncompleteReadError, OSError)


def answer_of(outcome: Outcome) -> Answer:
    if isinstance(outcome, Accepted):
        return Answer("accepted", outcome.revision, outcome.uid, outcome.epoch, outcome.replayed)
    if isinstance(outcome, Refused):
        return Answer("refused", reason=outcome.reason, detail=outcome.detail)
    return Answer("unknown", detail=outcome.detail)


def pack(command: Command) -> bytes:
    return codec.encode(command)


def unpack(raw: bytes) -> Command:
    command = decode_command(raw)
    assert command is not None
    return command


async def read_frame(reader: asyncio.StreamReader) -> Any:
    size = int.from_bytes(await reader.readexactly(4), "big")
    assert size <= FRAME_BYTES_MAX, f"a frame of {size} bytes"
    return msgspec.msgpack.decode(await reader.readexactly(size))


def write_frame(writer: asyncio.StreamWriter, value: Any) -> None:
    body = msgspec.msgpack.encode(value)
    writer.write(len(body).to_bytes(4, "big") + body)


class Connection:
    """The client's end. Every call raises one of `Broken` when the server is gone."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, socket: str) -> Connection:
        return cls(*await asyncio.open_unix_connection(socket))

    @classmethod
    async def open_leader(cls, socket: str, retry_s: float = 0.02) -> Connection:
        """Waits until somebody serves there and leads."""
        while True:
            try:
                connection = await cls.open(socket)
            except OSError:
                await asyncio.sleep(retry_s)
                continue
            try:
                await connection.wait_leading()
                return connection
            except Broken:
                connection.close()

    async def ask(self, op: str, *args: Any) -> Any:
        write_frame(self._writer, [op, args])
        await self._writer.drain()
        return await read_frame(self._reader)

    async def submit(self, commands: list[bytes]) -> list[Answer]:
        return msgspec.convert(await self.ask("submit", commands), list[Answer])

    async def receipt(self, actor: str, key: str) -> Answer | None:
        return msgspec.convert(await self.ask("receipt", actor, key), Answer | None)

    async def heartbeat(self, nodes: list[str]) -> Answer:
        return msgspec.convert(await self.ask("heartbeat", nodes), Answer)

    async def get(self, plural: str, tenant: str, name: str) -> tuple[int, bytes] | None:
        return msgspec.convert(await self.ask("get", plural, tenant, name), tuple[int, bytes] | None)

    async def status(self) -> Status:
        return msgspec.convert(await self.ask("status"), Status)

    async def wait_leading(self) -> None:
        await self.ask("wait_leading")

    async def wait_deposed(self) -> None:
        await self.ask("wait_deposed")

    def close(self) -> None:
        self._writer.transport.abort()
