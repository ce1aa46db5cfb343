"""Standing reservations (P12): room on a real node that a recovery budget holds. Placed like a slot, claimed in the entry that
binds the claimer, and held again in the entry that releases it, so that it is for sale at no moment in between. What a smaller
claimer leaves of its room stays held under the room's name, for nobody else to claim.

Called by the judges of binding and of release. Which rooms a budget should have is the standing controller's.
"""

from __future__ import annotations

from msgspec.structs import replace

from fairlead.authority.judge.context import Context, Draft, Effect, describe, drop, put
from fairlead.authority.judge.granting import granted_to
from fairlead.authority.state import Rec
from fairlead.decide.standing import shape_at
from fairlead.model.commands import Bind, Refused
from fairlead.model.ids import key
from fairlead.model.kinds.capacity import Holding, Reservation, ReservationSpec
from fairlead.model.kinds.slot import Token
from fairlead.model.kinds.work import Binding, SchedulingRequest
from fairlead.model.meta import Metadata
from fairlead.model.resources import NOTHING, Resources

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
    if spec.claimer:
        return Refused("StandingGone", f"{body.claims} is claimed by {spec.claimer}", facts)
    if spec.node != body.node:
        return Refused("StandingGone", f"{body.claims} is held on {spec.node}, not on {body.node}", facts)
    return rec


def taken(ctx: Context, body: Bind, room: Rec, request: SchedulingRequest) -> Effect:
    """What becomes of the room that is claimed: it ends, or the claimer takes less and the rest stays held. Not where the node or
    the tenant uses more than it has by now: there only the ask was judged to fit, and what is left over is theirs (S2, S4)."""
    spec: ReservationSpec = room.hot.spec
    rest = spec.requests.left_after(request.spec.ask.requests)
    if rest == NOTHING or _overdrawn(ctx, body, rest):
        return drop(_RESERVATIONS, body.tenant, body.claims)
    held = replace(spec, requests=rest, slot=None, token=_token(ctx), claimer=body.name)
    left: Reservation = replace(room.hot, spec=held)
    return put(_RESERVATIONS, body.tenant, body.claims, left, left)


def _overdrawn(ctx: Context, body: Bind, rest: Resources) -> bool:
    """In a dimension that the rest has. The claim itself changes nothing there: what it takes was held and charged already."""
    account = ctx.ledger.node(body.node)
    have = granted_to(ctx, body.tenant)
    used = ctx.ledger.tenant(body.tenant).used
    free = {"cpu": account.cpu_free, "memory": account.memory_free, **account.scalars_free}
    return have is None or any(free.get(name, 0) < 0 or used[name] > have.limits.get(name, 0) for name in rest.amounts())


def held_again(ctx: Context, binding: Binding, ahead: int) -> list[Effect]:
    """What a released claimer gives back: the room it took, all or part of it, for its budget. Nothing is held, and no rest,
    where the budget is gone or asks for no such room, where its node is, where the budget has found other room meanwhile, or
    where the tenant uses more than it may by now: rooms are the first to go then (S4). `ahead`: effects of the same entry before
    this one."""
    spec, tenant = binding.spec, binding.metadata.namespace
    room: Reservation | None = ctx.state.hot(_RESERVATIONS, tenant, spec.claimed)
    rest = room if room is not None and (room.spec.claimer, room.spec.node) == (binding.metadata.name, spec.node) else None
    if (room is not None and rest is None) or ctx.state.get(_REQUESTS, tenant, spec.claimed) is not None:
        return []
    budget_name, index = budget_of(spec.claimed), int(spec.claimed.rpartition("-")[2])
    holding: Holding | None = ctx.state.hot("holdings", tenant, f"{budget_name}.{ctx.settings.region}")
    shape = shape_at(holding, index, ctx.now_ms)
    account = ctx.ledger.nodes[spec.node]  # of which something is released: it is there
    given = spec.requests if rest is None else spec.requests + rest.spec.requests
    if shape is None or not (account.healthy and account.schedulable) or account.cordoned or _over_grant(ctx, tenant, given):
        return [] if rest is None else [drop(_RESERVATIONS, tenant, spec.claimed)]
    made = Metadata(name=spec.claimed, namespace=tenant, uid=ctx.next_uid(ahead), creation_time=ctx.now)
    again = Reservation(
        metadata=made if rest is None else rest.metadata,
        spec=ReservationSpec(
            node=spec.node,
            # Never more than was given back, so nothing rises. What is no room of the budget's is given up by its controller.
            requests=given if shape.exceeding(given) else shape,
            token=_token(ctx),
            owner=binding.metadata.name,
            budget=budget_name,
            index=index,
            policy_revision=spec.policy_revision,
            grant_version=spec.grant_version,
        ),
    )
    return [put(_RESERVATIONS, tenant, spec.claimed, again, again)]


def _over_grant(ctx: Context, tenant: str, given: Resources) -> bool:
    """With what is given back still charged, as it would be if it were held again."""
    have, used = granted_to(ctx, tenant), ctx.ledger.tenant(tenant).used
    return have is None or any(used[name] > have.limits.get(name, 0) for name in given.amounts())


def _token(ctx: Context) -> Token:
    """No two rooms under one name have the same: a release that comes late ends nothing that came after it."""
    return Token(incarnation=ctx.incarnation, epoch=ctx.state.position + 1, attempt=1)


def budget_of(name: str) -> str:
    """The budget in the name of a standing reservation, `standing.BUDGET-INDEX`."""
    return name.rpartition("-")[0].partition(".")[2]
