"""What repair may end in another's place: only what is proven over, judged on the present state and not on what repair saw."""

from __future__ import annotations

from typing import Any

from fairlead.authority.judge.context import Context, to_ms
from fairlead.decide.leftovers import RELEASED, SLOTS, UNDONE
from fairlead.decide.overrides import ends_ms
from fairlead.model.kinds.capacity import Reservation
from fairlead.model.kinds.intent import Workload
from fairlead.model.kinds.policy import Override
from fairlead.model.kinds.work import Assignment
from fairlead.model.registry import REGION


def is_leaked(ctx: Context, tenant: str, reservation: Reservation) -> bool:
    """A reservation that ran out; a room whose budget is gone."""
    spec = reservation.spec
    if spec.budget:
        return all(rec.hot.spec.budget != spec.budget for rec in ctx.state.live("holdings", tenant))
    return spec.expiry_time is not None and ctx.plane_ms() >= to_ms(spec.expiry_time)


def is_done(ctx: Context, finalizer: str, old: Any) -> bool:
    """Whether a finalizer waits for nothing any more: no region has an Assignment of the workload; the override has no effect;
    the region that would release its slots was written off."""
    if finalizer == SLOTS and isinstance(old, Workload):
        assignments = ctx.state.live("assignments", old.metadata.namespace)
        gone = all(rec.hot.spec.workload_uid != old.metadata.uid for rec in assignments)
        return old.metadata.deletion_time is not None and gone
    if finalizer == UNDONE and isinstance(old, Override):
        return old.metadata.deletion_time is not None or ctx.plane_ms() >= ends_ms(old)
    if finalizer == RELEASED and isinstance(old, Assignment) and ctx.settings.plane != REGION:
        return old.metadata.deletion_time is not None and ctx.state.get("regions", "", old.spec.region) is None
    return False
