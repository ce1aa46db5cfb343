"""What the benches share: a plane on a named engine, nodes and grants in it, raw baselines, the shape of a result."""

from __future__ import annotations

import asyncio
import gc
import os
import platform
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

import apsw

from fairlead.authority.authority import Authority
from fairlead.authority.history import History
from fairlead.authority.judge import Settings
from fairlead.main import tune_process
from fairlead.model.commands import Accepted, Caller, Command, LeaseAcquire, Put, PutStatus
from fairlead.model.kinds.capacity import Grant, GrantSpec, Node, NodeSpec, NodeStatus
from fairlead.model.kinds.slot import SlotRef
from fairlead.model.kinds.work import Ask, SchedulingRequest, SchedulingRequestSpec
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from fairlead.ports import SystemClock, SystemIds, Tasks
from fairlead.store.contract import Store

REGION = "local"
GI = 1 << 30
TENANTS = 50
_LEASED = (Role.SCHEDULER, Role.ASSIGNMENT, Role.DISRUPTION)
_HUGE = Resources(1 << 50, 1 << 52)


LONE_BLOB_BYTES = 900  # a batch of one command


class PlaneUnderBench:
    def __init__(self, authority: Authority, nodes: int) -> None:
        self.authority = authority
        self.clock = SystemClock()
        self.tenants = TENANTS
        self.node_names = [f"bench-{n:05d}" for n in range(nodes)]
        self.roles: dict[Role, Caller] = {}
        self._ask = Ask(requests=Resources(100, 1 << 20))

    def request(self, tenant: str, workload: str, index: int) -> SchedulingRequest:
        slot = SlotRef(workload=workload, uid=f"u-{workload}", index=index)
        spec = SchedulingRequestSpec(slot=slot, ask=self._ask, priority=100)
        return SchedulingRequest(metadata=Metadata(name=slot.object_name, namespace=tenant), spec=spec)

    async def send(self, commands: list[Command]) -> list[Accepted]:
        out = []
        for start in range(0, len(commands), 500):
            for outcome in await self.authority.submit(commands[start : start + 500]):
                if not isinstance(outcome, Accepted):
                    raise RuntimeError(f"setting the bench up failed: {outcome}")
                out.append(outcome)
        return out


class Engine(Protocol):
    """A kind of store: makes fresh ones, and measures the raw engine below them."""

    async def fresh(self, objects: int = 0) -> Store:
        """An empty store, or one with that many bindings and their instances in it."""
        ...

    async def raw_rows_per_s(self) -> float:
        """The raw engine, with nothing of ours above it: rows a second in transactions of 1,000."""
        ...

    async def raw_commit_ms(self) -> float:
        """The median of one raw transaction as small as a lone command's: the head moved, one blob appended."""
        ...


@asynccontextmanager
async def open_plane(
    engine: Engine, nodes: int = 5000, objects: int = 0, history: Callable[[Store], History | None] = lambda store: None
) -> AsyncIterator[PlaneUnderBench]:
    tune_process()
    store = await engine.fresh(objects)
    authority = Authority(store, SystemClock(), SystemIds(), Settings(region=REGION), history=history(store))
    async with Tasks() as tasks:
        running = tasks.start(authority.run(), "authority")
        await authority.wait_leading()
        plane = PlaneUnderBench(authority, nodes)
        await _furnish(plane)
        gc.collect()
        gc.freeze()
        beating = tasks.start(_heartbeats(plane), "heartbeats")
        yield plane
        beating.cancel()
        authority.stop()
        await running
    await store.close()


async def _furnish(plane: PlaneUnderBench) -> None:
    for role in _LEASED:
        caller = Caller(f"{role.value}-0", role)
        (got,) = await plane.send([Command(caller, LeaseAcquire(role.value, role, 3600.0))])
        plane.roles[role] = Caller(caller.actor, role, lease=role.value, fencing_epoch=got.epoch)
    operator = Caller("ada", Role.OPERATOR)
    grants = GrantSpec(region=REGION, version=1, during=_HUGE, after=_HUGE)
    commands = [
        Command(operator, Put("Grant", Grant(metadata=Metadata(name=REGION, namespace=f"t{n}"), spec=grants)))
        for n in range(plane.tenants)
    ]
    for n, name in enumerate(plane.node_names):
        spec = NodeSpec(region=REGION, zone=f"z{n % 3}", allocatable=Resources(64_000, 256 * GI), max_slots=10_000)
        commands.append(Command(operator, Put("Node", Node(metadata=Metadata(name=name), spec=spec))))
        agent = Caller(f"agent-{name}", Role.AGENT, node=name)
        status = NodeStatus(schedulable=True, health="Ready", session=1)
        commands.append(Command(agent, PutStatus("Node", "", name, status)))
    await plane.send(commands)
    plane.authority.heartbeat([(name, 1) for name in plane.node_names])


