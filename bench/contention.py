"""`fairlead bench contention`: 1, 2, 4 and 8 schedulers on one plane, with parts of their own (partitioned), with parts that
others pick up when they are left lying (sharing), or all after everything (free).

Tenants of equal weight ask for unequal amounts, each for more than its share and together for more than fits, and the largest
asks first. All is queued and held; when every scheduler has its picture the hold is lifted, and the clock runs until half of the
work is bound, as a client that follows bindings sees it. Everything shares one process and one loop, so several schedulers are
not faster here: what is measured is what they cost and how often they meet.

Fractions are of the proposed binds that were answered. `conflict_fraction`: refused because somebody else had settled the slot or
changed it meanwhile. `no_fit_fraction`: refused because the node or the grant had no room left, whoever took it.
`refused_fraction`: refused for any reason. `repeated_fraction`: accepted, and bound nothing, because another had just proposed
the very same. `fairness` is Jain's index of the tenants' bound slots at that moment (1: all equal). CPU counts client,
schedulers, authority and the store's thread.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

from bench.planes import REGION, PlaneUnderBench, engine_named, open_plane, result
from bench.registry import Option
from bench.schedule import Client
from fairlead.authority.local import LocalPlane
from fairlead.model.commands import Caller, Command, Delete, Enqueue, Put
from fairlead.model.kinds.policy import Override, OverrideScope, OverrideSpec
from fairlead.model.kinds.slot import SlotRef
from fairlead.model.kinds.work import Ask, SchedulingRequest, SchedulingRequestSpec
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from fairlead.ports import SystemClock, Tasks
from fairlead.scheduler.meters import CONFLICTS
from fairlead.scheduler.partition import Partition
from fairlead.scheduler.scheduler import Scheduler, SchedulerSettings

MODES = ("partitioned", "sharing", "free")
COUNTS = (1, 2, 4, 8)
OPTIONS = (
    Option("nodes", 1000, "nodes of the fleet"),
    Option("slots", 20_000, "slots asked for; six of ten fit, and half is when the clock stops"),
    Option("engine", "sqlite", "where it is made durable", ("memory", "sqlite", "postgres", "etcd")),
    Option("mode", "all", "how work is divided", ("all", *MODES)),
    Option("schedulers", 0, "how many; 0: 1, 2, 4 and 8"),
    Option("steal_after_ms", 3000, "sharing: how long a part lies before another picks it up"),
    Option("seconds_max", 60, "give up after this long, for each run"),
)
TENANTS = 8
REPLICAS = 25  # of one workload: enough workloads for eight parts
FIT = 0.6  # of what is asked for
_NODE_CPU = 64_000  # bench/planes.py's nodes
_OPERATOR = Caller("ada", Role.OPERATOR)
_NO_FIT = ("NoFit", "GrantExceeded")


def work(slots: int, nodes: int) -> list[Enqueue]:
    """The greediest tenant first; each asks for at least an equal part of what fits."""
    weights = [TENANTS + 2 * (TENANTS - n) for n in range(TENANTS)]
    least = FIT * slots / TENANTS
    spare = slots - least * TENANTS
    cpu = int(_NODE_CPU * nodes / (FIT * slots))
    out = []
    for tenant, weight in enumerate(weights):
        wanted = int(least + spare * weight / sum(weights))
        for number, first in enumerate(range(0, wanted, REPLICAS)):
            slot = SlotRef(workload=f"w{tenant}x{number}", uid=f"u-w{tenant}x{number}", index=0)
            spec = SchedulingRequestSpec(slot=slot, ask=Ask(requests=Resources(cpu, 1 << 20)), priority=500)
            metadata = Metadata(name=slot.object_name, namespace=f"t{tenant}")
            out.append(Enqueue(SchedulingRequest(metadata=metadata, spec=spec), min(REPLICAS, wanted - first)))
    return out


def jain(values: list[int]) -> float:
    """1: all equal; 1/n: one has everything."""
    squares = len(values) * sum(value * value for value in values)
    return sum(values) ** 2 / squares if squares else 0.0


def partition_of(mode: str, index: int, count: int, steal_after_ms: int) -> Partition:
    if mode == "free":
        return Partition()
    return Partition(index, count, steal_after_ms if mode == "sharing" else 0)


class Bench:
    def __init__(self, plane: PlaneUnderBench, mode: str, count: int, options: dict[str, Any]) -> None:
        clock = SystemClock()
        self.options = options
        self.plane = plane
        self.local = LocalPlane(plane.authority, clock)
        self.client = Client(plane, self.local)
        self.schedulers = []
        for index in range(count):
            partition = partition_of(mode, index, count, options["steal_after_ms"])
            # Together they have as much under way as one alone: what waits in the authority's lanes is decided on old news.
            slots = max(64, 512 // count)
            settings = SchedulerSettings(name=f"scheduler-{index}", region=REGION, cycle_slots=slots, partition=partition)
            self.schedulers.append(Scheduler(self.local, clock, random.Random(index), settings))

    async def run(self) -> dict[str, Any]:
        slots = int(self.options["slots"])
        async with Tasks() as tasks:
            feed = self.local.follow(("bindings",), self.local.revision())
            tasks.start(self.client.follow(feed), "follow")
            await self.plane.send([Command(_OPERATOR, Put("Override", hold)) for hold in _holds()])
            works = work(slots, self.options["nodes"])
            for first in range(0, len(works), 32):
                await self.client.queue(works[first : first + 32])
            running = [tasks.start(scheduler.run(), "scheduler") for scheduler in self.schedulers]
            for scheduler in self.schedulers:
                await scheduler.wait_serving()
            started, cpu = time.perf_counter(), time.process_time()
            await self.plane.send(
                [Command(_OPERATOR, Delete("Override", hold.metadata.namespace, hold.metadata.name)) for hold in _holds()]
            )
            figures = await self._until_half(slots // 2, started, cpu)
            for scheduler in self.schedulers:
                scheduler.stop()
            await asyncio.wait(running)
            tasks.cancel()
        return figures

    async def _until_half(self, half: int, started: float, cpu: float) -> dict[str, Any]:
        bound, end = self.client.bound, started + self.options["seconds_max"]
        while len(bound) < half and time.perf_counter() < end:  # noqa: ASYNC110  # the follower must not pay for an event per slot
            await asyncio.sleep(0.001)
        took, cpu_s = self.client.last - started, time.process_time() - cpu
        count = len(bound)
        of_tenant = [sum(tenant == f"t{n}" for tenant, _, _ in bound[:half]) for n in range(TENANTS)]
        refusals = self._refusals()
        refused = sum(refusals.values())
        accepted = sum(scheduler.meters.bound_total for scheduler in self.schedulers)
        answered = max(1, accepted + refused)
        no_fit = sum(refusals.get(reason, 0) for reason in _NO_FIT)
        conflicts = sum(count for reason, count in refusals.items() if reason in CONFLICTS) - no_fit
        return {
            "binds_per_s": round(count / max(1e-9, took), 1),
            "conflict_fraction": round(conflicts / answered, 4),
            "no_fit_fraction": round(no_fit / answered, 4),
            "refused_fraction": round(refused / answered, 4),
            "repeated_fraction": round(max(0, accepted - count) / answered, 4),
            "fairness": round(jain(of_tenant), 4),
            "cpu_us_per_bind": round(cpu_s / max(1, count) * 1e6, 1),
            "bound": count,
            "refusals": refusals,
            "failures": [] if count >= half else [f"{count} of {half} slots were bound in time"],
        }

    def _refusals(self) -> dict[str, int]:
        total: dict[str, int] = {}
        for scheduler in self.schedulers:
            for reason, count in scheduler.meters.refusals.items():
                total[reason] = total.get(reason, 0) + count
        return dict(sorted(total.items()))


def _holds() -> list[Override]:
    out = []
    for number in range(TENANTS):
        tenant = f"t{number}"
        spec = OverrideSpec(
            kind="hold",
            reason="until everybody is there",
            ttl_seconds=600,
            requester="bench",
            scope=OverrideScope(tenants=(tenant,)),
        )
        out.append(Override(metadata=Metadata(name="start", namespace=tenant), spec=spec))
    return out


async def main(**options: Any) -> dict[str, Any]:
    modes = MODES if options["mode"] == "all" else (options["mode"],)
    counts = (options["schedulers"],) if options["schedulers"] else COUNTS
    of_mode: dict[str, Any] = {}
    failures: list[str] = []
    for mode in modes:
        runs: dict[str, Any] = {}
        for count in counts:
            async with engine_named(options["engine"]) as engine, open_plane(engine, options["nodes"]) as plane:
                figures = await Bench(plane, mode, count, options).run()
            failures += [f"{mode}, {count}: {failure}" for failure in figures.pop("failures")]
            runs[str(count)] = figures
        of_mode[mode] = {"schedulers": runs}
    # Beside the table of every mode, the figures of the first under the name that every bench of contention has.
    return result("contention", options, {"schedulers": of_mode[modes[0]]["schedulers"], "modes": of_mode, "failures": failures})
