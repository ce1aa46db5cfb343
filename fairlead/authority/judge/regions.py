"""Whether a Region may be deleted: when it has said that nothing is left there, or when it is written off, because it is lost or
because people say so of one that is silent; both only after what was leased to it has ended (decide/writing_off.py). Looks at
what all tenants have there. Called by kinds.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fairlead.authority.judge.context import Context
from fairlead.authority.state import Rec
from fairlead.decide.answering import longest_s
from fairlead.decide.assigning import is_unsettled
from fairlead.decide.granting import LEASE_S
from fairlead.decide.regional import MIRROR_UP
from fairlead.decide.slot_lease import TTL_S, lease_of
from fairlead.decide.slots import millis
from fairlead.decide.writing_off import WRITE_OFF, Silence, is_silent, may_be_written_off_ms
from fairlead.model.commands import Refused
from fairlead.model.kinds.intent import Region
from fairlead.model.kinds.ledger import Lease
from fairlead.model.registry import REGION

_NAMED_MAX: Final = 3


def some(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED_MAX]) + (", ..." if len(names) > _NAMED_MAX else "")


def refuse_region_delete(ctx: Context, rec: Rec, old: Region) -> Refused | None:
    """To delete one that is lost is to write it off, or one that people say is gone. Of one that is there, what runs would go on
    unseen, on quota that others get: also what is leaving, and rooms that are held. One that is lost may be there, and cut off:
    while its leases run it places what is its own to place. One that was never heard has run nothing."""
    if ctx.settings.plane == REGION:
        return None
    there = [each for each in ctx.state.live("assignments") if each.hot.spec.region == rec.name]
    named = sorted(each.key for each in there if each.hot.spec.slots)
    leaving = sorted(each.key for each in there if not each.hot.spec.slots and old.status.health and is_unsettled(each.hot))
    grants = ((tenant, ctx.state.hot("grants", tenant, rec.name)) for tenant in ctx.state.tenants_of("grants"))
    charged = sorted(tenant for tenant, grant in grants if grant is not None and any(grant.status.used.amounts().values()))
    why = [
        f"{len(names)} {what} ({some(names)}): {how}"
        for names, what, how in (
            (named, "workloads have slots there", "take it out of what they allow (placement.regions.allowed) first"),
            (leaving, "have slots that are still leaving", "wait until the region has said that none are left"),
            (
                charged,
                "tenants are charged there",
                "wait until it says that they use nothing; budgets hold rooms where they name it",
            ),
        )
        if names
    ]
    if not why:
        return None
    found = [*named, *leaving, *charged]
    silence = _silence(ctx, rec.name)
    if _is_written_off(ctx, old, silence):
        return None
    health = old.status.health or "not judged yet"
    detail = f"{rec.name} is {health}. {'; '.join(why)}. {_how(ctx, old, silence)}"
    return Refused("InUse", detail, {"count": len(found), "first": found[:10]})


def _silence(ctx: Context, name: str) -> Silence:
    up: Lease | None = ctx.state.hot("leases", "", f"{MIRROR_UP}{name}")
    slots: Lease | None = ctx.state.hot("leases", "", lease_of(name))
    grants = (ctx.state.hot("grants", tenant, name) for tenant in ctx.state.tenants_of("grants"))
    leased_s = max((grant.spec.lease_seconds for grant in grants if grant is not None), default=0) or LEASE_S
    return Silence(
        renewed_ms=millis(up.spec.renewed_time) if up is not None else 0,
        ttl_s=up.spec.ttl_seconds if up is not None else 0.0,
        grant_lease_s=longest_s(ctx.state.hot("grantterms", "", name), leased_s),
        slot_lease_s=slots.spec.ttl_seconds if slots is not None else TTL_S,
    )


def _is_written_off(ctx: Context, region: Region, silence: Silence) -> bool:
    said = region.status.health == "Lost" or region.metadata.annotations.get(WRITE_OFF) == region.metadata.uid
    return said and ctx.now_ms >= may_be_written_off_ms(silence, ctx.leader_since_ms)


def _how(ctx: Context, region: Region, silence: Silence) -> str:
    """What can be done about one that is gone for good, and when."""
    left_s = max(0, may_be_written_off_ms(silence, ctx.leader_since_ms) - ctx.now_ms) // 1000
    when = f"in {left_s} s, when all that was leased to it has ended" if left_s else "now"
    if region.status.health == "Lost":
        return f"It may only be cut off, and go on by what was leased to it. It can be written off by deleting it {when}"
    if not is_silent(silence, ctx.leader_since_ms, ctx.now_ms):
        return "One that is Lost may be deleted as it is, when all that was leased to it has ended"
    name, uid = region.metadata.name, region.metadata.uid
    return (
        f"It is not heard, nor called Lost while no region is. If {name} is gone for good it can be written off {when}: "
        f'annotate it with {WRITE_OFF}: "{uid}", and delete it'
    )
