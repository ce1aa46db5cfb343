"""Owns what operators do to the components that decide by themselves: policy revisions that are tried on a part, promoted, taken
back or left to their end, and pools that may have more nodes or fewer. Who relabels nodes is picky.py's, who orders
emergency quotas emergencies.py's.

Draws from streams of its own; writes as people do, through the API. Started by people.py, where a scenario has such operators.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple

from fairlead.sim import picky
from fairlead.sim.born import BURST, BURST_MAX, TENANTS
from fairlead.sim.emergencies import Emergencies, Write
from fairlead.sim.loop import Draws, sleep
from fairlead.sim.picky import Relabelling
from fairlead.sim.platform import Platform
from fairlead.sim.scenario import Scenario
from fairlead.wire import json_codec

API: Final = f"/apis/{json_codec.API_VERSION}"
CHANNEL: Final = f"{API}/policychannels/default"
SHARES: Final = (0, 50, 85, 100)  # of the tenants: nobody by share, nobody, one of the two, both
TTL_S: Final = (4, 30)  # of a canary: some end before anybody has decided about them
TRIED_S: Final = (1.0, 25.0)  # until somebody does

Tell = Callable[[str], None]


class Trial(NamedTuple):
    """One canary, and what becomes of it: below 0.35 promoted, below 0.7 taken back, else nobody does anything."""

    canary: dict[str, Any]
    for_s: float
    then: float


def drawn(draws: Draws, regions: tuple[str, ...]) -> Trial:
    """By name, by share, by region, or by both; the API refuses one that is about nobody."""
    revision, share, named = draws.randrange(1, 4), draws.choice(SHARES), draws.random() < 0.3
    tenant, region, regional = draws.choice(TENANTS), draws.choice(regions), draws.random() < 0.5
    canary = {
        "revision": revision,
        "tenants": [tenant] if named else [],
        "sharePercent": share,
        "regions": [region] if regional else [],
        "ttlSeconds": draws.randrange(*TTL_S),
    }
    return Trial(canary, draws.uniform(*TRIED_S), draws.random())


class Trying:
    def __init__(self, platform: Platform, write: Write, tell: Tell, stopped: Callable[[], bool]) -> None:
        self._platform = platform
        self._work = platform.scenario.work
        self._write = write
        self._tell = tell
        self._stopped = stopped

    def tasks(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        """None where nobody does any of it: not even a task more may run there."""
        relabelling = Relabelling(self._platform, self._write, self._tell, self._stopped)
        emergencies = Emergencies(self._platform, self._write, self._tell, self._stopped)
        return (
            [self._canaries] * bool(self._work.canaries)
            + [self._resizes] * bool(self._work.resizes)
            + [relabelling.run] * bool(self._work.relabels)
            + [emergencies.run] * bool(self._work.emergencies)
        )

    async def _canaries(self) -> None:
        draws = self._platform.loop.stream("canaries")
        while not self._stopped():
            await sleep(draws.expovariate(self._work.canaries / 60))
            trial = drawn(draws, self._platform.regions)
            if self._stopped():
                return
            self._tell(f"tries policy {trial.canary}")
            answer = await self._write("PATCH", CHANNEL, {"spec": {"canary": trial.canary}}, "default")
            await sleep(trial.for_s)
            if self._stopped() or trial.then >= 0.7 or answer is None or answer.status >= 300:
                continue
            promoted = trial.then < 0.35
            current = {"current": trial.canary["revision"]} if promoted else {}
            self._tell(f"{'promotes' if promoted else 'takes back'} policy r{trial.canary['revision']}")
            await self._write("PATCH", CHANNEL, {"spec": {"canary": None, **current}}, "default")

    async def _resizes(self) -> None:
        draws = self._platform.loop.stream("resizes")
        while not self._stopped():
            await sleep(draws.expovariate(self._work.resizes / 60))
            region, least, most = draws.choice(self._platform.regions), draws.randrange(2), draws.randrange(1, BURST_MAX + 1)
            if self._stopped():
                return
            self._tell(f"lets pool {BURST} of {region} have {least} to {most} nodes")
            await self._write("PATCH", _pool(region), {"spec": {"minNodes": least, "maxNodes": most}}, BURST)


def put_right(scenario: Scenario, regions: tuple[str, ...]) -> list[tuple[str, dict[str, Any]]]:
    """What is written at the end so that nothing of it is left: paths and patches."""
    out: list[tuple[str, dict[str, Any]]] = []
    if scenario.work.canaries:
        out.append((CHANNEL, {"spec": {"canary": None}}))
    if scenario.work.resizes:
        out += [(_pool(region), {"spec": {"minNodes": 0, "maxNodes": BURST_MAX}}) for region in regions]
    return out + picky.put_right(scenario, regions)


def _pool(region: str) -> str:
    return f"{API}/nodepools/{BURST}?region={region}"
