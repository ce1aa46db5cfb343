"""Whose turn it is in a rollout over several regions, and since when the ones before have done. The workload controller's.

After a restart of the controller, regions that have done are taken to have done long ago.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from fairlead.controllers.cache import Name
from fairlead.decide.turns import has_done, kept_back, of_stand_ins
from fairlead.model.kinds.work import Assignment


class Turn(NamedTuple):
    first: int  # the generation that a region begins with which only stands in for another
    later: dict[str, int]  # regions whose turn has not come, and the generation each keeps
    wake_ms: int | None = None  # when the next one comes, if nothing happens


class Turning:
    def __init__(self) -> None:
        self._done: dict[Name, tuple[int, dict[str, int]]] = {}  # of each workload: its generation, and when each region had done

    def look(
        self, key: Name, generation: int, assignments: Sequence[Assignment], silent: Collection[str], prove_ms: int, now_ms: int
    ) -> Turn:
        known, before = self._done.get(key, (0, {}))
        first_ms = now_ms if known == generation else now_ms - prove_ms  # seen done at first sight: it was before this began
        done = [a.spec.region for a in assignments if a.spec.generation == generation and has_done(a)]
        since = {region: before.get(region, first_ms) if known == generation else first_ms for region in done}
        unproven = {region: ms + prove_ms for region, ms in since.items() if now_ms < ms + prove_ms}
        later = kept_back(generation, assignments, silent, unproven)
        first = of_stand_ins(generation, assignments, silent, unproven)
        if not later:
            self.forget(key)
            return Turn(first, later)
        self._done[key] = (generation, since)
        return Turn(first, later, min(unproven.values(), default=None))

    def forget(self, key: Name) -> None:
        self._done.pop(key, None)
