"""Since when services have had no place in regions that are heard, or too few that serve there, by the global plane's clock. In
memory: who is new counts from its first look. Decides nothing about what follows. Used by the recovery controller, in each look
for every service.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from fairlead.decide.folding import not_bound
from fairlead.decide.overflow import waiting
from fairlead.decide.recovery import Regions, Service
from fairlead.model.kinds.work import Assignment

Mark = tuple[str, str, Literal["own", "all", "serving"]]  # workload uid, region; what there was too little of, and of what


class NoPlace:
    def __init__(self, after_s: float) -> None:
        self._after_ms = after_s * 1000
        self._since: dict[Mark, int] = {}  # the first look at which it had none
        self._before = self._since

    def begin(self) -> None:
        """A look begins. What nobody asks for in it is forgotten: the service is gone, or is not recovered any more."""
        self._before, self._since = self._since, {}

    def seen(self, service: Service, uid: str, mine: Iterable[Assignment], regions: Regions, now_ms: int) -> Service:
        """The service with the regions that are there and have, for a while, had no place for its own slots (failing), or for
        these and those that stand in there (full), or too few of its own that serve, wherever the others are (mute)."""
        failing, full, mute, waits = set(), set(), set(), {}
        for assignment in mine:
            region = assignment.spec.region
            if region not in regions.healthy:
                continue
            own, ordered = service.slots.get(region, 0), service.ordered.get(region, 0)
            # Nobody says which of them wait: as far as it may be those that stand in, it is, for whom the region is full then.
            if self._lasts((uid, region, "own"), _placeless(service, assignment, own, ordered), now_ms):
                failing.add(region)
            if self._lasts((uid, region, "serving"), min(service.minimum, own) - service.alive.get(region, 0), now_ms):
                mute.add(region)
            stuck = _placeless(service, assignment, own + ordered) if ordered else 0
            if self._lasts((uid, region, "all"), stuck, now_ms):
                full.add(region)
            else:
                stuck = min(stuck, waiting(assignment.status))  # until then only what was tried there is told
            if stuck:
                waits[region] = min(stuck, ordered)
        return service._replace(failing=frozenset(failing), full=frozenset(full), mute=frozenset(mute), waits=waits)

    def _lasts(self, mark: Mark, lacking: int, now_ms: int) -> bool:
        if lacking <= 0:
            return False
        since_ms = self._since[mark] = self._before.get(mark, now_ms)
        return now_ms - since_ms >= self._after_ms


def _placeless(service: Service, assignment: Assignment, given: int, beside: int = 0) -> int:
    """How many of the slots a region was given have no place, of those that the minimum needs; `beside`: others that it has. One
    that has a place and does not come up is not sent elsewhere for that, where it may not come up either."""
    told = assignment.status.replicas
    enough = min(service.minimum, given)
    if told.serving >= enough:
        return 0
    return max(0, told.unknown + not_bound(assignment) - beside - (given - enough))
