"""Whether a Grant may be written or deleted (P13, S5): the sum of what all regions may use, asked again when one is committed.

The quota controller decides with the same functions (decide/sharing.py, decide/escrow.py) on what it has seen; here they meet the
present state, whoever writes. In a region that is led from a global plane a Grant is a copy, and only the mirror writes it.
Grants of tenants without a Quota are their operators' own. Called by kinds.py; looks at one tenant's grants, never at all.
"""

from __future__ import annotations

from typing import Final

from fairlead.authority.judge.context import Context
from fairlead.decide import escrow
from fairlead.decide.answering import floor_of, longest_s
from fairlead.decide.escrow import Account
from fairlead.decide.granting import LEASE_S, honoured_ms, is_reported, told_spec
from fairlead.decide.sharing import account_in, limits_now
from fairlead.decide.slots import millis
from fairlead.model.commands import MISSING, Caller, Refused
from fairlead.model.ids import key
from fairlead.model.kinds.capacity import Grant
from fairlead.model.kinds.intent import Quota, Region
from fairlead.model.kinds.quota import GrantTerm
from fairlead.model.lifecycle import Role
from fairlead.model.meta import MIRRORED_UID
from fairlead.model.registry import REGION

_HOW: Final = "change its Quota, or order an emergency-quota"


def refuse_grant(ctx: Context, caller: Caller, new: Grant, old: Grant | None) -> Refused | None:
    if ctx.settings.plane == REGION:
        return _refuse_by_hand(ctx, caller, new.metadata.namespace, old)
    tenant, name = new.metadata.namespace, new.metadata.name
    quotas: list[Quota] = [rec.hot for rec in ctx.state.live("quotas", tenant)]
    if not quotas or (old is not None and new.spec == old.spec):
        return None
    regions = _regions(ctx)
    if name not in regions:
        return _refuse_unknown(new)
    accounts = {
        region: account_in(found, ctx.state.hot("grants", tenant, region), ctx.incarnation, _floor_ms(ctx, region, new))
        for region, found in regions.items()
    }
    before, after = accounts[name], account_in(regions[name], new, ctx.incarnation, _floor_ms(ctx, name, new))
    if _is_told(ctx, new, old):
        return None
    if is_reported(new, ctx.incarnation) and not before.reported:
        return Refused("Conflict", f"what {name} holds of {tenant} is not known here before it has told this restored plane")
    refused = _refuse_forgotten(ctx, new, old, before, after)
    if refused is not None:
        return refused
    limits = limits_now(tenant, quotas, ctx.overrides, regions, ctx.now_ms).limits
    over = escrow.excess(limits, accounts, name, after, ctx.now_ms)
    if not over:
        return None
    told = ", ".join(f"{amount} {each} of {limits.get(each, 0)}" for each, amount in over.items())
    detail = f"all regions together could use {told} of tenant {tenant}: {_HOW}, or wait until others have given up"
    return Refused("GrantExceeded", detail, {"exposed": over, "limits": {each: limits.get(each, 0) for each in over}})


def refuse_grant_delete(ctx: Context, caller: Caller, old: Grant) -> Refused | None:
    """With its Grant the global plane would forget what a region may use."""
    tenant, name = old.metadata.namespace, old.metadata.name
    if ctx.settings.plane == REGION:
        return _refuse_by_hand(ctx, caller, tenant, old) if MIRRORED_UID in old.metadata.annotations else None
    region = _regions(ctx).get(name)
    if region is None or not ctx.state.count("quotas", tenant):
        return None
    account = account_in(region, old, ctx.incarnation, _floor_ms(ctx, name, old))
    if account.reported and not any(escrow.exposure(account, ctx.now_ms).values()):
        return None
    detail = f"{name} may still use what {tenant} was granted there: {_HOW}; to write a lost region off, delete its Region"
    return Refused("InUse", detail, {"region": name})


def refuse_leasing(ctx: Context, new: GrantTerm, old: GrantTerm | None) -> Refused | None:
    """An answer leases no offer beside which there is a newer one by now: what that gives to others was counted without it."""
    spec, region = new.spec, new.metadata.name
    if not spec.lease_seconds or (old is not None and old.spec.answered == spec.answered):
        return None
    for tenant in ctx.state.tenants_of("grants"):
        grant: Grant | None = ctx.state.hot("grants", tenant, region)
        if grant is None or not grant.spec.lease_seconds:
            continue
        least = floor_of(grant, ctx.incarnation, spec.asker, 0)
        if spec.floors.get(tenant, 0) < least:
            detail = f"{region} was offered version {least} for {tenant}, and this answer leases older ones"
            return Refused("Conflict", detail, {"tenant": tenant, "version": least})
    return None


def _refuse_by_hand(ctx: Context, caller: Caller, tenant: str, old: Grant | None) -> Refused | None:
    """In a region's plane. One that was never led from elsewhere has no GrantTerm, and its grants are its operators' own."""
    led = ctx.state.get("grantterms", "", ctx.settings.region) is not None or (old is not None and old.spec.lease_seconds > 0)
    if not led or caller.role in (Role.MIRROR, Role.AUTHORITY):
        return None
    detail = (
        f"what {tenant} may use in {ctx.settings.region} is the global plane's to say, and is copied from there: {_HOW} there"
    )
    return Refused("NotOwner", detail)


def _refuse_unknown(new: Grant) -> Refused | None:
    """What nobody counts now would count when such a region appears."""
    spec, name = new.spec, new.metadata.name
    if not any(spec.during.amounts().values()):
        return None
    detail = f"there is no Region {name} that could use of the quota of {new.metadata.namespace}"
    return Refused("NotFound", detail, {MISSING: key("regions", "", name)})


def _refuse_forgotten(ctx: Context, new: Grant, old: Grant | None, before: Account, after: Account) -> Refused | None:
    """An offer frees nothing by being replaced: the region may stand on the one before until it has taken the new one, or until
    its lease has ended."""
    if old is None:
        return None
    term: GrantTerm | None = ctx.state.hot("grantterms", "", old.metadata.name)
    leased_ms = millis(term.spec.until_time) if old.spec.lease_seconds and term is not None else None
    stands_on = old.status.accepted_version if old.status.accepted_version <= old.spec.version else 0
    lost = escrow.forgotten(escrow.stands_on(before, stands_on), after, leased_ms)
    if lost is None:
        return None
    detail = f"{new.metadata.name} may still stand on version {lost.version}, which spec.offers leaves out: {_HOW}"
    return Refused("Conflict", detail, {"version": lost.version})


def _is_told(ctx: Context, new: Grant, old: Grant | None) -> bool:
    """A restored plane writes down what a region told it that it holds: nobody is offered anything by that."""
    if old is None or old.status.heard != ctx.incarnation or ctx.incarnation <= 1:
        return False
    return new.spec == told_spec(old, ctx.incarnation, new.spec.lease_seconds)


def _regions(ctx: Context) -> dict[str, Region]:
    return {rec.name: rec.hot for rec in ctx.state.live("regions") if rec.hot.metadata.deletion_time is None}


def _floor_ms(ctx: Context, region: str, grant: Grant) -> int:
    """No lease of a region counts as ended before: plane time may have begun with a wall clock (ADR 0034)."""
    term: GrantTerm | None = ctx.state.hot("grantterms", "", region)
    return ctx.leader_since_ms + honoured_ms(longest_s(term, grant.spec.lease_seconds or LEASE_S))
