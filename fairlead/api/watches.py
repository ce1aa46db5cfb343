"""All watches of one server: how many there may be, of one caller and of all, and what they have in common.

A watch stands for hours and costs a feed of every plane it shows, so one caller may not have them all; one more is told to come
back. Whoever comes over the local socket is never turned away. Owns the count, and ends all of them when the server goes. Called
by watching.py, and by whoever shuts the server down.
"""

from __future__ import annotations

from typing import Final, Protocol

from fairlead.api.failures import Failure
from fairlead.api.sharing import Stretches, Turn, Turns
from fairlead.ports import Clock

BEHIND_S: Final = 1.0  # what a client that keeps up has taken by then, over any network
WATCHES_MAX: Final = 4_000  # fewer than the feeds a region has for one front door (fairlead/authority/feeds.py)
CALLER_MAX: Final = 2_000  # of those; a thousand informers of one service, and as many again while they are replaced
FULL_S: Final = 5.0  # streams end by themselves, but not often


class Watching(Protocol):
    """One stream."""

    def end(self) -> None: ...

    def behind_s(self) -> float: ...


class Watches:
    def __init__(self, clock: Clock) -> None:
        self._open: dict[int, Watching] = {}
        self._callers: dict[str, int] = {}
        self.draining = False
        self.stretches = Stretches()
        self._turns = Turns(clock)

    def __len__(self) -> int:
        return len(self._open)

    @property
    def behind(self) -> int:
        """How many clients take changes more slowly than they come: their feeds fall behind, and end when they fall too far."""
        return sum(stream.behind_s() >= BEHIND_S for stream in self._open.values())

    def admit(self, caller: str, *, always: bool) -> None:
        """One more of that caller's, until it `left`. Raises 429."""
        own = self._callers.get(caller, 0)
        if not always:
            if own >= CALLER_MAX:
                raise _full(f"{caller} has {own} watches open at this server already")
            if sum(self._callers.values()) >= WATCHES_MAX:
                raise _full(f"this server has {WATCHES_MAX} watches open already")
        self._callers[caller] = own + 1

    def left(self, caller: str) -> None:
        self._callers[caller] -= 1
        if not self._callers[caller]:
            del self._callers[caller]

    def opened(self, stream: Watching) -> Turn:
        self._open[id(stream)] = stream
        return self._turns.join()

    def closed(self, stream: Watching, turn: Turn) -> None:
        self._open.pop(id(stream), None)
        self._turns.leave(turn)

    def drain(self) -> None:
        self.draining = True
        for stream in self._open.values():
            stream.end()


def _full(message: str) -> Failure:
    cause = {"reason": "Overloaded", "message": "end some, or watch more in one", "field": ""}
    return Failure(429, message, causes=[cause], retry_after_s=FULL_S)