async def _heartbeats(plane: PlaneUnderBench) -> None:
    """One frame for the whole fleet every five seconds, as a host of simulated agents sends it."""
    while True:
        plane.authority.heartbeat([(name, 1) for name in plane.node_names])
        await asyncio.sleep(5.0)


async def prepare(plane: PlaneUnderBench, clients: int, slots: int) -> None:
    """The requests that the clients will bind."""
    assigner = plane.roles[Role.ASSIGNMENT]
    for client in range(clients):
        tenant = f"t{client % plane.tenants}"
        await plane.send(
            [Command(assigner, Put("SchedulingRequest", plane.request(tenant, f"w{client}", n))) for n in range(slots)]
        )


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def result(name: str, params: dict[str, Any], results: dict[str, Any]) -> dict[str, Any]:
    environment = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
        "loop_ns": round(loop_ns(), 1),
    }
    return {"name": f"bench {name}", "params": params, "environment": environment, "results": results}


def loop_ns() -> float:
    """How fast this machine is just now: one turn of an empty Python loop. The same machine was seen at 33 and at 75 within a
    minute, so a figure in microseconds means little without it."""
    best = float("inf")
    for _ in range(5):
        started = time.thread_time()
        for _ in range(200_000):
            pass
        best = min(best, time.thread_time() - started)
    return best / 200_000 * 1e9


class MemoryEngine(Engine):
    async def fresh(self, objects: int = 0) -> Store:
        from fairlead.store.memory import MemoryDisk, MemoryStore

        return MemoryStore(MemoryDisk())

    async def raw_rows_per_s(self) -> float:
        return 1e6

    async def raw_commit_ms(self) -> float:
        return 0.01


class SqliteEngine(Engine):
    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._count = 0

    async def fresh(self, objects: int = 0) -> Store:
        from bench.load import fill
        from fairlead.store.sqlite import LOG_BYTES, SqliteStore

        self._count += 1
        path = os.path.join(self._folder, f"plane-{self._count}.db")
        if objects:
            await fill(path, objects)
        return SqliteStore(path, log_bytes=LOG_BYTES)

    async def raw_rows_per_s(self) -> float:
        self._count += 1
        return await asyncio.to_thread(_raw_rows, os.path.join(self._folder, f"raw-{self._count}.db"))

    async def raw_commit_ms(self) -> float:
        self._count += 1
        return await asyncio.to_thread(_raw_commits, os.path.join(self._folder, f"raw-{self._count}.db"))


def _raw_connection(path: str) -> apsw.Connection:
    connection = apsw.Connection(path)
    for pragma in ("journal_mode=wal", "synchronous=full"):
        connection.execute(f"pragma {pragma}").get  # noqa: B018
    return connection


def _raw_rows(path: str) -> float:
    connection = _raw_connection(path)
    connection.execute("create table objects(key text primary key, position integer, value blob)")
    upsert = "insert into objects values(?,?,?) on conflict(key) do update set position=excluded.position, value=excluded.value"
    value = os.urandom(360)  # as large as a binding
    started, rows = time.perf_counter(), 0
    for turn in range(60):
        with connection:
            connection.executemany(
                upsert, [(f"bindings/t{n % 50}/w{n % 64}-{turn * 1000 + n}", turn, value) for n in range(1000)]
            )
        rows += 1000
    rate = rows / (time.perf_counter() - started)
    connection.close()
    return round(rate, 1)


def _raw_commits(path: str) -> float:
    connection = _raw_connection(path)
    connection.execute("create table head(position integer)")
    connection.execute("create table journal(first integer primary key, blob blob)")
    connection.execute("insert into head values(0)")
    blob = os.urandom(LONE_BLOB_BYTES)
    single = []
    for n in range(500):
        started = time.perf_counter()
        connection.execute("begin immediate")
        connection.execute("update head set position = ? where position = ?", (n + 1, n))
        connection.execute("insert into journal values(?, ?)", (n, blob))
        connection.execute("commit")
        single.append(time.perf_counter() - started)
    connection.close()
    return percentile(single, 0.5) * 1e3


@asynccontextmanager
async def engine_named(name: str) -> AsyncIterator[Engine]:
    if name == "memory":
        yield MemoryEngine()
        return
    with tempfile.TemporaryDirectory(prefix="fairlead-bench-", dir=os.environ.get("FAIRLEAD_BENCH_DIR")) as folder:
        if name == "sqlite":
            yield SqliteEngine(folder)
        elif name == "postgres":
            from bench.servers import postgres_engine

            async with postgres_engine() as postgres:
                yield postgres
        elif name == "etcd":
            from bench.servers import etcd_engine

            async with etcd_engine() as etcd:
                yield etcd
        else:
            raise SystemExit(f"there is no engine {name!r}; choose memory, sqlite, postgres or etcd")
