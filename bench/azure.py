"""`fairlead bench azure`: Azure's VM trace replayed with lifetimes through queue, scheduler and authority, as fast as it goes.

Trace time is compressed, its order is kept. In each step of the trace the VMs whose time is over end (drained, reported gone by
their node's agent, removed: three commands each), then those that arrive are queued, a batch of one tenant as one workload. A
step is sent when all arrivals of the step before are bound, or of an earlier one with `--ahead`; what should end before it is
bound then waits for its binding. Client, scheduler and authority share one process, so CPU counts creates, binds and ends.

Packing: nodes in use at most and on average over trace time, from where the VMs were bound, against plain best fit of the same
sequence and the bound below every packing. The fleet has room to spare, so nothing waits for capacity. A node has 64 cores and
2.5 GiB a core, as much as the VMs at their peak ask for: with more, memory is never scarce and best fit meets the bound.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.azure_trace import Packing, Shape, Trace, best_fit, lower_bound, packing_of, read_dev
from bench.planes import REGION, PlaneUnderBench, engine_named, open_plane, percentile, result
from bench.policies import shipped
from bench.registry import Option
from bench.schedule import Client, engine_cpu_s
from fairlead.authority.local import LocalPlane
from fairlead.client.plane import Feed
from fairlead.model.commands import Accepted, Caller, Command, Delete, Enqueue, Move, Put, Report
from fairlead.model.kinds.capacity import Node, NodeSpec
from fairlead.model.kinds.policy import PolicyChannel, PolicyChannelSpec, SchedulerPolicy, SchedulerPolicySpec
from fairlead.model.kinds.slot import SlotRef, Token
from fairlead.model.kinds.work import Ask, SchedulingRequest, SchedulingRequestSpec
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from fairlead.ports import SystemClock, Tasks
from fairlead.scheduler.scheduler import Scheduler, SchedulerSettings
from fairlead.store.decisions.log import DecisionLog

# By name: the revision in force, and how many of best fit's nodes it may use. None: the built-in revision.
POLICIES: dict[str, tuple[SchedulerPolicySpec | None, float]] = {
    "packing": (None, 1.01),
    "fill": (shipped("expected-fill"), 1.0),
}
OPTIONS = (
    Option("vms", 0, "only the first VMs of the trace; 0: all"),
    Option("engine", "sqlite", "where it is made durable", ("memory", "sqlite", "postgres", "etcd")),
    Option("policy", "packing", "which policy decides", tuple(POLICIES)),
    Option("ahead", 0, "steps of the trace sent before all arrivals of an earlier one are bound"),
    Option("node_gib", 160, "memory of a node of 64 cores"),
    Option("seconds_max", 1800, "give up after this long"),
    Option("decisions", "on", "keep a record of every decision, as in production", ("on", "off")),
)
_NODE_CPU_MILLIS = 64_000
_ROOM = 1.25  # the fleet, of what best fit needs
_CALL_ENDS = 128  # VMs ended in one call
_CALL_WORKS = 64  # works queued in one call
_PARTS_MAX = 256  # slots of one Enqueue


class Vms(Client):
    """Queues the VMs of a trace, follows where they are bound, ends them."""

    def __init__(self, plane: PlaneUnderBench, local: LocalPlane, trace: Trace) -> None:
        super().__init__(plane, local)
        self._trace = trace
        self._rows = {name: row for row, name in enumerate(plane.node_names)}
        self._agents = [Caller(f"agent-{name}", Role.AGENT, node=name) for name in plane.node_names]
        self._number: dict[tuple[str, str], int] = {}  # of VMs on their way
        self._asks = [Ask(requests=Resources(s.cpu_millis, s.memory_mib << 20)) for s in trace.shapes]
        self._arrives = trace.arrives.tolist()
        self._unbound = [0] * trace.steps  # arrivals of each step
        self._step_bound = asyncio.Event()
        self._early: set[int] = set()  # to end as soon as they are bound
        self.late: list[int] = []  # of those, bound by now
        self.row_of = [-1] * trace.vms
        self._slot_of: list[tuple[str, str, Token] | None] = [None] * trace.vms
        self.ended = 0

    def works(self, step: int) -> list[Enqueue]:
        """What arrives in a step."""
        out = []
        for run in self._trace.runs(step):
            workload, tenant = f"b{run.batch}", f"t{run.batch % self._plane.tenants}"
            self._unbound[step] += run.vms
            for offset in range(run.vms):
                self._number[tenant, f"{workload}-{run.offset + offset}"] = run.first + offset
            for first in range(0, run.vms, _PARTS_MAX):
                slot = SlotRef(workload=workload, uid=f"u-{workload}", index=run.offset + first)
                spec = SchedulingRequestSpec(slot=slot, ask=self._asks[run.shape], priority=500)
                metadata = Metadata(name=slot.object_name, namespace=tenant)
                out.append(Enqueue(SchedulingRequest(metadata=metadata, spec=spec), min(_PARTS_MAX, run.vms - first)))
        return out

    async def follow(self, feed: Feed) -> None:
        while True:
            await feed.wait()
            now = time.perf_counter()
            for change in feed.take_nowait():
                if change.hot is None or change.hot.state is not SlotState.BOUND:
                    continue
                sent = self._sent.pop((change.tenant, change.name), None)
                if sent is not None:
                    self.latencies.append(now - sent)
                    self._is_bound(change.tenant, change.name, change.hot.node, change.hot.token)
                    self.last = now

    def _is_bound(self, tenant: str, name: str, node: str, token: Token) -> None:
        vm = self._number.pop((tenant, name))
        self.row_of[vm] = self._rows[node]
        self._slot_of[vm] = (tenant, name, token)
        self.waiting -= 1
        step = self._arrives[vm]
        self._unbound[step] -= 1
        if not self._unbound[step]:
            self._step_bound.set()
        if self._early and vm in self._early:
            self._early.discard(vm)
            self.late.append(vm)

    async def wait_step(self, step: int) -> None:
        """Until all arrivals of a step that was sent are bound."""
        while self._unbound[step]:
            self._step_bound.clear()
            await self._step_bound.wait()

    def endable(self, due: list[int]) -> list[int]:
        """Those that are bound, and what was late before; the others come when they are."""
        out, self.late = self.late, []
        for vm in due:
            if self.row_of[vm] >= 0:
                out.append(vm)
            else:
                self._early.add(vm)
        return out

    async def end(self, vms: list[int]) -> None:
        """Drained, gone, removed."""
        roles = self._plane.roles
        drains, removes = roles[Role.DISRUPTION], roles[Role.ASSIGNMENT]
        commands = []
        for vm in vms:
            slot = self._slot_of[vm]
            assert slot is not None
            self._slot_of[vm] = None
            tenant, name, token = slot
            commands.append(Command(drains, Move(tenant, name, token, SlotState.DRAINING, "Ended")))
            commands.append(Command(self._agents[self.row_of[vm]], Report(tenant, name, token, SlotState.RELEASED)))
            commands.append(Command(removes, Delete("Binding", tenant, name)))
        for outcome in await self._local.submit(commands):
            if not isinstance(outcome, Accepted):
                raise RuntimeError(f"a VM did not end: {outcome}")
        self.ended += len(vms)
        self.last = time.perf_counter()


class Replay:
    def __init__(self, plane: PlaneUnderBench, trace: Trace, options: dict[str, Any], log: DecisionLog | None) -> None:
        self.trace = trace
        self.options = options
        clock = SystemClock()
        self.local = LocalPlane(plane.authority, clock)
        self.client = Vms(plane, self.local, trace)
        self.scheduler = Scheduler(self.local, clock, random.Random(1), SchedulerSettings(region=REGION), decisions=log)
        self.cpu_s = self.engine_s = self.started = 0.0
        self.timed_out = False

    async def run(self) -> None:
        async with Tasks() as tasks:
            scheduling = tasks.start(self.scheduler.run(), "scheduler")
            feed = self.local.follow(("bindings",), self.local.revision())
            tasks.start(self.client.follow(feed), "follow")
            await self.scheduler.wait_serving()
            engine_s = engine_cpu_s()
            self.started, cpu_s = time.perf_counter(), time.process_time()
            try:
                async with asyncio.timeout(self.options["seconds_max"]):
                    await self._steps(tasks)
            except TimeoutError:
                self.timed_out = True
            self.cpu_s, self.engine_s = time.process_time() - cpu_s, engine_cpu_s() - engine_s
            self.scheduler.stop()
            await scheduling
            tasks.cancel()

    async def _steps(self, tasks: Tasks) -> None:
        """A step's ends and arrivals go out together, ends first: the authority judges them in the order they are sent."""
        client, ahead = self.client, self.options["ahead"]
        ended = self.trace.ended_by_step()
        calls: list[list[asyncio.Task[None]]] = []
        for step in range(self.trace.steps):
            works = client.works(step)
            if step > ahead:
                await self._settle(step - 1 - ahead, calls)
            calls.append(self._send(tasks, client.endable(ended[step]), works))
        for step in range(max(0, self.trace.steps - 1 - ahead), self.trace.steps):
            await self._settle(step, calls)
        if client.late:
            await client.end(client.endable([]))

    def _send(self, tasks: Tasks, ends: list[int], works: list[Enqueue]) -> list[asyncio.Task[None]]:
        client = self.client
        calls = [tasks.start(client.end(ends[first : first + _CALL_ENDS]), "end") for first in range(0, len(ends), _CALL_ENDS)]
        for first in range(0, len(works), _CALL_WORKS):
            calls.append(tasks.start(client.queue(works[first : first + _CALL_WORKS]), "queue"))
        return calls

    async def _settle(self, step: int, calls: list[list[asyncio.Task[None]]]) -> None:
        for call in calls[step]:
            await call
        calls[step] = []
        await self.client.wait_step(step)

    def figures(self) -> dict[str, Any]:
        client, meters = self.client, self.scheduler.meters
        bound = len(client.latencies)
        took_s = max(1e-9, client.last - self.started)
        return {
            "binds_per_s": round(bound / took_s, 1),
            "cpu_us_per_bind": round(self.cpu_s / max(1, bound) * 1e6, 1),
            "engine_cpu_us_per_bind": round(self.engine_s / max(1, bound) * 1e6, 1),
            "create_to_bound_p50_ms": round(percentile(client.latencies, 0.5) * 1e3, 2),
            "create_to_bound_p99_ms": round(percentile(client.latencies, 0.99) * 1e3, 2),
            "conflicts": meters.conflicts_total,
            "bound": bound,
            "pending": client.waiting,
            "ended": client.ended,
            "seconds": round(took_s, 2),
            "cycles": meters.cycles_total,
            "refusals": dict(sorted(meters.refusals.items())),
        }


