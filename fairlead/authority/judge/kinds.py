"""Rules that only the authority can judge, because they need the plane's other objects: per kind, on put and on delete."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from fairlead.authority.hot import BindingHot
from fairlead.authority.judge.apart import count_ended
from fairlead.authority.judge.context import Context, Effect, drop
from fairlead.authority.judge.epochs import refuse_begun_before, refuse_done, refuse_forgotten, refuse_former
from fairlead.authority.judge.offers import refuse_grant, refuse_grant_delete, refuse_leasing
from fairlead.authority.judge.overriding import refuse_new_region, refuse_override, refuse_override_delete, refuse_record
from fairlead.authority.judge.pooled import refuse_opened, using
from fairlead.authority.judge.regions import refuse_region_delete, some
from fairlead.authority.judge.steps import refuse_step
from fairlead.authority.state import Rec
from fairlead.decide import escrow
from fairlead.decide.access_agent import others_part
from fairlead.decide.built_in_policy import BUILT_IN
from fairlead.decide.granting import account_of, honoured_ms
from fairlead.decide.policy import CompiledPolicy
from fairlead.model.commands import MISSING, Caller, Refused
from fairlead.model.ids import key
from fairlead.model.kinds.capacity import Grant, Node
from fairlead.model.kinds.intent import Tenant, Workload
from fairlead.model.kinds.work import SchedulingRequest
from fairlead.model.lifecycle import Role, SlotState, may_step
from fairlead.model.meta import Metadata
from fairlead.model.registry import REGION, KindInfo

_DELETERS_OF_FINISHED = frozenset({Role.REPAIR, Role.ASSIGNMENT, Role.JOB, Role.GARBAGE, Role.AUTHORITY})
_FINISHED = frozenset({SlotState.RELEASED, SlotState.SUCCEEDED})
# What people make in a tenant. Left behind, it would be whoever's who gets a tenant of that name later: secrets and tokens, too.
_OF_A_TENANT: Final = (
    "workloads", "autoscalers", "quotas", "recoverybudgets", "overrides", "configs", "secrets", "serviceaccounts", "tokens",
)  # fmt: skip
_PEOPLE: Final = frozenset({Role.USER, Role.OPERATOR, Role.BREAK_GLASS})
_QUEUE_FULL_RETRY_S: Final = 1.0  # a round of the scheduler is over by then


def refuse_put(ctx: Context, caller: Caller, info: KindInfo, new: Any, old: Any) -> Refused | None:
    if caller.role is Role.MIRROR and ctx.settings.plane != REGION:
        if info.plural == "overrides":
            return refuse_record(caller, new, old)
        if old is None or new.spec != old.spec or _says_otherwise(new.metadata, old.metadata):
            return _refuse_mirror()
    match info.plural:
        case "schedulingrequests":
            return _refuse_request(ctx, caller, new, old)
        case "nodes":
            return _refuse_node(ctx, caller, new, old)
        case "schedulerpolicies":
            return ctx.policies.refuse_policy(new)
        case "policychannels":
            older = ctx.policies.refuse_older(new.metadata, old.metadata if old is not None else None)
            return older or ctx.policies.refuse_channel(new)
        case "regions" if old is None and ctx.settings.plane != REGION:
            return refuse_new_region(ctx, new.metadata.name)
        case "regions":
            return ctx.policies.refuse_older(new.metadata, old.metadata if old is not None else None)
        case "grants":
            return refuse_grant(ctx, caller, new, old)
        case "grantterms" if ctx.settings.plane != REGION:
            return ctx.policies.refuse_answer(new, old, ctx.incarnation) or refuse_leasing(ctx, new, old)
        case "overrides":
            return refuse_override(ctx, caller, new, old)
        case "workloads" if caller.role is Role.AUTOSCALER:
            return _refuse_scaling(new, old)
        case "workloads" if ctx.settings.plane != REGION and caller.role in _PEOPLE and old is None:
            return _refuse_tenantless(ctx, new)
        case _:
            return None


def _refuse_scaling(new: Workload, old: Workload | None) -> Refused | None:
    """An autoscaler sets the number of replicas, and nothing else of a workload."""
    if old is not None and replace(new.spec, replicas=old.spec.replicas) == old.spec:
        return None
    return Refused("NotOwner", f"of {new.metadata.name} an autoscaler may set the replicas, and nothing else")


def _refuse_tenantless(ctx: Context, new: Workload) -> Refused | None:
    """Nobody would ever grant it anything; a name that was mistyped should be told at once. What is there already stays anybody's
    to change and to end."""
    tenant = new.metadata.namespace
    if ctx.state.get("tenants", "", tenant) is not None:
        return None
    detail = f"the tenant of workload {new.metadata.name} must be there first: create Tenant {tenant}, or name another with -n"
    return Refused("NotFound", detail, {MISSING: key("tenants", "", tenant)})


def _says_otherwise(new: Metadata, old: Metadata) -> bool:
    """More than that a finalizer is done with: an annotation of a Region writes it off."""
    kept = (old.labels, old.annotations, old.owner_references)
    return (new.labels, new.annotations, new.owner_references) != kept


def _refuse_mirror() -> Refused:
    return Refused("NotOwner", "a mirror copies what the global plane says into a region's, never the other way")


def side_effects_of_put(ctx: Context, caller: Caller, info: KindInfo, new: Any) -> list[Effect]:
    """Released -> Pending: the new request takes the place of the old life's binding."""
    if info.plural != "schedulingrequests":
        return []
    name, tenant = new.metadata.name, new.metadata.namespace
    gone = [drop(plural, tenant, name) for plural in ("bindings", "instances") if ctx.state.get(plural, tenant, name) is not None]
    return gone + count_ended(ctx, tenant, name) if gone else gone


