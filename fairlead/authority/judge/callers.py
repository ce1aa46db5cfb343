"""May this caller send this at all? Role, lease and epoch (S9), tenant, node. Asked before any other judge."""

from __future__ import annotations

from fairlead.authority.judge.context import Context
from fairlead.authority.judge.leases import is_over
from fairlead.model.commands import (
    Bind,
    BindGang,
    BindMany,
    Body,
    Command,
    Delete,
    Enqueue,
    LeaseAcquire,
    LeaseRelease,
    LeaseRenew,
    Move,
    Put,
    PutStatus,
    Refused,
    ReleaseReservation,
    Report,
    Reserve,
)
from fairlead.model.ids import split_revision
from fairlead.model.kinds.ledger import Lease
from fairlead.model.lifecycle import LEASED_ROLES

_LEASE_BODIES = frozenset({LeaseAcquire, LeaseRenew, LeaseRelease})


def refuse_caller(ctx: Context, command: Command) -> Refused | None:
    caller, body = command.caller, command.body
    if caller.role in LEASED_ROLES and type(body) not in _LEASE_BODIES:
        refused = _fenced(ctx, command)
        if refused is not None:
            return refused
    if caller.tenant and (touched := _tenant_of(body)) != caller.tenant:
        return Refused("WrongTenant", f"{caller.actor} may act for tenant {caller.tenant!r} only, not for {touched!r}")
    evidence = command.evidence
    if evidence is not None and evidence.observed_revision:
        incarnation, position = split_revision(evidence.observed_revision)
        if incarnation != ctx.incarnation or position > ctx.state.position:
            return Refused(
                "StaleEvidence",
                f"revision {evidence.observed_revision} is not of this plane's present history",
                {"revision": ctx.revision(ctx.state.durable)},
            )
    return None


def _fenced(ctx: Context, command: Command) -> Refused | None:
    caller = command.caller
    lease: Lease | None = ctx.state.hot("leases", "", caller.lease)
    if lease is None:
        return Refused("FencedOut", f"{caller.role.value} acts under a lease; there is none named {caller.lease!r}")
    spec = lease.spec
    named = (spec.epoch, spec.role, spec.incarnation) == (caller.fencing_epoch, caller.role.value, ctx.incarnation)
    if named and not is_over(ctx, spec):
        return None
    if named:
        return Refused("FencedOut", f"lease {caller.lease} ended with term {spec.term} of its leader; this is {ctx.leader_epoch}")
    return Refused(
        "FencedOut",
        f"lease {caller.lease} is at epoch {spec.epoch}, held by {spec.holder}; this came with epoch {caller.fencing_epoch}",
        {"epoch": spec.epoch, "holder": spec.holder, "role": spec.role},
    )


def _tenant_of(body: Body) -> str:
    match body:
        case Put():
            namespace: str = body.object.metadata.namespace
            return namespace
        case PutStatus() | Delete() | Reserve() | Bind() | ReleaseReservation() | Move() | Report():
            return body.tenant
        case Enqueue():
            return body.request.metadata.namespace
        case BindGang() | BindMany():
            tenants = {bind.tenant for bind in body.binds}
            return tenants.pop() if len(tenants) == 1 else ""
        case LeaseAcquire() | LeaseRenew() | LeaseRelease():
            return ""
