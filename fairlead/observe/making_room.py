"""B4 asked of a region's journal: what defragmentation asks to move is within what it promises (docs/scheduling.md).

Only where the policy in force asks for moves; one plan at a time until what it moves has left and has a place; of one node, as
many moves and as dear as that policy says, and as many in an hour whoever leads; nobody twice within an hour; nobody who is
exclusive, a job's, a gang's or borrows. Where nothing has changed for some seconds: something waits that fits when they have left
and did not before, and each of them fits on another node that is in use. Who was moved is not back on the node it left within
fifteen seconds, less what a commit may be late. That budgets hold is S19's (leaving.py). Own memory and
sums; shares nothing with who decides but the model. Fed by bounds.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final

from fairlead.model.kinds.capacity import Node, NodePool
from fairlead.model.kinds.policy import Defragmentation
from fairlead.model.kinds.work import Assignment, Binding, EvictionRequest, Revision, SchedulingRequest
from fairlead.model.lifecycle import HOLDS_CAPACITY
from fairlead.model.resources import NOTHING, Resources
from fairlead.observe.too_soon import TooSoon

REQUESTER: Final = "defragmenter"
HOUR_MS: Final = 3_600_000
DEADLINE_MS: Final = 120_000  # of a request, from when it was asked for
LATE_MS: Final = 1_500  # between a look and the commit of what follows from it
BACK_MS: Final = 15_000  # from when the next life of a slot that was moved is queued
WAITS: Final = ("WaitingForCapacity", "NoMatchingCapacity")
COSTS: Final = {"critical": 8, "standard": 4, "batch": 2, "best-effort": 1}
DEAREST: Final = 8

Found = Callable[[str, str], None]
Objects = dict[str, dict[tuple[str, str], Any]]
Slot = tuple[str, str]


class _Plan:
    """Those that were asked at one moment."""

    def __init__(self, rules: Defragmentation) -> None:
        self.rules = rules
        self.moves: dict[Slot, Binding] = {}
        self.cost = 0
        self.open: dict[Slot, str] = {}  # who has not left or has no place yet: the uid of that life's binding


class RoomChecker:
    """Tell it of every change before it is applied, and of every batch after it."""

    def __init__(self, objects: Objects, found: Found, checked: dict[str, int], too_soon: TooSoon) -> None:
        self._objects = objects
        self._found = found
        self._checked = checked
        self._too_soon = too_soon
        self._plans: dict[datetime | None, _Plan] = {}  # by the deadline that all requests of one have
        self._asked: list[tuple[int, Slot]] = []  # within the hour
        self._moved_ms: dict[tuple[str, str], int] = {}  # workload's uid and slot -> when a move was asked for that was granted
        self._leaves: dict[Slot, tuple[str, int]] = {}  # let go for room -> the node, and the epoch of the life that ends there
        self._left: dict[Slot, tuple[str, int]] = {}  # queued since -> the node, and until when it is not to be there again
        self._fresh: list[_Plan] = []  # of this batch
        self._changed_ms = 0

    def forgets(self) -> None:
        """Somebody else leads: what was asked for and is written there no longer is known to nobody."""
        there = self._objects["evictionrequests"]
        ours = {slot: one.spec.slot.uid for slot, one in there.items() if one.spec.requester == REQUESTER}
        self._asked = [each for each in self._asked if each[1] in ours]
        lives = {(uid, slot[1]) for slot, uid in ours.items()}
        self._moved_ms = {life: at_ms for life, at_ms in self._moved_ms.items() if life in lives}

    def changed(self, now_ms: int) -> None:
        """Nodes, bindings, reservations, requests: whatever room depends on."""
        self._changed_ms = now_ms

    def asked(self, slot: Slot, old: EvictionRequest | None, new: EvictionRequest | None, now_ms: int) -> None:
        ours = new is not None and new.spec.requester == REQUESTER
        if new is not None and ours and (old is None or old.spec != new.spec):
            for detail in self._filed(slot, new, now_ms):
                self._found("B4", f"{'/'.join(slot)}: {detail}")
        elif new is not None and ours and _ended(new):
            self._ended(slot, new)
        elif not ours and old is not None and old.spec.requester == REQUESTER:
            self._closed(slot)  # somebody else asks now, or nobody
            self._leaves.pop(slot, None)

    def queued(self, slot: Slot, new: SchedulingRequest, now_ms: int) -> None:
        """It waits for a place. Who was moved, and why, is known by what ended the life before."""
        self._left.pop(slot, None)
        node, epoch = self._leaves.pop(slot, ("", 0))
        if node and new.spec.epoch == epoch + 1:
            self._left[slot] = (node, now_ms + BACK_MS)

    def bound(self, slot: Slot, new: Binding, now_ms: int) -> None:
        """It has a place again."""
        node, until_ms = self._left.pop(slot, ("", 0))
        if node and not new.spec.claimed:
            self._checked["B4/back"] += 1
            if new.spec.node == node:
                detail = f"{'/'.join(slot)}: it was moved off {node} to make room, and is there again"
                self._too_soon.unless(until_ms, now_ms, "B4", detail)
        for plan in self._plans.values():
            if slot in plan.open and plan.open[slot] != new.metadata.uid:
                del plan.open[slot]

    def unasked(self, slot: Slot) -> None:
        """It waits for a place no longer: it has one, or nobody wants it any more."""
        if slot not in self._objects["bindings"]:
            self._closed(slot)

    def _filed(self, slot: Slot, new: EvictionRequest, now_ms: int) -> Iterable[str]:
        self._checked["B4"] += 1
        policy = self._objects["schedulerpolicies"].get(("", f"r{new.spec.policy_revision}"))
        rules: Defragmentation | None = policy.spec.defragmentation if policy is not None else None
        if rules is None:
            yield f"policy r{new.spec.policy_revision} asks for no moves"
            return
        plan = self._plans.setdefault(new.spec.deadline_time, _Plan(rules))
        others = [each for each in self._plans.values() if each is not plan]
        if under_way := sorted("/".join(one) for each in others for one in each.open if self._comes_back(each.moves[one], one)):
            yield f"it was asked to move while {', '.join(under_way)} was on its way"
        self._plans = {at: each for at, each in self._plans.items() if each is plan or each.open}
        self._asked = [each for each in self._asked if each[0] > now_ms - HOUR_MS] + [(now_ms, slot)]
        if len(self._asked) > rules.per_hour:
            yield f"the {len(self._asked)}th move within an hour; there may be {rules.per_hour}"
        bound: Binding | None = self._objects["bindings"].get(slot)
        if bound is None or bound.spec.token.epoch != new.spec.epoch:
            return  # it was another one that was to move, and is gone
        yield from self._who(bound, slot, now_ms)
        plan.moves[slot], plan.open[slot] = bound, bound.metadata.uid
        plan.cost += self._cost(slot[0], bound, rules)
        if len(plan.moves) > rules.max_moves or plan.cost > rules.max_cost:
            yield f"{len(plan.moves)} moves at a cost of {plan.cost}; there may be {rules.max_moves} at {rules.max_cost}"
        if plan not in self._fresh:
            self._fresh.append(plan)

    def _comes_back(self, moved: Binding, slot: Slot) -> bool:
        """It is there still, waits, or is to be queued. One that nobody wants any more has left for good."""
        if slot in self._objects["bindings"] or slot in self._objects["schedulingrequests"]:
            return True
        orders: list[Assignment] = [
            one for one in self._objects["assignments"].values() if one.spec.workload_uid == moved.spec.slot.uid
        ]
        return any(span.first <= moved.spec.slot.index <= span.last for order in orders for span in order.spec.slots)

    def _who(self, bound: Binding, slot: Slot, now_ms: int) -> Iterable[str]:
        spec, uid = bound.spec, bound.spec.slot.uid
        if spec.execution != "Replicated" or spec.borrowed:
            yield "it is exclusive or borrows, and was asked to move"
        orders: list[Assignment] = [one for one in self._objects["assignments"].values() if one.spec.workload_uid == uid]
        if any(one.spec.job is not None or one.spec.gang for one in orders):
            yield "it is of a job or a gang, and was asked to move"
        last_ms = self._moved_ms.get((uid, slot[1]))
        if last_ms is not None and now_ms - last_ms < HOUR_MS - LATE_MS:
            yield f"it was asked to move {(now_ms - last_ms) / 1000:.0f} s after it had been moved"

    def _cost(self, tenant: str, bound: Binding, rules: Defragmentation) -> int:
        name = f"{bound.spec.slot.workload}.g{bound.spec.generation}"
        revision: Revision | None = self._objects["revisions"].get((tenant, name))
        kind = revision.spec.ask.workload_class if revision is not None else ""
        return rules.costs.get(kind, COSTS.get(kind, DEAREST if revision is not None else 0))

    def _ended(self, slot: Slot, new: EvictionRequest) -> None:
        if not any(one.type == "Done" and one.reason == "Evicted" for one in new.status.conditions):
            self._closed(slot)  # it was refused, or given up: it stays
        elif new.spec.deadline_time is not None:
            self._moved_ms[new.spec.slot.uid, slot[1]] = round(new.spec.deadline_time.timestamp() * 1000) - DEADLINE_MS
            bound: Binding | None = self._objects["bindings"].get(slot)
            if bound is not None and bound.spec.token.epoch == new.spec.epoch:
                self._leaves[slot] = (bound.spec.node, new.spec.epoch)

    def _closed(self, slot: Slot) -> None:
        for plan in self._plans.values():
            plan.open.pop(slot, None)

    # --- whether it makes room -----------------------------------------------------------------------------------------------

    def batch_ended(self, now_ms: int) -> None:
        if self._fresh and now_ms - self._changed_ms >= LATE_MS:
            for plan in self._fresh:
                self._checked["B4/room"] += 1
                for detail in self._pointless(plan):
                    self._found("B4", detail)
        self._fresh.clear()

    def _pointless(self, plan: _Plan) -> Iterable[str]:
        nodes = sorted({bound.spec.node for bound in plan.moves.values()})
        if len(nodes) > 1:
            yield f"one plan moves slots of {', '.join(nodes)}"
            return
        name, used = nodes[0], self._used()
        node: Node = self._objects["nodes"]["", name]
        pool: NodePool | None = self._objects["nodepools"].get(("", node.spec.pool))
        free = node.spec.allocatable - used.get(name, NOTHING)
        freed = free
        for bound in plan.moves.values():
            freed += bound.spec.requests
        requests = self._objects["schedulingrequests"].values()
        asks = [one.spec.ask.requests for one in requests if one.status.reason in WAITS]
        if not any(ask.exceeding(free) and not ask.exceeding(freed) for ask in asks) and not (pool and pool.spec.provider):
            yield f"{', '.join('/'.join(slot) for slot in plan.moves)} leave {name}, and nothing that waits fits there then"
        others = {
            at: one.spec.allocatable - used[at]
            for (_, at), one in self._objects["nodes"].items()
            if at != name
            and at in used
            and one.status.schedulable
            and not one.spec.unschedulable
            and one.status.health == "Ready"
        }
        for slot, bound in plan.moves.items():
            if all(bound.spec.requests.exceeding(room) for room in others.values()):
                yield f"{'/'.join(slot)} was asked to move, and no other node that is in use has room for it"

    def _used(self) -> dict[str, Resources]:
        """Of the nodes that are in use."""
        out: dict[str, Resources] = {}
        for bound in self._objects["bindings"].values():
            if bound.status.state in HOLDS_CAPACITY:
                out[bound.spec.node] = out.get(bound.spec.node, NOTHING) + bound.spec.requests
        for held in self._objects["reservations"].values():
            out[held.spec.node] = out.get(held.spec.node, NOTHING) + held.spec.requests
        return out


def _ended(request: EvictionRequest) -> bool:
    return any(
        one.type == "Done" and one.status == "True" and one.observed_generation == request.metadata.generation
        for one in request.status.conditions
    )
