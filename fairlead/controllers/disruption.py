"""Owns any live -> Draining: the only one that drains. Judges EvictionRequests by the budgets of their workloads, carries out
what is approved, and turns an operator's drain of a node into requests.

Approves first; the rollout controller then withdraws traffic; only then does the slot drain. Names what blocks, and gives up at
the deadline instead of breaking a budget. Never decides who should leave. Runs in every region plane. A key with a tenant is a
workload, one without is a node.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from fairlead.controllers.cache import Cache, Indexes, Item, Name, workload_of
from fairlead.controllers.contract import Result, View
from fairlead.controllers.gathering import (
    DRAIN,
    SLOT_INDEXES,
    SLOT_OBJECTS,
    assignment_of,
    condition,
    slots_of,
)
from fairlead.decide.disruption import (
    TOO_FEW,
    WITHDRAW_MS,
    Asked,
    Ruling,
    budget_of,
    concerns,
    is_approved,
    is_open,
    is_wanted,
    rule,
)
from fairlead.decide.overrides import Where, ends_ms, in_force, words
from fairlead.decide.slots import RUNNING, instant, millis
from fairlead.model.commands import Body, Delete, Move, Put, PutStatus
from fairlead.model.hot import BindingHot
from fairlead.model.kinds.capacity import Node
from fairlead.model.kinds.policy import Override
from fairlead.model.kinds.slot import SlotRef
from fairlead.model.kinds.work import Assignment, EvictionRequest, EvictionRequestSpec
from fairlead.model.lifecycle import ON_NODE, SlotState
from fairlead.model.meta import Condition, Metadata, set_condition

DRAIN_DEFAULT_S: Final = 600.0
DRAIN_LEAST_S: Final = 0.001  # at once: a step without a deadline would say nothing of one
_NAMED_MAX: Final = 5


def _open(item: Item) -> Name | None:
    """The workload of a request that has not ended: those that have are kept for a while, and there may be thousands."""
    return workload_of(item) if is_open(item.hot) else None


class DisruptionController:
    name = "disruption"
    named = ("assignments", "endpoints", "schedulingrequests", "instances")
    follows = ("assignments", "nodes", "endpoints", "overrides", *SLOT_OBJECTS)
    follows_other: tuple[str, ...] = ()
    indexes: Indexes = {**SLOT_INDEXES, "evictionrequests": {**SLOT_INDEXES["evictionrequests"], "open": _open}}
    indexes_other: Indexes = {}
    hears = False

    def keys(self, view: View, item: Item, other: bool) -> Iterable[Name]:
        match item.plural:
            case "assignments":
                return self._asked_of(view.cache, (item.tenant, item.hot.spec.workload))
            case "endpoints":
                return self._asked_of(view.cache, item.key)
            case "nodes":
                return (("", item.name),)
            case "overrides":
                return {workload_of(each): None for each in view.cache.all("evictionrequests") if is_open(each.hot)}
            case "bindings":
                return *self._asked_of(view.cache, workload_of(item)), *self._drained(view.cache, item.hot.node)
            case "evictionrequests":
                return *self._asked_of(view.cache, workload_of(item)), *self._draining(view.cache, item)
            case _:
                return self._asked_of(view.cache, workload_of(item))

    def _asked_of(self, cache: Cache, key: Name) -> tuple[Name, ...]:
        """Without a request to leave there is nothing to rule on."""
        return (key,) if cache.any("evictionrequests", "open", key) else ()

    def _draining(self, cache: Cache, item: Item) -> tuple[Name, ...]:
        """The node of a request that a drain waits for, or that one has filed: few are either."""
        bound = cache.item("bindings", item.tenant, item.name)
        if bound is None:
            return ()
        name: str = bound.hot.node
        return (("", name),) if item.hot.spec.requester == f"{DRAIN}{name}" else self._drained(cache, name)

    def _drained(self, cache: Cache, name: str) -> tuple[Name, ...]:
        node = cache.item("nodes", "", name)
        return (("", name),) if node is not None and node.hot.spec.drain is not None else ()

    def resync(self, view: View) -> Iterable[Name]:
        cache = view.cache
        keys: dict[Name, None] = {workload_of(item): None for item in cache.all("evictionrequests")}
        for item in cache.all("evictionrequests"):
            bound = cache.item("bindings", *item.key)
            if bound is not None:
                keys["", bound.hot.node] = None
        for item in cache.all("nodes"):
            if item.hot.spec.drain is not None or condition(item.hot.status.conditions, "Drained") is not None:
                keys["", item.name] = None
        return keys

    def reconcile(self, key: Name, view: View, now_ms: int) -> Result:
        return self._workload(key, view, now_ms) if key[0] else self._node(key[1], view, now_ms)

    # --- requests ----------------------------------------------------------------------------------------------------------

    def _workload(self, key: Name, view: View, now_ms: int) -> Result:
        cache = view.cache
        items = {item.name: item for item in cache.each("evictionrequests", "open", key)}
        if not items:
            return Result()
        assignment, slots = assignment_of(cache, key), slots_of(cache, key)
        frozen = _frozen(cache, key, assignment, now_ms)
        asked = [_asked(item, assignment) for item in items.values()]
        over = {one.slot for one in asked if not _is_about(cache.item("bindings", key[0], f"{key[1]}-{one.slot}"), items)}
        budget = budget_of("/".join(key), assignment, words(frozen) if frozen is not None else "")
        rulings = rule(asked, slots, budget, now_ms, over)
        bodies: list[Body] = []
        wakes: list[int] = [ends_ms(frozen)] if frozen is not None else []
        grace_s = max(assignment.spec.drain_timeout_seconds, DRAIN_LEAST_S) if assignment is not None else DRAIN_DEFAULT_S
        for ruling in rulings:
            eviction: EvictionRequest = items[ruling.asked.name].hot
            slot = slots.get(ruling.asked.slot)
            if ruling.step == "Drain" and slot is not None and slot.token is not None:
                reason = eviction.spec.reason
                bodies.append(Move(key[0], ruling.asked.name, slot.token, SlotState.DRAINING, reason, grace_s))
                continue
            if ruling.step == "Wait":
                wakes.append(ruling.asked.approved_ms + WITHDRAW_MS)
            if ruling.step == "Block" and ruling.asked.deadline_ms:
                wakes.append(ruling.asked.deadline_ms)
            changed = _ruled(eviction, ruling, now_ms)
            if changed is not None:
                bodies.append(changed)
        # What waits for a silent node is past its time: it goes on when that is heard again, or lost.
        return Result(bodies, min((ms for ms in wakes if ms > now_ms), default=None))

    # --- nodes -------------------------------------------------------------------------------------------------------------

    def _node(self, name: str, view: View, now_ms: int) -> Result:
        cache = view.cache
        item = cache.item("nodes", "", name)
        if item is None:
            return Result()
        node: Node = item.hot
        requester = f"{DRAIN}{name}"
        here = [each for each in cache.by("bindings", "node", name) if each.hot.state in ON_NODE]
        evictions: dict[Name, EvictionRequest] = {
            each.key: found for each in here if (found := cache.get("evictionrequests", *each.key)) is not None
        }
        order = node.spec.drain
        if order is None:
            stale = [key for key, e in evictions.items() if e.spec.requester == requester and is_open(e) and not is_approved(e)]
            bodies: list[Body] = [Delete("EvictionRequest", *key) for key in stale]
            if condition(node.status.conditions, "Drained") is not None:
                left = tuple(c for c in node.status.conditions if c.type != "Drained")
                bodies.append(_node_status(view, item, node, left))
            return Result(bodies)
        over = order.deadline_time is not None and now_ms >= millis(order.deadline_time)
        bodies = []
        blocked: list[str] = []
        for each in here:
            eviction = evictions.get(each.key)
            if eviction is not None and is_open(eviction) and concerns(eviction, each.hot):
                blocked += [f"{each.tenant}/{each.name}: {eviction.status.blocked_by}"] if eviction.status.blocked_by else []
            elif each.hot.state in RUNNING and not over:
                bodies.append(_file(each, each.hot, order.reason, requester, node))
        found = _drained(node, len(here), blocked, over, now_ms)
        conditions = set_condition(node.status.conditions, found)
        if conditions != node.status.conditions:
            bodies.append(_node_status(view, item, node, conditions))
        return Result(bodies, millis(order.deadline_time) if order.deadline_time is not None and not over else None)


def _frozen(cache: Cache, key: Name, assignment: Assignment | None, now_ms: int) -> Override | None:
    region = assignment.spec.region if assignment is not None else ""
    return in_force((item.hot for item in cache.all("overrides")), "freeze", now_ms, Where(*key, region))


def _asked(item: Item, assignment: Assignment | None) -> Asked:
    """Kept beside the item: thousands may be open, and all are looked at with every change of one."""
    if item.derived is None or item.derived[0] is not assignment:
        item.derived = (assignment, _read(item.hot, assignment))
    found: Asked = item.derived[1]
    return found


def _read(eviction: EvictionRequest, assignment: Assignment | None) -> Asked:
    approved = condition(eviction.status.conditions, "Approved") if is_approved(eviction) else None
    return Asked(
        eviction.metadata.name,
        eviction.spec.slot.index,
        millis(eviction.metadata.creation_time),
        millis(approved.last_transition_time) if approved is not None else 0,
        millis(eviction.spec.deadline_time),
        is_wanted(assignment, eviction.spec.slot.index),
    )


def _is_about(bound: Item | None, evictions: dict[str, Item]) -> bool:
    eviction = evictions.get(bound.name) if bound is not None else None
    return bound is not None and eviction is not None and concerns(eviction.hot, bound.hot)


def _ruled(eviction: EvictionRequest, ruling: Ruling, now_ms: int) -> PutStatus | None:
    """The request's status after a ruling; None where it says so already."""
    if ruling.step in ("Wait", "Drain"):
        return None
    meta, status = eviction.metadata, eviction.status
    new = replace(status, observed_generation=meta.generation, blocked_by="")

    def with_condition(kind: str, value: str, reason: str, message: str = "") -> None:
        nonlocal new
        made = Condition(
            type=kind, status=value, reason=reason, message=message,  # type: ignore[arg-type]
            observed_generation=meta.generation, last_transition_time=instant(now_ms),
        )  # fmt: skip
        # A request filed again starts over: what was said of it before is not its history.
        kept = tuple(c for c in new.conditions if c.type != kind or c.observed_generation == meta.generation)
        new = replace(new, conditions=set_condition(kept, made))

    match ruling.step:
        case "Approve":
            with_condition("Approved", "True", "WithinBudget")
        case "Block":
            with_condition("Approved", "False", TOO_FEW if ruling.too_few else "Blocked", ruling.why)
            new = replace(new, blocked_by=ruling.why)
        case "Expired":
            with_condition("Done", "True", "Expired", ruling.why)
            new = replace(new, blocked_by=ruling.why)
        case "Gone":
            with_condition("Done", "True", "Evicted", ruling.why)
        case _:
            return None
    return PutStatus("EvictionRequest", meta.namespace, meta.name, new, uid=meta.uid) if new != status else None


