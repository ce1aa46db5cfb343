"""What a run of the prober came to: successes, latencies and outages, by region and slot. Pure; times are seconds since it began.

An outage is a gap between two successes in which some request failed; a gap in which nothing was sent is none. Filled and printed
by prober.py.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Final

NO_ENDPOINTS: Final = "NoEndpoints"
ERRORS_MAX: Final = 32  # kinds of failure told apart


class Measure:
    """Of a workload, a region or a slot."""

    def __init__(self, from_s: float = 0.0) -> None:
        self.sent = 0
        self.errors: dict[str, int] = {}
        self._latencies_s = array("d")
        self._failed_s: float | None = None  # the last failure since the last success
        self._success_s = from_s  # of the last one, or where counting began
        self.outage_s = 0.0
        self.outage_at_s = 0.0
        self.gap_s = 0.0

    @property
    def succeeded(self) -> int:
        return len(self._latencies_s)

    def success(self, now_s: float, latency_s: float) -> None:
        self.sent += 1
        self._latencies_s.append(latency_s)
        self._close(now_s)
        self._failed_s = None
        self._success_s = max(self._success_s, now_s)

    def failure(self, now_s: float, error: str) -> None:
        self.sent += 1
        if error not in self.errors and len(self.errors) >= ERRORS_MAX:
            error = "Other"
        self.errors[error] = self.errors.get(error, 0) + 1
        self._failed_s = now_s

    def finish(self, now_s: float, withdrawn: bool = False) -> None:
        """Counts what was still without a success when the run ended. Who was withdrawn owes nothing after its last failure."""
        if not withdrawn:
            self._close(now_s)
        elif self._failed_s is not None:
            self._close(self._failed_s)

    def _close(self, now_s: float) -> None:
        gap_s = now_s - self._success_s
        self.gap_s = max(self.gap_s, gap_s)
        if self._failed_s is not None and gap_s > self.outage_s:
            self.outage_s, self.outage_at_s = gap_s, self._success_s

    def results(self) -> dict[str, Any]:
        return {
            "sent": self.sent,
            "succeeded": self.succeeded,
            "success_ratio": round(self.succeeded / self.sent, 6) if self.sent else 0.0,
            "p50_ms": _ms(self._latencies_s, 50),
            "p99_ms": _ms(self._latencies_s, 99),
            "longest_outage_s": round(self.outage_s, 3),
            "longest_outage_at_s": round(self.outage_at_s, 3),
            "longest_gap_s": round(self.gap_s, 3),
            "errors": dict(sorted(self.errors.items())),
        }


def _ms(latencies_s: Sequence[float], percent: int) -> float | None:
    """The smallest that so many percent do not exceed."""
    if not latencies_s:
        return None
    ordered = sorted(latencies_s)
    return round(1000 * ordered[max(0, -(-len(ordered) * percent // 100) - 1)], 3)


class Measures:
    def __init__(self) -> None:
        self.all = Measure()
        self.regions: dict[str, Measure] = {}
        self.slots: dict[tuple[str, int], Measure] = {}
        self.resolve_failures = 0
        self.skipped = 0  # due and not sent: too many were under way, or this machine was too busy

    def of(self, region: str, slot: int, now_s: float) -> tuple[Measure, Measure, Measure]:
        """A region or slot that comes later is measured from then on."""
        return (
            self.all,
            self.regions.setdefault(region, Measure(now_s)),
            self.slots.setdefault((region, slot), Measure(now_s)),
        )

    def finish(self, now_s: float, present: set[tuple[str, int]]) -> None:
        """`present`: the slots that were still named at the end."""
        self.all.finish(now_s)
        regions = {region for region, _ in present}
        for region, measure in self.regions.items():
            measure.finish(now_s, withdrawn=region not in regions)
        for key, measure in self.slots.items():
            measure.finish(now_s, withdrawn=key not in present)

    def results(self) -> dict[str, Any]:
        regions = {region: measure.results() for region, measure in sorted(self.regions.items())}
        slots = [{"region": region, "slot": slot, **m.results()} for (region, slot), m in sorted(self.slots.items())]
        told = {"resolve_failures": self.resolve_failures, "skipped": self.skipped}
        return {**self.all.results(), **told, "regions": regions, "slots": slots}
