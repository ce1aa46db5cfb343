"""Since when services have had no place in regions that are heard, or too few that serve there, of their own or of those that
stand in, by the global plane's clock. In memory: who is new counts from its first look. While a region is silent and not lost
nothing about it is counted, and nothing begins anew: one that stutters would else never have lacked anything for long. Decides
nothing about what follows. Used by the recovery controller, in each look for every service.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from fairlead.decide.folding import not_bound
from fairlead.decide.idle import Since, Tried, idle_for, idle_since, tried
from fairlead.decide.overflow import waiting
from fairlead.decide.proving import ServedThroughout
from fairlead.decide.recovery import Regions, Service
from fairlead.model.kinds.work import Assignment

PROVEN_MS: Final = 10_000  # two looks: without a probe a program that cannot live serves for a moment each time it is started
What = Literal["own", "all", "serving"]
Mark = tuple[str, str, What]  # workload uid, region; what there was too little of, and of what
_WHAT: Final[tuple[What, ...]] = ("own", "all", "serving")


class NoPlace:
    def __init__(self, after_s: float) -> None:
        self._after_ms = after_s * 1000
        self._since: dict[Mark, int] = {}  # the first look at which it had none
        self._before = self._since
        self._idle: dict[tuple[str, str], Since] = {}  # workload uid, region: what was ordered there and does not serve
        self._idle_before = self._idle
        self._served: dict[tuple[str, str], ServedThroughout] = {}  # of what stands in there
        self._served_before = self._served
        self._tried: dict[tuple[str, str], Tried] = {}  # where what stood in did not come up, as long as the order lasts
        self._tried_before = self._tried
        self._looked_ms = self._passed_ms = 0  # the look before, and how long ago that was

    def begin(self, now_ms: int) -> None:
        """A look begins. What nobody asks for in it is forgotten: the service is gone, or is not recovered any more."""
        self._passed_ms, self._looked_ms = now_ms - self._looked_ms, now_ms
        self._before, self._since = self._since, {}
        self._idle_before, self._idle = self._idle, {}
        self._served_before, self._served = self._served, {}
        self._tried_before, self._tried = self._tried, {}

    def seen(
        self, service: Service, uid: str, mine: Sequence[Assignment], regions: Regions, now_ms: int, ordered: bool
    ) -> Service:  # fmt: skip
        """The service with the regions that are there and have, for a while, had no place for its own slots (failing), or for
        these and those that stand in there (full), or too few of its own that serve, wherever the others are (mute), or of what
        stands in (idle). `ordered`: there is an order for it, of whatever."""
        failing, full, mute, waits = set(), set(), set(), {}
        for region in sorted({each.spec.region for each in mine} & regions.unknown):
            self._keep(uid, region, ordered)
        mine = [each for each in mine if each.spec.region not in regions.unknown]
        for assignment in mine:
            region = assignment.spec.region
            if region not in regions.healthy:
                continue
            own, here = service.slots.get(region, 0), service.ordered.get(region, 0)
            # Nobody says which of them wait: as far as it may be those that stand in, it is, for whom the region is full then.
            if self._lasts((uid, region, "own"), _placeless(service, assignment, own, here), now_ms):
                failing.add(region)
            if self._lasts((uid, region, "serving"), min(service.minimum, own) - service.alive.get(region, 0), now_ms):
                mute.add(region)
            stuck = _placeless(service, assignment, own + here) if here else 0
            if self._lasts((uid, region, "all"), stuck, now_ms):
                full.add(region)
            else:
                stuck = min(stuck, waiting(assignment.status))  # until then only what was tried there is told
            if stuck:
                waits[region] = min(stuck, here)
        service = service._replace(failing=frozenset(failing), full=frozenset(full), mute=frozenset(mute), waits=waits)
        return self._with_idle(service, uid, mine, regions, now_ms, ordered)

    def _keep(self, uid: str, region: str, ordered: bool) -> None:
        """Nobody knows how it is there: what has lasted goes on when it is heard again, and the time between is not counted."""
        key, passed_ms = (uid, region), self._passed_ms
        for mark in [(uid, region, what) for what in _WHAT]:
            if mark in self._before:
                self._since[mark] = self._before[mark] + passed_ms
        if key in self._idle_before:
            self._idle[key] = tuple(ms + passed_ms for ms in self._idle_before[key])
        if key in self._served_before:
            self._served[key] = self._served_before[key]
        if ordered and key in self._tried_before:
            self._tried[key] = self._tried_before[key]

    def _with_idle(
        self, service: Service, uid: str, mine: Sequence[Assignment], regions: Regions, now_ms: int, ordered: bool
    ) -> Service:  # fmt: skip
        """Wherever they are: one that ends again and again has a place at one moment, and none at the next."""
        idle, spent = {}, set()
        for assignment in mine:
            region, key = assignment.spec.region, (uid, assignment.spec.region)
            if region in regions.healthy:
                since = idle_since(self._idle_before.get(key, ()), self._not_serving(service, key, now_ms), now_ms)
                if since:
                    self._idle[key] = since
                if count := idle_for(since, self._after_ms, now_ms):
                    idle[region] = count
            known = tried(self._tried_before.get(key), assignment.spec.generation, region in idle, now_ms)
            if known is None or not ordered:
                continue  # with the order ends what is remembered of it
            self._tried[key] = known
            if not service.ordered.get(region) and known.is_spent(now_ms):
                spent.add(region)
        return service._replace(idle=idle, spent=frozenset(spent))

    def _not_serving(self, service: Service, key: tuple[str, str], now_ms: int) -> int:
        """Of what was ordered there, where its minimum does not serve."""
        region = key[1]
        if not service.ordered.get(region):
            return 0
        serving = service.stood_in.get(region, 0)
        served = self._served[key] = self._served_before.get(key) or ServedThroughout(0, 0, now_ms)
        stands_in = serving - served.look(serving, PROVEN_MS, now_ms).lacking
        reached = service.alive.get(region, 0) + stands_in >= service.minimum
        return 0 if reached else max(0, service.ordered[region] - stands_in)

    def _lasts(self, mark: Mark, lacking: int, now_ms: int) -> bool:
        if lacking <= 0:
            return False
        since_ms = self._since[mark] = self._before.get(mark, now_ms)
        return now_ms - since_ms >= self._after_ms


def _placeless(service: Service, assignment: Assignment, given: int, beside: int = 0) -> int:
    """How many of the slots a region was given have no place, of those that the minimum needs; `beside`: others that it has."""
    told = assignment.status.replicas
    enough = min(service.minimum, given)
    if told.serving >= enough:
        return 0
    return max(0, told.unknown + not_bound(assignment) - beside - (given - enough))
