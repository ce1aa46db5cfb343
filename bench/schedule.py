"""`fairlead bench schedule`: slots queued, decided and durably bound a second, through queue, gates, scores and authority.

Client, scheduler and authority share one process, so CPU counts all of them and the store's thread; a database server's own CPU
is counted apart (`engine_cpu_us_per_bind`). Time runs from the first slot sent to the last binding seen by a client that follows
bindings; create-to-bound is measured by that client, slot by slot. Closed loop: everything is queued as fast as it is taken.
Open loop (`--rate`): slots arrive one by one, evenly, and latency is what counts.
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.planes import REGION, PlaneUnderBench, engine_named, open_plane, percentile, result
from bench.registry import Option
from bench.schedule_cases import CASES, Case, fillers
from fairlead.authority.local import LocalPlane
from fairlead.client.plane import Feed
from fairlead.model.commands import Accepted, Caller, Command, Delete, Enqueue, Put, Report, SessionId
from fairlead.model.kinds.capacity import Node, NodeSpec
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from fairlead.ports import SystemClock, Tasks
from fairlead.scheduler.scheduler import Scheduler, SchedulerSettings
from fairlead.store.decisions.log import DecisionLog

OPTIONS = (
    Option("case", "basic", "what is scheduled: " + ", ".join(CASES), tuple(CASES)),
    Option("nodes", 5000, "nodes of the fleet"),
    Option("slots", 40_000, "slots to bind"),
    Option("engine", "sqlite", "where it is made durable", ("memory", "sqlite", "postgres", "etcd")),
    Option("rate", 0, "arrivals a second; 0: as fast as they are taken"),
    Option("seconds_max", 120, "give up after this long"),
    Option("decisions", "on", "keep a record of every decision, as in production", ("on", "off")),
)
_QUEUED_MAX = 8  # calls of the client under way at once
_TICK_S = 0.001


class Client:
    """Queues slots and follows bindings."""

    def __init__(self, plane: PlaneUnderBench, local: LocalPlane) -> None:
        self._plane = plane
        self._local = local
        self._sequence = 0
        self._unanswered: dict[int, None] = {}  # in order
        self._sent: dict[tuple[str, str], float] = {}
        self.waiting = 0
        self.latencies: list[float] = []
        self.bound: list[tuple[str, str, str]] = []  # tenant, name, node
        self.last = 0.0

    async def queue(self, works: list[Enqueue]) -> None:
        caller, now = self._plane.roles[Role.ASSIGNMENT], time.perf_counter()
        commands = []
        for work in works:
            self._sequence += 1
            slot, tenant = work.request.spec.slot, work.request.metadata.namespace
            for offset in range(work.count):
                self._sent[tenant, f"{slot.workload}-{slot.index + offset}"] = now
            self.waiting += work.count
            self._unanswered[self._sequence] = None
            floor = next(iter(self._unanswered))  # nothing below will be sent again
            commands.append(Command(caller, work, SessionId("bench", self._sequence, floor)))
        for command, outcome in zip(commands, await self._local.submit(commands), strict=True):
            if not isinstance(outcome, Accepted) or outcome.refused:
                raise RuntimeError(f"a slot was not queued: {outcome}")
            assert isinstance(command.id, SessionId)
            del self._unanswered[command.id.sequence]

    async def follow(self, feed: Feed) -> None:
        while True:
            await feed.wait()
            now = time.perf_counter()
            for change in feed.take_nowait():
                if change.raw is None:
                    continue
                sent = self._sent.pop((change.tenant, change.name), None)
                if sent is not None:
                    self.latencies.append(now - sent)
                    self.bound.append((change.tenant, change.name, change.hot.node))
                    self.waiting -= 1
                    self.last = now

    async def wait_bound(self, until: float) -> None:
        while self.waiting and time.perf_counter() < until:  # noqa: ASYNC110  # the follower must not pay for an event per slot
            await asyncio.sleep(0.002)


class Bench:
    def __init__(self, plane: PlaneUnderBench, case: Case, options: dict[str, Any], log: DecisionLog | None) -> None:
        self.plane = plane
        self.case = case
        self.options = options
        clock = SystemClock()
        self.local = LocalPlane(plane.authority, clock)
        self.client = Client(plane, self.local)
        self.log = log
        self.ended = 0
        self.scheduler = Scheduler(self.local, clock, random.Random(1), SchedulerSettings(region=REGION), decisions=log)

    async def run(self) -> dict[str, Any]:
        async with self.running() as tasks:
            engine_before = engine_cpu_s()
            started, cpu = time.perf_counter(), time.process_time()
            churning = tasks.start(self._churn(), "churn") if self.case.churn else None
            queued = await self.send(tasks, int(self.options["slots"]), "w")
            await self.client.wait_bound(started + self.options["seconds_max"])
            cpu_s = time.process_time() - cpu
            engine_s = engine_cpu_s() - engine_before
            if churning is not None:
                churning.cancel()
        return self._figures(queued, started, cpu_s, engine_s)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Tasks]:
        """Scheduler and client at work, on a fleet as the case wants it."""
        async with Tasks() as tasks:
            scheduling = tasks.start(self.scheduler.run(), "scheduler")
            feed = self.local.follow(("bindings",), self.local.revision())
            tasks.start(self.client.follow(feed), "follow")
            await self.scheduler.wait_serving()
            await self._fill()
            yield tasks
            self.scheduler.stop()
            await scheduling
            tasks.cancel()

    async def _fill(self) -> None:
        """What must lie there before the clock starts."""
        for work in fillers(self.options["nodes"], self.case.filled):
            await self.client.queue([work])
        await self.client.wait_bound(time.perf_counter() + 300.0)
        self.client.latencies.clear()
        self.client.bound.clear()
        meters = self.scheduler.meters
        meters.bound_total = meters.proposed_total = 0
        meters.refusals.clear()

    async def send(self, tasks: Tasks, slots: int, prefix: str) -> int:
        """Queues them; how many that makes."""
        rate = int(self.options["rate"])
        works = list(self.case.work(slots, prefix))
        if rate:
            await self._send_evenly(tasks, [one for work in works for one in _singles(work)], rate)
            return slots
        under_way: list[asyncio.Task[Any]] = []
        step = 1 if works[0].count > 8 else 32
        for first in range(0, len(works), step):
            under_way.append(tasks.start(self.client.queue(works[first : first + step]), "queue"))
            if len(under_way) >= _QUEUED_MAX:
                await under_way.pop(0)
        for task in under_way:
            await task
        return sum(work.count for work in works)

    async def _send_evenly(self, tasks: Tasks, works: list[Enqueue], rate: int) -> None:
        started, sent = time.perf_counter(), 0
        while sent < len(works):
            due = min(len(works), int((time.perf_counter() - started) * rate))
            for work in works[sent:due]:
                tasks.start(self.client.queue([work]), "queue")
            sent = max(sent, due)
            await asyncio.sleep(_TICK_S)

    async def _churn(self) -> None:
        """Slots finish and go as soon as they are bound, every second one; nodes close and open."""
        plane, done, turn = self.plane, 0, 0
        while True:
            await asyncio.sleep(0.02)
            batch = self.client.bound[done : done + 400 : 2]
            done = min(done + 400, len(self.client.bound))
            commands = [command for slot in batch for command in self._finish(*slot)]
            commands += [Command(plane.roles[Role.ASSIGNMENT], Delete("Binding", tenant, name)) for tenant, name, _ in batch]
            turn += 1
            commands.append(self._cordon(plane.node_names[turn * 7919 % len(plane.node_names)], cordoned=turn % 2 == 0))
            for first in range(0, len(commands), 400):
                for outcome in await self.local.submit(commands[first : first + 400]):
                    if not isinstance(outcome, Accepted):
                        raise RuntimeError(f"a slot could not end: {outcome}")
            self.ended += len(batch)

    def _finish(self, tenant: str, name: str, node: str) -> list[Command]:
        rec = self.plane.authority.view().get("bindings", tenant, name)
        assert rec is not None
        agent, token = Caller(f"agent-{node}", Role.AGENT, node=node), rec.hot.token
        return [Command(agent, Report(tenant, name, token, state)) for state in (SlotState.STARTING, SlotState.SUCCEEDED)]

    def _cordon(self, name: str, cordoned: bool) -> Command:
        spec = NodeSpec(
            region=REGION, zone=f"z{int(name[-5:]) % 3}", allocatable=Resources(64_000, 256 << 30), max_slots=10_000,
            unschedulable=cordoned,
        )  # fmt: skip
        return Command(Caller("ada", Role.OPERATOR), Put("Node", Node(metadata=Metadata(name=name), spec=spec)))

    def _figures(self, queued: int, started: float, cpu_s: float, engine_s: float) -> dict[str, Any]:
        client, meters = self.client, self.scheduler.meters
        bound = len(client.bound)
        took = max(1e-9, client.last - started)
        failures = [] if bound == queued else [f"{queued - bound} of {queued} slots were not bound in time"]
        return {
            "binds_per_s": round(bound / took, 1),
            "cpu_us_per_bind": round(cpu_s / max(1, bound) * 1e6, 1),
            "engine_cpu_us_per_bind": round(engine_s / max(1, bound) * 1e6, 1),
            "create_to_bound_p50_ms": round(percentile(client.latencies, 0.5) * 1e3, 2),
            "create_to_bound_p99_ms": round(percentile(client.latencies, 0.99) * 1e3, 2),
            "conflicts": meters.conflicts_total,
            "bound": bound,
            "pending": client.waiting,
            "victims": meters.victims_total,
            "cycles": meters.cycles_total,
            "ended": self.ended,
            "refusals": dict(sorted(meters.refusals.items())),
            "failures": failures,
        }


def _singles(work: Enqueue) -> list[Enqueue]:
    from msgspec.structs import replace

    request = work.request
    out = []
    for offset in range(work.count):
        slot = replace(request.spec.slot, index=request.spec.slot.index + offset)
        metadata = replace(request.metadata, name=slot.object_name)
        out.append(Enqueue(replace(request, metadata=metadata, spec=replace(request.spec, slot=slot)), 1))
    return out


def engine_cpu_s() -> float:
    """CPU of the processes this one has started, databases among them; zero where the system does not say."""
    total, tick = 0, os.sysconf("SC_CLK_TCK")
    parents = [os.getpid()]
    while parents:
        tasks = Path(f"/proc/{parents.pop()}/task")
        for children in tasks.glob("*/children"):
            for child in children.read_text().split():
                parents.append(int(child))
                fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
                total += int(fields[11]) + int(fields[12])
    return total / tick


async def main(**options: Any) -> dict[str, Any]:
    case = CASES[options["case"]]
    async with engine_named(options["engine"]) as engine, open_plane(engine, options["nodes"]) as plane:
        with tempfile.TemporaryDirectory(prefix="fairlead-decisions-") as folder:
            log = DecisionLog(Path(folder)) if options["decisions"] == "on" else None
            try:
                return result("schedule", options, await Bench(plane, case, options, log).run())
            finally:
                if log is not None:
                    log.close()
