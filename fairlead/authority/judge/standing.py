"""Standing reservations (P12): room on a real node that a recovery budget holds. Placed like a slot, claimed in the entry that
binds the claimer, and held again in the entry that releases it, so that it is for sale at no moment in between.

Called by the judges of binding and of release. Which rooms a budget should have is the standing controller's.
"""

from __future__ import annotations

from fairlead.authority.judge.context import Context, Draft, Effect, describe, drop, put
from fairlead.authority.state import Rec
from fairlead.model.commands import Bind, Refused
from fairlead.model.ids import key
from fairlead.model.kinds.capacity import Holding, Reservation, ReservationSpec
from fairlead.model.kinds.slot import Token
from fairlead.model.kinds.work import Binding, SchedulingRequest
from fairlead.model.meta import Metadata

_REQUESTS, _RESERVATIONS = "schedulingrequests", "reservations"


def stand(ctx: Context, actor: str, body: Bind, request: SchedulingRequest, attempt: int) -> Draft:
    """A standing request has found its node: from now on the room is held, and nobody waits for it any more."""
    spec = request.spec
    # No two rooms under one name have the same token: a release that comes late ends nothing that came after it.
    token = Token(incarnation=ctx.incarnation, epoch=ctx.state.position + 1, attempt=attempt)
    uid = ctx.next_uid(1)
    reservation = Reservation(
        metadata=Metadata(name=body.name, namespace=body.tenant, uid=uid, creation_time=ctx.now),
        spec=ReservationSpec(
            node=body.node,
            requests=spec.ask.requests,
            slot=spec.slot,
            token=token,
            owner=actor,
            budget=spec.budget_name,
            index=spec.slot.index,
            policy_revision=body.policy_revision,
            grant_version=body.grant_version,
        ),
    )
    effects = [
        drop(_REQUESTS, body.tenant, body.name),
        put(_RESERVATIONS, body.tenant, body.name, reservation, reservation),
    ]
    soft = ((body.node, ctx.ledger.node(body.node).observed_ms),)
    return Draft(effects, key(_RESERVATIONS, body.tenant, body.name), uid, token=token, soft=soft)


def claimable(ctx: Context, body: Bind, request: SchedulingRequest) -> Rec | Refused:
    """The standing reservation a binding would take: of its own tenant and budget, on its own node."""
    rec = ctx.state.get(_RESERVATIONS, body.tenant, body.claims)
    if rec is None:
        return Refused("StandingGone", f"there is no standing reservation {body.tenant}/{body.claims}")
    spec: ReservationSpec = rec.hot.spec
    facts = {**describe(ctx, rec), "node": spec.node, "budget": spec.budget}
    if not spec.budget or spec.budget != request.spec.budget_name:
        asked = request.spec.budget_name or "no budget"
        return Refused("StandingGone", f"{body.claims} belongs to {spec.budget or 'a slot'}; {body.name} names {asked}", facts)
    if spec.node != body.node:
        return Refused("StandingGone", f"{body.claims} is held on {spec.node}, not on {body.node}", facts)
    return rec


def held_again(ctx: Context, binding: Binding, ahead: int) -> Effect | None:
    """What a released claimer gives back: the room it used, for the budget it took it from; nothing where that is gone, where its
    node is, or where the budget has found other room meanwhile. `ahead`: effects of the same entry before this one."""
    spec, tenant = binding.spec, binding.metadata.namespace
    budget_name = budget_of(spec.claimed)
    holding: Holding | None = ctx.state.hot("holdings", tenant, f"{budget_name}.{ctx.settings.region}")
    if holding is None or holding.metadata.deletion_time is not None:
        return None
    account = ctx.ledger.nodes[spec.node]  # of which something is released: it is there
    if not (account.healthy and account.schedulable) or account.cordoned:
        return None
    if any(ctx.state.get(plural, tenant, spec.claimed) is not None for plural in (_REQUESTS, _RESERVATIONS)):
        return None
    reservation = Reservation(
        metadata=Metadata(name=spec.claimed, namespace=tenant, uid=ctx.next_uid(ahead), creation_time=ctx.now),
        spec=ReservationSpec(
            node=spec.node,
            requests=spec.requests,
            token=Token(incarnation=ctx.incarnation, epoch=ctx.state.position + 1, attempt=1),
            owner=binding.metadata.name,
            budget=budget_name,
            index=int(spec.claimed.rpartition("-")[2]),
            policy_revision=spec.policy_revision,
            grant_version=spec.grant_version,
        ),
    )
    return put(_RESERVATIONS, tenant, spec.claimed, reservation, reservation)


def budget_of(name: str) -> str:
    """The budget in the name of a standing reservation, `standing.BUDGET-INDEX`."""
    return name.rpartition("-")[0].partition(".")[2]
