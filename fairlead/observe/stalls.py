"""How late the event loop wakes those who sleep: the one figure that says whether anything in this process keeps the loop.

Started once per server. Costs five wake-ups a second.
"""

from __future__ import annotations

from typing import Final

from fairlead.observe.histogram import WORK_S, Histogram
from fairlead.ports import Clock

TICK_S: Final = 0.2


class LoopStalls:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.late = Histogram(WORK_S)

    async def run(self) -> None:
        while True:
            before = self._clock.monotonic()
            await self._clock.sleep(TICK_S)
            self.late.observe(max(0.0, self._clock.monotonic() - before - TICK_S))
