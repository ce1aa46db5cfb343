"""Orders nodes for what waits for them, and lets empty ones go: the names in `NodePool.status.ordered` are what the pool's
provider is to run (fairlead/client/providing.py). Where there are more than the pool may have, what is on some of them is drained
first, within budgets. What has not registered in time is given back.

Decides nothing itself (decide/autoscaling.py does). Looks at requests and bindings now and then, and only where a pool has a
provider: they are too many to follow. A node goes in three steps, each seen before the next: closed to new work, then no longer
ordered if it is still empty (the authority asks again), then deregistered once it is silent. One that somebody else keeps closed
stays as long as the pool may have so many. Runs in every region plane.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from fairlead.client.plane import Plane
from fairlead.controllers.contract import SweepsOnly
from fairlead.decide.arriving import Arriving, arriving, come_s, has_come, with_addition
from fairlead.decide.autoscaling import (
    CURED_BY_NODES,
    SCALED_DOWN,
    Pool,
    PoolRule,
    PoolScaling,
    Waiting,
    again_after_s,
    is_too_late,
    node_name,
    nodes,
)
from fairlead.decide.overrides import Where, all_in_force, concerns, stills_pools
from fairlead.decide.slots import instant, millis
from fairlead.model.commands import Body, Delete, Put, PutStatus
from fairlead.model.ids import revision, split_revision
from fairlead.model.kinds.capacity import DrainOrder, IdleSince, Node, NodePool, NodePoolStatus
from fairlead.model.kinds.policy import Override
from fairlead.model.kinds.work import SchedulingRequest
from fairlead.model.lifecycle import HOLDS_CAPACITY
from fairlead.model.meta import Condition, set_condition
from fairlead.ports import Clock

SWEEP_S: Final = 10.0
CLOSED: Final = SCALED_DOWN  # on a node that this controller closed: one of the two below
OPEN_BEFORE, CLOSED_BEFORE = "true", "closed-before"  # the latter by somebody else, who finds it so if it may stay after all
REQUESTER: Final = "node-autoscaler"  # of the drains it orders
# One object has a largest size, and a status must leave room in it for the rest: what people may still change.
ORDERED_BYTES_MAX: Final = 160 * 1024
IDLE_BYTES_MAX: Final = 48 * 1024
ARRIVING: Final = "Arriving"  # a condition: whether what is ordered comes
_NAMED_MAX: Final = 5  # of those that do not: an example is enough to look for them
_NUMBER_BYTES: Final = 8  # of a name
_NAME_MORE: Final = 3  # its length
_IDLE_MORE: Final = 32  # a time beside the name, and what both are called
_BEHIND: Final = "PendingEvaluation"  # has not been looked at: nobody knows yet what it waits for


class Seen(NamedTuple):
    """A region at one moment."""

    pools: Sequence[NodePool]
    nodes: Sequence[Node]
    requests: Sequence[SchedulingRequest]
    used: Mapping[str, int]  # nodes with anything on them: slots and reservations
    overrides: Sequence[Override]


class NodePoolController(SweepsOnly):
    name = "node-autoscaler"
    follows = ("nodepools",)
    sweep_s = SWEEP_S

    def __init__(self, region: str) -> None:
        self._region = region

    async def sweep(self, plane: Plane, clock: Clock) -> list[Body]:
        pools = [row.hot for row in await plane.list("nodepools") if row.raw is not None]
        if not any(pool.spec.provider for pool in pools):
            return []
        incarnation, _ = split_revision(plane.revision())
        listed = [row for row in await plane.list("nodes") if row.raw is not None]
        versions = {row.name: revision(incarnation, row.position) for row in listed}
        bindings: list[Any] = [row.hot for row in await plane.list("bindings") if row.raw is not None]
        reserved = [row.hot.spec.node for row in await plane.list("reservations") if row.raw is not None]
        seen = Seen(
            pools,
            [row.hot for row in listed],
            [row.hot for row in await plane.list("schedulingrequests") if row.raw is not None],
            Counter((*(hot.node for hot in bindings if hot.state in HOLDS_CAPACITY), *reserved)),
            [row.hot for row in await plane.list("overrides") if row.raw is not None],
        )
        return [_as_seen(body, versions) for body in scaled(seen, self._region, plane.plane_ms())]


def _as_seen(body: Body, versions: Mapping[str, int]) -> Body:
    """A node is written whole, so only in the version that was looked at: what somebody has ordered of it since stands, and the
    next look decides about that."""
    match body:
        case Put():
            return replace(body, expected_revision=versions[body.object.metadata.name])
        case Delete():
            return replace(body, expected_revision=versions[body.name])
        case _:
            return body


def scaled(seen: Seen, region: str, now_ms: int) -> list[Body]:
    """What follows for every pool. Each request that waits is counted for the first pool that would cure it: not for one that may
    have no more nodes, nor for one whose next would come too late."""
    left = list(seen.requests)
    bodies: list[Body] = []
    for pool in sorted(seen.pools, key=lambda each: each.metadata.name):
        if not pool.spec.provider or pool.metadata.deletion_time is not None:
            continue
        mine = [request for request in left if _may_use(pool, request)]
        found, full = _pool(pool, seen, mine, region, now_ms)
        bodies += found
        late = pool.spec.start_seconds
        taken = {id(request) for request in mine if not full and not is_too_late(_deadline_s(request, now_ms), late)}
        left = [request for request in left if id(request) not in taken]
    return bodies


def _may_use(pool: NodePool, request: SchedulingRequest) -> bool:
    tenants, classes, ask = pool.spec.allowed_tenants, pool.spec.allowed_classes, request.spec.ask
    allowed = (not tenants or request.metadata.namespace in tenants) and (not classes or ask.workload_class in classes)
    return allowed and not ask.devices and not ask.requests.exceeding(pool.spec.node)


def _pool(pool: NodePool, seen: Seen, requests: Sequence[SchedulingRequest], region: str, now_ms: int) -> tuple[list[Body], bool]:
    """What follows for it, and whether it may have no more."""
    mine = {node.metadata.name: node for node in seen.nodes if node.spec.pool == pool.metadata.name}
    status = pool.status
    idle = {each.node: each.time for each in status.idle}
    ordered = set(status.ordered)
    here = {name for name in mine if name in ordered and has_come(mine[name])}
    empty = {name: idle.get(name, instant(now_ms)) for name in mine if name in here and name not in seen.used}
    due = arriving(pool, mine, now_ms)
    verdict = _that_fits(_verdict(pool, seen, requests, mine, empty, due, region, now_ms), pool, region)
    bodies: list[Body] = []
    for name in verdict.remove:
        if name not in mine or (mine[name].spec.unschedulable and CLOSED in mine[name].metadata.annotations):
            ordered.discard(name)  # nobody has approved it, or it was closed here at an earlier look and is still empty
        else:
            bodies.append(_closed(mine[name]))
    bodies += [_closed(mine[name], verdict.why) for name in verdict.drain if mine[name].spec.drain is None]
    going = {*verdict.remove, *verdict.drain}
    for name, node in sorted(mine.items()):
        if name in ordered and name not in going and CLOSED in node.metadata.annotations and node.spec.unschedulable:
            bodies.append(_opened(node))  # it is wanted after all
        silent = node.status.health in ("Unknown", "Lost")
        never = name not in status.ordered and not has_come(node)  # its machine may come until it was let go
        gone = name not in ordered and CLOSED in node.metadata.annotations and (silent or never)
        if gone and name not in seen.used:
            bodies.append(Delete("Node", "", name, uid=node.metadata.uid))
    names = [node_name(pool, region, status.numbered + n + 1) for n in range(verdict.add)]
    kept = tuple(name for name in status.ordered if name in ordered)
    new = _after(pool, replace(status, ordered=(*kept, *names)), verdict, _idle(pool, region, empty), len(mine), due, now_ms)
    if new != status:
        bodies.append(PutStatus("NodePool", "", pool.metadata.name, new, uid=pool.metadata.uid))
    return bodies, verdict.full


def _verdict(
    pool: NodePool, seen: Seen, requests: Sequence[SchedulingRequest], mine: dict[str, Node], empty: dict[str, Any],
    due: Arriving, region: str, now_ms: int,
) -> PoolScaling:  # fmt: skip
    pauses = all_in_force(seen.overrides, "autoscaler-pause", now_ms)
    paused = next((each for each in pauses if stills_pools(each) and concerns(each, Where(region=region))), None)
    if paused is not None:
        return PoolScaling(0, (), f"paused by {paused.metadata.namespace}/{paused.metadata.name}")
    behind = sum(request.status.reason == _BEHIND for request in requests)
    if 2 * behind > len(requests):
        return PoolScaling(0, due.overdue, f"{behind} of {len(requests)} have not been looked at yet: placement lags")
    spec, status = pool.spec, pool.status
    rule = PoolRule(
        spec.min_nodes, spec.max_nodes, spec.node, spec.max_slots, up_wait_s=spec.up_wait_seconds, idle_s=spec.idle_seconds,
        come_s=come_s(spec),
    )  # fmt: skip
    since_up_s = (now_ms - millis(status.last_up_time)) / 1000 if status.last_up_time is not None else 1e9
    # One that is there and empty counts as on its way: what waits has not been looked at since it came, or does not fit it, and
    # then it does not fit another like it.
    unused = empty.keys() if any(request.status.reason in CURED_BY_NODES for request in requests) else ()
    coming = {
        name
        for name in status.ordered
        if name not in due.overdue
        and (name not in mine or (_takes_work(mine[name]) and (not mine[name].status.schedulable or name in unused)))
    }
    leaving = {name for name, node in mine.items() if name not in status.ordered and CLOSED in node.metadata.annotations}
    leaving.update(due.overdue)
    there = sum(name not in leaving and name not in coming for name in mine)
    kept = {name for name in empty if _is_kept_closed(mine[name])}
    spare = [(name, (now_ms - millis(since)) / 1000) for name, since in sorted(empty.items())]
    busy = [(name, seen.used[name]) for name in sorted(mine) if name in status.ordered and name in seen.used]
    lost = [name for name in sorted(empty.keys() - kept) if mine[name].status.health == "Lost"]
    pooled = Pool(
        there, len(coming), [each for each in spare if each[0] not in kept], since_up_s, spec.start_seconds, busy, len(leaving),
        lost, [each for each in spare if each[0] in kept], due.absent, due.overdue, due.in_vain,
    )  # fmt: skip
    found = nodes(rule, pooled, _waiting(requests, now_ms))
    counted = [each for each in requests if not _is_paused(each, pauses, region)]
    if not found.add or len(counted) == len(requests):
        return found
    fewer = nodes(rule, pooled, _waiting(counted, now_ms))
    why = f"{fewer.why}; none for {len(requests) - len(counted)} that wait under an autoscaler-pause"
    return PoolScaling(fewer.add, fewer.remove if fewer.add else (), why)


def _is_paused(request: SchedulingRequest, pauses: Sequence[Override], region: str) -> bool:
    where = Where(request.metadata.namespace, request.spec.slot.workload, region)
    return any(concerns(each, where) for each in pauses)


def _that_fits(verdict: PoolScaling, pool: NodePool, region: str) -> PoolScaling:
    """No more are ordered than the pool's status can name. Those there are stay: only what people allow makes them fewer."""
    most = ORDERED_BYTES_MAX // (_name_bytes(pool, region) + _NAME_MORE)
    room = max(0, most - len(pool.status.ordered))
    if verdict.add <= room:
        return verdict
    return verdict._replace(add=room, why=f"{verdict.why}; no more than {most} can be ordered of one pool")


