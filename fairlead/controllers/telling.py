"""Events on their way to the plane: gathered by object and reason, told in a bounded trickle.

Whatever happens, at most so many are written a second, each object and reason at most so often, and so many wait; what does not
fit is counted and forgotten. So events can never be what floods a plane. Owned by the narrator; knows no clock and no plane: it
is told the time, and hands out what may be written now.
"""

from __future__ import annotations

from itertools import islice
from typing import Final, NamedTuple

from fairlead.decide.narrating import Told

RATE_PER_S: Final = 10.0  # of one plane, over all: a thousandth of what a plane commits
BURST: Final = 50
AGAIN_MS: Final = 10_000  # between two writes about the same object and reason
OFTEN: Final = 20  # writes after which that is
SELDOM_MS: Final = 60_000  # this
WAITING_MAX: Final = 2_000  # objects and reasons
REMEMBERED_MAX: Final = 20_000
NOTE_MAX: Final = 1_000

Key = tuple[str, str]  # regarding, reason


class Sum(NamedTuple):
    """What is to be written: the last that was told, and how often something was since the last write."""

    told: Told
    times: int
    first_ms: int
    last_ms: int


class Telling:
    def __init__(self) -> None:
        self._warnings: dict[Key, Sum] = {}
        self._others: dict[Key, Sum] = {}
        self._written: dict[Key, tuple[int, int]] = {}  # how often, and not again before
        self._left = float(BURST)
        self._left_ms = 0
        self.dropped_total = 0

    def __len__(self) -> int:
        return len(self._warnings) + len(self._others)

    def add(self, told: Told, now_ms: int) -> None:
        key = (told.regarding, told.reason)
        waiting = self._warnings if told.warning else self._others
        before = waiting.get(key)
        if before is not None:
            waiting[key] = Sum(told, before.times + 1, before.first_ms, now_ms)
        elif len(waiting) >= WAITING_MAX:
            self.dropped_total += 1
        else:
            waiting[key] = Sum(told, 1, now_ms, now_ms)

    def take(self, now_ms: int) -> list[Sum]:
        """What may be written now: warnings first, then in the order it was told."""
        self._refill(now_ms)
        out: list[Sum] = []
        for waiting in (self._warnings, self._others):
            if self._left < 1.0:
                break
            due = (key for key in waiting if self._due_ms(key) <= now_ms)
            for key in list(islice(due, int(self._left))):
                self._left -= 1.0
                out.append(waiting.pop(key))
                self._note(key, now_ms)
        return out

    def next_due_ms(self, now_ms: int) -> int | None:
        """When it is worth asking again; None: nothing waits."""
        if not len(self):
            return None
        self._refill(now_ms)
        room_ms = now_ms if self._left >= 1.0 else now_ms + int(1000 * (1.0 - self._left) / RATE_PER_S) + 1
        due_ms = (self._due_ms(key) for waiting in (self._warnings, self._others) for key in waiting)
        first_ms = next(due_ms)
        for ms in due_ms:
            if first_ms <= room_ms:
                break  # so it is with nearly all that wait
            first_ms = min(first_ms, ms)
        return max(room_ms, first_ms)

    def _refill(self, now_ms: int) -> None:
        self._left = min(float(BURST), self._left + RATE_PER_S * max(0, now_ms - self._left_ms) / 1000)
        self._left_ms = now_ms

    def _due_ms(self, key: Key) -> int:
        return self._written.get(key, (0, 0))[1]

    def _note(self, key: Key, now_ms: int) -> None:
        times = self._written.pop(key, (0, 0))[0] + 1
        if len(self._written) >= REMEMBERED_MAX:
            del self._written[next(iter(self._written))]  # the one that was told of longest ago
        self._written[key] = (times, now_ms + (AGAIN_MS if times < OFTEN else SELDOM_MS))
