"""Stand-ins that were ordered in a region that is heard and do not serve there: since when how many, and for how long that region
is tried no more. Pure: the time comes in.

A bad node, or a program that cannot live, is no reason to leave a region at once, and what comes up nowhere is not to be sent
round for ever: each further time costs a longer pause, by region, until another generation runs there or the order ends. Used by
the recovery controller (controllers/no_place.py).
"""

from __future__ import annotations

from typing import Final, NamedTuple

# After the first time, the second, and every other one. The first is L5's 300 s: within these it is tried in other regions. After
# the second somebody has had the time to mend it; what is down for the third time is tried once a day.
PAUSES_MS: Final = (300_000, 1_800_000, 86_400_000)

Since = tuple[int, ...]  # when the first of them was first seen idle, when the second was, ...


def idle_since(before: Since, count: int, now_ms: int) -> Since:
    """Nobody says which of them serve, only how many: of three, two have been idle for as long as at least two were."""
    return (*before[:count], *(now_ms for _ in range(count - len(before))))


def idle_for(since: Since, while_ms: float, now_ms: int) -> int:
    """How many have been for so long."""
    return sum(now_ms - each_ms >= while_ms for each_ms in since)


class Tried(NamedTuple):
    """What stood in there did not come up."""

    generation: int  # that was tried: another one may come up
    times: int
    last_ms: int
    open: bool  # it is so now: one time, however long it lasts

    def is_spent(self, now_ms: int) -> bool:
        return now_ms < self.last_ms + PAUSES_MS[min(self.times, len(PAUSES_MS)) - 1]


def tried(before: Tried | None, generation: int, idle: bool, now_ms: int) -> Tried | None:
    """What is remembered of a region in a look: the pause is counted from when it was last seen idle."""
    if before is not None and before.generation != generation:
        before = None
    if not idle:
        return before._replace(open=False) if before is not None else None
    times = before.times + (not before.open) if before is not None else 1
    return Tried(generation, times, now_ms, True)
