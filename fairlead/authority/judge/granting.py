"""What the authority says of grants: how much of one is in force, and whether a region may say that it stands on an offer (P13).

An offer is taken on what the ledger says is used at that moment, so that nothing placed meanwhile is forgotten; `used` is the
ledger's as well. A question is stamped with the plane's time when it is asked, before anybody can hear it. Called by placing.py
and objects.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from msgspec.structs import replace

from fairlead.authority.judge.apart import told_above
from fairlead.authority.judge.context import Context, instant
from fairlead.authority.ledger import device_charge
from fairlead.decide.granting import (
    Granted,
    answered,
    ended_early,
    ends_sooner,
    granted,
    is_taken_back,
    next_question,
    outrun,
    resources,
    still_firm,
    stop_ms,
    take,
    tell,
)
from fairlead.decide.grants import shortage
from fairlead.decide.lasting import is_settled, staying
from fairlead.decide.leasing import installed, said, taken
from fairlead.decide.policy import CompiledPolicy
from fairlead.model.commands import Bind, Caller, Refused, Reserve
from fairlead.model.kinds.capacity import Grant, GrantStatus, Reservation
from fairlead.model.kinds.quota import GrantTerm, GrantTermStatus
from fairlead.model.lifecycle import Role
from fairlead.model.registry import REGION, KindInfo
from fairlead.model.resources import DeviceHold, Resources

# Of a term's status: what its region says, and nobody judges by.
_SAID: Final = ("policy", "residency", "conditions", "observed_generation", "merge", "cut_time", "healed_time")


def granted_to(ctx: Context, tenant: str) -> Granted | None:
    """None: there is no grant. Worked out once for all placements of a tenant in a batch; the context forgets it when a grant,
    the term or the time is another."""
    found = ctx.granted.get(tenant)
    if found is None:
        grant: Grant | None = ctx.state.hot("grants", tenant, ctx.settings.region)
        if grant is None:
            return None
        term: GrantTerm | None = ctx.state.hot("grantterms", "", ctx.settings.region)
        found = ctx.granted[tenant] = granted(grant, term, ctx.incarnation, ctx.now_ms)
    return found


def grant_in_force(ctx: Context, body: Reserve | Bind) -> Granted | Refused:
    """No grant means refused; another version than the one in force, too."""
    have = granted_to(ctx, body.tenant)
    if have is None:
        return Refused("NoGrant", f"tenant {body.tenant} has no grant in {ctx.settings.region}")
    version = have.in_force.version
    if body.grant_version != version:
        return Refused("StaleGrant", f"grant version is {version}, not {body.grant_version}", {"grantVersion": version})
    if not have.confirmed:  # asked of what was reserved in lost history, too: its quota may be another region's since
        detail = f"{ctx.settings.region} has taken no offer for {body.tenant} since its history was lost"
        return Refused("GrantExceeded", detail, {"grantVersion": version})
    return have


def refuse_cut_off(ctx: Context, workload_class: str, revision: int) -> Refused | None:
    """A region that is cut off places what its policy allows to be placed then, and holds the rest."""
    policy = ctx.policies.compiled(revision)
    rules = policy.rules_of(workload_class) if isinstance(policy, CompiledPolicy) else None
    if rules is not None and rules.local_autonomy:
        return None
    return Refused("CutOff", f"{ctx.settings.region} has no word from the global plane; {workload_class} work waits for it")


def provisional_until(ctx: Context, body: Bind, ask: Resources, devices: tuple[DeviceHold, ...]) -> datetime | None:
    """By when a slot that is bound now must have stopped, unless the lease goes on: where it is above what stays."""
    have = granted_to(ctx, body.tenant)
    if have is None or not have.leased:
        return None
    charge = ask.amounts() | device_charge(ctx.ledger.nodes[body.node], devices)
    used = _beside_held(ctx, body, charge)
    if not shortage(used, charge, staying(have.grant, ctx.incarnation)):
        return None
    return instant(max(ctx.now_ms, have.in_force.end_ms - stop_ms(have.grant.spec)))


def _beside_held(ctx: Context, body: Bind, charge: Mapping[str, int]) -> Mapping[str, int]:
    """What a tenant uses without what it was charged for this slot already: what it takes of the room that it claims, or what was
    reserved for it."""
    used: Mapping[str, int] = ctx.ledger.tenant(body.tenant).used
    held: Reservation | None = ctx.state.hot("reservations", body.tenant, body.claims or body.name)
    if held is None:
        return used
    had = held.spec.requests.amounts() | device_charge(ctx.ledger.nodes[body.node], held.spec.devices)
    return {name: amount - min(charge.get(name, 0), had.get(name, 0)) for name, amount in used.items()}


def settled_here(ctx: Context, tenant: str) -> bool:
    """Whether all that a tenant uses in this region stays when leases end (P13)."""
    grant: Grant | None = ctx.state.hot("grants", tenant, ctx.settings.region)
    term: GrantTerm | None = ctx.state.hot("grantterms", "", ctx.settings.region)
    return is_settled(grant, term, ctx.incarnation, ctx.ledger.tenant(tenant).used)


def judged_status(ctx: Context, caller: Caller, info: KindInfo, old: Any, status: Any) -> Any | Refused:
    """The status as it will be written; in the global plane it is what the region's mirror says."""
    if ctx.settings.plane != REGION:
        return told_above(ctx, old, status) if info.plural == "grantterms" else status
    if caller.role is not Role.QUOTA:
        return status
    if info.plural == "grants":
        return _grant_status(ctx, old, status)
    return _term_status(ctx, old, status) if info.plural == "grantterms" else status


