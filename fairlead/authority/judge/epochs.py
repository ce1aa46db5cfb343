"""That no epoch of a slot is used twice (S9), asked of the state at the commit: what begins anew begins above all that its
assignment has forgotten, nothing is forgotten before its epoch is on record there, and that record never goes back. The same of a
job's slots that succeeded: they are on record before they go, and never begin again.

Whoever queues and forgets keeps to it (fairlead/decide/queueing.py); a command that was long under way does not. A life under a
token that its node has outlived would be refused there and never end. Called by kinds.py and objects.py.
"""

from __future__ import annotations

from fairlead.authority.hot import BindingHot
from fairlead.authority.judge.context import Context
from fairlead.authority.state import Rec
from fairlead.decide.jobs import is_done
from fairlead.decide.queueing import first_epoch
from fairlead.decide.spans import covers, size
from fairlead.model.commands import Refused
from fairlead.model.kinds.work import Assignment, AssignmentStatus, SchedulingRequest
from fairlead.model.lifecycle import SlotState
from fairlead.model.registry import REGION


def refuse_begun_before(ctx: Context, new: SchedulingRequest) -> Refused | None:
    """Of a slot of which nothing is here."""
    order = _order(ctx, new.metadata.namespace, new.spec.slot.workload)
    if order is None:
        return None
    name = new.metadata.name
    if order.metadata.deletion_time is not None:  # what went since then left no epoch on record
        return Refused("BeingDeleted", f"{order.metadata.name} is being deleted, and {name} does not begin any more")
    first = first_epoch(order)
    if new.spec.epoch < first:
        return Refused("StaleEpoch", f"the next life of {name} has epoch {first} or a later one", {"epoch": first})
    return refuse_done(ctx, new)


def refuse_former(ctx: Context, new: SchedulingRequest) -> Refused | None:
    """Of a workload that was deleted, and made anew under its name: nobody would ever end what begins for it."""
    order, slot = _order(ctx, new.metadata.namespace, new.spec.slot.workload), new.spec.slot
    if order is None or new.spec.standing or order.spec.workload_uid == slot.uid:
        return None
    detail = f"{new.metadata.name} is asked for by an earlier workload {slot.workload}, which is gone"
    return Refused("StaleGeneration", detail, {"uid": order.spec.workload_uid})


def refuse_done(ctx: Context, new: SchedulingRequest) -> Refused | None:
    """Of a job: what has succeeded and was counted does not run again."""
    order, slot = _order(ctx, new.metadata.namespace, new.spec.slot.workload), new.spec.slot
    if order is None or order.spec.job is None or order.spec.workload_uid != slot.uid:
        return None
    if not is_done(order.status, slot.index):
        return None
    return Refused(
        "AlreadyDone", f"{new.metadata.name} has succeeded, and is counted", {"completions": size(order.status.completed)}
    )


def refuse_forgotten(ctx: Context, rec: Rec) -> Refused | None:
    """Of a binding that is to go, with nothing in its place."""
    hot: BindingHot = rec.hot
    order = _order(ctx, rec.tenant, rec.name.rpartition("-")[0])
    if order is None or order.metadata.deletion_time is not None:
        return None
    if hot.state is not SlotState.RELEASED:  # one that succeeded has its index on record instead
        return _refuse_uncounted(order, rec)
    if hot.token.epoch < first_epoch(order):
        return None
    facts = {"epoch": hot.token.epoch, "epochFloor": order.status.epoch_floor}
    return Refused("InUse", f"{rec.key} had epoch {hot.token.epoch}, which is not on record yet", facts)


def _refuse_uncounted(order: Assignment, rec: Rec) -> Refused | None:
    hot: BindingHot = rec.hot
    if order.spec.job is None or order.spec.workload_uid != hot.workload_uid or is_done(order.status, hot.index):
        return None
    return Refused("InUse", f"{rec.key} has succeeded, which is not on record yet", {"state": hot.state.value})


def refuse_lower_floor(ctx: Context, old: object, status: object) -> Refused | None:
    """Of its own assignments; the global plane's are copies, and a region that lost its tail says less than it did."""
    if ctx.settings.plane != REGION or not isinstance(old, Assignment) or not isinstance(status, AssignmentStatus):
        return None
    if status.epoch_floor < old.status.epoch_floor:
        facts = {"epochFloor": old.status.epoch_floor}
        return Refused("Conflict", f"epochs to {old.status.epoch_floor} are forgotten, not to {status.epoch_floor} only", facts)
    before, after = old.status.completed, status.completed
    if after == before or covers(after, before):
        return None
    counted = {"completions": size(before)}
    return Refused(
        "Conflict", f"{size(before)} slots have succeeded, and some of them are not among these {size(after)}", counted
    )


def _order(ctx: Context, tenant: str, workload: str) -> Assignment | None:
    order: Assignment | None = ctx.state.hot("assignments", tenant, f"{workload}.{ctx.settings.region}")
    return order
