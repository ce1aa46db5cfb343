"""May this slot leave now? Eviction requests against the budget of their workload, one after the other. Pure.

A budget is `minServing` of the workload in this region. The last copy that serves does not leave while others are wanted and none
of them serves yet. Who is refused is told what blocks. Used by the disruption controller, the only one that drains, and by the
authority, which asks `blocked` again on the present state; `must_serve` by the judge of claims.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, Literal, NamedTuple

from fairlead.decide.slots import RUNNING, Slot, Slots, grouped
from fairlead.decide.spans import holds, size
from fairlead.model.hot import BindingHot
from fairlead.model.kinds.work import Assignment, EvictionRequest
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Condition

_S = SlotState
WITHDRAW_MS: Final = 30_000  # for the rollout controller to take traffic away; after it a drain no longer waits
TOO_FEW: Final = "TooFewServe"  # why a request is not approved: one more that serves would let it go

Step = Literal["Wait", "Approve", "Block", "Drain", "Gone", "Expired"]


class Asked(NamedTuple):
    name: str
    slot: int
    filed_ms: int
    approved_ms: int  # 0: not yet
    deadline_ms: int  # 0: none
    wanted: bool = True  # the slot is: it would come back elsewhere


class Budget(NamedTuple):
    workload: str
    min_serving: int
    desired: int  # slots wanted here: 0 where the workload goes away altogether
    frozen: str = ""  # by which override; what is wanted then stays where it is


class Ruling(NamedTuple):
    asked: Asked
    step: Step
    why: str = ""
    too_few: bool = False  # blocked because too few would serve without it: one more would let it go


def budget_of(workload: str, assignment: Assignment | None, frozen: str = "") -> Budget:
    if assignment is None:
        return Budget(workload, 0, 0)
    order = assignment.spec
    ends = leaves(assignment) or order.job is not None
    return Budget(workload, order.min_serving, 0 if ends else size(order.slots), frozen)


def is_open(eviction: EvictionRequest) -> bool:
    """It has not ended; one that was filed again since it ended is open again."""
    done = _condition(eviction, "Done")
    return done is None or done.status != "True" or done.observed_generation < eviction.metadata.generation


def is_approved(eviction: EvictionRequest) -> bool:
    found = _condition(eviction, "Approved")
    return found is not None and found.status == "True" and found.observed_generation == eviction.metadata.generation


def concerns(eviction: EvictionRequest, hot: BindingHot) -> bool:
    """It is about this life of the slot, not about one that is over."""
    return eviction.spec.slot.uid == hot.workload_uid and eviction.spec.epoch in (0, hot.token.epoch)


def is_let_go(eviction: EvictionRequest | None, hot: BindingHot) -> bool:
    """This life of the slot may leave: nobody counts on it any more."""
    return eviction is not None and is_approved(eviction) and is_open(eviction) and concerns(eviction, hot)


def _condition(eviction: EvictionRequest, wanted: str) -> Condition | None:
    return next((c for c in eviction.status.conditions if c.type == wanted), None)


def leaves(assignment: Assignment) -> bool:
    """The whole of it goes away."""
    return assignment.spec.suspend or assignment.metadata.deletion_time is not None


def must_serve(assignment: Assignment) -> int:
    """How many of it have to serve here: never more than are wanted, and none of a job or of what goes away."""
    order = assignment.spec
    return 0 if leaves(assignment) or order.job is not None else min(order.min_serving, size(order.slots))


def is_wanted(assignment: Assignment | None, index: int) -> bool:
    """Whether a slot would come back elsewhere: a freeze keeps such a one where it is."""
    return assignment is not None and not leaves(assignment) and holds(assignment.spec.slots, index)


def rule(
    asked: Iterable[Asked], slots: Slots, budget: Budget, now_ms: int, over: Collection[int] = frozenset()
) -> list[Ruling]:  # fmt: skip
    """One ruling a request, in the order they were filed; each approval counts against those after it. `over`: slots whose
    request is about a life that has ended. It finds nobody, and who runs there now is not counted on."""
    table = grouped(slots)
    serving = table.count(_S.SERVING) - sum(slot.state is _S.SERVING for slot in table.approved.values())
    serving -= sum(_serves_on(slots.get(index)) for index in over)
    out: list[Ruling] = []
    for one in sorted(asked, key=lambda a: (a.approved_ms == 0, a.filed_ms, a.name)):
        ruling = _rule_one(one, slots.get(one.slot) if one.slot not in over else None, serving, budget, now_ms)
        if ruling.step == "Approve" and slots[one.slot].state is _S.SERVING:
            serving -= 1
        out.append(ruling)
    return out


def _serves_on(slot: Slot | None) -> bool:
    return slot is not None and slot.state is _S.SERVING and not slot.approved


def _rule_one(one: Asked, slot: Slot | None, serving: int, budget: Budget, now_ms: int) -> Ruling:
    if slot is None or slot.state not in RUNNING | {_S.UNKNOWN}:
        return Ruling(one, "Gone", "not running any more" if slot is None else slot.state.value)
    if budget.frozen and one.wanted:
        expired = one.deadline_ms and now_ms >= one.deadline_ms
        return Ruling(one, "Expired" if expired else "Block", budget.frozen)
    if one.approved_ms:
        withdrawn = slot.state is not _S.SERVING and not slot.in_traffic
        if slot.state is _S.UNKNOWN:
            return Ruling(one, "Wait", "its node is silent")
        late = now_ms >= one.approved_ms + WITHDRAW_MS
        return Ruling(one, "Drain" if withdrawn or late else "Wait", "traffic is being withdrawn")
    why = blocked(slot.state, serving, budget)
    if not why:
        return Ruling(one, "Approve")
    expired = one.deadline_ms and now_ms >= one.deadline_ms
    return Ruling(one, "Expired" if expired else "Block", why, slot.state is _S.SERVING)


def blocked(state: SlotState, serving: int, budget: Budget) -> str:
    """What keeps a slot from leaving; empty: nothing. `serving`: how many serve and were not let go, with this one."""
    if state is _S.UNKNOWN:
        return "its node is silent"
    if state is not _S.SERVING:
        return ""
    least = min(budget.min_serving, budget.desired)
    if serving - 1 < least:
        return f"disruption budget of {budget.workload}: {serving} serve, minServing is {least}"
    if serving <= 1 < budget.desired:
        return f"last copy of {budget.workload} that serves: {budget.desired} are wanted, no other serves yet"
    return ""
