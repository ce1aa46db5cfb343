"""The scheduler's steps: Pending -> Reserved -> Bound, Pending -> Bound in one entry, gangs, and the release of a reservation.

Every hard gate is asked again here, on the present state, with the function the proposer used. What was decided on something
stale is refused with a reason of its own and the facts that changed.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec

from fairlead.authority.hot import BindingHot, binding_hot, marks_for
from fairlead.authority.judge.context import Context, Draft, Effect, Judgement, describe, drop, put, to_ms
from fairlead.authority.judge.granting import grant_in_force, granted_to, provisional_until, refuse_cut_off
from fairlead.authority.judge.mending import is_leaked
from fairlead.authority.judge.overriding import avoidances, refuse_held
from fairlead.authority.judge.standing import claimable, stand, taken
from fairlead.authority.judge.steps import refuse_step, transition
from fairlead.authority.judge.victims import Claim, claim_victims
from fairlead.authority.ledger import NodeAccount, device_charge
from fairlead.decide.devices import pick_devices
from fairlead.decide.fit import S6_GATES, Gate, Need, feasible, reasons
from fairlead.decide.gates.node import CORDON
from fairlead.decide.gates.node_class import LABELS, TAINTS
from fairlead.decide.grants import shortage
from fairlead.model.commands import Bind, BindGang, Caller, Refused, ReleaseReservation, Reserve
from fairlead.model.ids import key
from fairlead.model.kinds.capacity import Reservation, ReservationSpec
from fairlead.model.kinds.slot import Token
from fairlead.model.kinds.work import Binding, BindingSpec, BindingStatus, SchedulingRequest
from fairlead.model.lifecycle import Role, SlotState, may_step
from fairlead.model.meta import Evidence, Metadata
from fairlead.model.resources import DeviceHold

_REQUESTS, _RESERVATIONS, _BINDINGS = "schedulingrequests", "reservations", "bindings"
_RESERVED, _BOUND = SlotState.RESERVED, SlotState.BOUND  # an enum's member is looked up anew each time it is named


def reserve(ctx: Context, caller: Caller, body: Reserve, evidence: Evidence | None) -> Judgement:
    request = _pending(ctx, caller, body, SlotState.RESERVED)
    if not isinstance(request, SchedulingRequest):
        return request
    if request.status.state is SlotState.RESERVED:
        return _repeated_reserve(ctx, body)
    if not 0 < body.ttl_s <= ctx.settings.reservation_ttl_max_s:
        return Refused("Invalid", f"ttl_s must lie above 0 and at or below {ctx.settings.reservation_ttl_max_s:.0f}")
    fitted = _fit(ctx, body, request, None)
    if type(fitted) is Refused:
        return fitted
    spec = request.spec
    attempt = request.status.attempt + 1
    token = Token(incarnation=ctx.incarnation, epoch=spec.epoch, attempt=attempt)
    step = transition(ctx, caller, SlotState.PENDING, SlotState.RESERVED, evidence)
    uid = ctx.next_uid(1)
    reservation = Reservation(
        metadata=Metadata(name=body.name, namespace=body.tenant, uid=uid, creation_time=ctx.now),
        spec=ReservationSpec(
            node=body.node,
            requests=spec.ask.requests,
            devices=fitted,
            slot=spec.slot,
            token=token,
            owner=caller.actor,
            expiry_time=ctx.now + timedelta(seconds=body.ttl_s),
            policy_revision=body.policy_revision,
            grant_version=body.grant_version,
            marks=marks_for(spec.ask),
        ),
    )
    status = msgspec.structs.replace(
        request.status, state=SlotState.RESERVED, attempt=attempt, last_transition=step, reason="Reserved"
    )
    waiting = msgspec.structs.replace(request, status=status)
    return Draft(
        [
            put(_REQUESTS, body.tenant, body.name, waiting, waiting),
            put(_RESERVATIONS, body.tenant, body.name, reservation, reservation),
        ],
        key(_RESERVATIONS, body.tenant, body.name),
        uid,
        token=token,
        soft=((body.node, ctx.ledger.node(body.node).observed_ms),),
    )


def bind(ctx: Context, caller: Caller, body: Bind, evidence: Evidence | None, in_gang: bool = False) -> Judgement:
    request = _pending(ctx, caller, body, _BOUND)
    if not isinstance(request, SchedulingRequest):
        return request
    if request.spec.gang and not in_gang:
        return Refused("GangIncomplete", f"{body.name} belongs to gang {request.spec.gang} of {request.spec.gang_size}")
    unseen = ctx.refuse_unlisted(body.name) if request.spec.execution == "Exclusive" else None
    if unseen is not None:
        return unseen
    tenant, name, node = body.tenant, body.name, body.node
    state, attempt = request.status.state, request.status.attempt
    effects: list[Effect] = []
    claim: Claim | None = None
    if state is _RESERVED:
        if body.claims or body.victims:
            return Refused("StandingGone", f"{name} has its room reserved; it claims none")
        devices = _reserved(ctx, caller, body, request)
        effects.append(drop(_RESERVATIONS, tenant, name))
    else:
        attempt += 1
        if body.victims:
            claimed = claim_victims(ctx, caller, body, request)
            if type(claimed) is Refused:
                return claimed
            claim = claimed
        if body.claims:
            room = claimable(ctx, body, request)
            if type(room) is Refused:
                return room
            claim = claim or Claim()
            claim.standing = room.hot.spec
            effects.append(taken(ctx, body, room, request))
        devices = _fit(ctx, body, request, claim)
        if request.spec.standing and type(devices) is not Refused:
            return stand(ctx, caller.actor, body, request, attempt)
    if type(devices) is Refused:
        return devices
    effects.append(drop(_REQUESTS, tenant, name))
    if claim is not None:
        effects += claim.effects
    token = Token(ctx.incarnation, request.spec.epoch, attempt)
    uid = ctx.next_uid(len(effects))
    binding = Binding(
        Metadata(name=name, namespace=tenant, uid=uid, creation_time=ctx.now),
        _binding_spec(ctx, body, request, token, devices, claim.start_after if claim is not None else ()),
        BindingStatus(last_transition=transition(ctx, caller, state, _BOUND, evidence)),
    )
    effects.append(put(_BINDINGS, tenant, name, binding, binding_hot(binding)))
    observed = ((node, ctx.ledger.nodes[node].observed_ms),)
    return Draft(effects, "", uid, token=token, soft=observed)


def bind_gang(ctx: Context, caller: Caller, body: BindGang, evidence: Evidence | None) -> Judgement:
    """All or none (S20). Each member is judged on the state the ones before it leave, and that state is then taken back:
    the caller applies the effects, as for any command."""
    refused = _gang_incomplete(ctx, body)
    if refused is not None:
        return refused
    state, mark = ctx.state, ctx.state.position
    effects: list[Effect] = []
    soft: list[tuple[str, int]] = []
    try:
        for member in body.binds:
            judged = bind(ctx, caller, member, evidence, in_gang=True)
            if isinstance(judged, Refused):
                facts = {"member": member.name, "reason": judged.reason, **judged.facts}
                return Refused("GangRefused", f"{member.name}: {judged.detail}", facts)
            for effect in judged.effects:
                state.place(effect)
            effects.extend(judged.effects)
            soft.extend(judged.soft)
    finally:
        state.undo_to(mark)
    if not effects:  # every member was bound by an earlier copy of this command
        last = body.binds[-1]
        rec = state.get(_BINDINGS, last.tenant, last.name)
        return Draft([], key(_BINDINGS, last.tenant, last.name), position=rec.position if rec else 0)
    return Draft(effects, soft=tuple(soft))


def _gang_incomplete(ctx: Context, body: BindGang) -> Refused | None:
    if not body.binds:
        return Refused("Invalid", "a gang has at least one member")
    names = {(bind.tenant, bind.name) for bind in body.binds}
    if len(names) != len(body.binds):
        return Refused("Invalid", "a member is named twice")
    said: dict[tuple[str, int], None] = {}  # the gang and size of each member: requests change one by one
    for tenant, name in sorted(names):
        request: SchedulingRequest | None = ctx.state.hot(_REQUESTS, tenant, name)
        if request is not None:
            said[f"{tenant}/{request.spec.gang}", request.spec.gang_size] = None
    gangs = sorted({gang for gang, _ in said})
    if len(gangs) > 1:
        return Refused("GangIncomplete", f"members of different gangs: {', '.join(gangs)}")
    for gang, size in said:
        if len(names) != size:
            return Refused("GangIncomplete", f"gang {gang} has {size} members, {len(names)} were sent")
    return None


def release_reservation(ctx: Context, caller: Caller, body: ReleaseReservation, reason: str = "Released") -> Judgement:
    rec = ctx.state.get(_RESERVATIONS, body.tenant, body.name)
    if rec is None or rec.hot.spec.token != body.token:
        return Draft([], key(_RESERVATIONS, body.tenant, body.name), position=ctx.state.durable)
    if caller.role is Role.REPAIR and not is_leaked(ctx, body.tenant, rec.hot):
        return Refused("NotOwner", f"{body.tenant}/{body.name} has not run out: it is not repair's to end")
    if rec.hot.spec.budget and caller.role in (Role.RECOVERY, Role.REPAIR, Role.AUTHORITY):
        return Draft([drop(_RESERVATIONS, body.tenant, body.name)], key(_RESERVATIONS, body.tenant, body.name))
    if caller.role is not Role.REPAIR and (
        rec.hot.spec.budget or not may_step(SlotState.RESERVED, SlotState.PENDING, caller.role)
    ):
        return refuse_step(caller, SlotState.RESERVED, SlotState.PENDING)
    return Draft(release_effects(ctx, caller, body.tenant, body.name, reason), key(_REQUESTS, body.tenant, body.name))


def release_effects(ctx: Context, caller: Caller, tenant: str, name: str, reason: str) -> list[Effect]:
    """Ends a reservation and puts its slot back into the queue, in one entry (S8)."""
    effects = [drop(_RESERVATIONS, tenant, name)]
    request: SchedulingRequest | None = ctx.state.hot(_REQUESTS, tenant, name)
    if request is not None:
        status = msgspec.structs.replace(
            request.status,
            state=SlotState.PENDING,
            reason="PendingEvaluation",
            detail=reason,
            last_transition=transition(ctx, caller, SlotState.RESERVED, SlotState.PENDING, None),
        )
        waiting = msgspec.structs.replace(request, status=status)
        effects.append(put(_REQUESTS, tenant, name, waiting, waiting))
    return effects


# --- the guards ----------------------------------------------------------------------------------------------------


def _pending(ctx: Context, caller: Caller, body: Reserve | Bind, to: SlotState) -> SchedulingRequest | Judgement:
    """The request of a slot that waits at the epoch and generation the proposal names, under policy and grant in force."""
    request: SchedulingRequest | None = ctx.state.hot(_REQUESTS, body.tenant, body.name)
    if request is None:
        return _no_request(ctx, body)
    spec, state = request.spec, request.status.state
    if body.epoch != spec.epoch:
        return Refused("StaleEpoch", f"slot epoch is {spec.epoch}, not {body.epoch}", {"epoch": spec.epoch})
    if body.generation != spec.generation:
        facts = {"generation": spec.generation}
        return Refused("StaleGeneration", f"generation is {spec.generation}, not {body.generation}", facts)
    if not may_step(state, to, caller.role) and not (state is to is SlotState.RESERVED):
        return refuse_step(caller, state, to)
    policies = ctx.policy_in_force(body.tenant)
    if body.policy_revision not in policies:
        detail = f"policy revision {policies[0]} is in force, not {body.policy_revision}"
        return Refused("StalePolicy", detail, {"policyRevision": policies[0]})
    if request.metadata.deletion_time is not None:
        return Refused("BeingDeleted", f"{body.name} is being withdrawn")
    unleased = ctx.policies.refuse_unleased(ctx.incarnation, ctx.now_ms)
    if unleased is not None:
        return unleased
    return refuse_held(ctx, body.tenant, spec.slot.workload) or request


def _no_request(ctx: Context, body: Reserve | Bind) -> Judgement:
    """No request: either the slot was bound (perhaps by an earlier copy of this very command), or it was never asked for."""
    rec = ctx.state.get(_BINDINGS, body.tenant, body.name)
    if rec is None:
        return Refused("NotFound", f"no slot {body.tenant}/{body.name} waits here")
    hot: BindingHot = rec.hot
    same_life = hot.token.epoch == body.epoch and hot.state is not SlotState.RELEASED
    if isinstance(body, Bind) and same_life and hot.node == body.node:
        return Draft([], rec.key, token=hot.token, position=rec.position)
    facts = {**describe(ctx, rec), "node": hot.node, "token": hot.token, "state": hot.state.value}
    return Refused("AlreadyBound", f"{body.name} is {hot.state.value} on {hot.node}", facts)


def _repeated_reserve(ctx: Context, body: Reserve) -> Judgement:
    rec = ctx.state.get(_RESERVATIONS, body.tenant, body.name)
    assert rec is not None, f"{body.name} is Reserved without a reservation"
    spec: ReservationSpec = rec.hot.spec
    if spec.node == body.node:
        return Draft([], rec.key, rec.hot.metadata.uid, token=spec.token, position=rec.position)
    facts = {**describe(ctx, rec), "node": spec.node}
    return Refused("NotPending", f"{body.name} is reserved on {spec.node} by {spec.owner}", facts)


def _reserved(ctx: Context, caller: Caller, body: Bind, request: SchedulingRequest) -> tuple[DeviceHold, ...] | Refused:
    """The devices of the slot's live reservation, if this binding is the one it was made for and the place is still allowed."""
    rec = ctx.state.get(_RESERVATIONS, body.tenant, body.name)
    assert rec is not None, f"{body.name} is Reserved without a reservation"
    spec: ReservationSpec = rec.hot.spec
    if spec.node != body.node or spec.owner != caller.actor:
        facts = {**describe(ctx, rec), "node": spec.node, "owner": spec.owner}
        return Refused("NotPending", f"{body.name} is reserved on {spec.node} by {spec.owner}", facts)
    if spec.expiry_time is not None and ctx.now_ms >= to_ms(spec.expiry_time):
        return Refused("Expired", f"the reservation of {body.name} ran out", describe(ctx, rec))
    account = ctx.ledger.nodes[spec.node]
    if not (account.known and account.healthy and account.schedulable):
        return Refused("NoFit", f"{spec.node} is not ready any more", {"node": spec.node, "reasons": {"health": "not ready"}})
    asked = request.spec
    slot = asked.slot
    need = ctx.need_of(asked.ask, body.tenant, slot.uid, asked.may_borrow, body.policy_revision, slot.workload)
    if isinstance(need, Refused):
        return need
    gates = (*S6_GATES, LABELS, TAINTS, CORDON, *avoidances(need))
    if reasons(need, account, ctx, gates):  # the policy, the node or an override may have changed since it was reserved
        return _no_fit(ctx, need, account, spec.node, gates)
    have = grant_in_force(ctx, body)  # what is reserved is charged already: nothing is raised by it, whatever the grant is now
    return have if type(have) is Refused else spec.devices


