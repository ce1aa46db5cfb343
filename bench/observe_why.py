"""How long `/why` takes where a region keeps a million decisions. Used by `fairlead bench observe`; measures, and judges nothing.

The front door, the planes and the decision log are the real ones, in this process, with the log's files on disk; a call goes
through the application without a socket.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from bench.decisions import fill
from fairlead.api.access import Identity
from fairlead.api.app import make_app
from fairlead.api.frontdoor import FrontDoor
from fairlead.authority.authority import Authority
from fairlead.authority.judge import Settings
from fairlead.authority.local import LocalPlane
from fairlead.model.commands import Accepted, Caller, Command, LeaseAcquire, Put
from fairlead.model.decision import DecisionRecord
from fairlead.model.kinds.capacity import Grant, GrantSpec
from fairlead.model.kinds.intent import ResourceSpec, Template, Tenant, Workload, WorkloadSpec
from fairlead.model.kinds.slot import SlotRef
from fairlead.model.kinds.work import Ask, SchedulingRequest, SchedulingRequestSpec
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.model.registry import GLOBAL
from fairlead.model.resources import Resources
from fairlead.ports import SystemClock, SystemIds, Tasks
from fairlead.store.decisions import DecisionLog
from fairlead.store.memory import MemoryDisk, MemoryStore

REGION: Final = "local"
SLOTS: Final = 20  # that wait, of each workload asked for: as many as `why` tells one by one
WORKLOADS: Final = 50
SHARED: Final = 100  # attempts of a record
NODES: Final = 5_000
_NEEDS: Final = ResourceSpec(requests=Resources(2_000, 1 << 32))
_SPEC: Final = WorkloadSpec(replicas=SLOTS, template=Template(driver="process", command=("/bin/api",)), resources=_NEEDS)
OPERATOR: Final = Caller("ada", Role.OPERATOR)
ADA: Final = Identity("ada", Role.OPERATOR)


async def why_latencies(kept: int, asked: int) -> tuple[list[float], int]:
    """Milliseconds of each call, and how many slots each told of."""
    draw = random.Random(1)
    with tempfile.TemporaryDirectory(prefix="fairlead-why-") as folder:
        _, records = fill(Path(folder), draw, kept, SHARED, NODES)
        log = DecisionLog(Path(folder))
        try:
            async with _door(log) as (app, authorities):
                chosen = draw.sample(records, min(WORKLOADS, len(records)))
                names = [await _waits(authorities, record) for record in chosen]
                return await _ask(app, [names[n % len(names)] for n in range(asked)])
        finally:
            log.close()


@asynccontextmanager
async def _door(log: DecisionLog) -> AsyncIterator[tuple[Any, dict[str, Authority]]]:
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(Tasks())
        authorities, planes, running = {}, {}, []
        for name in (GLOBAL, REGION):
            store = MemoryStore(MemoryDisk())
            settings = Settings(plane=GLOBAL if name == GLOBAL else "region", region=name)
            authorities[name] = Authority(store, clock, SystemIds(), settings)
            running.append(tasks.start(authorities[name].run(), name))
            await authorities[name].wait_leading()
            planes[name] = LocalPlane(authorities[name], clock)
        planes[REGION].explains = log
        yield make_app(FrontDoor(planes, clock), lambda request: ADA, lambda *asked: True, clock=clock), authorities
        for authority, task in zip(authorities.values(), running, strict=True):
            authority.stop()
            await task


async def _waits(authorities: dict[str, Authority], record: DecisionRecord) -> tuple[str, str]:
    """A workload of which something was decided, with slots that wait."""
    first = record.decided.attempts[0]
    tenant, workload = first.tenant, first.name.rpartition("-")[0]
    metadata = Metadata(name=workload, namespace=tenant)
    await _send(authorities[GLOBAL], Command(OPERATOR, Put("Tenant", Tenant(metadata=Metadata(name=tenant)))))
    (made,) = await _send(
        authorities[GLOBAL],
        Command(OPERATOR, Put("Workload", Workload(metadata=metadata, spec=_SPEC))),
    )
    region = authorities[REGION]
    (lease,) = await _send(region, Command(Caller("a", Role.ASSIGNMENT), LeaseAcquire("a", Role.ASSIGNMENT, 3600.0)))
    assigner = Caller("a", Role.ASSIGNMENT, lease="a", fencing_epoch=lease.epoch)
    limit = Resources(1 << 50, 1 << 52)
    grant = Grant(
        metadata=Metadata(name=REGION, namespace=tenant), spec=GrantSpec(region=REGION, version=1, during=limit, after=limit)
    )
    await _send(region, Command(OPERATOR, Put("Grant", grant)))
    commands = []
    for index in range(SLOTS):
        slot = SlotRef(workload=workload, uid=made.uid, index=index)
        spec = SchedulingRequestSpec(slot=slot, ask=Ask(requests=Resources(2_000, 1 << 32)), priority=500)
        request = SchedulingRequest(metadata=Metadata(name=slot.object_name, namespace=tenant), spec=spec)
        commands.append(Command(assigner, Put("SchedulingRequest", request)))
    await _send(region, *commands)
    return tenant, workload


async def _send(authority: Authority, *commands: Command) -> list[Accepted]:
    outcomes = await authority.submit(list(commands))
    for outcome in outcomes:
        if not isinstance(outcome, Accepted):
            raise RuntimeError(f"setting the bench up failed: {outcome}")
    return [one for one in outcomes if isinstance(one, Accepted)]


async def _ask(app: Any, names: list[tuple[str, str]]) -> tuple[list[float], int]:
    took, told = [], 0
    for tenant, workload in names:
        path = f"/apis/fairlead.dev/v1alpha1/namespaces/{tenant}/workloads/{workload}/why"
        began = time.perf_counter()
        status, body = await _get(app, path)
        took.append((time.perf_counter() - began) * 1e3)
        told = body.count(b'"lastDecision"')
        if status != 200 or told != SLOTS:
            raise RuntimeError(f"{path}: {status}, {told} decisions: {body[:500]!r}")
    return took, told


async def _get(app: Any, path: str) -> tuple[int, bytes]:
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "path": path,
        "raw_path": path.encode(), "query_string": b"", "scheme": "https", "server": ("door", 443), "client": ("bench", 1),
        "root_path": "", "headers": [],
    }  # fmt: skip
    parts: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        parts.append(message)

    await app(scope, receive, send)
    return parts[0]["status"], b"".join(part.get("body", b"") for part in parts[1:])
