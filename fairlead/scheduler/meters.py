"""What a scheduler counts. Plain ints: whoever serves metrics reads them under the names of fairlead/observe/metrics.py."""

from __future__ import annotations

from typing import Final

from fairlead.client.leased import Health
from fairlead.observe.histogram import COUNT, Histogram
from fairlead.scheduler.cycle import Run
from fairlead.scheduler.units import Meters as QueueMeters

# Two schedulers wanted the same: the authority let one have it.
CONFLICTS = frozenset({"NoFit", "AlreadyBound", "NotFound", "NotPending", "VictimNotAllowed", "GangRefused", "GrantExceeded"})

STALLED_S: Final = 30.0  # with work at hand and no answer for so long, it does not get on


class Meters:
    def __init__(self) -> None:
        self.cycles_total = 0
        self.bound_total = 0
        self.proposed_total = 0
        self.unschedulable_total = 0
        self.victims_total = 0
        self.unknown_total = 0
        self.restarts_total = 0
        self.refusals: dict[str, int] = {}
        self.queue: QueueMeters | None = None
        self.last_error = ""
        self.progress_ms = 0
        self.rested_ms = 0  # when there was nothing to do
        # By the cycle, not by the slot: those of one cycle are decided and sent together.
        self.deciding = Histogram()
        self.permitting = Histogram()
        self.binding = Histogram()
        self.attempts = Histogram()
        self.victims = Histogram(COUNT)

    def took(self, decided_s: float, permitted_s: float) -> None:
        self.deciding.observe(decided_s)
        self.permitting.observe(permitted_s)

    def decided(self, runs: list[Run], now_ms: int) -> None:
        self.cycles_total += 1
        self.progress_ms = now_ms
        for run in runs:
            self.proposed_total += len(run.placements)
            self.unschedulable_total += len(run.failures)
            for victims in [len(placement.victims) for placement in run.placements if placement.victims]:
                self.victims_total += victims
                self.victims.observe(victims)

    def answered(self, decided_s: float, bound_s: float, slots: int, now_ms: int) -> None:
        self.binding.observe(bound_s)
        self.attempts.observe(decided_s + bound_s, slots)
        self.progress_ms = now_ms

    def restarted(self, error: BaseException) -> None:
        self.restarts_total += 1
        self.last_error = f"started over: {error!r}"

    def health(self, now_ms: int, has_work: bool) -> Health:
        queue = self.queue
        waiting = sum(queue.pending.values()) if queue is not None else 0
        oldest_s = queue.oldest_age_ms / 1000 if queue is not None else 0.0
        idle_s = (now_ms - max(self.progress_ms, self.rested_ms)) / 1000 if has_work else 0.0
        stalled = "NeverEnds" if idle_s > STALLED_S else ""
        detail = f"there is work, and none was done for {idle_s:.0f} s" if stalled else ""
        return Health(waiting, oldest_s, self.cycles_total, self.progress_ms, self.last_error, stalled, detail)

    def refused(self, reason: str) -> None:
        self.refusals[reason] = self.refusals.get(reason, 0) + 1

    @property
    def conflicts_total(self) -> int:
        return sum(count for reason, count in self.refusals.items() if reason in CONFLICTS)

    def observed(self, queue: QueueMeters) -> None:
        self.queue = queue
