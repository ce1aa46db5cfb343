"""Owns Ready <-> Serving and the Endpoints: admits who is ready, withdraws who is leaving; asks for the eviction of slots that a
rollout replaces; says whether it progresses.

Never drains: it files EvictionRequests, and withdraws traffic once they are approved, before anybody stops. Never queues: which
spare slots a surge needs is what fairlead/decide/rollout.py wants, and the assignment controller queues it. Every region plane.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from fairlead.controllers.cache import Cache, Indexes, Item, Name, workload_of
from fairlead.controllers.contract import Result, View
from fairlead.controllers.gathering import SLOT_INDEXES, SLOT_OBJECTS, assignment_of, endpoints_of, slots_of
from fairlead.decide.rollout import Progress, leaving, progress, serving_steps, traffic, wanted
from fairlead.decide.slots import Slot, instant, millis
from fairlead.model.commands import Body, Delete, Move, Put, PutStatus
from fairlead.model.kinds.capacity import Node
from fairlead.model.kinds.slot import SlotRef
from fairlead.model.kinds.work import (
    Assignment,
    Endpoint,
    Endpoints,
    EndpointsSpec,
    EndpointsStatus,
    EvictionRequest,
    EvictionRequestSpec,
    Instance,
)
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata, set_condition

STATUS_MS: Final = 1000
REQUESTER: Final = Role.ROLLOUT.value


class RolloutController:
    name = "rollout"
    follows = ("assignments", "nodes", "endpoints", *SLOT_OBJECTS)
    follows_other: tuple[str, ...] = ()
    indexes: Indexes = SLOT_INDEXES
    indexes_other: Indexes = {}
    hears = False

    def __init__(self) -> None:
        self._written_ms: dict[Name, int] = {}

    def keys(self, view: View, item: Item, other: bool) -> Iterable[Name]:
        match item.plural:
            case "assignments":
                return ((item.tenant, item.hot.spec.workload),)
            case "endpoints":
                return (item.key,)
            case "nodes":
                return {workload_of(each): None for each in view.cache.by("bindings", "node", item.name)}
            case _:
                return (workload_of(item),)

    def resync(self, view: View) -> Iterable[Name]:
        return {(item.tenant, item.hot.spec.workload): None for item in view.cache.all("assignments")}

    def reconcile(self, key: Name, view: View, now_ms: int) -> Result:
        cache = view.cache
        assignment = assignment_of(cache, key)
        if assignment is None or assignment.spec.job is not None:
            self._written_ms.pop(key, None)
            return Result()
        slots = slots_of(cache, key, REQUESTER)
        deleting = assignment.metadata.deletion_time is not None
        plan = leaving(assignment.spec, slots, wanted(assignment.spec, slots, deleting=deleting))
        bodies: list[Body] = [self._ask(assignment, slots[index], reason) for index, reason in plan.evict]
        bodies += [Delete("EvictionRequest", key[0], f"{key[1]}-{index}") for index in plan.cancel]
        before = endpoints_of(cache, key)
        named = self._endpoints(cache, key, slots)
        if before is None or before.spec.endpoints != named:
            bodies.append(self._put_endpoints(assignment, before, named))
        bodies += [self._step(key, slot, to) for slot, to in serving_steps(slots) if slot.token is not None]
        return self._with_progress(key, assignment, before, slots, bodies, now_ms)

    def _ask(self, assignment: Assignment, slot: Slot, reason: str) -> Put:
        order = assignment.spec
        ref = SlotRef(workload=order.workload, uid=order.workload_uid, index=slot.index)
        spec = EvictionRequestSpec(slot=ref, reason=reason, requester=REQUESTER, epoch=slot.epoch)
        metadata = Metadata(name=ref.object_name, namespace=assignment.metadata.namespace)
        return Put("EvictionRequest", EvictionRequest(metadata=metadata, spec=spec))

    def _step(self, key: Name, slot: Slot, to: object) -> Move:
        assert slot.token is not None
        return Move(key[0], f"{key[1]}-{slot.index}", slot.token, to)  # type: ignore[arg-type]

    def _endpoints(self, cache: Cache, key: Name, slots: dict[int, Slot]) -> tuple[Endpoint, ...]:
        before = endpoints_of(cache, key)
        known = {e.slot: e for e in before.spec.endpoints} if before is not None else {}
        out = []
        for index in sorted(traffic(slots)):
            slot = slots[index]
            node: Node | None = cache.get("nodes", "", slot.node)
            instance: Instance | None = cache.get("instances", key[0], f"{key[1]}-{index}")
            if instance is None and index in known:  # a lost one that keeps its traffic
                out.append(known[index])
                continue
            address = node.spec.address if node is not None and node.spec.address else slot.node
            ports = instance.status.ports if instance is not None else {}
            out.append(Endpoint(slot=index, node=slot.node, address=address, ports=ports))
        return tuple(out)

    def _put_endpoints(self, assignment: Assignment, before: Endpoints | None, named: tuple[Endpoint, ...]) -> Put:
        order, meta = assignment.spec, assignment.metadata
        version = before.spec.version + 1 if before is not None else 1
        spec = EndpointsSpec(workload_uid=order.workload_uid, version=version, endpoints=named)
        metadata = Metadata(name=order.workload, namespace=meta.namespace, labels=meta.labels)
        return Put("Endpoints", Endpoints(metadata=metadata, spec=spec))

    def _with_progress(
        self, key: Name, assignment: Assignment, before: Endpoints | None, slots: dict[int, Slot], bodies: list[Body], now_ms: int
    ) -> Result:
        since_ms = millis(before.status.progress_time) if before is not None else now_ms
        found = progress(assignment.spec, slots, before, since_ms, now_ms)
        old = before.status if before is not None else EndpointsStatus()
        status = self._status(assignment, old, found, now_ms)
        if status == old:
            return Result(bodies, found.deadline_ms)
        due_ms = self._written_ms.get(key, 0) + STATUS_MS
        reasons = [c.reason for c in status.conditions], [c.reason for c in old.conditions]
        if now_ms < due_ms and reasons[0] == reasons[1]:
            return Result(bodies, due_ms)
        self._written_ms[key] = now_ms
        bodies.append(PutStatus("Endpoints", *key, status))
        return Result(bodies, found.deadline_ms)

    def _status(self, assignment: Assignment, old: EndpointsStatus, found: Progress, now_ms: int) -> EndpointsStatus:
        condition = replace(
            found.condition, observed_generation=assignment.metadata.generation, last_transition_time=instant(now_ms)
        )
        return replace(
            old,
            generation=assignment.spec.generation,
            updated=found.updated,
            remaining=found.remaining,
            progress_time=instant(found.since_ms),
            conditions=set_condition(old.conditions, condition),
        )
