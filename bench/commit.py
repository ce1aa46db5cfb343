"""`fairlead bench commit`: committed commands a second through the whole authority, beside the raw engine in the same run.

Mix of every ten commands: 4 binds, 2 for a release (drain, gone), 2 status (agent's report, node status), 2 applies (a new
request, a workload), over 5,000 nodes, with every guard, audit, receipts and ten watchers on. Everything is in one process, so
CPU counts clients, authority, store threads and watchers together (a database server's own CPU is not ours to see).

`ratio` compares rows with rows: what the commands made durable (objects written or deleted, receipts, and one audit record for
each command, the parts of one counted singly) with the raw engine writing as many rows of that size in transactions of 1,000.
`commands_ratio` divides commands by those rows. `lone_client_ratio` is one client's median against one raw transaction that moves
the head and appends one blob.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from bench.planes import Engine, PlaneUnderBench, engine_named, open_plane, percentile, prepare, result
from bench.registry import Option
from bench.stall import StallMeter
from fairlead.authority.hub import Expired, Watch
from fairlead.model.commands import (
    Accepted,
    Bind,
    BindMany,
    Caller,
    Command,
    Move,
    Put,
    PutStatus,
    Report,
    SessionId,
)
from fairlead.model.kinds.capacity import NodeStatus
from fairlead.model.kinds.intent import ResourceSpec, Template, Workload, WorkloadSpec
from fairlead.model.kinds.slot import Token
from fairlead.model.kinds.work import InstanceStatus
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Evidence, Metadata
from fairlead.model.resources import Resources
from fairlead.ports import Tasks

_TOKEN = Token(incarnation=1, epoch=1, attempt=1)


class Client:
    """One component's traffic: a session, its own slots, commands in an order that is always legal."""

    def __init__(self, plane: PlaneUnderBench, number: int, slots: int) -> None:
        self.plane = plane
        self.number = number
        self.sequence = 0
        self.tenant = f"t{number % plane.tenants}"
        self.slots = slots
        self.done = 0

    def _command(self, caller: Caller, body: Any) -> Command:
        self.sequence += 1
        return Command(caller, body, SessionId(f"c{self.number}", self.sequence, self.floor), Evidence(age_seconds=0.01))

    def commands(self) -> Iterator[Command]:
        plane, roles = self.plane, self.plane.roles
        nodes = plane.node_names
        for turn in range(0, self.slots, 4):
            for slot in range(turn, turn + 4):
                name = f"w{self.number}-{slot}"
                node = nodes[(self.number * 7919 + slot) % len(nodes)]
                yield self._command(roles[Role.SCHEDULER], Bind(self.tenant, name, 1, 1, node, 0, 1))
            name, node = f"w{self.number}-{turn}", nodes[(self.number * 7919 + turn) % len(nodes)]
            agent = Caller(f"agent-{node}", Role.AGENT, node=node)
            started = InstanceStatus(ready=False, ports={"http": 20000 + turn % 1000})
            yield self._command(agent, Report(self.tenant, name, _TOKEN, SlotState.STARTING, started))
            yield self._command(
                agent, PutStatus("Node", "", node, NodeStatus(schedulable=True, health="Ready", session=1, images=(name,)))
            )
            other = f"w{self.number}-{turn + 1}"
            other_node = nodes[(self.number * 7919 + turn + 1) % len(nodes)]
            yield self._command(roles[Role.DISRUPTION], Move(self.tenant, other, _TOKEN, SlotState.DRAINING))
            gone = Caller(f"agent-{other_node}", Role.AGENT, node=other_node)
            yield self._command(gone, Report(self.tenant, other, _TOKEN, SlotState.RELEASED))
            yield self._command(
                roles[Role.ASSIGNMENT], Put("SchedulingRequest", plane.request(self.tenant, f"x{self.number}", turn))
            )
            yield self._command(Caller("ada", Role.USER), Put("Workload", _workload(self.tenant, f"v{self.number}", turn)))

    async def run(self, bulk: int, together: bool, latencies: list[float]) -> None:
        self.floor = 0
        batch: list[Command] = []
        for command in self.commands():
            batch.append(command)
            if len(batch) >= bulk:
                await self._send(batch, together, latencies)
                batch = []
        if batch:
            await self._send(batch, together, latencies)

    async def _send(self, batch: list[Command], together: bool, latencies: list[float]) -> None:
        sent = _as_schedulers_do(batch) if together and len(batch) > 1 else batch
        started = time.perf_counter()
        for outcome in await self.plane.authority.submit(sent):
            if not isinstance(outcome, Accepted) or outcome.refused:
                raise RuntimeError(f"the bench sent something illegal: {outcome}")
        latencies.append(time.perf_counter() - started)
        self.done += len(batch)
        self.floor = self.sequence + 1


def _as_schedulers_do(batch: list[Command]) -> list[Command]:
    """The binds of a call as one command with parts, each judged alone; they go first, because the others follow from them."""
    binds = tuple(command.body for command in batch if isinstance(command.body, Bind))
    first = next((command for command in batch if isinstance(command.body, Bind)), None)
    rest = [command for command in batch if not isinstance(command.body, Bind)]
    return [Command(first.caller, BindMany(binds), None, first.evidence), *rest] if first is not None else rest


