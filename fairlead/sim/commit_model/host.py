"""Owns a process that can be paused, and killed, and whose clock runs a little too fast or too slow.

A killed host is one that is paused for ever: nothing of it runs again, not even a `finally`. Called by servers (which
pass every await through it) and by the world (which pauses and kills).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from fairlead.sim.loop import SimLoop, sleep

T = TypeVar("T")


class Host:
    def __init__(self, loop: SimLoop, rate: float) -> None:
        self._loop = loop
        self._rate = rate
        self._resumed: asyncio.Future[None] | None = None
        self.dead = False

    def now(self) -> float:
        """This process's monotonic clock."""
        return self._loop.time() * self._rate

    async def sleep(self, seconds: float) -> None:
        await sleep(seconds / self._rate)
        await self.wait_running()

    async def reach(self, call: Awaitable[T]) -> T:
        """Awaits something outside this process; a pause delays what the process makes of the answer."""
        result = await call
        await self.wait_running()
        return result

    async def wait_running(self) -> None:
        while self._resumed is not None:
            await asyncio.shield(self._resumed)

    def pause(self) -> None:
        if self._resumed is None:
            self._resumed = self._loop.create_future()

    def resume(self) -> None:
        if self._resumed is not None and not self.dead:
            self._resumed.set_result(None)
            self._resumed = None

    def kill(self) -> None:
        self.pause()
        self.dead = True
