"""Requests and queues for tests, in short words; and the order the naive way: sort everything each time."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from fairlead.model.kinds.slot import SlotRef
from fairlead.model.kinds.work import Ask, SchedulingRequest, SchedulingRequestSpec, SchedulingRequestStatus
from fairlead.model.meta import Metadata
from fairlead.model.resources import DeviceAsk, Resources
from fairlead.scheduler.queue import Queue
from fairlead.scheduler.units import NO_DEADLINE, Item, Pending, QueueLimits

GI = 1 << 30
START = datetime(2026, 1, 1, tzinfo=UTC)
T0 = int(START.timestamp() * 1000)
CAPACITY = {"cpu": 100_000, "memory": 400 * GI}


def at(ms: int) -> datetime:
    return START + timedelta(milliseconds=ms)


def request(
    tenant: str = "risk",
    name: str = "api-0",
    *,
    created: int = 0,
    cpu: int = 1000,
    memory: int = GI,
    deadline: int | None = None,
    devices: tuple[DeviceAsk, ...] = (),
    placement: Any = None,
    status: SchedulingRequestStatus | None = None,
    **spec: Any,
) -> SchedulingRequest:
    """Times in milliseconds after T0."""
    workload, _, index = name.rpartition("-")
    ask = Ask(requests=Resources(cpu, memory), devices=devices, **({"placement": placement} if placement else {}))
    return SchedulingRequest(
        metadata=Metadata(name=name, namespace=tenant, creation_time=at(created)),
        spec=SchedulingRequestSpec(
            slot=SlotRef(workload=workload, uid=f"u-{workload}", index=int(index)),
            ask=ask,
            deadline_time=None if deadline is None else at(deadline),
            **spec,
        ),
        status=status or SchedulingRequestStatus(),
    )


def queue(*requests: SchedulingRequest, seed: int = 1, **limits: Any) -> Queue:
    made = Queue(random.Random(seed), QueueLimits(**limits))
    made.set_capacity(CAPACITY)
    for each in requests:
        made.upsert(each, T0)
    return made


def names(items: list[Item]) -> list[str]:
    return [item.name for item in items]


def said(made: Queue, name: str, tenant: str = "risk") -> Pending:
    return next(pending for pending in made.pending(tenant) if pending.name == name)


class Naive:
    """The order by definition. Holds requests as they are handed to the queue; sorts all of them for each pick."""

    def __init__(self, capacity: Mapping[str, int] = CAPACITY) -> None:
        self.capacity = dict(capacity)
        self.weights: dict[str, int] = {}
        self.bound: dict[str, dict[str, int]] = {}
        self.flight: dict[str, list[dict[str, int]]] = {}
        self.ready: dict[tuple[str, str], tuple[SchedulingRequest, int]] = {}  # and its rank
        self.stalled: set[str] = set()
        self.yields: dict[int, bool] = {}

    def share(self, tenant: str) -> float:
        used = dict(self.bound.get(tenant, {}))
        for amounts in self.flight.get(tenant, []):
            for name, amount in amounts.items():
                used[name] = used.get(name, 0) + amount
        weight = self.weights.get(tenant, 1)
        parts = [used.get(name, 0) * (1 / (total * weight)) for name, total in self.capacity.items() if total > 0]
        return max(parts, default=0.0)

    def key(self, request: SchedulingRequest, rank: int) -> tuple[Any, ...]:
        meta, spec = request.metadata, request.spec
        assert meta.creation_time is not None
        created = round(meta.creation_time.timestamp() * 1000)
        ends = [round(spec.deadline_time.timestamp() * 1000)] if spec.deadline_time else []
        ends += [created + int(spec.start_target_seconds * 1000)] if spec.start_target_seconds else []
        order = (min(ends, default=NO_DEADLINE), created, rank, len(meta.name), meta.name, meta.namespace)
        return (-spec.priority, self.share(meta.namespace), *order)

    def pick(self) -> tuple[str, str] | None:
        if not self.ready:
            return None
        ranked = sorted(self.ready, key=lambda which: self.key(*self.ready[which]))
        first = ranked[0]
        priority = self.ready[first][0].spec.priority
        if first[0] in self.stalled and self.yields.get(priority):
            others = [w for w in ranked if w[0] not in self.stalled and self.ready[w][0].spec.priority == priority]
            first = others[0] if others else first
        self.yields[priority] = first[0] in self.stalled
        request, _ = self.ready.pop(first)
        self.flight.setdefault(first[0], []).append(request.spec.ask.requests.amounts())
        return first
