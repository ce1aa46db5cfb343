"""What a plan costs on a large region: `python -m tests.planning.measure [NODES] [SLOTS]` prints one JSON object.

The region is made by a trial too: workloads of a hundred slots are given to an empty one until they are bound. Then plans of
one more workload and of a drain are asked for, while another task measures how long the loop is kept from it.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

from fairlead.client.planning import Planned, Step
from fairlead.client.resources import ChangePage
from fairlead.compose.controllers import tried_on
from fairlead.model import codec
from fairlead.model.commands import Caller, Command, Put
from fairlead.model.ids import Uid, revision
from fairlead.model.kinds.capacity import DrainOrder, Grant, GrantSpec, Node, NodeSpec, NodeStatus
from fairlead.model.kinds.intent import Region, RegionSpec, RegionStatus, ResourceSpec, Template, Tenant, Workload, WorkloadSpec
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.model.registry import GLOBAL
from fairlead.model.resources import Resources
from fairlead.planning.copied import Copy
from fairlead.planning.planner import TrialPlanner
from fairlead.planning.steady import Steady
from fairlead.planning.trial import Trial
from fairlead.ports import SystemClock, Tasks

GI = 1 << 30
OPERATOR = Caller("ada", Role.OPERATOR)
WORKLOAD_SLOTS = 100


class Frozen:
    """A plane that stands still."""

    connected = True

    def __init__(self, copy: Copy) -> None:
        self._copy = copy
        self._rows: dict[str, tuple[list[Any], list[tuple[str, str]]]] = {}
        for plural in copy.state.plurals():
            rows = sorted(copy.state.live(plural), key=lambda rec: (rec.tenant, rec.name))
            self._rows[plural] = rows, [(rec.tenant, rec.name) for rec in rows]

    def plane_ms(self) -> int:
        return self._copy.now_ms

    def revision(self) -> int:
        return self._copy.revision()

    async def page(
        self, plural: str, tenant: str | None = None, *, after: tuple[str, str] = ("", ""), limit: int = 500, revision: int = 0
    ) -> ChangePage:
        rows, names = self._rows.get(plural, ([], []))
        start = bisect_right(names, after) if after[1] else 0
        part = rows[start : start + limit]
        more = start + limit < len(rows)
        last = (part[-1].tenant, part[-1].name) if more else ("", "")
        return ChangePage(part, self.revision(), *last)


class Change:
    """An object as it would be listed."""

    hot: Any = None

    def __init__(self, plural: str, record: Any, position: int) -> None:
        meta = record.metadata
        self.plural, self.tenant, self.name, self.position = plural, meta.namespace, meta.name, position
        self.raw: bytes | None = codec.encode(record)


def empty(nodes: int, room: Resources) -> dict[str, Copy]:
    now_ms = 1_800_000_000_000
    grant = Grant(
        metadata=Metadata(name="east", namespace="risk", uid=Uid("g")),
        spec=GrantSpec(region="east", version=1, during=room, after=room),
    )
    region = Region(
        metadata=Metadata(name="east", uid=Uid("r")), spec=RegionSpec(areas=("eu",)), status=RegionStatus(health="Healthy")
    )
    tenant = Tenant(metadata=Metadata(name="risk", uid=Uid("t")))
    copies = {name: Copy(name, revision(1, 1_000_000), now_ms) for name in (GLOBAL, "east")}
    copies[GLOBAL].take([Change("grants", grant, 1), Change("regions", region, 2), Change("tenants", tenant, 3)])
    status = NodeStatus(schedulable=True, health="Ready", session=1)
    made = [
        Node(
            metadata=Metadata(name=f"n{number}", uid=Uid(f"n{number}")), status=status,
            spec=NodeSpec(region="east", zone="abc"[number % 3], allocatable=Resources(16_000, 64 * GI), hourly_cost_millis=500),
        )
        for number in range(nodes)
    ]  # fmt: skip
    copies["east"].take([Change("nodes", node, 10 + at) for at, node in enumerate(made)])
    for copy in copies.values():
        copy.ready()
    return copies


def workload(name: str, replicas: int) -> Workload:
    spec = WorkloadSpec(
        replicas=replicas, template=Template(command=("serve",)), resources=ResourceSpec(requests=Resources(1000, 2 * GI))
    )
    return Workload(metadata=Metadata(name=name, namespace="risk"), spec=spec)


def put(plane: str, kind: str, record: Any) -> Step:
    return Step(plane, Command(OPERATOR, Put(kind, record)))


def steps(slots: int) -> Iterator[Step]:
    for number in range(slots // WORKLOAD_SLOTS):
        yield put(GLOBAL, "Workload", workload(f"w{number}", WORKLOAD_SLOTS))


async def measured(planner: TrialPlanner, planes: dict[str, Frozen], step: Step) -> dict[str, Any]:
    gaps: list[float] = []

    async def beat() -> None:
        while True:
            before = time.process_time()  # what others on this machine do is not ours
            await asyncio.sleep(0)
            gaps.append(time.process_time() - before)

    began, cpu = time.perf_counter(), time.process_time()
    async with Tasks() as tasks:
        tasks.start(beat(), "beat")
        found, _ = await planner.plan(planes, [step])
        tasks.cancel()
    assert isinstance(found, Planned), found
    gaps.sort()
    return {
        "seconds": round(time.perf_counter() - began, 2),
        "cpu_s": round(time.process_time() - cpu, 2),
        "longest_slice_ms": round(gaps[-1] * 1000, 1),
        "slices_over_10_ms": sum(gap > 0.01 for gap in gaps),
        "slots_changed": len(found.slots),
        "simulated_s": found.simulated_seconds,
    }


async def main(nodes: int, slots: int) -> None:
    clock = SystemClock()
    copies = empty(nodes, Resources(32_000 * nodes, 128 * GI * nodes))
    trial = Trial(copies, tried_on, clock, Steady())
    for _ in trial.open():
        pass
    assert trial.apply(steps(slots)) is None
    for _ in trial.settle():
        pass
    planes = {name: Frozen(copy) for name, copy in copies.items()}
    bound = copies["east"].state.count("bindings")
    gc.set_threshold(50_000, 20, 100)  # as main.py does for a server, and the authority for what it has loaded
    gc.collect()
    gc.freeze()
    planner = TrialPlanner(tried_on, clock)
    node: Node = copies["east"].state.hot("nodes", "", "n0")
    drained = NodeSpec(
        region="east",
        zone=node.spec.zone,
        allocatable=node.spec.allocatable,
        unschedulable=True,
        drain=DrainOrder(reason="measure"),
    )
    out = {
        "nodes": nodes,
        "bound": bound,
        "waiting": copies["east"].state.count("schedulingrequests"),
        "one_more_workload": await measured(planner, planes, put(GLOBAL, "Workload", workload("more", WORKLOAD_SLOTS))),
        "drain": await measured(planner, planes, put("east", "Node", Node(metadata=Metadata(name="n0"), spec=drained))),
    }
    print(json.dumps(out))


if __name__ == "__main__":
    asyncio.run(main(*[int(word) for word in (*sys.argv[1:], "5000", "10000")[:2]]))
