"""How long the loop was not given back: a timer every 5 ms, and how late it came. Part of every bench that must not stall."""

from __future__ import annotations

import asyncio
import time

_TICK_S = 0.005


class StallMeter:
    def __init__(self) -> None:
        self.late: list[float] = []

    async def run(self) -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(_TICK_S)
            self.late.append(max(0.0, time.perf_counter() - before - _TICK_S))

    def p99_ms(self) -> float:
        ordered = sorted(self.late)
        return ordered[int(len(ordered) * 0.99)] * 1e3 if ordered else 0.0
