"""How long the store itself takes for a commit of late: whether one may be waited for within a step of the loop (pipeline).

A commit on the spot shows just that. One that is handed over also waits for a thread and for this loop's next turn, on a busy
server several times as long as for the disk: it can show that the store is not slow, never that it is. So a store that was
found slow, or not tried yet, is tried now and then, where what was handed over says that a try costs little.
"""

from __future__ import annotations

from typing import Final

QUICK_S: Final = 0.001  # beside it, handing a commit to another thread and being woken again is no small part
SPOT_COMMANDS: Final = 8  # what one user's command becomes in a plane, and a few beside it
SPOT_BYTES: Final = 32 * 1024
COUNTS_AT_MOST_S: Final = 0.1  # a store that hung for seconds is not avoided for hours
WEIGHT: Final = 0.05  # of the latest commit: one slow sync of 40 ms makes a quick store a slow one
TRY_AFTER: Final = 16  # commits that were handed over, all of them since the last try
TRY_S: Final = 0.005  # the quickest of those took no longer: half of what a step of the loop may take (P17)


class Pace:
    def __init__(self) -> None:
        self._usual_s = COUNTS_AT_MOST_S  # of commits on the spot; quickness has to show itself first
        self._handed_over = 0  # since the last try
        self._quickest_s = COUNTS_AT_MOST_S  # of those

    def here(self, took_s: float) -> None:
        """A commit on the spot. The first after a while stands for itself: what was before it is long ago."""
        took_s = min(took_s, COUNTS_AT_MOST_S)
        self._usual_s = self._usual_s + WEIGHT * (took_s - self._usual_s) if self.is_quick else took_s
        self._handed_over, self._quickest_s = 0, COUNTS_AT_MOST_S

    def handed_over(self, took_s: float) -> None:
        self._handed_over += 1
        self._quickest_s = min(self._quickest_s, took_s)

    @property
    def is_quick(self) -> bool:
        return self._usual_s <= QUICK_S

    @property
    def is_worth_a_try(self) -> bool:
        return self._handed_over >= TRY_AFTER and self._quickest_s <= TRY_S

    def suits(self, commands: int, size: int) -> bool:
        """Whether a batch of so many commands and bytes may be waited for."""
        return (self.is_quick or self.is_worth_a_try) and commands <= SPOT_COMMANDS and size <= SPOT_BYTES
