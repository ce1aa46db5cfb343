"""Keys that want a look, each once, when it is due. Failures come back later each time, with jitter; nothing carries a payload.

Owned by the runtime. Knows no clock: it is told the time.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Final, NamedTuple

from fairlead.controllers.cache import Name
from fairlead.observe.histogram import Histogram
from fairlead.ports import Random

BACKOFF_FIRST_MS: Final = 50
BACKOFF_MAX_MS: Final = 30_000  # the resync's period: waiting longer would hide behind it


class Taken(NamedTuple):
    key: Name
    by_resync: bool  # no change and no wake-up asked for it: progress made now is progress that was missed


class KeyQueue:
    def __init__(self, random: Random) -> None:
        self._random = random
        self._heap: list[tuple[int, int, Name]] = []
        self._due: dict[Name, int] = {}
        self._resync: set[Name] = set()
        self._failures: dict[Name, int] = {}
        self._restless: dict[Name, tuple[int, int]] = {}  # since when every look asked for more, and how many did
        self._count = 0
        self.adds_total = 0
        self.retries_total = 0
        self.waited = Histogram()  # from when a key was due until it was looked at

    def __len__(self) -> int:
        return len(self._due)

    def add(self, keys: Iterable[Name], due_ms: int, *, by_resync: bool = False) -> None:
        """Looks at them at that time, or earlier where that was wanted already."""
        for key in keys:
            before = self._due.get(key)
            if not by_resync:
                self._resync.discard(key)
            elif before is None or before > due_ms:
                self._resync.add(key)
            if before is not None and before <= due_ms:
                continue
            self.adds_total += before is None
            self._due[key] = due_ms
            self._count += 1
            heappush(self._heap, (due_ms, self._count, key))

    def take(self, now_ms: int, limit: int) -> list[Taken]:
        out: list[Taken] = []
        while self._heap and self._heap[0][0] <= now_ms and len(out) < limit:
            due_ms, _, key = heappop(self._heap)
            if self._due.get(key) != due_ms:
                continue  # was moved
            del self._due[key]
            self.waited.observe((now_ms - due_ms) / 1000)
            out.append(Taken(key, key in self._resync))
            self._resync.discard(key)
        return out

    def next_due_ms(self) -> int | None:
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def failed(self, key: Name, now_ms: int, at_least_ms: int = 0) -> None:
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self.retries_total += 1
        pause_ms = min(BACKOFF_MAX_MS, BACKOFF_FIRST_MS << min(failures, 20))
        self.add((key,), now_ms + max(at_least_ms, int(pause_ms * (0.5 + self._random.random() / 2))))

    def succeeded(self, key: Name) -> None:
        self._failures.pop(key, None)

    def looked(self, key: Name, now_ms: int, *, more: bool) -> None:
        """`more`: the look wrote something, or wants the next one at once. A key that always does gets nowhere."""
        if not more:
            self._restless.pop(key, None)
            return
        since_ms, looks = self._restless.get(key, (now_ms, 0))
        self._restless[key] = (since_ms, looks + 1)

    def restless(self, now_ms: int, least_ms: int, least_looks: int) -> list[Name]:
        found = self._restless.items()
        return [key for key, (since_ms, looks) in found if now_ms - since_ms > least_ms and looks >= least_looks]

    def failing(self, least: int) -> list[Name]:
        return [key for key, count in self._failures.items() if count >= least]

    def oldest_ms(self, now_ms: int) -> int:
        """How long the key that is due longest has been due."""
        due_ms = self.next_due_ms()
        return max(0, now_ms - due_ms) if due_ms is not None else 0