def _fit(ctx: Context, body: Reserve | Bind, request: SchedulingRequest, claim: Claim | None) -> tuple[DeviceHold, ...] | Refused:
    """Node, devices and grant, on the present state. Answers with the devices taken."""
    spec = request.spec
    account = ctx.ledger.nodes.get(body.node)
    if account is None or not account.known:
        return Refused("NoFit", f"there is no node {body.node}", {"node": body.node, "reasons": {"node": "unknown"}})
    have = granted_to(ctx, body.tenant)
    if have is not None and have.cut_off:
        cut_off = refuse_cut_off(ctx, spec.ask.workload_class, body.policy_revision)
        if cut_off is not None:
            return cut_off
    slot = spec.slot
    need = ctx.need_of(spec.ask, body.tenant, slot.uid, spec.may_borrow, body.policy_revision, slot.workload)
    if type(need) is Refused:
        return need
    if claim is None:
        return _fit_row(ctx, body, need, account, account, None)
    with claim.gone(ctx.ledger):
        row = claim.row(account)
        fitted = _fit_row(ctx, body, need, account, row, claim)
        return fitted if isinstance(fitted, Refused) else claim.refuse_unneeded(need, row, ctx) or fitted


def _fit_row(
    ctx: Context, body: Reserve | Bind, need: Need, account: NodeAccount, row: NodeAccount, claim: Claim | None
) -> tuple[DeviceHold, ...] | Refused:
    """`row` is the account, or a copy of it as it will be when the victims of a claim are gone."""
    if not feasible(need, row, ctx):
        return _no_fit(ctx, need, row, body.node)
    devices: tuple[DeviceHold, ...] = ()
    if need.devices:
        picked = _pick(need, account, row, body.devices if isinstance(body, Bind) else ())
        if picked is None:
            return _no_fit(ctx, need, row, body.node)
        devices = picked
    refused = _grant(ctx, body, need, account, devices, claim)
    return refused if refused is not None else devices