async def furnish(plane: PlaneUnderBench, node: Shape, policy: SchedulerPolicySpec | None) -> None:
    """Nodes of the wanted size, and the policy in force."""
    operator = Caller("ada", Role.OPERATOR)
    has = Resources(node.cpu_millis, node.memory_mib << 20)
    commands = []
    for number, name in enumerate(plane.node_names):
        spec = NodeSpec(region=REGION, zone=f"z{number % 3}", allocatable=has, max_slots=10_000)
        commands.append(Command(operator, Put("Node", Node(metadata=Metadata(name=name), spec=spec))))
    if policy is not None:
        revision = SchedulerPolicy(metadata=Metadata(name=f"r{policy.revision}"), spec=policy)
        channel = PolicyChannel(metadata=Metadata(name="default"), spec=PolicyChannelSpec(current=policy.revision))
        commands.append(Command(operator, Put("SchedulerPolicy", revision)))
        commands.append(Command(operator, Put("PolicyChannel", channel)))
    await plane.send(commands)


def faults(vms: int, bound: int, ahead: int, used: Packing, best: Packing, limit: float) -> list[str]:
    out = []
    if bound != vms:
        out.append(f"{vms - bound} of {vms} VMs were not bound")
    if used.overfull and not ahead:  # ahead of its time a VM may get what another still has in the trace
        out.append(f"{used.overfull} times a node held more than it has, counted in trace time")
    if used.most > best.most * limit:
        out.append(f"{used.most} nodes used, more than {limit} times best fit's {best.most}")
    return out


