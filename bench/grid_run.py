"""One replay of jobs and outages over nine simulated regions, with recovery or without, in simulated time.

Production code on the simulator's platform (fairlead/sim): a global plane and a plane a region, agents, the API over which jobs
are submitted and removed. The checkers of every simulated run look at each commit, and at the quota over all planes once a
second. What runs when is known from the simulated nodes, not from what a plane says. Called by bench/grid.py.

A job is a service of one replica that may run more than once, with a minimum of one to recover, because exclusive work is not
brought back elsewhere; it is removed when it has run as long as it was recorded. It remembers its progress every minute: what it
did since, before it was lost, it does again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from time import process_time  # by its own name: what a world reaches for by the module's is walled off
from typing import Any, Final

import msgspec

from bench.grid_trace import Draw, Job, Outage
from fairlead.model.journal import decode_blob
from fairlead.model.registry import GLOBAL
from fairlead.model.resources import Resources
from fairlead.observe.intervals import Interval
from fairlead.ports import Tasks
from fairlead.sim import loop as sim
from fairlead.sim.born import BUDGET, Birth, TenantBorn
from fairlead.sim.hearing import hearing, quiet
from fairlead.sim.loop import SimLoop, sleep
from fairlead.sim.machines import Machine
from fairlead.sim.people import API
from fairlead.sim.scenario import Scenario, Work
from fairlead.sim.walls import unheard, walls
from fairlead.sim.world import World
from fairlead.wire import json_codec

ASK: Final = Resources(250, 256 << 20)  # of one job: a node here stands for 64 CPUs of its site
CHECKPOINT_S: Final = 60.0
AFTERMATH_S: Final = 60.0  # after the end of an outage, that still counts as one where load is compared
READY_S: Final = 600.0  # within which the platform must be up; no figure depends on it
STEPS_MAX: Final = 1_000_000_000

Key = tuple[str, str]  # tenant, job


class Settings(msgspec.Struct, frozen=True):
    seed: int
    recovery: bool
    nodes: int  # of each region
    until_s: float
    quota_percent: int  # of the most that each tenant's jobs would use at once


class Lost(msgspec.Struct):
    """One job that an outage took from under way."""

    job: str
    region: str
    site: bool  # the whole region went, not one node
    at_s: float
    again_s: float  # work that must be done again
    back_s: float | None = None  # when it ran again
    elsewhere: bool = False


class Replayed(msgspec.Struct):
    """What one replay came to. All but `cpu_s` is the same for the same seed."""

    trace: str
    lost: list[Lost]
    completed: int
    work_s: float  # that was done, without what was done twice
    waited_s: float  # of jobs for their first place
    findings: list[str]
    quota_violations: int
    quota_checked: dict[str, int]
    commands: dict[str, int]  # while an outage was in force or just over, and else
    seconds: dict[str, int]
    cpu_s: dict[str, float]
    peak_queue: int
    refused: dict[str, int]


def peak(jobs: Iterable[Job]) -> int:
    """The most that would run at once if each began when it was submitted."""
    moves = sorted(move for job in jobs for move in ((job.at_s, 1), (job.at_s + job.run_s, -1)))
    running = most = 0
    for _, by in moves:
        running += by
        most = max(most, running)
    return most


def birth(draw: Draw, settings: Settings) -> Birth:
    """Each tenant's quota: what its jobs need, and with recovery the room its budget holds. Room for twice its largest region."""
    tenants = []
    for tenant in draw.tenants:
        own = [job for job in draw.jobs if job.tenant == tenant]
        largest = max(peak(job for job in own if job.region == region) for region in draw.regions)
        rooms = math.ceil(2 * largest / (len(draw.regions) - 1)) if settings.recovery else 0
        jobs = max(1, peak(own) * settings.quota_percent // 100)
        tenants.append(TenantBorn(tenant, ASK.times(jobs + rooms * len(draw.regions)), rooms, ASK))
    return Birth(draw.regions, tuple(tenants))


class Progress:
    """One job, as it really went."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.copies: list[Interval] = []
        self.done_s = 0.0
        self.begun_s: float | None = None
        self.ended = False
        self.lost: Lost | None = None  # and not back yet

    @property
    def running(self) -> bool:
        return any(copy.end is None for copy in self.copies)


class Replay:
    def __init__(self, world: World, draw: Draw, settings: Settings) -> None:
        self._world = world
        self._platform = world.platform
        self._draw = draw
        self._settings = settings
        self._jobs: dict[Key, Progress] = {}
        self._seen = 0  # intervals of the platform that were looked at
        self._zero_s = 0.0
        self._ends: list[tuple[float, Outage]] = []
        self._in_force: list[tuple[float, float]] = []
        self.lost: list[Lost] = []
        self.peak_queue = 0
        self.cpu_s = {"outage": 0.0, "steady": 0.0}
        self.seconds: Counter[str] = Counter()

    @property
    def now_s(self) -> float:
        return self._world.loop.now - self._zero_s

    async def run(self) -> None:
        await self._ready()
        self._zero_s = self._world.loop.now
        waiting, strikes = list(reversed(self._draw.jobs)), list(reversed(self._draw.outages))
        used_s = process_time()
        async with Tasks() as tasks:
            while self.now_s < self._settings.until_s:
                await sleep(1.0)
                self._mend()
                while strikes and strikes[-1].at_s <= self.now_s:
                    self._strike(strikes.pop())
                while waiting and waiting[-1].at_s <= self.now_s:
                    job = waiting.pop()
                    self._jobs[job.tenant, job.name] = Progress(job)
                    tasks.start(self._insist("POST", self._path(job), self._workload(job), job.name), f"submits {job.name}")
                for key in self._advance():
                    job = self._jobs[key].job
                    tasks.start(self._insist("DELETE", f"{self._path(job)}/{job.name}", None, job.name), f"ends {job.name}")
                self._look()
                used_s, before_s = process_time(), used_s
                phase = self._phase()
                self.cpu_s[phase] += used_s - before_s
                self.seconds[phase] += 1
            tasks.cancel()
        self._world.look_at_quota()

    async def _ready(self) -> None:
        world = self._world
        while not self._is_ready():
            assert world.loop.now < READY_S, f"the platform did not come up; {world.findings}"
            await sleep(1.0)

    def _is_ready(self) -> bool:
        planes, watches = self._platform.planes, self._world.watches
        regions = [watches[region].objects for region in self._platform.regions]
        rooms = sum(b.spec.shapes[0].count for b in watches[GLOBAL].objects.get("recoverybudgets", {}).values())
        return (
            all(plane.leaders() for plane in planes.values())
            and all(("", "default") in objects.get("policychannels", {}) for objects in regions)
            and all(node.status.schedulable for objects in regions for node in objects["nodes"].values())
            and all(len(objects.get("reservations", {})) >= rooms for objects in regions)
        )

    # --- what people do ----------------------------------------------------------------------------------------------------

    @staticmethod
    def _path(job: Job) -> str:
        return f"{API}/namespaces/{job.tenant}/workloads"

    def _workload(self, job: Job) -> dict[str, Any]:
        spec: dict[str, Any] = {
            "replicas": 1,
            "template": {"command": ["work", job.name]},
            "resources": {"requests": {"cpu": f"{ASK.cpu}m", "memory": f"{ASK.memory}"}},
            "placement": {"preferences": [{"weight": 100, "locality": {"regions": [job.region]}}]},
        }
        if self._settings.recovery:
            spec["recovery"] = {"budgetName": BUDGET, "minServing": 1}
        else:
            spec["placement"]["regions"] = {"allowed": [job.region]}
        return {"apiVersion": json_codec.API_VERSION, "kind": "Workload", "metadata": {"name": job.name}, "spec": spec}

    async def _insist(self, method: str, path: str, body: Any, name: str) -> None:
        while True:
            answer = await self._world.people.write(method, path, body, name)
            if answer is not None and (answer.status < 300 or answer.status in (404, 409)):
                return
            assert answer is None or answer.status >= 429, f"{method} {path}: {answer}"
            await sleep(1.0)

    # --- what breaks -------------------------------------------------------------------------------------------------------

    def _machines_of(self, outage: Outage) -> list[Machine]:
        every = self._platform.machines.all
        if outage.node is not None:
            return [self._platform.agents[f"{outage.region}-n{outage.node}"].program.machine]
        return [machine for name, machine in every.items() if name.startswith(f"{outage.region}/")]

    def _strike(self, outage: Outage) -> None:
        struck = [machine for machine in self._machines_of(outage) if machine.up]
        if not struck:
            return  # it is away already
        names = {machine.name for machine in struck}
        for progress in self._jobs.values():
            running = [copy for copy in progress.copies if copy.end is None]
            if running and not progress.ended and all(copy.where in names for copy in running):
                again_s = progress.done_s % CHECKPOINT_S
                progress.done_s -= again_s
                progress.lost = Lost(progress.job.name, outage.region, outage.node is None, self.now_s, again_s)
                self.lost.append(progress.lost)
        for machine in struck:
            self._world.chaos.power_off(machine)
        self._platform.machines.tell("outage", f"{outage.region} {outage.node} for {outage.for_s}")
        self._ends.append((self.now_s + outage.for_s, outage))
        self._in_force.append((self.now_s, self.now_s + outage.for_s + AFTERMATH_S))

    def _mend(self) -> None:
        over = [outage for end_s, outage in self._ends if end_s <= self.now_s]
        self._ends = [(end_s, outage) for end_s, outage in self._ends if end_s > self.now_s]
        dark = {outage.region for _, outage in self._ends if outage.node is None}
        held = {(outage.region, outage.node) for _, outage in self._ends}
        for outage in over:
            for machine in self._machines_of(outage):
                still = outage.region in dark or any(
                    machine is other for region, node in held for other in self._machines_of(Outage(0.0, 0.0, region, node))
                )
                if not still:
                    self._world.chaos.power_on(machine)

    def _phase(self, at_s: float | None = None) -> str:
        at_s = self.now_s if at_s is None else at_s
        return "outage" if any(begin <= at_s < end for begin, end in self._in_force) else "steady"

    # --- what happens ------------------------------------------------------------------------------------------------------

    def _advance(self) -> list[Key]:
        """One second has passed. Those that have now done all they had to do."""
        for interval in self._platform.intervals[self._seen :]:
            found = self._jobs.get((interval.tenant, interval.name.rpartition("-")[0]))
            if found is not None:
                found.copies.append(interval)
        self._seen = len(self._platform.intervals)
        out = []
        for key, progress in self._jobs.items():
            if progress.ended or not progress.running:
                continue
            if progress.begun_s is None:
                progress.begun_s = self.now_s
            if progress.lost is not None:
                region = next(copy.where for copy in progress.copies if copy.end is None).partition("/")[0]
                progress.lost.back_s, progress.lost.elsewhere = self.now_s, region != progress.lost.region
                progress.lost = None
            progress.done_s = min(progress.job.run_s, progress.done_s + 1.0)
            if progress.done_s >= progress.job.run_s:
                progress.ended = True
                out.append(key)
        return out

    def _look(self) -> None:
        self._world.look_at_quota()
        for detail in self._world.losses.bound_twice():
            self._world.found("S1", "", detail)
        waiting = [len(self._world.watches[region].objects.get("schedulingrequests", {})) for region in self._platform.regions]
        self.peak_queue = max(self.peak_queue, sum(waiting))

    def replayed(self, trace: str) -> Replayed:
        world, checked = self._world, Counter[str]()
        commands: Counter[str] = Counter()
        for watch in world.watches.values():
            checked += watch.checked
            for batch in watch.batches:
                at_s = watch.times[batch.hash] - self._zero_s
                if at_s >= 0:
                    commands[self._phase(at_s)] += len(decode_blob(batch.blob).entries)
        found = [f"{one.invariant} in {one.plane or 'all'} at {one.at_s} s: {one.detail}" for one in world.findings]
        found += [f"{name} ended by itself: {error}" for name, error in self._platform.machines.exits]
        waits = [progress.begun_s - progress.job.at_s for progress in self._jobs.values() if progress.begun_s is not None]
        refused = self._platform.tally.total()
        return Replayed(
            trace=trace,
            lost=self.lost,
            completed=sum(progress.ended for progress in self._jobs.values()),
            work_s=sum(progress.done_s for progress in self._jobs.values()),
            waited_s=round(sum(waits), 1),
            findings=found,
            quota_violations=sum(one.invariant in ("S4", "S5") for one in world.findings),
            quota_checked={"S4": checked["S4"], "S5": world.escrow.checked},
            commands=dict(commands),
            seconds=dict(self.seconds),
            cpu_s=self.cpu_s,
            peak_queue=self.peak_queue,
            refused={name: refused[name] for name in ("GrantExceeded", "StaleGrant")},
        )


def replay(draw: Draw, settings: Settings) -> Replayed:
    work = Work(workloads=0, actions=0.001, operators=0.0, replays=0.0)
    scenario = Scenario(settings.seed, "grid", len(draw.regions), 1, settings.nodes, work=work)

    async def main(loop: SimLoop) -> Replay:
        world = World(loop, scenario, birth(draw, settings))
        world.platform.start()
        made = Replay(world, draw, settings)
        with hearing(loop, world.found):
            await made.run()
        return made

    with quiet(), unheard(), walls():
        return _replayed(sim.run(main, settings.seed, STEPS_MAX))


def _replayed(outcome: sim.Outcome[Replay]) -> Replayed:
    return outcome.value.replayed(outcome.trace)