def _pick(need: Need, account: NodeAccount, row: NodeAccount, wished: tuple[str, ...]) -> tuple[DeviceHold, ...] | None:
    """The devices the scheduler would like, where they satisfy the need; else those this node would give."""
    if wished:
        fleet = [device for device in account.devices if device.id in wished]
        picked = pick_devices(need.devices, fleet, row.device_used)
        if picked is not None:
            return picked
    return pick_devices(need.devices, account.devices, row.device_used)


def _no_fit(ctx: Context, need: Need, account: NodeAccount, node: str, gates: tuple[Gate, ...] | None = None) -> Refused:
    why = reasons(need, account, ctx, gates) or {"devices": "the free devices do not combine to what is asked"}
    facts = {
        "node": node,
        "reasons": why,
        "cpuFree": account.cpu_free,
        "memoryFree": account.memory_free,
        "slotsFree": account.slots_free,
    }
    return Refused("NoFit", f"{node}: {'; '.join(why.values())}", facts)


def _grant(
    ctx: Context, body: Reserve | Bind, need: Need, account: NodeAccount, devices: tuple[DeviceHold, ...], claim: Claim | None
) -> Refused | None:
    """Never above the grant in force (S4)."""
    have = grant_in_force(ctx, body)
    if type(have) is Refused:
        return have
    ask = need.charge if not devices else need.charge | device_charge(account, devices)
    used = ctx.ledger.tenant(body.tenant).used
    if claim is not None and claim.standing is not None:  # it was charged while it was held; nothing is charged twice
        given = claim.standing.requests.amounts()
        used = {name: amount - given.get(name, 0) for name, amount in used.items()}
    short = shortage(used, ask, have.limits)
    if not short:
        return None
    detail = "; ".join(f"{name}: {text}" for name, text in short.items())
    facts = {"short": short, "grantVersion": have.in_force.version}
    return Refused("GrantExceeded", f"tenant {body.tenant}: {detail}", facts)


def _binding_spec(
    ctx: Context, body: Bind, request: SchedulingRequest, token: Token, devices: tuple[DeviceHold, ...], after: tuple[str, ...]
) -> BindingSpec:
    spec = request.spec
    return BindingSpec(
        slot=spec.slot,
        node=body.node,
        token=token,
        generation=spec.generation,
        requests=spec.ask.requests,
        devices=devices,
        execution=spec.execution,
        exclusive=spec.exclusive,
        priority=spec.priority,
        policy_revision=body.policy_revision,
        grant_version=body.grant_version,
        borrowed=spec.may_borrow,
        start_after=after,
        provisional_until_time=provisional_until(ctx, body, spec.ask.requests, devices),
        decision=body.decision,
        supersedes=spec.supersedes,
        marks=marks_for(spec.ask),
        min_serving=spec.min_serving,
        claimed=body.claims,
    )
