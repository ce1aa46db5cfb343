"""`fairlead bench load`: how long a plane of a million bindings takes to come up, and how much memory it then has (P17).

The store is filled first, not measured; the load runs in a process of its own, so that its memory is its own.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from bench.planes import GI, REGION, result
from bench.registry import Option
from fairlead.authority.follower import Follower
from fairlead.authority.hot import hot_of
from fairlead.authority.judge import Context, Settings
from fairlead.authority.judge.context import instant
from fairlead.authority.receipts import Receipts
from fairlead.authority.state import State
from fairlead.model import codec
from fairlead.model.anchor import sign_anchor
from fairlead.model.kinds.capacity import Grant, GrantSpec, Node, NodeSpec, NodeStatus
from fairlead.model.kinds.slot import SlotRef, Token, Transition
from fairlead.model.kinds.work import Binding, BindingSpec, BindingStatus, Instance, InstanceSpec, InstanceStatus
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Evidence, Metadata
from fairlead.model.resources import Resources
from fairlead.ports import SystemClock
from fairlead.store.contract import Head, ObjectRow
from fairlead.store.rules import EMPTY
from fairlead.store.sqlite import SqliteStore

NODES = 10_000
TENANTS = 500
SHAPES = [Resources(250 * n, n * GI // 2) for n in range(1, 9)]
NOW = instant(1_790_000_000_000)


async def _chunks(bindings: int) -> AsyncIterator[list[ObjectRow]]:
    """Nodes, grants, then bindings and their instances, as a running plane would have them."""
    position = 0
    rows: list[ObjectRow] = []
    for tenant in range(TENANTS):
        limit = Resources(1 << 40, 1 << 50)
        grant = Grant(
            metadata=Metadata(name=REGION, namespace=f"team-{tenant}"),
            spec=GrantSpec(region=REGION, version=1, during=limit, after=limit),
        )
        position += 1
        rows.append((f"grants/team-{tenant}/{REGION}", position, codec.encode(grant)))
    for number in range(NODES):
        position += 1
        rows.append((f"nodes//node-{number:05d}", position, codec.encode(_node(number))))
    yield rows
    for start in range(0, bindings, 2000):
        rows = []
        for number in range(start, min(start + 2000, bindings)):
            binding, instance = _pair(number)
            name = binding.metadata.name
            tenant_name = binding.metadata.namespace
            rows.append((f"bindings/{tenant_name}/{name}", position + 1, codec.encode(binding)))
            rows.append((f"instances/{tenant_name}/{name}", position + 2, codec.encode(instance)))
            position += 2
        yield rows


def _node(number: int) -> Node:
    return Node(
        metadata=Metadata(name=f"node-{number:05d}", uid=f"{REGION}.1.{number:x}", creation_time=NOW),  # type: ignore[arg-type]
        spec=NodeSpec(region=REGION, zone=f"z{number % 3}", allocatable=Resources(512_000, 4096 * GI), max_slots=1000),
        status=NodeStatus(schedulable=True, health="Ready", session=1),
    )


def _pair(number: int) -> tuple[Binding, Instance]:
    workload, index = divmod(number, 8)
    tenant, node = f"team-{workload % TENANTS}", f"node-{number % NODES:05d}"
    name = f"service-{workload}-{index}"
    token = Token(incarnation=1, epoch=1, attempt=1)
    step = Transition(
        to=SlotState.SERVING, by="rollout-controller-0", time=NOW, before=SlotState.READY, epoch=3,
        evidence=Evidence(observed_revision=(1 << 44) + number, age_seconds=0.02),
    )  # fmt: skip
    binding = Binding(
        metadata=Metadata(name=name, namespace=tenant, uid=f"{REGION}.1.{number + 20_000:x}", creation_time=NOW),  # type: ignore[arg-type]
        spec=BindingSpec(
            slot=SlotRef(workload=f"service-{workload}", uid=f"global.1.{workload:x}", index=index), node=node, token=token,
            generation=2, requests=SHAPES[workload % len(SHAPES)], priority=100, policy_revision=7, grant_version=1,
        ),
        status=BindingStatus(state=SlotState.SERVING, last_transition=step),
    )  # fmt: skip
    instance = Instance(
        metadata=Metadata(name=name, namespace=tenant, uid=f"{REGION}.1.{number + 3_000_000:x}", creation_time=NOW),  # type: ignore[arg-type]
        spec=InstanceSpec(node=node, token=token),
        status=InstanceStatus(ready=True, ports={"http": 20_000 + number % 10_000}, started_time=NOW, ready_time=NOW),
    )
    return binding, instance


async def fill(path: str, bindings: int) -> None:
    store = SqliteStore(path)
    await store.open()
    last = TENANTS + NODES + 2 * bindings
    head = Head(
        format=EMPTY.format, incarnation=1, epoch=1, holder="", renewals=0, position=last, hash=b"\1" * 32,
        materialised=last, truncated=last, anchor=sign_anchor(b"", last, b"\1" * 32, 1_790_000_000_000),
    )  # fmt: skip
    await store.seed(head, _chunks(bindings))
    await store.close()


async def load(path: str) -> dict[str, Any]:
    """What a starting server does before it can lead: state, ledger, owners and receipts, all derived."""
    gc.disable()  # as a server does while it loads: nothing that loading makes is garbage
    store = SqliteStore(path)
    await store.open()
    started, cpu = time.perf_counter(), time.process_time()
    state = State(hot_of)
    context = Context(state, Settings(region=REGION))
    Receipts(state)
    follower = Follower(store, SystemClock(), state, lambda changed: None)
    head = await follower.load()
    await follower.catch_up(head)
    gc.collect()
    gc.freeze()
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    rss = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    await store.close()
    return {
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu, 2),
        "rss_bytes": rss,
        "bindings": state.count("bindings"),
        "instances": state.count("instances"),
        "nodes": len(context.ledger.nodes),
        "cpu_us_per_object": round(cpu / max(state.count("bindings") * 2, 1) * 1e6, 2),
    }


OPTIONS = (Option("objects", 1_000_000, "Bindings, each with its instance."),)


async def main(objects: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="fairlead-bench-", dir=os.environ.get("FAIRLEAD_BENCH_DIR")) as folder:
        path = os.path.join(folder, "plane.db")
        await fill(path, objects)
        command = [sys.executable, "-m", "bench.load", path]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
        size = os.path.getsize(path)
    return result("load", {"objects": objects, "engine": "sqlite"}, json.loads(done.stdout) | {"bytes_on_disk": size})


if __name__ == "__main__":
    print(json.dumps(asyncio.run(load(sys.argv[1]))))
