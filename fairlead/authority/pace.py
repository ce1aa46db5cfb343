"""How long the store takes for a commit of late, and so whether one may be waited for within a step of the loop (pipeline)."""

from __future__ import annotations

from typing import Final

QUICK_S: Final = 0.001  # beside it, handing a commit to another thread and being woken again is no small part
SPOT_COMMANDS: Final = 8  # what one user's command becomes in a plane, and a few beside it
SPOT_BYTES: Final = 32 * 1024
COUNTS_AT_MOST_S: Final = 0.1  # a store that hung for seconds is not avoided for hours
WEIGHT: Final = 0.05  # of the latest commit: one slow sync of 40 ms sends some thirty commits to the thread


class Pace:
    def __init__(self) -> None:
        self._usual_s = COUNTS_AT_MOST_S  # quickness has to show itself first

    def note(self, took_s: float) -> None:
        self._usual_s += WEIGHT * (min(took_s, COUNTS_AT_MOST_S) - self._usual_s)

    @property
    def is_quick(self) -> bool:
        return self._usual_s <= QUICK_S

    def suits(self, commands: int, size: int) -> bool:
        """Whether a batch of so many commands and bytes may be waited for."""
        return self.is_quick and commands <= SPOT_COMMANDS and size <= SPOT_BYTES
