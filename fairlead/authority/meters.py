"""What the authority counts, as plain numbers. fairlead/observe turns them into metrics; counting must cost next to nothing."""

from __future__ import annotations

from fairlead.store.contract import Batch


class Meters:
    def __init__(self) -> None:
        self.commands_total = 0
        self.batches_total = 0
        self.bytes_total = 0
        self.effects_total = 0
        self.replays_total = 0
        self.refusals: dict[str, int] = {}
        self.commit_unknown_total = 0
        self.unavailable_total = 0
        self.deposed_total = 0
        self.overloaded_total = 0
        self.materialised_rows_total = 0
        self.commit_seconds_sum = 0.0
        self.commit_seconds_max = 0.0
        self.fenced_heartbeats_total = 0

    def refused(self, reason: str) -> None:
        self.refusals[reason] = self.refusals.get(reason, 0) + 1

    def committed(self, batch: Batch, commands: int, seconds: float) -> None:
        self.batches_total += 1
        self.commands_total += commands
        self.bytes_total += len(batch.blob)
        self.effects_total += batch.last - batch.first + 1
        self.commit_seconds_sum += seconds
        self.commit_seconds_max = max(self.commit_seconds_max, seconds)