async def main(**options: Any) -> dict[str, Any]:
    trace = read_dev(options["vms"])
    node = Shape(_NODE_CPU_MILLIS, options["node_gib"] << 10)
    policy, limit = POLICIES[options["policy"]]
    best, least = packing_of(trace, best_fit(trace, node), node), lower_bound(trace, node)
    nodes = int(best.most * _ROOM) + 1
    async with engine_named(options["engine"]) as engine, open_plane(engine, nodes) as plane:
        await furnish(plane, node, policy)
        with tempfile.TemporaryDirectory(prefix="fairlead-decisions-") as folder:
            log = DecisionLog(Path(folder)) if options["decisions"] == "on" else None
            replay = Replay(plane, trace, options, log)
            await replay.run()
            if log is not None:
                log.close()
    figures, used = replay.figures(), packing_of(trace, replay.client.row_of, node)
    packing = {
        "nodes": nodes,
        "nodes_used": used.most,
        "nodes_used_mean": used.mean,
        "overfull": used.overfull,
        "best_fit_nodes": best.most,
        "best_fit_nodes_mean": best.mean,
        "lower_bound_nodes": least.most,
        "lower_bound_nodes_mean": least.mean,
    }
    failures = ["it took too long"] if replay.timed_out else []
    return result(
        "azure",
        options,
        figures | packing | {"failures": failures + faults(trace.vms, figures["bound"], options["ahead"], used, best, limit)},
    )
