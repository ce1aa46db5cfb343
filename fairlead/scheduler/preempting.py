"""Preemption as the cycle uses it: asks the planner when a slot fits nowhere, and keeps the picture in step with its plans.

The index of evictable slots costs something for every slot that is booked, so it is filled only when a plan is first asked for.
"""

from __future__ import annotations

from fairlead.decide.preempt import Plan, Preemptor
from fairlead.decide.preempt_index import Evictable
from fairlead.decide.preempt_rules import Evictor
from fairlead.scheduler.shapes import Shape
from fairlead.scheduler.snapshot import SlotKey, Snapshot, Use
from fairlead.scheduler.units import Item


class Preempting:
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._evictable: Evictable | None = None
        self._preemptor: Preemptor | None = None
        self._victims: dict[SlotKey, list[tuple[SlotKey, Use]]] = {}  # by claimer: those it made unevictable, as they are since

    def plan(self, item: Item, shape: Shape, only: int = -1) -> Plan | None:
        """`only`: on this row and no other."""
        spec, policy = item.request.spec, shape.policy
        priority_class = policy.priority_class(spec.priority)
        if priority_class is None or not (priority_class.preempts or not spec.may_borrow):
            return None
        _, preemptor = self._index()
        evictor = Evictor(spec.priority, spec.may_borrow, policy)
        if only >= 0:
            plan = preemptor.plan_on(only, shape.need, evictor, self._snapshot)
        else:
            plan = preemptor.plan(shape.need, evictor, self._snapshot)
        return plan if isinstance(plan, Plan) and plan.victims else None

    def _index(self) -> tuple[Evictable, Preemptor]:
        if self._evictable is not None and self._preemptor is not None:
            return self._evictable, self._preemptor
        evictable = Evictable()
        for key, use in self._snapshot.uses.items():
            evictable.told(key, use, 1)
        self._snapshot.listeners.append(evictable.told)
        self._evictable = evictable
        self._preemptor = Preemptor(self._snapshot, evictable)
        return evictable, self._preemptor

    def assume(self, item: Item, plan: Plan) -> None:
        """Proposed: the victims are on their way out, the claimer waits for them."""
        evictable, _ = self._index()
        snapshot = self._snapshot
        left = []
        for key in plan.victims:
            was_evictable = snapshot.uses[key].evictable
            snapshot.set_evictable(key, False)
            if was_evictable:
                left.append((key, snapshot.uses[key]))
        key = (item.tenant, item.name)
        evictable.claim(key, plan.row, plan.victims)
        self._victims[key] = left

    def take_back(self, item: Item) -> None:
        """Refused: as before, except for what has changed meanwhile: whatever the watch says of a victim makes another record of
        it, also that it drains."""
        key = (item.tenant, item.name)
        if self._evictable is not None:
            self._evictable.unclaim(key)
        for victim, use in self._victims.pop(key, ()):
            if self._snapshot.uses.get(victim) is use:
                self._snapshot.set_evictable(victim, True)

    def seen(self, key: SlotKey, node: str, start_after: tuple[str, ...]) -> None:
        """Another scheduler's claim: what it and its leaving victims book is counted once here too."""
        row = self._snapshot.row_of.get(node)
        if self._evictable is not None and row is not None and key not in self._victims:
            victims = [victim.partition("/") for victim in start_after]
            self._evictable.claim(key, row, [(tenant, name) for tenant, _, name in victims])

    def done(self, item: Item) -> None:
        self._victims.pop((item.tenant, item.name), None)

    def set_floor(self, uid: str, floor: int) -> None:
        """The budget of this workload, where it is more than its slots were bound under; 0: it is as they say."""
        evictable, preemptor = self._index()
        if floor:
            evictable.floors[uid] = floor
        else:
            evictable.floors.pop(uid, None)
        for key, use in self._snapshot.uses.items():
            if use.uid == uid and use.evictable:
                evictable.told(key, use, -1)
                evictable.told(key, use, 1)
        preemptor.forget()