def _idle(pool: NodePool, region: str, empty: Mapping[str, datetime]) -> tuple[IdleSince, ...]:
    """Since when those were empty that go first; of the others it is asked when these have gone."""
    most = IDLE_BYTES_MAX // (_name_bytes(pool, region) + _IDLE_MORE)
    longest = sorted(empty, key=lambda name: (empty[name], name))[:most]
    return tuple(IdleSince(node=name, time=empty[name]) for name in sorted(longest))


def _name_bytes(pool: NodePool, region: str) -> int:
    """Of a node that it orders."""
    return len(f"{region}-{pool.metadata.name}-") + _NUMBER_BYTES


def _is_kept_closed(node: Node) -> bool:
    """By somebody else: this controller opens again what it has closed itself."""
    drained = node.spec.drain is not None and node.spec.drain.requester != REQUESTER
    return drained or (node.spec.unschedulable and node.metadata.annotations.get(CLOSED) != OPEN_BEFORE)


def _takes_work(node: Node) -> bool:
    """Or will: it is heard, or has not been yet, and nobody keeps it closed."""
    return node.status.health not in ("Unknown", "Lost") and not _is_kept_closed(node)


def _waiting(requests: Iterable[SchedulingRequest], now_ms: int) -> list[Waiting]:
    groups: dict[Waiting, int] = {}
    for request in requests:
        alike = Waiting(request.status.reason, request.spec.ask.requests, 0, _deadline_s(request, now_ms))
        groups[alike] = groups.get(alike, 0) + 1
    return [alike._replace(slots=count) for alike, count in groups.items()]


