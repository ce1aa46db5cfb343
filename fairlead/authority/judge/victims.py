"""A claim (P12): one entry that makes capacity firm for the claimer, drains those who use it now, and tells the agent to start
only when they are gone. Used by preemption; freed capacity is never for sale in between, because it never becomes free."""

from __future__ import annotations

import copy
from datetime import timedelta

import msgspec

from fairlead.authority.hot import BindingHot, binding_hot
from fairlead.authority.judge.context import Context, Effect, put
from fairlead.authority.ledger import FIRM, LENT, NodeAccount
from fairlead.model.commands import Bind, Caller, Refused
from fairlead.model.kinds.slot import Transition
from fairlead.model.kinds.work import Binding, SchedulingRequest
from fairlead.model.lifecycle import Role, SlotState, may_step

CLAIM_GRACE_S = 5.0  # Victims of a claim get this long to stop before they are killed.


class Claim:
    """What a claim does: effects on its victims, and the node as it will be when they are gone."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.victims: list[BindingHot] = []
        self.start_after: tuple[str, ...] = ()

    def row(self, account: NodeAccount) -> NodeAccount:
        """The node's account without the victims: a copy, for one judgement."""
        row = copy.copy(account)
        row.scalars_free = dict(account.scalars_free)
        row.scalars_unlent = dict(account.scalars_unlent)
        row.device_used = dict(account.device_used)
        for victim in self.victims:
            row.add(victim.requests, victim.devices, LENT if victim.borrowed else FIRM, -1)
        return row


def claim_victims(ctx: Context, caller: Caller, body: Bind, request: SchedulingRequest) -> Claim | Refused:
    claim = Claim()
    for full_name in body.victims:
        tenant, _, name = full_name.partition("/")
        rec = ctx.state.get("bindings", tenant, name)
        if rec is None:
            return Refused("VictimNotAllowed", f"there is no binding {full_name}", {"victim": full_name})
        hot: BindingHot = rec.hot
        if hot.node != body.node:
            return Refused("VictimNotAllowed", f"{full_name} runs on {hot.node}, not on {body.node}", {"victim": full_name})
        if not hot.borrowed and hot.priority >= request.spec.priority:
            detail = f"{full_name} has priority {hot.priority}, not below {request.spec.priority}"
            return Refused("VictimNotAllowed", detail, {"victim": full_name, "priority": hot.priority})
        if not may_step(hot.state, SlotState.DRAINING, Role.AUTHORITY):
            detail = f"{full_name} is {hot.state.value}"
            return Refused("VictimNotAllowed", detail, {"victim": full_name, "state": hot.state.value})
        claim.victims.append(hot)
        claim.effects.append(put_draining(ctx, rec.decode(), f"claimed by {body.tenant}/{body.name}", caller))
    claim.start_after = body.victims
    return claim


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
