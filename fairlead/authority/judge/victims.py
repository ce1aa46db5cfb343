"""A claim (P12): one entry that makes capacity firm for the claimer, drains those who use it now, and tells the agent to start
only when they are gone. Used by preemption; freed capacity is never for sale in between, because it never becomes free.

Judges S19: strictly lower rank, as the policy in force allows, within disruption budgets, nobody twice and nobody in vain.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from fairlead.authority.hot import BindingHot, binding_hot
from fairlead.authority.judge.context import Context, Effect, put
from fairlead.authority.ledger import FIRM, HELD, LENT, Ledger, NodeAccount
from fairlead.authority.state import Rec
from fairlead.decide.devices import pick_devices
from fairlead.decide.disruption import must_serve
from fairlead.decide.fit import Need, feasible
from fairlead.decide.preempt_rules import SERVING_CAPABLE, VICTIMS_MAX, Breach, Credit, Evictor, breaches, credit_of
from fairlead.model.commands import Bind, Caller, Refused
from fairlead.model.kinds.capacity import ReservationSpec
from fairlead.model.kinds.slot import Transition
from fairlead.model.kinds.work import Assignment, Binding, SchedulingRequest
from fairlead.model.lifecycle import Role, SlotState, may_step

CLAIM_GRACE_S = 5.0  # Victims of a claim get this long to stop before they are killed.


class _Evicted(NamedTuple):
    uid: str
    min_serving: int
    borrowed: bool


class Claim:
    """What a claim does: effects on its victims, and the node as it will be when they are gone."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.victims: list[tuple[str, BindingHot]] = []
        self.credits: list[Credit] = []
        self.start_after: tuple[str, ...] = ()
        self.standing: ReservationSpec | None = None  # the room of a recovery budget that is taken

    def row(self, account: NodeAccount) -> NodeAccount:
        """The node's account without the victims, and with claims in flight counted once: a copy, for one judgement."""
        row = account.copied()
        for given in self.credits:
            _give(row, given)
        for _, victim in self.victims:
            row.add(victim.requests, victim.devices, LENT if victim.borrowed else FIRM, -1)
        if self.standing is not None:
            row.add(self.standing.requests, (), HELD, -1)
        return row

    @contextmanager
    def gone(self, ledger: Ledger) -> Iterator[None]:
        """For one judgement the victims are no neighbours: their ports, labels and isolation go with them."""
        for name, victim in self.victims:
            ledger.neighbour(_tenant(name), victim, -1)
        try:
            yield
        finally:
            for name, victim in self.victims:
                ledger.neighbour(_tenant(name), victim, 1)

    def refuse_unneeded(self, need: Need, row: NodeAccount, ctx: Context) -> Refused | None:
        """Nobody is evicted in vain: with any one of the victims still there, the need would not fit. `row` is without them."""
        for name, victim in self.victims:
            how = LENT if victim.borrowed else FIRM
            row.add(victim.requests, victim.devices, how, 1)
            ctx.ledger.neighbour(_tenant(name), victim, 1)
            row.used_by, row.exclusive_to = ctx.ledger.topology.occupants(row.number)
            in_vain = feasible(need, row, ctx) and (
                not need.devices or pick_devices(need.devices, row.devices, row.device_used) is not None
            )
            ctx.ledger.neighbour(_tenant(name), victim, -1)
            row.used_by, row.exclusive_to = ctx.ledger.topology.occupants(row.number)
            row.add(victim.requests, victim.devices, how, -1)
            if in_vain:
                return _refuse(name, f"{name} need not leave: the slot fits beside it", needed=False)
        return None


def _tenant(name: str) -> str:
    return name.partition("/")[0]


def _give(row: NodeAccount, given: Credit) -> None:
    row.cpu_free += given.cpu_free
    row.memory_free += given.memory_free
    row.cpu_unlent += given.cpu_unlent
    row.memory_unlent += given.memory_unlent
    row.slots_free += given.slots
    for name, free, unlent in given.scalars:
        row.scalars_free[name] = row.scalars_free.get(name, 0) + free
        row.scalars_unlent[name] = row.scalars_unlent.get(name, 0) + unlent
    for hold in given.devices:
        row.device_used[hold.id] = row.device_used.get(hold.id, 0) - hold.thousandths


