"""The stage of one drill: the running platform, what can be done to it, who counts from outside, and the record of what was seen.

Owns the record (checks, timings, what was seen when) and what the drill has made and must go. Decides nothing about pass or fail
but that every check must hold. Made by running.py, used by the drills.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from fairlead.compose.chaos import SQLITE, Chaos
from fairlead.compose.config import PlaneConfig
from fairlead.compose.layout import Layout, read_config
from fairlead.compose.local import Local
from fairlead.compose.wiring import REGIONS
from fairlead.drills.asking import NO_ANSWER, Asking, Tree
from fairlead.drills.census import Census, Workload
from fairlead.ports import Clock

POLL_S: Final = 0.25
SLEEPER: Final = ["/bin/sleep", "86400"]
TENANT: Final = "billing"  # drills' own work is its: it has room in us-east and us-west


class Check(NamedTuple):
    name: str
    passed: bool
    detail: str


class Seen(NamedTuple):
    at_s: float  # since the fault; before it, negative
    text: str


class Scene:
    def __init__(
        self,
        layout: Layout,
        local: Local,
        chaos: Chaos,
        asking: Asking,
        census: Census,
        clock: Clock,
        say: Callable[[str], None],
        folder: str,
    ) -> None:
        self.layout = layout
        self.local = local
        self.chaos = chaos
        self.asking = asking
        self.census = census
        self.clock = clock
        self.folder = folder  # for files of this drill's work; goes with it
        self._say = say
        self._began_s = clock.monotonic()
        self.checks: list[Check] = []
        self.seen: list[Seen] = []
        self.timings_s: dict[str, float] = {}
        self.figures: dict[str, Any] = {}
        self.made: list[tuple[str, str, str]] = []  # plural, tenant, name: removed at the end, the last one first
        self.undo: list[tuple[str, Callable[[], Awaitable[object]]]] = []  # what else must be as it was

    # --- the record ------------------------------------------------------------------------------------------------------

    def begin(self, text: str) -> None:
        """Now the fault happens: times count from here."""
        self._began_s = self.clock.monotonic()
        self.saw(text)

    @property
    def began_s(self) -> float:
        return self._began_s

    def since_s(self) -> float:
        return self.clock.monotonic() - self._began_s

    def saw(self, text: str) -> None:
        self.seen.append(Seen(round(self.since_s(), 2), text))
        self._say(f"{self.since_s():7.1f} s  {text}")

    def check(self, name: str, passed: bool, detail: str) -> bool:
        self.checks.append(Check(name, passed, detail))
        self.saw(f"{'as expected' if passed else 'NOT as expected'}: {name}: {detail}")
        return passed

    def timing(self, name: str) -> None:
        self.timings_s[name] = round(self.since_s(), 2)

    async def until(self, what: str, holds: Callable[[], Awaitable[object]], within_s: float, poll_s: float = POLL_S) -> bool:
        """Whether it came about in time; who does not answer meanwhile is asked again. Says when it did."""
        end = self.clock.monotonic() + within_s
        while True:
            try:
                if await holds():
                    self.saw(what)
                    return True
            except NO_ANSWER:
                pass
            if self.clock.monotonic() >= end:
                self.saw(f"not within {within_s:g} s: {what}")
                return False
            await self.clock.sleep(poll_s)

    async def expect(self, name: str, holds: Callable[[], Awaitable[object]], within_s: float, timing: str = "") -> bool:
        """A check that may take its time."""
        began_s = self.clock.monotonic()
        came = await self.until(name, holds, within_s)
        if came and timing:
            self.timing(timing)
        took_s = self.clock.monotonic() - began_s
        return self.check(name, came, f"after {took_s:.1f} s" if came else f"not within {within_s:g} s")

    async def dwell(self, seconds: float) -> None:
        """Goes on looking until so long after the fault: what goes wrong late is to be seen too."""
        await self.clock.sleep(max(0.0, seconds - self.since_s()))

    # --- from outside ----------------------------------------------------------------------------------------------------

    async def serving(self, workload: Workload, count: int, region: str = "") -> bool:
        """Whether so many are seen to serve, counted after this moment."""
        look = self.census.last(workload)
        if look is None or look.at_s < self._began_s:
            return False
        return (look.by_region().get(region, 0) if region else look.serving()) >= count

    def check_lowest(self, workload: Workload, least: int) -> None:
        lowest = self.census.lowest(workload, self._began_s)
        detail = f"at the lowest {lowest} were counted through the endpoints"
        self.check(f"{workload[1]}: at least {least} serve all the while", lowest is not None and lowest >= least, detail)

    def check_errors(self, workload: Workload, most: int, why: str) -> None:
        measure = self.census.probers[workload].measures.all
        errors = sum(measure.errors.values())
        told = ", ".join(f"{error} x{count}" for error, count in sorted(measure.errors.items())) or "none"
        detail = f"{errors} of {measure.sent} requests failed ({told}); longest outage {measure.outage_s:.2f} s"
        passed = errors <= most and measure.sent > 0  # of none, none fails
        self.check(f"{workload[1]}: at most {most} requests of clients fail: {why}", passed, detail)

    # --- work of its own -------------------------------------------------------------------------------------------------

    async def make(self, plural: str, tenant: str, name: str, spec: Tree) -> None:
        """An object that goes when the drill ends, however it ends."""
        self.made.append((plural, tenant, name))
        await self.asking.create(plural, tenant, name, spec)

    def sqlite_region(self) -> str:
        """One whose store can be held: the first with a store of its own."""
        for region in REGIONS[:2]:
            config: PlaneConfig = read_config(self.layout.config_of(region), PlaneConfig)
            if config.store.startswith(SQLITE):
                return region
        raise ValueError("no region has a SQLite store, and a server of another kind is not ours to stop")

    async def sleepers(self, name: str, replicas: int, region: str, **more: Any) -> None:
        """Work that does nothing, in one region: for placing, not for serving."""
        spec: Tree = {
            "replicas": replicas,
            "workloadClass": "standard",
            "template": {"driver": "process", "command": SLEEPER, "stopGraceSeconds": 1},
            "resources": {"requests": {"cpu": "10m", "memory": "8Mi"}},
            "placement": {"regions": {"allowed": [region]}},
            "rollout": {"maxSurge": 0, "maxUnavailable": replicas},
        }
        await self.make("workloads", TENANT, name, spec | more)
