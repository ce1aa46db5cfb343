"""A histogram of plain numbers: cheap enough for a path that runs thousands of times a second. No locks, no library, no labels.

Whoever counts owns one; fairlead/observe/exposition.py shows it. Never resets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

# Of work inside one process: from a hundred microseconds to half a minute.
WORK_S: Final = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
# Of a replica on its way, which may wait for minutes.
STAGE_S: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0)
COUNT: Final = (1, 2, 4, 8, 16, 32, 64)


class Histogram:
    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float] = WORK_S) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    @property
    def count(self) -> int:
        return sum(self.counts)

    def buckets(self) -> list[tuple[str, float]]:
        """As an exposition writes them: up to each bound, then all."""
        out: list[tuple[str, float]] = []
        total = 0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            total += count
            out.append((repr(float(bound)), float(total)))
        return [*out, ("+Inf", float(total + self.counts[-1]))]