def claim_victims(ctx: Context, caller: Caller, body: Bind, request: SchedulingRequest) -> Claim | Refused:
    if len(body.victims) > VICTIMS_MAX:
        facts = {"victims": len(body.victims), "limit": VICTIMS_MAX}
        return Refused("VictimNotAllowed", f"{len(body.victims)} victims, {VICTIMS_MAX} at most in one claim", facts)
    policy = ctx.policies.compiled(body.policy_revision)
    if isinstance(policy, Refused):
        return policy
    evictor = Evictor(request.spec.priority, request.spec.may_borrow, policy)
    found: dict[str, Rec] = {}
    for name in body.victims:
        if name in found:
            return _refuse(name, f"{name} is named twice")
        judged = _victim(ctx, body, evictor, name)
        if isinstance(judged, Refused):
            return judged
        found[name] = judged
    evicted = [_Evicted(rec.hot.workload_uid, _floor(ctx, rec), rec.hot.borrowed) for rec in found.values()]
    broken = breaches(evicted, ctx.ledger.capable, evictor)
    if broken and not evictor.may_break_budgets:
        return _refuse_breach(ctx, found, broken[0], evictor)
    claim = Claim()
    for name, rec in found.items():
        claim.victims.append((name, rec.hot))
        why = f"claimed by {body.tenant}/{body.name}"
        for breach in broken:
            if breach.uid == rec.hot.workload_uid:
                why += f", breaking the disruption budget of {breach.uid}: {breach.left} left of at least {breach.min_serving}"
        claim.effects.append(put_draining(ctx, rec.decode(), why, caller))
    account = ctx.ledger.nodes.get(body.node)
    claim.credits = _in_flight(ctx, account) if account is not None else []
    claim.start_after = body.victims
    return claim


def _victim(ctx: Context, body: Bind, evictor: Evictor, name: str) -> Rec | Refused:
    """The binding, if this evictor may evict it here and now; its budget is judged with those of the others."""
    tenant, _, object_name = name.partition("/")
    rec = ctx.state.get("bindings", tenant, object_name)
    if rec is None:
        return _refuse(name, f"there is no binding {name}")
    hot: BindingHot = rec.hot
    if hot.node != body.node:
        return _refuse(name, f"{name} runs on {hot.node}, not on {body.node}", node=hot.node)
    if hot.state not in SERVING_CAPABLE or not may_step(hot.state, SlotState.DRAINING, Role.AUTHORITY):
        return _refuse(name, f"{name} is {hot.state.value}", state=hot.state.value)
    if evictor.may_evict(hot.priority, hot.borrowed):
        return rec
    facts = {"priority": hot.priority, "evictorPriority": evictor.priority}
    if hot.borrowed != evictor.borrows:
        return _refuse(name, f"{name} is firm, and who borrows evicts borrowers only", **facts)
    if hot.priority >= evictor.priority:
        return _refuse(name, f"{name} has priority {hot.priority}, not below {evictor.priority}", **facts)
    detail = f"policy revision {body.policy_revision} does not let priority {evictor.priority} evict {name} of {hot.priority}"
    return _refuse(name, detail, **facts)


def _floor(ctx: Context, rec: Rec) -> int:
    """Its workload's budget: as it was when the slot was bound, or what the order says now, where that is more."""
    hot: BindingHot = rec.hot
    workload = rec.name.rpartition("-")[0]
    order: Assignment | None = ctx.state.hot("assignments", rec.tenant, f"{workload}.{ctx.settings.region}")
    if order is None or order.spec.workload_uid != hot.workload_uid:
        return hot.min_serving
    return max(hot.min_serving, must_serve(order))


def _refuse(victim: str, detail: str, **facts: Any) -> Refused:
    return Refused("VictimNotAllowed", detail, {"victim": victim, **facts})


def _refuse_breach(ctx: Context, found: dict[str, Rec], breach: Breach, evictor: Evictor) -> Refused:
    name = next(name for name, rec in found.items() if rec.hot.workload_uid == breach.uid)
    workload = name.rpartition("-")[0]
    detail = f"{workload} must keep {breach.min_serving} slots that can serve, {breach.left} would be left"
    return _refuse(name, detail, workload=workload, minServing=breach.min_serving, left=breach.left, priority=evictor.priority)


def _in_flight(ctx: Context, account: NodeAccount) -> list[Credit]:
    """What earlier claims on this node count twice: their claimers have not started, their victims are not gone. A victim that
    was bound again since is in another life, elsewhere or younger than the claimer's binding, and counts in full."""
    out = []
    get = ctx.state.get
    for rec in account.claims:
        hot: BindingHot = rec.hot
        victims = []
        for name in hot.start_after:
            tenant, _, object_name = name.partition("/")
            v = get("bindings", tenant, object_name)
            if v is None or v.hot.node != hot.node or v.position > rec.position:
                continue
            if v.hot.state is SlotState.DRAINING:
                victims.append(v.hot)
        if victims:
            out.append(credit_of(hot, victims))
    return out


def put_draining(ctx: Context, binding: Binding, reason: str, caller: Caller) -> Effect:
    status = msgspec.structs.replace(
        binding.status,
        state=SlotState.DRAINING,
        drain_deadline_time=ctx.now + timedelta(seconds=CLAIM_GRACE_S),
        last_transition=Transition(
            to=SlotState.DRAINING,
            by=f"authority for {caller.actor}: {reason}",
            time=ctx.now,
            before=binding.status.state,
            epoch=caller.fencing_epoch,
        ),
    )
    draining = msgspec.structs.replace(binding, status=status)
    return put("bindings", binding.metadata.namespace, binding.metadata.name, draining, binding_hot(draining))