def _refuse_request(ctx: Context, caller: Caller, new: SchedulingRequest, old: SchedulingRequest | None) -> Refused | None:
    """new -> Pending is the assignment controller's; Released -> Pending (epoch + 1) is repair's."""
    if ctx.state.get("grants", new.metadata.namespace, ctx.settings.region) is None:
        return Refused("NoGrant", f"tenant {new.metadata.namespace} has no grant in {ctx.settings.region}")
    slot = new.spec.slot
    owner = ctx.ledger.workload_of(slot.uid)
    if owner is not None and owner != (new.metadata.namespace, slot.workload):
        detail = f"workload uid {slot.uid} belongs to {owner[0]}/{owner[1]}, not to {new.metadata.namespace}/{slot.workload}"
        return Refused("Conflict", detail, {"tenant": owner[0], "workload": owner[1]})
    if old is not None:
        return _refuse_newer_request(new, old)
    rec = ctx.state.get("bindings", new.metadata.namespace, new.metadata.name)
    if rec is None:
        if caller.role is not (Role.RECOVERY if new.spec.standing else Role.ASSIGNMENT):
            return refuse_step(caller, None, SlotState.PENDING)
        if new.spec.standing and ctx.state.get("reservations", new.metadata.namespace, new.metadata.name) is not None:
            return Refused("AlreadyBound", f"{new.metadata.name} is held already")
        return refuse_former(ctx, new) or refuse_begun_before(ctx, new) or _refuse_queue(ctx, new)
    hot: BindingHot = rec.hot
    if hot.state is not SlotState.RELEASED:
        facts = {"state": hot.state.value, "node": hot.node, "token": hot.token}
        return Refused("AlreadyBound", f"{new.metadata.name} is {hot.state.value} on {hot.node}", facts)
    if not may_step(SlotState.RELEASED, SlotState.PENDING, caller.role):
        return refuse_step(caller, SlotState.RELEASED, SlotState.PENDING)
    if new.spec.epoch != hot.token.epoch + 1:
        wanted = hot.token.epoch + 1
        return Refused("StaleEpoch", f"the next life of {new.metadata.name} has epoch {wanted}", {"epoch": wanted})
    return refuse_former(ctx, new) or refuse_done(ctx, new)


