"""S19 of those who are asked to leave: who serves is let go, or drained, only where the budget of its workload holds without it.

The disruption controller decides with the same function (decide/disruption.py), on what it has seen; this asks it again of the
present state. Whoever is let go already may drain, however few serve by then: its traffic is withdrawn. Never judges claims
(victims.py does) nor what the authority ends itself. Called by objects.py and running.py.
"""

from __future__ import annotations

from msgspec.structs import replace

from fairlead.authority.hot import BindingHot
from fairlead.authority.judge.context import Context
from fairlead.authority.state import Rec
from fairlead.decide.disruption import TOO_FEW, blocked, budget_of, is_let_go
from fairlead.model.commands import Caller, Refused
from fairlead.model.kinds.work import Assignment, EvictionRequest, EvictionRequestStatus
from fairlead.model.lifecycle import Role, SlotState


def refuse_let_go(ctx: Context, old: object, status: object) -> Refused | None:
    """Of a request that is approved: asked when it becomes so, not when it is said again."""
    if not isinstance(old, EvictionRequest) or not isinstance(status, EvictionRequestStatus):
        return None
    rec = ctx.state.get("bindings", old.metadata.namespace, old.metadata.name)
    if rec is None or is_let_go(old, rec.hot) or not is_let_go(replace(old, status=status), rec.hot):
        return None
    return _refuse(ctx, rec)


def refuse_drained(ctx: Context, caller: Caller, rec: Rec) -> Refused | None:
    if caller.role is not Role.DISRUPTION or is_let_go(ctx.state.hot("evictionrequests", rec.tenant, rec.name), rec.hot):
        return None
    return _refuse(ctx, rec)


def _refuse(ctx: Context, rec: Rec) -> Refused | None:
    hot: BindingHot = rec.hot
    if hot.state is not SlotState.SERVING:
        return None
    workload = rec.name.rpartition("-")[0]
    order: Assignment | None = ctx.state.hot("assignments", rec.tenant, f"{workload}.{ctx.settings.region}")
    serving, budget = ctx.staying.of(rec.tenant, workload), budget_of(f"{rec.tenant}/{workload}", order)
    why = blocked(hot.state, serving, budget)
    if not why:
        return None
    facts = {"workload": budget.workload, "serving": serving, "minServing": budget.min_serving, "wanted": budget.desired}
    return Refused(TOO_FEW, f"{rec.name} stays: {why}", facts)
