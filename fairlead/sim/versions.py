"""Owns what programs of the version before do not say and do not hear, so that they run beside those of the present one (F18).

A life of a server or an agent may be of the version before. Whatever it sends over a channel, and whatever it is sent, is reduced
to what that version knew: the channel's version 1, in which nobody ends a feed but by hanging up, and no field that was added
since. So are its small files. What decides is the present code in both, and fields of objects stay: a journal has them all.
Called by outside.py for channels, and by platform.py for which life is of which version, and for files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from fairlead.client.channel import ANSWER, Channel, decode, encode
from fairlead.ports import Kept
from fairlead.sim.loop import Draws

BEFORE: Final = 1  # the channel's version that an earlier program speaks

_HEARTBEAT: Final = 7  # "heard" and six fields: not how long it may be counted on
_ROW: Final = 5  # not in which incarnation it was read
_NOW: Final = 2  # not for how long nobody could write
_REPORT: Final = 6  # with its tag: not the session of the agent
_SEEN: Final = 60  # bytes: incarnation, epoch, position, hash and a check of them; not how long agents count on what is said

Reduce = Callable[[Any], Any]


def _commands(arguments: list[Any]) -> list[Any]:
    return [[_command(raw) for raw in arguments[0]]]


def _command(raw: bytes) -> bytes:
    if b"report" not in raw:  # which most are not, and reading all of them takes a while
        return raw
    command = msgspec.msgpack.decode(raw)
    if command[1][0] == "report":
        command[1] = command[1][:_REPORT]
    return msgspec.msgpack.encode(command)


# Operation -> what is left of its arguments, and of its answer. Others are as they were.
ASKED: Final[dict[str, Reduce]] = {
    "hello": lambda arguments: [BEFORE, *arguments[1:]],
    "submit": _commands,
}
ANSWERED: Final[dict[str, Reduce]] = {
    "get": lambda row: row[:_ROW] if row is not None else None,
    "heartbeat": lambda heard: heard[:_HEARTBEAT] if heard[0] == "heard" else heard,
    "now": lambda now: now[:_NOW],
}


class Earlier:
    """A channel, as a program of the version before uses its end of it."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._asked: dict[int, str] = {}  # questions under way whose answers are reduced: number -> operation

    async def send(self, frame: bytes) -> None:
        await self._channel.send(self._reduced(frame))

    async def receive(self) -> bytes:
        return self._reduced(await self._channel.receive())

    async def close(self) -> None:
        await self._channel.close()

    def _reduced(self, frame: bytes) -> bytes:
        number, kind, *rest = decode(frame)
        if kind in ASKED:
            return encode([number, kind, *ASKED[kind](rest)])
        if kind in ANSWERED:
            self._asked[number] = kind
            return frame
        operation = self._asked.pop(number, "")
        return encode([number, kind, ANSWERED[operation](rest[0])]) if operation and kind == ANSWER else frame


class EarlierSeen:
    """The file in which a server keeps how far it has seen its store: an earlier one writes over the front of it."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept

    def read(self) -> bytes | None:
        data = self._kept.read()
        return data[:_SEEN] if data is not None else None

    def write(self, data: bytes, *, durable: bool) -> None:
        self._kept.write(data[:_SEEN] + (self._kept.read() or b"")[_SEEN:], durable=durable)


class EarlierMemory:
    """What an agent must not forget: an earlier one does not know for how long its leader lets an acknowledgement count."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept

    def read(self) -> bytes | None:
        data = self._kept.read()
        return self._reduced(data) if data is not None else None

    def write(self, data: bytes, *, durable: bool) -> None:
        self._kept.write(self._reduced(data), durable=durable)

    @staticmethod
    def _reduced(data: bytes) -> bytes:
        known = msgspec.msgpack.decode(data)
        known.pop("lease_s", None)
        return msgspec.msgpack.encode(known)


class Versions:
    """Which lives are of the version before: drawn for each as it begins, so that a restart may be an upgrade or the way back."""

    def __init__(self, share: float, draws: Draws) -> None:
        self._share = share
        self._draws = draws

    def is_earlier(self) -> bool:
        return self._share > 0 and self._draws.random() < self._share
