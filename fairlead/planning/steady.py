"""Chance for a trial: the same draws every time, so that the same plan of the same state says the same. Called by planner.py."""

from __future__ import annotations

from typing import Final

_MASK: Final = (1 << 64) - 1


class Steady:
    """A plain linear congruential generator; nothing rests on its quality but that samples differ."""

    def __init__(self, seed: int = 1) -> None:
        self._state = seed

    def random(self) -> float:
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) & _MASK
        return (self._state >> 11) / (1 << 53)

    def randrange(self, start: int, stop: int | None = None, step: int = 1, /) -> int:
        first, last = (0, start) if stop is None else (start, stop)
        count = -(-(last - first) // step)
        return first + step * int(self.random() * count)
