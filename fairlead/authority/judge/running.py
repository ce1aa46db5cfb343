"""The steps of a bound slot: what its agent reports, and what controllers move. Each by its owner, under the slot's token."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import msgspec

from fairlead.authority.hot import BindingHot, binding_hot
from fairlead.authority.judge.context import Context, Draft, Effect, Judgement, drop, put, to_ms
from fairlead.authority.judge.granting import settled_here
from fairlead.authority.judge.letting_go import refuse_drained
from fairlead.authority.judge.overriding import refuse_frozen
from fairlead.authority.judge.standing import held_again
from fairlead.authority.judge.steps import refuse_step, transition
from fairlead.authority.state import Rec
from fairlead.model.commands import Caller, Move, Refused, Report
from fairlead.model.kinds.work import Binding, BindingStatus, Endpoints, Instance, InstanceSpec
from fairlead.model.lifecycle import Role, SlotState, may_step
from fairlead.model.meta import Evidence, Metadata
from fairlead.model.settling import settled

_BINDINGS, _INSTANCES = "bindings", "instances"
CONFIRMED: Final = "Confirmed"  # the reason of a Move to the state a slot is in

_AGENT, _RELEASED, _UNKNOWN = Role.AGENT, SlotState.RELEASED, SlotState.UNKNOWN
_ENDED: Final = frozenset({SlotState.FAILED, SlotState.SUCCEEDED})


def report(ctx: Context, caller: Caller, body: Report, evidence: Evidence | None) -> Judgement:
    """An agent's word about its own instance: facts, and the steps it owns."""
    found = _bound(ctx, body)
    if type(found) is Refused:
        return found
    hot: BindingHot = found.hot
    if caller.role is not _AGENT or caller.node != hot.node:
        return Refused("WrongNode", f"{body.name} runs on {hot.node}; {caller.actor} speaks for {caller.node or 'no node'}")
    account = ctx.ledger.nodes.get(hot.node)
    if account is not None and 0 < body.session < account.session:
        # Said before it was superseded, and long under way: by now the newer agent may run this very life (S12).
        detail = f"session {account.session} speaks for {hot.node}; this came from session {body.session}"
        return Refused("FencedOut", detail, {"session": account.session})
    effects: list[Effect] = []
    to = body.to
    if to is not None and to is not hot.state:
        if not may_step(hot.state, to, _AGENT):
            return refuse_step(caller, hot.state, to)
        binding: Binding = found.decode()
        effects.append(_moved(ctx, caller, found, binding, to, evidence))
        if to is _RELEASED:
            effects += _left_behind(ctx, binding)
    if body.status is not None and to is not _RELEASED:
        changed = _instance(ctx, body, hot, len(effects))
        if changed is not None:
            effects.append(changed)
    return Draft(effects, found.key, token=hot.token, position=found.position)


def move(ctx: Context, caller: Caller, body: Move, evidence: Evidence | None) -> Judgement:
    """A controller's step: serve, stop serving, drain, lose, find again, release."""
    found = _bound(ctx, body)
    if type(found) is Refused:
        return found
    hot: BindingHot = found.hot
    if body.to is hot.state:
        confirmed = _confirmed(ctx, found) if _is_confirmation(caller, body, hot) else []
        return Draft(confirmed, found.key, token=hot.token, position=found.position)
    if not may_step(hot.state, body.to, caller.role) or caller.role is _AGENT:
        return refuse_step(caller, hot.state, body.to)
    binding: Binding = found.decode()
    if body.to is _RELEASED or (hot.state is _UNKNOWN and body.to in _ENDED):
        refused = _not_proven_gone(ctx, binding) if body.to is _RELEASED else _not_said_to_have_ended(ctx, binding)
        if refused is not None:
            return refused
    if body.to is SlotState.DRAINING:
        # What the authority itself ends was sold to somebody else: no order of people's keeps it (P13).
        frozen = refuse_frozen(ctx, binding) if caller.role is not Role.AUTHORITY else None
        if frozen is not None:
            return frozen
        kept = refuse_drained(ctx, caller, found)
        if kept is not None:
            return kept
    effects = [_moved(ctx, caller, found, binding, body.to, evidence, body.deadline_s)]
    if body.to is _RELEASED:
        effects += _left_behind(ctx, binding)
    return Draft(effects, found.key, token=hot.token)


def _is_confirmation(caller: Caller, body: Move, hot: BindingHot) -> bool:
    """The authority's own word that a provisional slot stays: no step, so its state is the one it has."""
    return hot.provisional and body.reason == CONFIRMED and caller.role is Role.AUTHORITY


