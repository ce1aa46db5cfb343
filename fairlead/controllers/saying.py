"""When a status is written: soon after the first change, together with what else has changed by then, and at most once a second
(P16). What somebody waits for is said at once. Knows no clock: it is told the time. One of a controller's own."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from fairlead.model.meta import Condition

GATHER_MS: Final = 250  # most slots are through several stages by then; each would be a write in both planes
EVERY_MS: Final = 1000

# Ends of something: whoever waits, waits for these.
_NEWS: Final = frozenset(
    {"Complete", "ProgressDeadlineExceeded", "Proving", "Released", "NoSlots", "MinServingMet", "RetriesSpent"}
)


class Saying:
    def __init__(self) -> None:
        self._unsaid_ms: dict[Hashable, int] = {}  # when the first of what was not said yet was seen
        self._written_ms: dict[Hashable, int] = {}

    def due_ms(self, key: Hashable, now_ms: int, gather_ms: int = GATHER_MS) -> int:
        """There may be something to say: when it is to be said. Asked again, it is not put off."""
        first_ms = self._unsaid_ms.setdefault(key, now_ms)
        return max(first_ms + gather_ms, self._written_ms.get(key, -EVERY_MS) + EVERY_MS)

    def is_pending(self, key: Hashable) -> bool:
        """A look is due anyway, at which everything is added up: until then, what is no news need not be looked at."""
        return key in self._unsaid_ms

    def said(self, key: Hashable, now_ms: int) -> None:
        self._unsaid_ms.pop(key, None)
        self._written_ms[key] = now_ms

    def nothing_to_say(self, key: Hashable) -> None:
        self._unsaid_ms.pop(key, None)

    def forget(self, key: Hashable) -> None:
        self._unsaid_ms.pop(key, None)
        self._written_ms.pop(key, None)


def is_news(new: tuple[Condition, ...], old: tuple[Condition, ...]) -> bool:
    """A condition has come to an end, or come back from one."""
    before = {c.type: c for c in old}
    for condition in new:
        was = before.get(condition.type)
        if was is None:
            if condition.reason in _NEWS:
                return True
        elif (was.status, was.reason) != (condition.status, condition.reason) and not _NEWS.isdisjoint(
            (was.reason, condition.reason)
        ):
            return True
    return False
