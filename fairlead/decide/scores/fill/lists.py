"""The mix of requests seen, and the lists of requests drawn from it that every node is offered in thought.

Owns counting and sampling: deterministic, from what was seen so far alone. Never looks at a node. Called by the score.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from fairlead.decide.need import Need
from fairlead.model.resources import SHARE_WHOLE, DeviceHold, Resources

Ints = npt.NDArray[np.int64]

LISTS: Final = 32  # More lists (64) and longer ones (120) were tried and rank no better.
LENGTH: Final = 60  # Fits the bits of one int64, so that "which of these still fit" is a word.
FIRST_REBUILD: Final = 20  # One request says little; then whenever as many more have come as a part of those that are there.
GROWTH: Final = 5  # a fifth: at a half, a tenth of a percent is lost where CPU runs out or most requests are shares
GROWTH_PLAIN: Final = 2  # where nobody asks for devices, a half
PATTERNS_MAX: Final = 2048  # kept apart; more are rounded, or drawing the lists would hold up the loop
_COARSE_BITS: Final = 4  # of an amount, that are kept
MIB: Final = 20  # bits


Amounts = tuple[int, int, int, int]


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

    @property
    def amounts(self) -> Amounts:
        return self.cpu, self.memory, self.devices, self.share


def pattern_of(need: Need) -> Pattern:
    memory = -(-need.memory >> MIB)
    if not need.devices:
        return Pattern(need.cpu, memory)
    ask = need.devices[0]
    if ask.share:
        return Pattern(need.cpu, memory, 1, ask.share, ask.resource, tuple(sorted(set(ask.models))))
    return Pattern(need.cpu, memory, ask.whole, SHARE_WHOLE, ask.resource, tuple(sorted(set(ask.models))))


def pattern_of_use(requests: Resources, devices: tuple[DeviceHold, ...]) -> Pattern:
    """Of a slot that is there: as `pattern_of` its need, but for models."""
    share = devices[0].thousandths if devices else 0
    return Pattern(requests.cpu, -(-requests.memory >> MIB), len(devices), share)


def _coarse(pattern: Pattern) -> Pattern:
    """Amounts rounded up to a few bits."""
    return pattern._replace(cpu=_rounded(pattern.cpu), memory=_rounded(pattern.memory))


def _rounded(amount: int) -> int:
    bits = max(0, amount.bit_length() - _COARSE_BITS)
    return -(-amount >> bits) << bits


class Mix:
    """How many of each pattern are there: asked for and not ended. What lives long weighs more than what comes often, because it
    is what nodes are full of."""

    def __init__(self) -> None:
        self.counts: dict[Pattern, int] = {}
        self.present = 0
        self.thousandths = 0  # of devices, all requests together
        self.choosy = False  # somebody named models
        self._alike: dict[Amounts, list[Pattern]] = {}
        self._seen = 0
        self._rebuild_at = 1

    def observe(self, pattern: Pattern, count: int = 1) -> bool:
        """Counts requests; true when the lists should be drawn again."""
        if pattern not in self.counts:
            if len(self.counts) >= PATTERNS_MAX:
                pattern = _coarse(pattern)
            self._alike.setdefault(pattern.amounts, []).append(pattern)
        self.counts[pattern] = self.counts.get(pattern, 0) + count
        self.present += count
        self._seen += count
        self.choosy |= bool(pattern.models)
        self.thousandths += count * pattern.thousandths
        if self._seen < self._rebuild_at:
            return False
        self._rebuild_at = max(FIRST_REBUILD, self._seen + self.present // (GROWTH if self.thousandths else GROWTH_PLAIN))
        return True

    def ended(self, gone: Pattern) -> None:
        """One of these is there no more. Which models it would have taken is not known of it: the commonest of its like goes."""
        alike = self._alike.get(gone.amounts) or self._alike.get(_coarse(gone).amounts)
        if not alike:
            return  # it came before anybody counted
        pattern = max(alike, key=lambda one: (self.counts[one], one))
        self.present -= 1
        self.thousandths -= pattern.thousandths
        self.counts[pattern] -= 1
        if not self.counts[pattern]:
            del self.counts[pattern]
            alike.remove(pattern)
            if not alike:
                del self._alike[pattern.amounts]

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
