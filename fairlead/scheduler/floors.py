"""Disruption budgets that were raised after their slots were bound. A scheduler knows the budget under which a binding was made.
From a refused claim it learns that there is a higher one by now, and looks for other victims. Called by scheduler.py."""

from __future__ import annotations

from typing import Final

from fairlead.model.commands import Refused
from fairlead.scheduler.preempting import Preempting
from fairlead.scheduler.snapshot import Snapshot

KEPT_MS: Final = 60_000  # A budget may be lowered again and nobody tells a scheduler, so one claim a minute asks.


class Floors:
    def __init__(self, snapshot: Snapshot, preempting: Preempting) -> None:
        self._snapshot = snapshot
        self._preempting = preempting
        self._known: dict[str, tuple[int, int]] = {}  # workload uid -> its budget, and until when that is believed

    def heard(self, refused: Refused) -> None:
        floor, victim = refused.facts.get("minServing"), str(refused.facts.get("victim", ""))
        tenant, _, name = victim.partition("/")
        use = self._snapshot.uses.get((tenant, name))
        if not isinstance(floor, int) or use is None or floor <= max(use.min_serving, self._known.get(use.uid, (0, 0))[0]):
            return  # nothing new: fewer of them can serve than this picture says, and the watch will tell
        self._known[use.uid] = (floor, self._snapshot.now_ms + KEPT_MS)
        self._preempting.set_floor(use.uid, floor)

    def ended(self, now_ms: int) -> None:
        for uid in [uid for uid, (_, until_ms) in self._known.items() if until_ms <= now_ms]:
            del self._known[uid]
            self._preempting.set_floor(uid, 0)