def _refuse_queue(ctx: Context, new: SchedulingRequest) -> Refused | None:
    """A burst waits with its sender, not in everybody's queue. A slot that comes back by repair was let in before; what a
    recovery budget is to hold, or stands in for a lost region, is as many as an operator said, and is no burst."""
    if new.spec.budget_name:
        return None
    tenant: Tenant | None = ctx.state.hot("tenants", "", new.metadata.namespace)
    policy = ctx.policies.compiled(ctx.policy_in_force(new.metadata.namespace)[0])
    own = tenant.spec.max_pending if tenant is not None else 0
    limit = policy.max_pending(own) if isinstance(policy, CompiledPolicy) else own or BUILT_IN.max_pending_per_tenant
    queued = ctx.state.count("schedulingrequests", new.metadata.namespace)
    if queued < limit:
        return None
    detail = f"tenant {new.metadata.namespace} has {queued} requests in the queue, at most {limit}"
    return Refused("QueueFull", detail, {"queued": queued, "limit": limit}, retry_after_s=_QUEUE_FULL_RETRY_S)


def _refuse_newer_request(new: SchedulingRequest, old: SchedulingRequest) -> Refused | None:
    """A request is replaced only to carry a newer generation to a slot that still waits."""
    if new.spec.epoch != old.spec.epoch or new.spec.generation < old.spec.generation:
        facts = {"epoch": old.spec.epoch, "generation": old.spec.generation}
        return Refused("StaleEpoch", f"{new.metadata.name} waits at epoch {old.spec.epoch} already", facts)
    if old.status.state is not SlotState.PENDING and new.spec != old.spec:
        return Refused("NotPending", f"{new.metadata.name} is {old.status.state.value}", {"state": old.status.state.value})
    return None


def _refuse_node(ctx: Context, caller: Caller, new: Node, old: Node | None) -> Refused | None:
    refused = refuse_opened(ctx, new, old)
    if refused is not None:
        return refused
    if caller.role is Role.AUTOSCALER and (
        old is None or replace(new.spec, unschedulable=old.spec.unschedulable, drain=old.spec.drain) != old.spec
    ):
        return Refused("NotOwner", f"of {new.metadata.name} an autoscaler may say that it takes nothing new, or is drained")
    if caller.role is not Role.AGENT:
        return None
    if caller.node != new.metadata.name:
        return Refused("WrongNode", f"{caller.actor} speaks for {caller.node or 'no node'}, not for {new.metadata.name}")
    if new.spec.region != ctx.settings.region:
        return Refused("WrongNode", f"this plane is {ctx.settings.region}; the node says {new.spec.region!r}")
    why = others_part(new, old) if old is not None else ""
    return Refused("NotOwner", f"{new.metadata.name}: {why}") if why else None


def refuse_delete(ctx: Context, caller: Caller, info: KindInfo, rec: Rec, old: Any) -> Refused | None:
    if caller.role is Role.MIRROR and ctx.settings.plane != REGION:
        return _refuse_mirror()
    match info.plural:
        case "bindings":
            return _refuse_binding_delete(caller, rec) or refuse_forgotten(ctx, rec)
        case "nodes":
            return _refuse_node_delete(ctx, caller, rec)
        case "tenants":
            return _refuse_tenant_delete(ctx, rec)
        case "overrides" if caller.role is Role.OVERRIDE:
            return refuse_override_delete(ctx, old)
        case "instances" if caller.role is Role.REPAIR and ctx.state.get("bindings", rec.tenant, rec.name) is None:
            return None  # nobody else's command ends it
        case "leases" | "planes" | "reservations" | "instances":
            return Refused("NotOwner", f"{info.kind} objects end by commands of their own")
    if caller.role not in info.spec_owners and caller.role not in (Role.GARBAGE, Role.AUTHORITY):
        owners = ", ".join(sorted(role.value for role in info.spec_owners))
        return Refused("NotOwner", f"a {info.kind} belongs to {owners}, not to {caller.role.value}")
    if info.plural == "regions":
        return refuse_region_delete(ctx, rec, old)
    if info.plural == "quotas":
        return _refuse_quota_delete(ctx, rec)
    if info.plural == "grants":
        return refuse_grant_delete(ctx, caller, old)
    if info.plural == "nodepools":
        return _refuse_pool_delete(ctx, rec)
    return ctx.policies.refuse_policy_delete(rec) if info.plural == "schedulerpolicies" else None


