"""Owns what runs on a simulated node, in true time: instances, the shims beside them, and every interval anything ran in.

A machine's `Instances` outlive its agent, as real processes do, and an Exclusive one is ended by its shim when the fence file
says so, whether the agent lives or not. `SimDriver` is one agent's hold on them, behind fairlead/agent/drivers/contract.py.
The intervals are for checkers (S12); nothing of the platform can read them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final, Literal

import msgspec

from fairlead.agent.drivers.contract import Adopted, Cause, Chunk, Ended, Exit, InstanceId, Launch, Started, Stream
from fairlead.observe.intervals import Interval
from fairlead.sim.loop import Draws, SimLoop, sleep
from fairlead.sim.machines import Machine, Running

FENCE_POLL_S: Final = 0.5  # fairlead/agent/drivers/shim.py's
FENCE_FILE: Final = "fence"
START_S: Final = (0.05, 2.0)
JOB_S: Final = (1.0, 25.0)  # after which the run of a job ends by itself
JOB_FAILS: Final = 0.15  # share of those that end with an error


class _Run(msgspec.Struct):
    launch: Launch
    interval: Interval
    exit: Exit | None = None
    stopping: bool = False
    lasts: float = math.inf  # as the shim's file says


def is_job(launch: Launch) -> bool:
    return launch.argv[:1] == ("job",)


class Instances:
    """What runs on one machine."""

    def __init__(self, loop: SimLoop, machine: Machine, intervals: list[Interval], draws: Draws) -> None:
        self._loop = loop
        self._machine = machine
        self._intervals = intervals
        self.draws = draws
        self.runs: dict[InstanceId, _Run] = {}
        self.owner: Running | None = None  # the present agent's process
        self.told: Ended = lambda *_: None  # where that agent wants to hear of ends
        self.refused: Callable[[str], None] = lambda name: None  # told when a fence ends a run
        self.done: Callable[[Launch, int], None] = lambda launch, code: None  # told when a job's run has come to its end
        self._jobs = loop.stream(f"jobs {machine.name}")
        self.barren = False  # what is started here does not come up

    def begin(self, launch: Launch) -> None:
        interval = Interval(
            launch.id.tenant, launch.id.name, launch.id.token, self._machine.name, self._loop.now, None, launch.exclusive,
            launch.uid, launch.supersedes,
        )  # fmt: skip
        self._intervals.append(interval)
        run = self.runs[launch.id] = _Run(launch, interval, lasts=launch.lasts)
        if launch.exclusive or launch.lasts < math.inf:
            self._loop.after(FENCE_POLL_S * self.draws.random(), self._look_at_fence, run)
        if is_job(launch):
            lasts_s, fails = self._jobs.uniform(*JOB_S), self._jobs.random() < JOB_FAILS
            self._loop.after(lasts_s, self._ends, run, int(fails))

    def _ends(self, run: _Run, code: int) -> None:
        if run.interval.end is None:
            self.done(run.launch, code)
            self.end(run, Exit(code, "exited"))

    def _look_at_fence(self, run: _Run) -> None:
        """The shim: compares its machine's clock with the file, and looks again when the time it read there is over."""
        if run.interval.end is not None:
            return
        until = min(run.lasts, self._fence_time(run.launch))
        if until == math.inf:
            return  # it has become firm
        left_s = until - self._machine.clock.local(self._loop.now)
        if left_s <= 0:
            self.end(run, Exit(137, "fenced"))
            return
        self._loop.after(left_s / self._machine.clock.rate + FENCE_POLL_S * self.draws.random(), self._look_at_fence, run)

    def _fence_time(self, launch: Launch) -> float:
        if not launch.exclusive:
            return math.inf
        try:
            return float((self._machine.read(FENCE_FILE) or b"").split()[1 if launch.exclusive == "global" else 0])
        except (ValueError, IndexError):
            return 0.0

    def end(self, run: _Run, exit: Exit) -> None:
        if run.interval.end is None:
            run.interval.end = self._loop.now
            run.exit = exit
            if exit.cause == "fenced":
                self.refused("AgentFence")
            if self.owner is not None and not self.owner.dead:
                self._loop.soon(self.owner, self.told, run.launch.id, run.launch.run, exit)

    def crash(self, run: _Run) -> None:
        self.end(run, Exit(1, "exited"))

    def fail(self, id: InstanceId) -> Exit:
        """It ended while it was started: whoever starts it is told so, and nobody else."""
        run, exit = self.runs[id], Exit(1, "exited")
        if run.interval.end is None:
            run.interval.end, run.exit = self._loop.now, exit
        return exit

    def power_lost(self) -> None:
        """Everything ends at once, and nobody is told."""
        self.told = lambda *_: None
        for run in self.runs.values():
            if run.interval.end is None:
                run.interval.end = self._loop.now
        self.runs.clear()


class SimDriver:
    name = "process"

    def __init__(self, instances: Instances) -> None:
        self._instances = instances

    def in_force(self) -> Mapping[str, str]:
        return {"limits": "simulated"}

    async def adopt(self, ended: Ended) -> list[Adopted]:
        self._instances.told = ended
        return [
            Adopted(id, run.launch.run, run.launch.ports, run.exit, run.launch.exclusive, run.launch.template, run.lasts)
            for id, run in self._instances.runs.items()
        ]

    async def start(self, launch: Launch) -> Started | Exit:
        instances = self._instances
        there = instances.runs.get(launch.id)
        assert there is None or there.interval.end is not None, f"{launch.id.text} runs already"
        pause_s = instances.draws.uniform(*START_S)
        instances.begin(launch)  # a starting process is a running one
        await sleep(pause_s)
        return instances.fail(launch.id) if instances.barren else Started()

    async def stop(self, id: InstanceId, grace_s: float) -> None:
        run = self._instances.runs.get(id)
        if run is None or run.interval.end is not None or run.stopping:
            return
        run.stopping = True
        takes_s = min(grace_s, 2.0) * self._instances.draws.random()
        self._instances._loop.after(takes_s, self._instances.end, run, Exit(0, "stopped"))

    async def kill(self, id: InstanceId, cause: Cause) -> None:
        run = self._instances.runs.get(id)
        if run is not None:
            self._instances.end(run, Exit(137, cause))

    async def prolong(self, id: InstanceId, lasts: float) -> None:
        run = self._instances.runs.get(id)
        if run is not None:
            run.lasts = lasts

    def status(self, id: InstanceId) -> Literal["running", "gone"]:
        run = self._instances.runs.get(id)
        return "running" if run is not None and run.interval.end is None else "gone"

    async def logs(self, id: InstanceId, stream: Stream, offset: int, limit: int) -> Chunk:
        return Chunk(0, b"", 0)

    async def execute(self, id: InstanceId, argv: tuple[str, ...], timeout_s: float) -> Exit:
        return Exit(0, "exited") if self.status(id) == "running" else Exit(1, "lost")

    async def tidy(self, id: InstanceId) -> None:
        pass

    async def forget(self, id: InstanceId) -> None:
        self._instances.runs.pop(id, None)

    async def close(self) -> None:
        self._instances.told = lambda *_: None
