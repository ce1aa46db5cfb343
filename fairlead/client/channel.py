"""One standing connection between a component and a plane, in frames. What carries them is somebody else's: a WebSocket in
production (fairlead/api/socket.py), a simulated link in the simulator, a pair of queues in tests.

A request is [number, operation, arguments]; its answer [number, ANSWER, result] or [number, REFUSAL, reason, detail]. A feed
is a request whose answers go on: [number, CHANGES, revision, changes] until [number, ENDED, detail, oldest], or until whoever
follows says [another number, "unfollow", number], which is not answered. Fields may only be added at the end. Owns the frames'
shape; knows nothing of planes.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import msgspec

from fairlead.model import codec

ANSWER: Final = 0
REFUSAL: Final = 1
CHANGES: Final = 2
ENDED: Final = 3
ASKED: Final = 4  # the server asks whoever attends: [number, ASKED, question, operation, arguments]; answered by a request

VERSION: Final = 2  # of this protocol; told in hello, so that versions N and N-1 can speak with each other
UNFOLLOWS: Final = 2  # since this version a feed is ended by whoever follows; before, by the end of the connection alone
REQUESTS_MAX: Final = 128  # of one connection, under way at once; one more is refused as Overloaded
FRAME_BYTES_MAX: Final = 8 << 20
CHANGES_MAX: Final = 2_000  # in one frame: about half a megabyte


class Closed(Exception):
    """The connection is gone. What was asked and not answered may or may not have happened."""


class Channel(Protocol):
    async def send(self, frame: bytes) -> None: ...

    async def receive(self) -> bytes:
        """The next frame. Raises Closed."""

    async def close(self) -> None: ...


class Row(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One version of one object on the wire; raw None: it is gone."""

    plural: str
    tenant: str
    name: str
    position: int
    raw: bytes | None = None


class ReadRow(Row, frozen=True, gc=False, array_like=True):
    """One that was read by its name."""

    incarnation: int = 0  # of the plane, when it was read; 0: by a server that does not say so


def encode(frame: list[Any]) -> bytes:
    return codec.encode(frame)


_decode = msgspec.msgpack.Decoder(list[Any]).decode


def decode(frame: bytes) -> list[Any]:
    """Raises ValueError for what is no frame."""
    if len(frame) > FRAME_BYTES_MAX:
        raise ValueError(f"a frame of {len(frame)} bytes, at most {FRAME_BYTES_MAX}")
    found = _decode(frame)
    if len(found) < 2 or not isinstance(found[0], int):
        raise ValueError("a frame is [number, operation or kind, ...]")
    return found


def rows_of(plain: Any) -> list[Row]:
    return [codec.convert(item, Row) for item in plain]
