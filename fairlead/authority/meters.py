"""What the authority counts, as plain numbers. fairlead/observe turns them into metrics; counting must cost next to nothing."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from operator import itemgetter
from typing import Final

from fairlead.observe.histogram import Histogram
from fairlead.store.contract import Batch

LANDED_MAX: Final = 4096  # batches: what lags further behind must list again anyway


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
        self.commits = Histogram()
        self.fenced_heartbeats_total = 0
        self._troubles = 0  # refused or in doubt, when the last batch landed
        self._landed: deque[tuple[int, int]] = deque(maxlen=LANDED_MAX)  # the last position of each batch, and when

    def refused(self, reason: str) -> None:
        self.refusals[reason] = self.refusals.get(reason, 0) + 1

    def committed(self, batch: Batch, commands: int, seconds: float) -> None:
        self.batches_total += 1
        self.commands_total += commands
        self.bytes_total += len(batch.blob)
        self.effects_total += batch.last - batch.first + 1
        self.commits.observe(seconds)

    def durable(self, position: int, time_ms: int) -> None:
        self._landed.append((position, time_ms))
        self._troubles = self.unavailable_total + self.commit_unknown_total

    def stuck_ms(self, now_ms: int) -> int:
        """For how long no batch has landed, where the store has refused one since or left it in doubt; 0: it takes them."""
        if not self._landed or self.unavailable_total + self.commit_unknown_total == self._troubles:
            return 0
        return max(0, now_ms - self._landed[-1][1])

    def landed_ms(self, position: int) -> int:
        """The plane time at which that position became durable, as far back as is remembered."""
        at = bisect_left(self._landed, position, key=itemgetter(0))
        return self._landed[at][1] if at < len(self._landed) else 0