def _workload(tenant: str, name: str, turn: int) -> Workload:
    spec = WorkloadSpec(
        replicas=4 + turn % 64,
        template=Template(command=("serve", "--port", "$PORT")),
        resources=ResourceSpec(requests=Resources(500, 1 << 29)),
    )
    return Workload(metadata=Metadata(name=name, namespace=tenant, labels={"tier": "standard"}), spec=spec)


async def _consume(watch: Watch, counts: list[int]) -> None:
    while True:
        try:
            events = await watch.wait()
            counts[0] += len(events)
        except Expired:
            counts[1] += 1
            return


async def measure(
    engine: Engine, clients: int, bulk: int, commands: int, objects: int = 0, together: bool = True
) -> dict[str, Any]:
    slots = max(4, commands // clients // 10 * 4)
    async with open_plane(engine, objects=objects) as plane:
        await prepare(plane, clients, slots)
        counts = [0, 0]
        stall = StallMeter()
        latencies: list[float] = []
        workers = [Client(plane, number, slots) for number in range(clients)]
        async with Tasks() as background:
            after = plane.authority.view().revision
            kinds = ("bindings",) * 5 + ("instances",) * 3 + ("schedulingrequests",) * 2
            for kind in kinds:
                background.start(_consume(plane.authority.watch(kind, after), counts), "watcher")
            background.start(stall.run(), "stall")
            before = plane.authority.meters
            bytes_before, batches_before, effects_before = before.bytes_total, before.batches_total, before.effects_total
            wall, cpu = time.perf_counter(), time.process_time()
            async with Tasks() as running:
                for worker in workers:
                    running.start(worker.run(bulk, together, latencies), "client")
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            background.cancel()
        done = sum(worker.done for worker in workers)
        meters = plane.authority.meters
        batches = meters.batches_total - batches_before
        rows = meters.effects_total - effects_before + done
        return {
            "commands": done,
            "rows_per_s": round(rows / wall, 1),
            "commands_per_s": round(done / wall, 1),
            "cpu_us_per_command": round(cpu / done * 1e6, 2),
            "p50_ms": round(percentile(latencies, 0.50) * 1e3, 3),
            "p99_ms": round(percentile(latencies, 0.99) * 1e3, 3),
            "bytes_per_command": round((meters.bytes_total - bytes_before) / done, 1),
            "batches": batches,
            "commands_per_batch": round(done / max(batches, 1), 1),
            "watch_events": counts[0],
            "watchers_expired": counts[1],
            "loop_stall_p99_ms": round(stall.p99_ms(), 2),
            "materialised_rows": meters.materialised_rows_total,
        }


OPTIONS = (
    Option("engine", "sqlite", "The engine to measure.", ("memory", "sqlite", "postgres", "etcd")),
    Option("clients", 16, "Clients that send at the same time."),
    Option("bulk", 64, "Commands a client sends in one call."),
    Option("commands", 100_000, "Commands in all."),
    Option(
        "binds",
        "together",
        "The binds of a call as one command with parts, as schedulers send them, or each alone.",
        ("together", "alone"),
    ),
    Option("objects", 0, "Bindings, each with its instance, that the plane has loaded before (sqlite)."),
)


STALL_MAX_MS = 20.0  # p99 of how late a timer comes; beyond this the plane fails its own limit (P17)


async def main(engine: str, clients: int, bulk: int, commands: int, binds: str, objects: int) -> dict[str, Any]:
    if objects and engine != "sqlite":
        raise SystemExit("--objects needs --engine sqlite: filling a server with millions of rows is not this bench's business")
    async with engine_named(engine) as made:
        raw_rows = await made.raw_rows_per_s()
        measured = await measure(made, clients, bulk, commands, objects, together=binds == "together")
        # A machine's fsync differs from one minute to the next, so the raw commit is measured on both sides of the lone client.
        raw_before = await made.raw_commit_ms()
        lone = await measure(made, 1, 1, 2000 if engine != "memory" else 5000)
        raw_commit = (raw_before + await made.raw_commit_ms()) / 2
    measured |= {
        "baseline_rows_per_s": raw_rows,
        "baseline_commit_p50_ms": round(raw_commit, 3),
        "ratio": round(measured["rows_per_s"] / raw_rows, 3),
        "commands_ratio": round(measured["commands_per_s"] / raw_rows, 3),
        "lone_client_p50_ms": lone["p50_ms"],
        "lone_client_ratio": round(lone["p50_ms"] / raw_commit, 2),
    }
    stall = measured["loop_stall_p99_ms"]
    measured["failures"] = [f"loop_stall_p99_ms is {stall}, more than {STALL_MAX_MS}"] if stall > STALL_MAX_MS else []
    params = {"engine": engine, "clients": clients, "bulk": bulk, "commands": commands, "binds": binds, "objects": objects}
    return result("commit", params, measured)
