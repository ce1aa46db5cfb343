"""What seems to have been done before its time was over.

A batch bears the time at which it was begun, and grows while the store is away: what is in it may have been decided much later,
but not after the next batch of that term was begun. So what looks early is held until that one comes, and found only if it was
early even then. Owns what is held, and no rule. Told by the checkers of bounds.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

LATE_MS: Final = 5_000  # between a look and when what follows from it is judged


class TooSoon:
    def __init__(self, found: Callable[[str, str], None]) -> None:
        self._found = found
        self._held: list[tuple[str, int, str]] = []
        self._new: list[tuple[str, int, str]] = []  # of the batch that is being told

    def unless(self, due_ms: int, now_ms: int, promise: str, detail: str) -> None:
        """Found, unless it may have been done at `due_ms` or later. `now_ms`: the time of its batch."""
        if now_ms < due_ms - LATE_MS:
            self._new.append((promise, due_ms, detail))

    def batch_ended(self, now_ms: int) -> None:
        for promise, due_ms, detail in self._held:
            if now_ms < due_ms - LATE_MS:
                self._found(promise, detail)
        self._held, self._new = self._new, []

    def led_anew(self) -> None:
        """Another counts plane time, on from what it has seen of it: that may be less than had passed."""
        self._held.clear()