def _refuse_binding_delete(caller: Caller, rec: Rec) -> Refused | None:
    if caller.role not in _DELETERS_OF_FINISHED:
        return Refused("NotOwner", f"bindings are removed by controllers once released, not by {caller.role.value}")
    state: SlotState = rec.hot.state
    if state not in _FINISHED:
        return Refused("InUse", f"{rec.key} is {state.value}", {"state": state.value})
    return None


def _refuse_node_delete(ctx: Context, caller: Caller, rec: Rec) -> Refused | None:
    if caller.role not in (Role.OPERATOR, Role.BREAK_GLASS, Role.AUTOSCALER):
        return Refused("NotOwner", f"nodes are deregistered by operators, not by {caller.role.value}")
    there = using(ctx, rec.name)
    if there:
        facts = {"count": len(there), "first": there[:10]}
        return Refused("InUse", f"{rec.name} still carries {len(there)} slots; drain it first", facts)
    return None


def _refuse_tenant_delete(ctx: Context, rec: Rec) -> Refused | None:
    """Nothing goes with it: whoever deletes the wrong one is told so. A region's copy goes when nothing is charged there."""
    used = {name: n for name, n in ctx.ledger.tenant(rec.name).used.items() if n}
    if used:
        return Refused("InUse", f"tenant {rec.name} is still charged", {"used": used})
    if ctx.settings.plane == REGION:
        return None
    left = {plural: names for plural in _OF_A_TENANT if (names := sorted(r.name for r in ctx.state.live(plural, rec.name)))}
    if not left:
        return None
    told = "; ".join(f"{len(names)} {plural} ({some(names)})" for plural, names in left.items())
    return Refused(
        "InUse", f"tenant {rec.name} still has {told}: delete them first", {"left": {p: len(n) for p, n in left.items()}}
    )


def _refuse_quota_delete(ctx: Context, rec: Rec) -> Refused | None:
    """Nobody would take back what was granted on its strength."""
    if ctx.state.count("quotas", rec.tenant) > 1:
        return None
    granted = sorted(grant.name for grant in ctx.state.live("grants", rec.tenant) if _grants_something(ctx, grant.hot))
    if granted:
        detail = f"{', '.join(granted)} may still use what it grants: lower its limits to nothing first"
        return Refused("InUse", detail, {"regions": granted})
    return None


def _refuse_pool_delete(ctx: Context, rec: Rec) -> Refused | None:
    """Without it nodes that were some tenants' own would be everybody's, and nobody would stop those it has ordered."""
    inside = {node.name for node in ctx.state.live("nodes") if node.hot.spec.pool == rec.name}
    inside.update(rec.hot.status.ordered)  # also those that have not registered yet
    if not inside:
        return None
    how = "set its minNodes and maxNodes to 0" if rec.hot.status.ordered else "drain and deregister them"
    facts = {"count": len(inside), "first": sorted(inside)[:10]}
    return Refused("InUse", f"{len(inside)} nodes are in pool {rec.name}: {how} first", facts)


def _grants_something(ctx: Context, grant: Grant) -> bool:
    """One that was made by hand stands by itself. What a region that stands on a newer offer was offered before is history; in
    restored books what it may use is not known before it has spoken."""
    lease_s = grant.spec.lease_seconds
    account = account_of(grant, ctx.incarnation, ctx.leader_since_ms + honoured_ms(lease_s))
    return lease_s > 0 and (not account.reported or any(escrow.exposure(account, ctx.now_ms).values()))
