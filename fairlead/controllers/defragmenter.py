"""Asks few slots to move where a large one that waits would fit then, or where a pool with a provider could do with a node less.

Decides nothing itself (decide/defragmenting.py does) and moves nothing: it files EvictionRequests, which the disruption
controller judges by their workloads' budgets and which give up after two minutes; the slots come back through the queue. Off
unless the policy in force asks for it. One plan at a time, and no other before what the last one moved has left and has a place.
While a budget holds a move up it is looked at every second, and taken back when it has no place to go or makes no room any more.
What was asked in the last hour is remembered, and read from the requests, which are kept for an hour: a new holder waits a minute
and then counts on; it does not know of those that somebody else has written anew, which the holder that asked for them still
counts. A slot that was moved stays for an hour. Runs in every region plane.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Iterable
from typing import Final

from msgspec.structs import replace

from fairlead.controllers.cache import Cache, Indexes, Item, Name, workload_of
from fairlead.controllers.contract import Result, View
from fairlead.controllers.gathering import SLOT_INDEXES, assignment_of, revision_of
from fairlead.decide.admission.policy import CHANNEL_NAME
from fairlead.decide.defragmenting import (
    COSTS,
    DEADLINE_MS,
    HOUR_MS,
    REQUESTER,
    UNKNOWN_COST,
    Asked,
    Movable,
    Plan,
    Room,
    asked_ms,
    has_moved,
    is_let_go,
    plan,
    stands,
)
from fairlead.decide.disruption import concerns, is_approved, is_open
from fairlead.decide.slots import instant
from fairlead.model.commands import Delete, Put
from fairlead.model.hot import BindingHot
from fairlead.model.kinds.capacity import Node, NodePool, Taint
from fairlead.model.kinds.intent import Placement, RegionRule, Residency
from fairlead.model.kinds.policy import Defragmentation, PolicyChannel, SchedulerPolicySpec
from fairlead.model.kinds.slot import SlotRef
from fairlead.model.kinds.work import Ask, EvictionRequest, EvictionRequestSpec
from fairlead.model.lifecycle import HOLDS_CAPACITY, SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources

log = logging.getLogger(__name__)

LOOK_MS: Final = 30_000
LOOK_AGAIN_MS: Final = 1_000  # while a budget holds a move up: two minutes at most
SETTLE_MS: Final = 60_000  # of a new holder: moves of the one before may still be under way
SLOTS_MAX: Final = 20_000  # in a region: a look adds up all of them at once, some 40 ms of the loop
WAITS: Final = frozenset({"WaitingForCapacity", "NoMatchingCapacity"})
_KEY: Final[Name] = ("", "moves")
_PLAIN: Final = Placement()

Life = tuple[str, str, str]  # a slot's tenant, its name, and the workload's uid


class DefragmenterController:
    name = "defragmenter"
    follows = (
        "nodes", "nodepools", "bindings", "reservations", "schedulingrequests", "evictionrequests", "assignments", "revisions",
        "schedulerpolicies", "policychannels",
    )  # fmt: skip
    follows_other: tuple[str, ...] = ()
    indexes: Indexes = {plural: SLOT_INDEXES[plural] for plural in ("assignments", "bindings", "evictionrequests")}
    indexes_other: Indexes = {}
    named = ("nodes", "bindings", "reservations", "schedulingrequests", "evictionrequests", "assignments", "revisions")
    hears = False

    def __init__(self, region: str) -> None:
        self._region = region
        self._asked_ms: deque[int] = deque()  # in the last hour, by this holder
        self._moved_ms: dict[Life, int] = {}  # the same, by whom it asked

    def keys(self, view: View, item: Item, other: bool) -> Iterable[Name]:
        return (_KEY,) if item.plural in ("schedulerpolicies", "policychannels") else ()

    def resync(self, view: View) -> Iterable[Name]:
        return (_KEY,)

    def reconcile(self, key: Name, view: View, now_ms: int) -> Result:
        cache = view.cache
        policy = _policy(cache)
        rules = policy.defragmentation if policy is not None else None
        if policy is None or rules is None:
            return Result()
        again = Result((), now_ms + LOOK_MS)
        asked = [item for item in cache.all("evictionrequests") if item.hot.spec.requester == REQUESTER]
        if any(_is_under_way(cache, item) for item in asked):
            return self._look_again(view, rules, asked, now_ms)
        if now_ms < view.since_ms + SETTLE_MS:
            return again
        while self._asked_ms and self._asked_ms[0] <= now_ms - HOUR_MS:
            self._asked_ms.popleft()
        by_others = [at for item in asked if (at := asked_ms(item.hot)) > now_ms - HOUR_MS and at not in self._asked_ms]
        left = rules.per_hour - len(self._asked_ms) - len(by_others)
        rooms = _rooms(cache, rules, now_ms, self._stay(cache, now_ms)) if left > 0 else []
        found = plan(rooms, _asks(cache), rules, left) if rooms else None
        if found is None:
            return again
        log.info("%d slots of %s are to move, at a cost of %d: %s", len(found.moves), found.node, found.cost, found.why)
        self._asked_ms.extend(now_ms for _ in found.moves)
        bodies = [_request(cache, found, slot, policy.revision, now_ms) for slot in found.moves]
        self._moved_ms |= {_life(body.object): now_ms for body in bodies}
        return Result(bodies, now_ms + LOOK_AGAIN_MS)

    def _look_again(self, view: View, rules: Defragmentation, asked: Iterable[Item], now_ms: int) -> Result:
        """A budget may hold a move up for two minutes. Until it is approved it is taken back when there is no place for it any
        more, or no room made by it; the commit is refused where it was approved meanwhile."""
        cache = view.cache
        leaving = [item for item in asked if _has_to_leave(cache, item)]
        held_up = [item for item in leaving if is_open(item.hot) and not is_approved(item.hot)]
        if not held_up:
            return Result((), now_ms + LOOK_MS)
        bound = [found for item in leaving if (found := cache.item("bindings", *item.key)) is not None]
        moves = [Movable(each.tenant, each.name, each.hot.requests, 0) for each in bound]
        rooms, asks = _rooms(cache, rules, now_ms, ()), _asks(cache)
        if len({each.hot.node for each in bound}) == 1 and stands(bound[0].hot.node, moves, rooms, asks):
            return Result((), now_ms + LOOK_AGAIN_MS)
        log.info("%d slots are not to move any more: there is no place for them, or no room made", len(held_up))
        for item in held_up:
            self._moved_ms.pop(_life(item.hot), None)
        return Result(
            [Delete("EvictionRequest", *item.key, expected_revision=view.revision(item)) for item in held_up], now_ms + LOOK_MS
        )

    def _stay(self, cache: Cache, now_ms: int) -> frozenset[Life]:
        """Those whom it has asked within the hour and whose request is somebody else's by now, as a rollout's: whether they have
        moved is not written there any more."""
        self._moved_ms = {life: at_ms for life, at_ms in self._moved_ms.items() if at_ms > now_ms - HOUR_MS}
        ours = {_life(item.hot) for item in cache.all("evictionrequests") if item.hot.spec.requester == REQUESTER}
        return frozenset(self._moved_ms.keys() - ours)


def _is_under_way(cache: Cache, item: Item) -> bool:
    """Until the slot has left its node and has another: before that it cannot be seen what is free."""
    request: EvictionRequest = item.hot
    if is_open(request) or not is_let_go(request):
        return is_open(request)
    bound = cache.item("bindings", *item.key)
    drains = bound is not None and concerns(request, bound.hot) and bound.hot.state in HOLDS_CAPACITY
    return drains or cache.item("schedulingrequests", *item.key) is not None


def _has_to_leave(cache: Cache, item: Item) -> bool:
    """This life of the slot is on its node, and is asked or on its way."""
    bound = cache.item("bindings", *item.key)
    if bound is None or not concerns(item.hot, bound.hot) or bound.hot.state not in HOLDS_CAPACITY:
        return False
    return is_open(item.hot) or is_let_go(item.hot)


def _policy(cache: Cache) -> SchedulerPolicySpec | None:
    channel: PolicyChannel | None = cache.get("policychannels", "", CHANNEL_NAME)
    if channel is None:
        return None
    current = channel.spec.current
    return next((item.hot.spec for item in cache.all("schedulerpolicies") if item.hot.spec.revision == current), None)


def _asks(cache: Cache) -> list[Asked]:
    """Of what waits for capacity, what one slot asks; only work that may go to any node of its pools is understood here."""
    open_pools: dict[str, NodePool | None] = {}
    for item in cache.all("nodes"):
        if not item.hot.spec.taints:
            open_pools[item.hot.spec.pool] = cache.get("nodepools", "", item.hot.spec.pool)
    out: list[Asked] = []
    for item in cache.all("schedulingrequests"):
        ask: Ask = item.hot.spec.ask
        if item.hot.status.reason in WAITS and _is_plain(ask):
            kinds = [_kind(name, ()) for name, pool in open_pools.items() if pool is None or _lets_in(pool, item.tenant, ask)]
            out.append((ask.requests, frozenset(kinds)))
    return out


def _lets_in(pool: NodePool, tenant: str, ask: Ask) -> bool:
    tenants, classes = pool.spec.allowed_tenants, pool.spec.allowed_classes
    return (not tenants or tenant in tenants) and (not classes or ask.workload_class in classes)


def _kind(pool: str, taints: tuple[Taint, ...]) -> str:
    """Equal for nodes that are open to the same work."""
    return f"{pool} {taints!r}"


def _is_plain(ask: Ask) -> bool:
    anywhere = replace(ask.placement, regions=RegionRule(), residency=Residency(), preferences=(), overflow=True)
    return anywhere == _PLAIN and not ask.devices and not ask.ports and ask.isolation == "Shared"


def _life(request: EvictionRequest) -> Life:
    return request.metadata.namespace, request.metadata.name, request.spec.slot.uid


def _rooms(cache: Cache, rules: Defragmentation, now_ms: int, stay: Collection[Life]) -> list[Room]:
    pools: dict[str, NodePool] = {item.name: item.hot for item in cache.all("nodepools")}
    sizes: dict[str, int] = {}
    nodes: list[Node] = []
    for item in cache.all("nodes"):
        node: Node = item.hot
        sizes[node.spec.pool] = sizes.get(node.spec.pool, 0) + 1
        if node.status.health == "Ready" and node.status.schedulable and not node.spec.unschedulable and not node.spec.devices:
            nodes.append(node)
    here = {node.metadata.name: list(cache.by("bindings", "node", node.metadata.name)) for node in nodes}
    if sum(len(each) for each in here.values()) > SLOTS_MAX:
        return []
    held: dict[str, list[Resources]] = {}
    for item in cache.all("reservations"):
        held.setdefault(item.hot.spec.node, []).append(item.hot.spec.requests)
    out = []
    for node in sorted(nodes, key=lambda each: each.metadata.name):
        pool = pools.get(node.spec.pool)
        spare = pool is not None and bool(pool.spec.provider) and sizes[node.spec.pool] > pool.spec.min_nodes
        costs = [(item, _cost(cache, item, rules, now_ms, stay)) for item in here[node.metadata.name]]
        out.append(_room(node, costs, held.get(node.metadata.name, []), spare))
    return out


def _room(node: Node, here: list[tuple[Item, int | None]], held: list[Resources], spare: bool) -> Room:
    """`here`: each with what it costs to move it; None: it stays."""
    free, slots, movable, fixed = node.spec.allocatable, node.spec.max_slots, [], 0
    for requests in held:
        free, slots = free - requests, slots - 1
    for item, cost in here:
        hot: BindingHot = item.hot
        if hot.state not in HOLDS_CAPACITY:
            continue
        free, slots = free - hot.requests, slots - 1
        if cost is None:
            fixed += 1
        else:
            movable.append(Movable(item.tenant, item.name, hot.requests, cost))
    return Room(node.metadata.name, _kind(node.spec.pool, node.spec.taints), free, slots, movable, fixed + len(held), spare)


def _cost(cache: Cache, item: Item, rules: Defragmentation, now_ms: int, stay: Collection[Life]) -> int | None:
    """Of moving this slot; None: it stays. What is exclusive, a job's or a gang's would lose its work or its fellows; what has a
    rule about places is the scheduler's to level; what was moved lately would go to and fro."""
    key, hot = workload_of(item), item.hot
    order, revision = assignment_of(cache, key), revision_of(cache, key, hot.generation)
    if order is None or revision is None or hot.state is not SlotState.SERVING or hot.borrowed or hot.claimed:
        return None
    before: EvictionRequest | None = cache.get("evictionrequests", *item.key)
    if (before is not None and has_moved(before, now_ms)) or (item.tenant, item.name, hot.workload_uid) in stay:
        return None
    spec, ask = order.spec, revision.spec.ask
    if spec.job is not None or spec.gang or spec.suspend or revision.spec.execution != "Replicated" or not _is_plain(ask):
        return None
    name = ask.workload_class
    return rules.costs.get(name, COSTS.get(name, UNKNOWN_COST))


def _request(cache: Cache, found: Plan, slot: Movable, policy_revision: int, now_ms: int) -> Put:
    item = cache.item("bindings", slot.tenant, slot.name)
    assert item is not None, "it was there a moment ago"
    hot: BindingHot = item.hot
    spec = EvictionRequestSpec(
        slot=SlotRef(workload=slot.name.rpartition("-")[0], uid=hot.workload_uid, index=hot.index),
        reason=f"defragmentation: {found.why}", requester=REQUESTER, deadline_time=instant(now_ms + DEADLINE_MS),
        epoch=hot.token.epoch, policy_revision=policy_revision,
    )  # fmt: skip
    return Put("EvictionRequest", EvictionRequest(metadata=Metadata(name=slot.name, namespace=slot.tenant), spec=spec))
