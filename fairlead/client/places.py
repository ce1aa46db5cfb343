"""How much this end of a channel asks at once: less than the other end takes, so that it is refused nothing for it.

Each sort of question has places of its own, so that a lease or a component's command never waits behind what people ask. Whoever
finds none free waits in turn, for a moment; then the plane has too much to do, and that is said. Owns the numbers and the
waiting. Called by line.py.
"""

from __future__ import annotations

import asyncio
from typing import Final

from fairlead.client.plane import Overloaded

# Together less than REQUESTS_MAX of channel.py; what is over is for heartbeats and whatever else is answered at once.
READS_MAX: Final = 44
WRITES_MAX: Final = 36  # of people
SYSTEM_MAX: Final = 40  # of components: their commands, their lists
WAITING_MAX: Final = 2_000  # of one sort; a watch of a region asks as well, and there may be as many
READS_S: Final = 1.0  # less than the patience of a front door (fairlead/api/members.py), which would take it for silence
WRITES_S: Final = 2.0
SYSTEM_S: Final = 5.0  # as long as for a connection


class Places:
    """Of one sort of question. A place is held until there is an answer, not until whoever asked has lost patience: the other end
    is at work on it for so long."""

    def __init__(self, most: int, patience_s: float) -> None:
        self._free = asyncio.Semaphore(most)
        self._most = most
        self._patience_s = patience_s
        self._waiting = 0

    async def take(self) -> None:
        """Raises Overloaded when none comes free in time."""
        if not self._free.locked():
            await self._free.acquire()
            return
        if self._waiting >= WAITING_MAX:
            raise Overloaded(f"{self._most} questions are under way, and {self._waiting} wait already")
        self._waiting += 1
        try:
            async with asyncio.timeout(self._patience_s):
                await self._free.acquire()
        except TimeoutError as error:
            raise Overloaded(f"{self._most} questions are under way, and none was answered in time") from error
        finally:
            self._waiting -= 1

    def give_back(self) -> None:
        self._free.release()
