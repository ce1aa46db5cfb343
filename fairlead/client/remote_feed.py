"""Changes as they come from afar: decoded as far as a component keeps them, gathered until they are taken. Made by remote.py."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from fairlead.client.channel import Row
from fairlead.client.plane import Expired
from fairlead.decide.lasting import GrantWord
from fairlead.model.hot import hot_of
from fairlead.ports import Signal


class Heard(NamedTuple):
    """A heartbeat's acknowledgement, fenced like a write (P9)."""

    incarnation: int
    epoch: int
    unknown: Sequence[str] = ()
    superseded: Sequence[str] = ()
    global_valid_s: float | None = None  # how long what is exclusive everywhere may go on, from when the heartbeat was sent
    grants: GrantWord | None = None  # and what is above that which stays when the lease of a grant ends (P13)
    lease_s: float = 0.0  # how long it may be counted on; 0: by a server that does not say so
    longest_s: float = 0.0  # and the longest that another agent of the node may have been told


def heard_or_none(answer: Any) -> Heard | None:
    word, *rest = answer
    return msgspec.convert(rest[: len(Heard._fields)], Heard) if word == "heard" else None


class RemoteChange(msgspec.Struct, gc=False):
    """A change as it came, decoded as far as a component keeps it."""

    plural: str
    tenant: str
    name: str
    position: int
    raw: bytes | None
    hot: Any
    incarnation: int = 0  # of the plane, when it was read by its name; 0: nobody said


def change_of(row: Row) -> RemoteChange:
    hot = hot_of(row.plural, row.raw) if row.raw is not None else None
    return RemoteChange(row.plural, row.tenant, row.name, row.position, row.raw, hot)


WAITING_BYTES_MAX: Final = 32 << 20  # of one feed: some 20,000 changes, about as many as a topic of the plane itself keeps
ROW_BYTES: Final = 400  # what a change weighs beside the object: names, and what Python adds


class RemoteFeed:
    def __init__(self, forget: Callable[[int], None], number: int, after: int) -> None:
        self._forget = forget
        self._number = number
        self._signal = Signal()
        self._rows: list[Row] = []
        self._bytes = 0  # of those
        self._ended: Expired | None = None
        self._seen = after
        self.revision = after

    def told(self, revision: int, rows: list[Row]) -> None:
        self._rows += rows
        self._bytes += sum(ROW_BYTES + len(row.raw or b"") for row in rows)
        if self._bytes > WAITING_BYTES_MAX:
            self._rows = []
            self.end(Expired("this feed fell too far behind; list again", 0))
            self.close()
            return
        if revision:
            self._seen = revision
        self._signal.set()

    def end(self, error: Expired) -> None:
        self._ended = error
        self._signal.set()

    def take_nowait(self) -> list[RemoteChange]:
        self._signal.clear()
        if self._ended is not None:
            if not self._rows:
                raise self._ended
            self._signal.set()  # what came before the end is given first; whoever waits again must hear of the end
        rows, self._rows, self._bytes = self._rows, [], 0
        self.revision = self._seen
        return [change_of(row) for row in rows]

    def wait(self) -> Coroutine[Any, Any, None]:
        return self._signal.wait()

    def poke(self) -> None:
        self._signal.set()

    def close(self) -> None:
        self._forget(self._number)
