"""What the authority does when the lease of a grant ends (P13): stops what is above the limit that stays, before the end.

Nobody else needs to be alive for it, and no budget holds it up: what runs on would be sold twice. The youngest of the lowest
priority go first. The same at the deadline of what an emergency quota had allowed. Called by chores.py, and by figures.py
for a count; places nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fairlead.authority.judge.context import Context
from fairlead.authority.state import Rec, State
from fairlead.decide import escrow
from fairlead.decide.granting import in_force, margin_ms, must_end_ms
from fairlead.decide.grants import limits_of
from fairlead.decide.preempt_rules import SERVING_CAPABLE
from fairlead.model.commands import Caller, Command, Move
from fairlead.model.kinds.capacity import Grant
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.registry import REGION

AUTHORITY: Final = Caller(actor="authority", role=Role.AUTHORITY)
GRACE_S: Final = 5.0
ROUND_MAX: Final = 1000  # the rest goes half a second later
_GOING: Final = frozenset({SlotState.DRAINING})


def ended_leases(ctx: Context) -> list[Command]:
    """Steps to Draining, a bounded number of them. Costs a look at every leased grant."""
    if ctx.settings.plane != REGION:
        return []
    now_ms = ctx.plane_ms()
    out: list[Command] = []
    for rec in ctx.state.live("grants"):
        lease_s = rec.hot.spec.lease_seconds
        # A plane that has been away asks first: its leases may go on.
        if lease_s and now_ms >= ctx.leader_since_ms + margin_ms(lease_s) // 2 and len(out) < ROUND_MAX:
            out += _above(ctx, rec.hot, now_ms)[: ROUND_MAX - len(out)]
    return out


def _above(ctx: Context, grant: Grant, now_ms: int) -> list[Command]:
    tenant = grant.metadata.namespace
    used = ctx.ledger.tenant(tenant).used
    allowed = in_force(grant, ctx.state.hot("grantterms", "", ctx.settings.region), ctx.incarnation, now_ms)
    if not allowed.version or now_ms < must_end_ms(grant, allowed) or escrow.within(used, limits_of(allowed.limit)):
        return []
    return [
        Command(AUTHORITY, Move(tenant, rec.name, rec.hot.token, SlotState.DRAINING, "LeaseEnds", GRACE_S))
        for rec in to_stop(ctx.state, tenant, used, limits_of(allowed.limit))
    ]


def to_stop(state: State, tenant: str, used: Mapping[str, int], limits: Mapping[str, int]) -> list[Rec]:
    """Whom to stop so that the rest is within these limits; those on their way out count as gone."""
    left = dict(used)
    bound: list[Rec] = []
    for rec in state.live("bindings", tenant):
        if rec.hot.state in _GOING:
            left = _without(left, rec)
        elif rec.hot.state in SERVING_CAPABLE:
            bound.append(rec)
    out: list[Rec] = []
    for rec in sorted(bound, key=lambda each: (each.hot.priority, -each.position)):
        if escrow.within(left, limits):
            break
        left = _without(left, rec)
        out.append(rec)
    return out


def _without(left: dict[str, int], rec: Rec) -> dict[str, int]:
    out = dict(left)
    for name, amount in rec.hot.requests.amounts().items():
        out[name] = out.get(name, 0) - amount
    for hold in rec.hot.devices:
        for name in out:
            if name.startswith("device:"):
                out[name] -= hold.thousandths
    return out
