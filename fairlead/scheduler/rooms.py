"""Which standing reservations each recovery budget has, as the scheduler's picture knows them. An index, the snapshot's."""

from __future__ import annotations

from fairlead.scheduler.uses import HELD, SlotKey, Use


class Rooms:
    def __init__(self) -> None:
        self._of: dict[tuple[str, str], dict[SlotKey, None]] = {}  # (tenant, budget) -> its reservations
        self._budget: dict[SlotKey, str] = {}

    def note(self, key: SlotKey, budget: str) -> None:
        """The reservation belongs to this budget; an empty one: to none, or it is gone."""
        before = self._budget.pop(key, None)
        if before is not None:
            self._of[key[0], before].pop(key, None)
        if budget:
            self._budget[key] = budget
            self._of.setdefault((key[0], budget), {})[key] = None

    def __contains__(self, key: SlotKey) -> bool:
        return key in self._budget

    def free(self, tenant: str, budget: str, uses: dict[SlotKey, Use]) -> list[tuple[SlotKey, Use]]:
        """Those that nobody has claimed, in no order of theirs. Of one that was claimed a moment ago the rest is assumed."""
        found = ((key, uses.get(key)) for key in self._of.get((tenant, budget), ()))
        return [(key, use) for key, use in found if use is not None and use.how == HELD and not use.assumed]