def _deadline_s(request: SchedulingRequest, now_ms: int) -> float | None:
    due = request.spec.deadline_time
    return float((millis(due) - now_ms) // 1000) if due is not None else None


def _opened(node: Node) -> Put:
    """The node taking new work again, unless others drain it or had closed it before, with nothing left of what this controller
    had ordered."""
    kept = {key: value for key, value in node.metadata.annotations.items() if key != CLOSED}
    drain = None if node.spec.drain is not None and node.spec.drain.requester == REQUESTER else node.spec.drain
    return _put(node, kept, drain is not None or node.metadata.annotations[CLOSED] == CLOSED_BEFORE, drain)


def _closed(node: Node, drained: str = "") -> Put:
    """The node taking nothing new, in this controller's name; `drained`: why what is on it is to leave as well."""
    drain = DrainOrder(reason=drained, requester=REQUESTER) if drained else node.spec.drain
    before = CLOSED_BEFORE if _is_kept_closed(node) else OPEN_BEFORE
    return _put(node, {**node.metadata.annotations, CLOSED: before}, True, drain)


def _put(node: Node, annotations: dict[str, str], unschedulable: bool, drain: DrainOrder | None) -> Put:
    spec = replace(node.spec, unschedulable=unschedulable, drain=drain)
    return Put("Node", replace(node, metadata=replace(node.metadata, annotations=annotations), spec=spec))


def _after(
    pool: NodePool, status: NodePoolStatus, verdict: PoolScaling, idle: tuple[IdleSince, ...], there: int, due: Arriving,
    now_ms: int,
) -> NodePoolStatus:  # fmt: skip
    generation, first = pool.metadata.generation, status.numbered + 1
    condition = Condition(
        type="Scaling", status="True",
        reason="Adding" if verdict.add else "Removing" if verdict.remove or verdict.drain else "Steady",
        message=verdict.why, observed_generation=generation, last_transition_time=instant(now_ms),
    )  # fmt: skip
    conditions = set_condition(status.conditions, condition)
    said = any(each.type == ARRIVING for each in conditions)
    if due.overdue or due.in_vain or said:  # of a pool whose nodes have always come there is nothing to say
        conditions = set_condition(conditions, _arrives(pool, due, now_ms))
    return replace(
        status, observed_generation=generation, nodes=there, numbered=status.numbered + verdict.add,
        last_up_time=instant(now_ms) if verdict.add else status.last_up_time, idle=idle, conditions=conditions,
        additions=with_addition(due.additions, first, now_ms) if verdict.add else due.additions, in_vain=due.in_vain,
    )  # fmt: skip


def _arrives(pool: NodePool, due: Arriving, now_ms: int) -> Condition:
    late_s, named = come_s(pool.spec), ", ".join(due.overdue[:_NAMED_MAX])
    words = []
    if due.overdue:
        words.append(f"{len(due.overdue)} ordered nodes did not register within {late_s:.0f} s ({named}) and go")
    if due.in_vain:
        again_s = again_after_s(late_s, due.in_vain)
        words.append(f"of the last {due.in_vain} additions none came; another is ordered {again_s:.0f} s after the last")
    generation, now = pool.metadata.generation, instant(now_ms)
    if not words:
        return Condition(ARRIVING, "True", generation, now, "AsOrdered")
    return Condition(ARRIVING, "False", generation, now, "NotComing", "; ".join(words))
