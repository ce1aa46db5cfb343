"""The mix of requests seen, and the lists of requests drawn from it that every node is offered in thought.

Owns counting and sampling: deterministic, from what was seen so far alone. Never looks at a node. Called by the score.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from fairlead.decide.need import Need
from fairlead.model.resources import SHARE_WHOLE

Ints = npt.NDArray[np.int64]

LISTS: Final = 32  # More lists (64) and longer ones (120) were tried and rank no better.
LENGTH: Final = 60  # Fits the bits of one int64, so that "which of these still fit" is a word.
FIRST_REBUILD: Final = 20  # One request says little; then whenever the count has grown by half.
GROWTH: Final = 2
MIB: Final = 20  # bits


class Pattern(NamedTuple):
    """One request as the score sees it: amounts and the devices of one resource (of several, the first)."""

    cpu: int
    memory: int  # MiB
    devices: int = 0
    share: int = 0  # thousandths of each of its devices
    resource: str = ""
    models: tuple[str, ...] = ()

    @property
    def thousandths(self) -> int:
        return self.devices * self.share


def pattern_of(need: Need) -> Pattern:
    memory = -(-need.memory >> MIB)
    if not need.devices:
        return Pattern(need.cpu, memory)
    ask = need.devices[0]
    if ask.share:
        return Pattern(need.cpu, memory, 1, ask.share, ask.resource, tuple(sorted(set(ask.models))))
    return Pattern(need.cpu, memory, ask.whole, SHARE_WHOLE, ask.resource, tuple(sorted(set(ask.models))))


class Mix:
    """How often each pattern was asked for."""

    def __init__(self) -> None:
        self.counts: dict[Pattern, int] = {}
        self.seen = 0
        self.thousandths = 0  # of devices, all requests together
        self.choosy = False  # somebody named models
        self._rebuild_at = 1

    def observe(self, pattern: Pattern, count: int = 1) -> bool:
        """Counts requests; true when the lists should be drawn again."""
        self.counts[pattern] = self.counts.get(pattern, 0) + count
        self.seen += count
        self.choosy |= bool(pattern.models)
        self.thousandths += count * pattern.thousandths
        if self.seen < self._rebuild_at:
            return False
        self._rebuild_at = max(FIRST_REBUILD, self.seen + self.seen // GROWTH)
        return True

    def draw(self) -> tuple[list[Pattern], Ints]:
        """All patterns, and (lists, length) of their numbers: a systematic sample in a fixed disorder.

        Requests without devices weigh one half where devices are asked for: the fill counts devices, they only take room from it.
        """
        patterns = sorted(self.counts, key=lambda p: (p.devices, p.share, p)) or [Pattern(1, 1)]
        plain = 1 if self.thousandths else 2
        ends = np.cumsum(np.array([self.counts.get(p, 1) * (2 if p.devices else plain) for p in patterns], np.int64))
        points = (2 * np.arange(LISTS * LENGTH, dtype=np.int64) + 1) * ends[-1]
        sample = np.searchsorted(ends * (2 * LISTS * LENGTH), points, side="right").astype(np.int64)
        return patterns, sample[_DISORDER].reshape(LISTS, LENGTH)


def scrambled(first: int, count: int) -> Ints:
    """Numbers that look random and are the same on every machine (splitmix64)."""
    x = np.arange(first, first + count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (x ^ (x >> np.uint64(31))).view(np.int64)


_DISORDER: Final = np.argsort(scrambled(1, LISTS * LENGTH).view(np.uint64), kind="stable")
