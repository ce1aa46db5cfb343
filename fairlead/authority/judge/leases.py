"""Leases of roles: acquired, renewed, given up. The epoch grows with every acquisition and fences the one before (S9).

Whoever runs in the leader's process holds its leases for the leader's term: nobody need renew what ends with the leader, and the
next leader's components wait for nobody (ADR 0038). Others hold theirs for a time. A slot lease is a region's or recovery's,
whichever of their servers holds it; decide/slot_lease.py says who may take it when.
"""

from __future__ import annotations

import msgspec

from fairlead.authority.judge.context import Context, Draft, Judgement, put, to_ms
from fairlead.authority.state import Rec
from fairlead.decide.slot_lease import free_ms, is_slot_lease
from fairlead.model.commands import Caller, LeaseAcquire, LeaseRelease, LeaseRenew, Refused
from fairlead.model.ids import key
from fairlead.model.kinds.ledger import Lease, LeaseSpec, LeaseStatus
from fairlead.model.meta import Metadata, set_condition
from fairlead.model.settling import settled


def acquire(ctx: Context, caller: Caller, body: LeaseAcquire) -> Judgement:
    if caller.role is not body.role:
        return Refused("NotOwner", f"{caller.role.value} cannot acquire a lease for {body.role.value}")
    rec = ctx.state.get("leases", "", body.name)
    lease: Lease | None = rec.hot if rec else None
    if is_slot_lease(body.name):
        refused = _refuse_slots(ctx, caller, lease, body)
        if refused is not None:
            return refused
    elif lease is not None and lease.spec.holder not in ("", caller.actor):
        left_s = _left_s(ctx, lease)
        if left_s > 0:
            return Refused(
                "LeaseHeld",
                f"{lease.spec.holder} holds {body.name} for "
                + ("as long as this leader leads" if lease.spec.term else f"another {left_s:.1f} s unless it renews"),
                {"holder": lease.spec.holder, "epoch": lease.spec.epoch, "leftSeconds": left_s},
                retry_after_s=left_s,
            )
    epoch = lease.spec.epoch + 1 if lease else 1
    spec = LeaseSpec(
        role=body.role.value,
        holder=caller.actor,
        epoch=epoch,
        ttl_seconds=body.ttl_s,
        renewed_time=ctx.now,
        incarnation=ctx.incarnation,
        region=ctx.settings.region,
        term=ctx.leader_epoch if body.of_term else 0,
    )
    metadata = lease.metadata if lease else Metadata(name=body.name, uid=ctx.next_uid(), creation_time=ctx.now)
    return _put(Lease(metadata=metadata, spec=spec), epoch)


def _refuse_slots(ctx: Context, caller: Caller, lease: Lease | None, body: LeaseAcquire) -> Refused | None:
    spec = lease.spec if lease is not None else None
    left_ms = free_ms(spec, caller.role, _longest_s(ctx, body.ttl_s), ctx.incarnation, ctx.leader_since_ms) - ctx.now_ms
    if left_ms <= 0:
        return None
    who = f"{spec.role} holds {body.name}" if spec is not None else f"nobody knows yet who had {body.name}"
    facts = {"holder": spec.holder, "epoch": spec.epoch} if spec is not None else {}
    return Refused("LeaseHeld", who, facts, retry_after_s=1.0)


def _longest_s(ctx: Context, ttl_s: float) -> float:
    """In a history that nobody remembers another region may run what this one asks for, under a lease of its own length."""
    leases: list[Lease] = [rec.hot for rec in ctx.state.live("leases") if is_slot_lease(rec.name)]
    return max([ttl_s, *(lease.spec.ttl_seconds for lease in leases)])


def renew(ctx: Context, caller: Caller, body: LeaseRenew) -> Judgement:
    rec = ctx.state.get("leases", "", body.name)
    refused = _not_ours(ctx, rec, caller, body.name, body.epoch)
    if refused is not None or rec is None:
        return refused or Refused("NotFound", f"there is no lease {body.name}")
    lease: Lease = rec.hot
    renewed = _with(lease, msgspec.structs.replace(lease.spec, renewed_time=ctx.now))
    return _put(msgspec.structs.replace(renewed, status=_told(ctx, lease.status, body.status)), body.epoch)


def _told(ctx: Context, old: LeaseStatus, new: LeaseStatus | None) -> LeaseStatus:
    """Its holder has no clock of the plane's: since when a condition stands is written here."""
    if new is None:
        return old
    conditions = old.conditions
    for condition in new.conditions:
        conditions = set_condition(conditions, msgspec.structs.replace(condition, last_transition_time=ctx.now))
    return msgspec.structs.replace(new, conditions=conditions)


def release(ctx: Context, caller: Caller, body: LeaseRelease) -> Judgement:
    rec = ctx.state.get("leases", "", body.name)
    refused = _not_ours(ctx, rec, caller, body.name, body.epoch)
    if refused is not None or rec is None:
        return refused or Refused("NotFound", f"there is no lease {body.name}")
    lease: Lease = rec.hot
    # The epoch stays: whoever comes next takes the one after it, so an old command can never match again.
    return _put(_with(lease, msgspec.structs.replace(lease.spec, holder="")), body.epoch)


def _left_s(ctx: Context, lease: Lease) -> float:
    """Until another may take it, as far as can be told. A new leader counts every lease that is held for a time from its own
    start: it cannot know of renewals that were acknowledged but not yet durable when the old leader died (P5)."""
    if lease.spec.term:
        return 0.0 if is_over(ctx, lease.spec) else lease.spec.ttl_seconds
    renewed_ms = to_ms(lease.spec.renewed_time) if lease.spec.renewed_time else 0
    since_ms = max(renewed_ms, ctx.leader_since_ms)
    return since_ms / 1000 + lease.spec.ttl_seconds * (1 + ctx.settings.clock_rate_error) - ctx.now_ms / 1000


def is_over(ctx: Context, spec: LeaseSpec) -> bool:
    """It was held for a term, and another one has begun."""
    return bool(spec.term) and (spec.term, spec.incarnation) != (ctx.leader_epoch, ctx.incarnation)


def _not_ours(ctx: Context, rec: Rec | None, caller: Caller, name: str, epoch: int) -> Refused | None:
    if rec is None:
        return Refused("NotFound", f"there is no lease {name}")
    spec: LeaseSpec = rec.hot.spec
    ours = spec.holder and spec.role == caller.role.value if is_slot_lease(name) else spec.holder == caller.actor
    if not ours or spec.epoch != epoch or spec.incarnation != ctx.incarnation or is_over(ctx, spec):
        return Refused(
            "FencedOut",
            f"lease {name} is at epoch {spec.epoch}, held by {spec.holder or 'nobody'}",
            {"epoch": spec.epoch, "holder": spec.holder},
        )
    return None


def _with(lease: Lease, spec: LeaseSpec) -> Lease:
    return msgspec.structs.replace(lease, spec=spec)


def _put(lease: Lease, epoch: int) -> Draft:
    name, lease = lease.metadata.name, settled(lease)
    return Draft([put("leases", "", name, lease, lease)], key("leases", "", name), lease.metadata.uid, epoch)
