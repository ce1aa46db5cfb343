"""Figures that many sources tell of themselves, as sums: counters that never go back when a source leaves or starts over, and
gauges over those that were heard lately; and the least of what each says.

For agents: a metric may not name nodes, and ten thousand agents are not scraped one by one. Never asks a source anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

HEARD_S: Final = 60.0  # four tellings; a source that is silent for longer has gone
SOURCES_MAX: Final = 20_000
TELL_S: Final = 15.0  # how often a source tells

# What agents tell: the names they and the server agree on.
AGENT_COUNTERS: Final = ("heartbeats", "handshakes", "reports", "starts")
AGENT_GAUGES: Final = ("absent", "launching", "running", "ready", "stopping", "ended")  # instances by condition
CERTIFICATE_END: Final = "certificate_end_s"  # by the wall clock
AGENT_LEASTS: Final = (CERTIFICATE_END,)


class Sums:
    def __init__(self, counters: Sequence[str], gauges: Sequence[str], leasts: Sequence[str] = AGENT_LEASTS) -> None:
        self.totals = dict.fromkeys(counters, 0.0)
        self._gauges = tuple(gauges)
        self._leasts = tuple(leasts)
        self._last: dict[str, tuple[float, dict[str, float]]] = {}

    def tell(self, source: str, now: float, figures: Mapping[str, object]) -> None:
        """What it does not know is ignored, as is what is no number: a source may be newer than we are, or lie."""
        told = {name: _number(figures.get(name)) for name in (*self.totals, *self._gauges, *self._leasts)}
        _, before = self._last.pop(source, (0.0, {}))
        for name in self.totals:
            last = before.get(name, 0.0)
            self.totals[name] += told[name] - last if told[name] >= last else told[name]  # else it started over
        if len(self._last) >= SOURCES_MAX:
            del self._last[next(iter(self._last))]
        self._last[source] = (now, told)  # the newest last, so that the silent ones come first

    def sources(self, now: float) -> int:
        self._forget(now)
        return len(self._last)

    def gauges(self, now: float) -> dict[str, float]:
        self._forget(now)
        return {name: sum(told[name] for _, told in self._last.values()) for name in self._gauges}

    def least(self, now: float) -> dict[str, float]:
        """Of those who said it: 0 is what somebody says who does not know it."""
        self._forget(now)
        said = {name: [told[name] for _, told in self._last.values() if told[name]] for name in self._leasts}
        return {name: min(values) for name, values in said.items() if values}

    def _forget(self, now: float) -> None:
        while self._last:
            source = next(iter(self._last))
            if now - self._last[source][0] <= HEARD_S:
                return
            del self._last[source]


def _number(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e15:
        return 0.0
    return float(value)
