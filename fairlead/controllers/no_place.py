"""Since when services have had no place in regions that are heard, by the global plane's clock. In memory: who is new counts from
its first look. Decides nothing about what follows. Used by the recovery controller, in each look for every service.
"""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.decide.recovery import Regions, Service
from fairlead.model.kinds.work import Assignment


class NoPlace:
    def __init__(self, after_s: float) -> None:
        self._after_ms = after_s * 1000
        self._since: dict[tuple[str, str], int] = {}  # workload uid, region -> the first look at which it had none
        self._before = self._since

    def begin(self) -> None:
        """A look begins. What nobody asks for in it is forgotten: the service is gone, or is not recovered any more."""
        self._before, self._since = self._since, {}

    def failing(self, service: Service, uid: str, mine: Iterable[Assignment], regions: Regions, now_ms: int) -> frozenset[str]:
        """Regions that are there and have, for a while, had no place for what this service should have in them. A service that
        has a place and does not come up there would not come up elsewhere."""
        out = set()
        for assignment in mine:
            region, told = assignment.spec.region, assignment.status.replicas
            own = service.slots.get(region, 0)
            enough = min(service.minimum, own)
            placeless = told.unknown + told.pending
            has_place = not enough or told.serving >= enough or placeless <= own - enough
            if region in regions.healthy and not has_place and self._lasts((uid, region), now_ms):
                out.add(region)
        return frozenset(out)

    def _lasts(self, mark: tuple[str, str], now_ms: int) -> bool:
        since_ms = self._since[mark] = self._before.get(mark, now_ms)
        return now_ms - since_ms >= self._after_ms