def _file(item: Item, hot: BindingHot, reason: str, requester: str, node: Node) -> Put:
    workload, _, index = item.name.rpartition("-")
    order = node.spec.drain
    spec = EvictionRequestSpec(
        slot=SlotRef(workload=workload, uid=hot.workload_uid, index=int(index)),
        reason=f"drain of {node.metadata.name}: {reason}",
        requester=requester,
        deadline_time=order.deadline_time if order is not None else None,
        epoch=hot.token.epoch,
    )
    return Put("EvictionRequest", EvictionRequest(metadata=Metadata(name=item.name, namespace=item.tenant), spec=spec))


def _drained(node: Node, left: int, blocked: list[str], over: bool, now_ms: int) -> Condition:
    names = "; ".join(sorted(blocked)[:_NAMED_MAX]) + (
        f"; and {len(blocked) - _NAMED_MAX} more" if len(blocked) > _NAMED_MAX else ""
    )
    reason = "Empty" if not left else "DeadlinePassed" if over else "Blocked" if blocked else "Evicting"
    message = "" if not left else f"{left} slots are still here" + (f"; blocked: {names}" if names else "")
    return Condition(
        type="Drained",
        status="True" if not left else "False",
        reason=reason,
        message=message,
        observed_generation=node.metadata.generation,
        last_transition_time=instant(now_ms),
    )


def _node_status(view: View, item: Item, node: Node, conditions: tuple[Condition, ...]) -> PutStatus:
    """Nodes have several who speak of them: a write on an older picture is refused, and made again on the next."""
    status = replace(node.status, conditions=conditions)
    return PutStatus("Node", "", node.metadata.name, status, expected_revision=view.revision(item))
