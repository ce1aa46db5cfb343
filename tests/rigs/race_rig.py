"""Four scheduler processes on one plane process race for a tight fleet while slots fail, nodes close and one of them is killed.

`python -m tests.rigs.race_rig --mode partitioned|sharing|free [--bursts N] [--mutant NAME]` prints the report. Owns the processes
of one run and the verdict: the plane's journal is read from its beginning and asked for every promise it can break. Called by
test_scheduler_race.py.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import msgspec

from fairlead.observe.checkers import JournalChecker
from fairlead.ports import Tasks
from fairlead.store.contract import Compacted
from tests.rigs.kill_rig import python, rig_folder
from tests.rigs.plane_server import SESSION, open_store
from tests.rigs.race_traffic import Fleet, World, fillers, work
from tests.rigs.remote_plane import plane_at
from tests.rigs.scheduler_process import Report, read_report

SCHEDULERS = 4
STEAL_AFTER_MS = 1000
LIMIT_S = 180.0  # until everything is bound; seconds are usual, and a busy machine takes ten times as long
START_S = 90.0  # for the server's process; a second is usual
TICK_S = 0.05


class Plan(msgspec.Struct, frozen=True):
    mode: str  # partitioned, sharing or free
    bursts: int = 22
    nodes: int = 60
    seed: int = 1
    mutant: str = ""


class Outcome(msgspec.Struct):
    """Of one run."""

    seconds: float = 0.0
    slots: int = 0
    unbound: list[str] = []
    failed: int = 0
    drained: int = 0
    cordons: int = 0
    reserved: int = 0
    reports: list[Report] = []
    checked: dict[str, int] = {}
    violations: dict[str, int] = {}
    examples: list[str] = []

    @property
    def conflicts(self) -> int:
        return sum(report.conflicts for report in self.reports)

    def refusals(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for report in self.reports:
            total.update(report.refusals)
        return total


class RaceRig:
    def __init__(self, plan: Plan, folder: Path) -> None:
        self._plan = plan
        self._folder = folder
        self._lives = 0
        self._reports: list[Path] = []
        self._processes: list[subprocess.Popen[bytes]] = []

    async def run(self) -> Outcome:
        started = time.monotonic()
        server = self._server()
        try:
            schedulers = [self._scheduler(number) for number in range(SCHEDULERS)]
            async with Tasks() as tasks:
                plane = plane_at(str(self._folder / "channel.sock"), "world")
                tasks.start(plane.run(), "plane")
                async with asyncio.timeout(START_S):
                    await plane.wait_connected()
                world = World(plane, Fleet(self._plan.nodes), self._plan.seed)
                await world.furnish()
                await self._race(world, schedulers)
                tasks.cancel()
            for process in schedulers:
                _stop(process)
            _stop(server)
        finally:
            for process in self._processes:
                process.kill()
                process.wait()
                assert process.stdin is not None
                process.stdin.close()
        outcome = Outcome(slots=len(world.asked), unbound=sorted("/".join(key) for key in world.waiting))
        outcome.failed, outcome.drained, outcome.cordons = world.failed, world.drained, world.cordons
        outcome.reserved = world.reserved
        outcome.reports = [read_report(path) for path in self._reports if path.exists()]
        await self._judge(outcome)
        outcome.seconds = round(time.monotonic() - started, 1)
        return outcome

    # --- processes ---------------------------------------------------------------------------------------------------------

    def _server(self) -> subprocess.Popen[bytes]:
        folder = self._folder
        words = ["--store", f"sqlite:{folder / 'plane.db'}", "--socket", str(folder / "rig.sock")]
        words += ["--channel", str(folder / "channel.sock")]
        server = python("tests.rigs.plane_server", *words, mutant=self._plan.mutant, log=folder / "server.txt")
        self._processes.append(server)
        return server

    def _scheduler(self, number: int) -> subprocess.Popen[bytes]:
        plan, folder = self._plan, self._folder
        self._lives += 1
        self._reports.append(folder / f"report-{self._lives}.json")
        of = 1 if plan.mode == "free" else SCHEDULERS
        words = ["--channel", str(folder / "channel.sock"), "--report", str(self._reports[-1]), "--name", f"scheduler-{number}"]
        words += ["--index", str(number % of), "--of", str(of), "--seed", str(plan.seed * 100 + number)]
        words += ["--steal-after", str(STEAL_AFTER_MS if plan.mode == "sharing" else 0)]
        process = python("tests.rigs.scheduler_process", *words, log=folder / f"scheduler-{number}.txt")
        self._processes.append(process)
        return process

    def _kill(self, schedulers: list[subprocess.Popen[bytes]], number: int) -> None:
        """Where others pick up its part it stays away for good; else it is back at once."""
        schedulers[number].kill()
        schedulers[number].wait()
        if self._plan.mode == "sharing":
            del schedulers[number]
        else:
            schedulers[number] = self._scheduler(number)

    # --- the race ----------------------------------------------------------------------------------------------------------

    async def _race(self, world: World, schedulers: list[subprocess.Popen[bytes]]) -> None:
        plane = world.plane
        feed = plane.follow(("bindings", "schedulingrequests"), plane.revision())
        first, later = list(fillers(world.fleet)), list(work(self._plan.bursts))
        await world.ask(first)
        end, beat, killed, calm = time.monotonic() + LIMIT_S, 0.0, False, False
        per_tick = max(1, len(later) // 25)
        while time.monotonic() < end:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(feed.wait(), 0.2)
            fresh = world.observe(list(feed.take_nowait()))
            if world.bound_total < 0.8 * sum(one.count for one in first):
                continue
            now = time.monotonic()
            if now - beat > 2.0:
                beat = now
                await plane.heartbeat([(name, SESSION) for name in world.fleet.names])
            await world.ask(later[:per_tick])
            del later[:per_tick]
            await world.let_victims_go()
            if later:
                await world.fail_some(fresh)
                await world.cordon_some()
                await world.reserve_some()
            if not killed and 2 * world.bound_total > sum(one.count for one in first) + len(world.asked):
                killed = True
                self._kill(schedulers, SCHEDULERS - 1)
            if not later and not calm:
                calm = True
                await world.calm()
            if calm and not world.waiting and self._reports[-1].exists():  # whoever came back has come, on a busy machine too
                return
            await asyncio.sleep(TICK_S)

    # --- the verdict -------------------------------------------------------------------------------------------------------

    async def _judge(self, outcome: Outcome) -> None:
        store = open_store(f"sqlite:{self._folder / 'plane.db'}")
        await store.open()
        checker, position = JournalChecker(), 0
        try:
            head = await store.head()
            while position < head.position:
                batches = await store.tail(position)
                assert not isinstance(batches, Compacted), "history was cut off"
                for batch in batches:
                    checker.feed(batch)
                    position = batch.last
        finally:
            await store.close()
        outcome.checked = dict(checker.checked)
        outcome.violations = dict(Counter(violation.invariant for violation in checker.violations))
        outcome.examples = [f"{v.invariant} at {v.position}: {v.detail}" for v in checker.violations[:5]]


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    process.wait(60.0)


def run_race(plan: Plan) -> Outcome:
    with rig_folder() as folder:
        try:
            return asyncio.run(RaceRig(plan, folder).run())
        except BaseException:
            for log in sorted(folder.glob("*.txt")):
                print(f"--- {log.name}\n{log.read_text()[-2000:]}")
            raise


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=("partitioned", "sharing", "free"), default="free")
    parser.add_argument("--bursts", type=int, default=20)
    parser.add_argument("--nodes", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutant", default="")
    args = parser.parse_args()
    outcome = run_race(Plan(args.mode, args.bursts, args.nodes, args.seed, args.mutant))
    print(msgspec.json.format(msgspec.json.encode(outcome), indent=1).decode())


if __name__ == "__main__":
    main()
