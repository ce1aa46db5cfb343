"""What seems to have been done before its time was over.

A batch bears the time at which it was begun, and grows while the store is away: what is in it may have been decided much later,
but not after the next batch of that term was begun. So what looks early is held until that one comes, and found only if it was
early even then. Owns what is held, and no rule. Told by the checkers of bounds.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

Judge = Callable[[int], str]

LATE_MS: Final = 5_000  # between a look and when what follows from it is judged


class TooSoon:
    def __init__(self, found: Callable[[str, str], None]) -> None:
        self._found = found
        self._held: list[tuple[str, Judge, str]] = []
        self._new: list[tuple[str, Judge, str]] = []  # of the batch that is being told

    def unless(self, due_ms: int, now_ms: int, promise: str, detail: str) -> None:
        """Found, unless it may have been done at `due_ms` or later. `now_ms`: the time of its batch."""
        self.ask(now_ms, promise, lambda at_ms: detail if at_ms < due_ms - LATE_MS else "")

    def ask(self, now_ms: int, promise: str, judge: Judge) -> None:
        """`judge` says what would be wrong if it was decided at that time."""
        detail = judge(now_ms)
        if detail:
            self._new.append((promise, judge, detail))

    def batch_ended(self, now_ms: int) -> None:
        for promise, judge, detail in self._held:
            if judge(now_ms):
                self._found(promise, detail)
        self._held, self._new = self._new, []

    def led_anew(self) -> None:
        """Another counts plane time, on from what it has seen of it: that may be less than had passed."""
        self._held.clear()