def _confirmed(ctx: Context, rec: Rec) -> list[Effect]:
    """The binding without its end, if all that its tenant uses stays at this moment; else it is asked again another time."""
    if not settled_here(ctx, rec.tenant):
        return []
    binding: Binding = rec.decode()
    made = Binding(binding.metadata, msgspec.structs.replace(binding.spec, provisional_until_time=None), binding.status)
    return [put(_BINDINGS, rec.tenant, rec.name, made, binding_hot(made))]


def _left_behind(ctx: Context, binding: Binding) -> list[Effect]:
    """What goes and what comes with a slot that is released: its instance, and the room it had claimed."""
    tenant, name = binding.metadata.namespace, binding.metadata.name
    out = [drop(_INSTANCES, tenant, name)] if ctx.state.get(_INSTANCES, tenant, name) is not None else []
    return out + (held_again(ctx, binding, len(out) + 1) if binding.spec.claimed else [])


def _bound(ctx: Context, body: Move | Report) -> Rec | Refused:
    rec = ctx.state.get(_BINDINGS, body.tenant, body.name)
    if rec is None:
        return Refused("NotFound", f"no slot {body.tenant}/{body.name} is bound here")
    token = rec.hot.token
    if token != body.token:
        detail = f"{body.name} lives under token {tuple_of(token)}, not {tuple_of(body.token)}"
        return Refused("StaleToken", detail, {"token": token})
    return rec


def tuple_of(token: object) -> tuple[int, ...]:
    return msgspec.structs.astuple(token)  # type: ignore[arg-type]


def _moved(
    ctx: Context,
    caller: Caller,
    rec: Rec,
    binding: Binding,
    to: SlotState,
    evidence: Evidence | None,
    deadline_s: float = 0.0,
) -> Effect:
    was = binding.status
    status = BindingStatus(
        to,
        transition(ctx, caller, was.state, to, evidence),
        was.state if to is _UNKNOWN else None,
        ctx.now + timedelta(seconds=deadline_s) if deadline_s > 0 else was.drain_deadline_time,
        was.conditions,
    )
    moved = Binding(binding.metadata, binding.spec, status)
    return put(_BINDINGS, rec.tenant, rec.name, moved, binding_hot(moved))


def _instance(ctx: Context, body: Report, hot: BindingHot, ahead: int) -> Effect | None:
    rec = ctx.state.get(_INSTANCES, body.tenant, body.name)
    assert body.status is not None
    if rec is None:
        metadata = Metadata(name=body.name, namespace=body.tenant, uid=ctx.next_uid(ahead), creation_time=ctx.now)
        instance = Instance(metadata=metadata, spec=InstanceSpec(node=hot.node, token=hot.token), status=body.status)
    else:
        old: Instance = rec.decode()
        spec = InstanceSpec(node=hot.node, token=hot.token)
        instance = msgspec.structs.replace(old, spec=spec, status=body.status)
        if instance == old:
            return None
    return put(_INSTANCES, body.tenant, body.name, settled(instance))


def _not_proven_gone(ctx: Context, binding: Binding) -> Refused | None:
    """Exclusive: the fence time has passed since it was last heard, or it is Failed: then its agent has said that nothing of it
    runs (ADR 0040). Replicated: no traffic is sent to it any more."""
    spec, step = binding.spec, binding.status.last_transition
    if spec.execution == "Exclusive" and binding.status.state is SlotState.FAILED:
        return None
    if spec.execution == "Exclusive":
        since_ms = max(to_ms(step.time) if step else ctx.now_ms, ctx.leader_since_ms)
        left_s = since_ms / 1000 + ctx.fence_s(ctx.now_ms) - ctx.now_ms / 1000
        if left_s > 0:
            detail = f"{binding.metadata.name} may still run for {left_s:.1f} s"
            return Refused("FenceNotPassed", detail, {"leftSeconds": left_s}, retry_after_s=left_s)
        return None
    endpoints: Endpoints | None = ctx.state.hot("endpoints", binding.metadata.namespace, spec.slot.workload)
    if endpoints is not None and any(e.slot == spec.slot.index for e in endpoints.spec.endpoints):
        return Refused("FenceNotPassed", f"{binding.metadata.name} still receives traffic; withdraw it from Endpoints first")
    return None


def _not_said_to_have_ended(ctx: Context, binding: Binding) -> Refused | None:
    """Of a slot whose node is heard again: only its agent knows that its process ended, and says with which code."""
    metadata = binding.metadata
    rec = ctx.state.get(_INSTANCES, metadata.namespace, metadata.name)
    instance: Instance | None = rec.decode() if rec is not None else None
    if instance is not None and instance.spec.token == binding.spec.token and instance.status.exit_code is not None:
        return None
    return Refused("FenceNotPassed", f"the agent of {binding.spec.node} has not said that {metadata.name} ended")