def _grant_status(ctx: Context, grant: Grant, status: GrantStatus) -> GrantStatus | Refused:
    used = ctx.ledger.tenant(grant.metadata.namespace).used
    term: GrantTerm | None = ctx.state.hot("grantterms", "", ctx.settings.region)
    told, stays = grant.status.told, grant.status.told_after
    if status.heard != grant.status.heard:
        told, stays = tell(grant, term, ctx.incarnation, used, ctx.now_ms)
    status = replace(status, used=resources(used), told=told, told_after=stays, firm=still_firm(grant.status, used))
    claimed = _stand(status)
    if claimed == _stand(grant.status):
        over = is_taken_back(grant, term, ctx.incarnation, used, ctx.now_ms)
        return replace(status, emergency_end_time=ctx.now) if over else status
    if term is not None and outrun(grant, term, ctx.incarnation) and claimed == _stand(ended_early(grant, term)):
        return status
    if term is not None and (sooner := ends_sooner(grant, term)) is not None and claimed == _stand(sooner):
        return status
    offer = take(grant, term, ctx.incarnation, used)
    if isinstance(offer, str):
        return Refused("GrantExceeded", f"offer {grant.spec.version} of {grant.metadata.namespace}: {offer}")
    if claimed != _stand(offer):
        return Refused(
            "Conflict", f"version {status.accepted_version} is not the offer as it is here", {"version": grant.spec.version}
        )
    return replace(status, firm=offer.firm)


def _stand(status: GrantStatus) -> tuple[Any, ...]:
    return (
        status.accepted_version, status.during, status.after, status.emergency, status.emergency_end_time, status.lease_end_time,
        status.incarnation,
    )  # fmt: skip


def _term_status(ctx: Context, term: GrantTerm, status: GrantTermStatus) -> GrantTermStatus | Refused:
    before = term.status
    status = replace(status, ended=before.ended)  # counted here, and by nobody else
    same = _question(status) == _question(before)
    have = installed(ctx.policies.channel_meta, ctx.policies.region_meta)
    if same and status == replace(before, **{name: getattr(status, name) for name in _SAID}):
        return said(status if status.merge == before.merge else replace(status, ended=None), have)
    if same:
        return _taken_term(ctx, term, status)
    unseen = _refuse_unlisted(ctx) if before.incarnation != ctx.incarnation else None
    if unseen is not None:
        return unseen
    asked = next_question(term, ctx.incarnation, ctx.now)
    if _question(status) != _question(asked):
        return Refused("Conflict", f"the next question is {asked.asked}", {"asked": asked.asked})
    return replace(said(asked, have), conditions=status.conditions, observed_generation=status.observed_generation)


def _refuse_unlisted(ctx: Context) -> Refused | None:
    """The first question after history was lost: offers are taken on what the ledger says is used, and nodes may run what it has
    lost. Who is silent for a whole fence is not waited for: as in any history, what is bound elsewhere then counts."""
    if ctx.incarnation <= 1 or ctx.now_ms >= ctx.leader_since_ms + ctx.settings.fence_s * 1000:
        return None
    node = ctx.unlisted.any_well(ctx.incarnation)
    detail = f"{node} has not said what it runs since history was lost"
    return Refused("Conflict", detail, {"node": node}, retry_after_s=0.5) if node else None


def _taken_term(ctx: Context, term: GrantTerm, status: GrantTermStatus) -> GrantTermStatus | Refused:
    if not answered(term, ctx.incarnation):
        return Refused("Conflict", "there is no new answer to the last question")
    for tenant in term.spec.floors:
        grant: Grant | None = ctx.state.hot("grants", tenant, ctx.settings.region)
        if grant is not None and outrun(grant, term, ctx.incarnation):
            return Refused("Conflict", f"the grant of {tenant} was outrun, and its lease must be seen to end first")
    new = taken(term, installed(ctx.policies.channel_meta, ctx.policies.region_meta), ctx.incarnation, ctx.now_ms)
    return replace(new, conditions=status.conditions, observed_generation=status.observed_generation)


def _question(status: GrantTermStatus) -> tuple[int, int]:
    return status.incarnation, status.asked
