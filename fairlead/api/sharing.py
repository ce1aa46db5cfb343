"""What the watches of one server have in common: events that several show alike are made once, and where there are many of them
they are told in turns.

Owns the memory of what was made and the turns. Never decides what a watch shows: watching.py does, and says under which name its
events may be shared. Called by the streams of watching.py.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Hashable, Sequence
from typing import Final

from fairlead.ports import Clock

TURN_WATCHES: Final = 50  # told in one turn of the loop: some five milliseconds (P17)
WATCH_S: Final = 0.0003  # three times what it takes to tell one of them something: they get a third of the loop between them
CHUNK_BYTES: Final = 64 * 1024
STRETCHES_MAX: Final = 256
STRETCH_BYTES_MAX: Final = 8 << 20  # of all that are kept


class Stretches:
    """What happened between two revisions, as the watches of one scope show it: ready to be sent. The newest are kept."""

    def __init__(self) -> None:
        self._made: dict[Hashable, list[bytes]] = {}
        self._bytes = 0
        self.made_total = 0
        self.shared_total = 0

    def find(self, key: Hashable) -> list[bytes] | None:
        found = self._made.get(key)
        self.shared_total += found is not None
        return found

    def keep(self, key: Hashable, chunks: list[bytes]) -> None:
        self.made_total += 1
        if key in self._made:
            return
        self._made[key] = chunks
        self._bytes += _size(chunks)
        while len(self._made) > STRETCHES_MAX or self._bytes > STRETCH_BYTES_MAX:
            oldest = next(iter(self._made))
            self._bytes -= _size(self._made.pop(oldest))


def _size(chunks: Sequence[bytes]) -> int:
    return sum(len(chunk) for chunk in chunks)


def chunked(lines: Sequence[bytes]) -> list[bytes]:
    """As few pieces as may be sent at once."""
    out: list[bytes] = []
    chunk: list[bytes] = []
    size = 0
    for line in lines:
        chunk.append(line)
        size += len(line)
        if size >= CHUNK_BYTES:
            out.append(b"".join(chunk))
            chunk, size = [], 0
    if chunk:
        out.append(b"".join(chunk))
    return out


class Turn:
    """Watches that look for changes at the same moments, so that they find, and share, the same. The first that waits wakes
    the others."""

    def __init__(self, turns: Turns, place: int) -> None:
        self._turns = turns
        self.place = place
        self.members = 0
        self._gate: asyncio.Event | None = None

    async def wait(self) -> None:
        """Until it is their turn; at once where there are few watches."""
        if self._gate is not None:
            await self._gate.wait()
            return
        clock, period_s = self._turns.clock, self._turns.period_s
        if not period_s:
            return
        now = clock.monotonic()
        offset_s = period_s * (self.place % self._turns.count) / self._turns.count
        due_s = (math.floor((now - offset_s) / period_s) + 1) * period_s + offset_s
        self._gate = gate = asyncio.Event()
        try:
            await clock.sleep(max(0.0, due_s - now))
        finally:  # whoever waits with it goes on, also when this one ended
            self._gate = None
            gate.set()


class Turns:
    """Which watches are told together. So many at a time, and so often that they leave the loop to others for most of it."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._turns: list[Turn] = []
        self._watches = 0

    @property
    def count(self) -> int:
        return max(1, len(self._turns))

    @property
    def period_s(self) -> float:
        """0: they are so few that each may look whenever something changes."""
        return self._watches * WATCH_S if self._watches > TURN_WATCHES else 0.0

    def join(self) -> Turn:
        self._watches += 1
        turn = next((each for each in self._turns if each.members < TURN_WATCHES), None)
        if turn is None:
            turn = Turn(self, len(self._turns))
            self._turns.append(turn)
        turn.members += 1
        return turn

    def leave(self, turn: Turn) -> None:
        self._watches -= 1
        turn.members -= 1
        while self._turns and not self._turns[-1].members:
            self._turns.pop()
