"""What a scheduler counts. Plain ints: whoever serves metrics reads them under the names of CONVENTIONS.md."""

from __future__ import annotations

from fairlead.scheduler.cycle import Run
from fairlead.scheduler.units import Meters as QueueMeters

# Two schedulers wanted the same: the authority let one have it.
CONFLICTS = frozenset({"NoFit", "AlreadyBound", "NotFound", "NotPending", "VictimNotAllowed", "GangRefused", "GrantExceeded"})


class Meters:
    def __init__(self) -> None:
        self.cycles_total = 0
        self.bound_total = 0
        self.proposed_total = 0
        self.unschedulable_total = 0
        self.victims_total = 0
        self.restarts_total = 0
        self.refusals: dict[str, int] = {}
        self.queue: QueueMeters | None = None

    def decided(self, runs: list[Run]) -> None:
        self.cycles_total += 1
        for run in runs:
            self.proposed_total += len(run.placements)
            self.unschedulable_total += len(run.failures)
            self.victims_total += sum([len(placement.victims) for placement in run.placements if placement.victims])

    def refused(self, reason: str) -> None:
        self.refusals[reason] = self.refusals.get(reason, 0) + 1

    @property
    def conflicts_total(self) -> int:
        return sum(count for reason, count in self.refusals.items() if reason in CONFLICTS)

    def observed(self, queue: QueueMeters) -> None:
        self.queue = queue
