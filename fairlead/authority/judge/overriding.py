"""What an override means to a judge: what it keeps from being bound, and which overrides are taken at all.

Owns no list of overrides (Context has it) and no rule of which is in force (decide/overrides.py). Called by the other judges.
"""

from __future__ import annotations

from fairlead.authority.judge.context import Context
from fairlead.decide.built_in_policy import BUILT_IN
from fairlead.decide.disruption import is_wanted
from fairlead.decide.fit import Need
from fairlead.decide.gates import Gate
from fairlead.decide.overrides import EVERYONE, Avoidance, Where, ends_ms, tenants_of, words
from fairlead.decide.policy import CompiledPolicy
from fairlead.decide.regional import MIRROR_UP, ORDERED_IN, ORDERED_UID, fault_of, is_named_for, is_record, is_true_record
from fairlead.model.commands import Caller, Fault, Refused
from fairlead.model.kinds.policy import Override
from fairlead.model.kinds.work import Binding
from fairlead.model.lifecycle import Role
from fairlead.model.registry import REGION


def refuse_held(ctx: Context, tenant: str, workload: str) -> Refused | None:
    """Nothing new is bound for the scope of a hold."""
    if not ctx.overrides.has("hold"):  # as nearly always; this is asked at every bind
        return None
    held = ctx.overrides.found("hold", ctx.now_ms, Where(tenant, workload, ctx.settings.region))
    if held is None:
        return None
    facts = {"override": f"{held.metadata.namespace}/{held.metadata.name}", "untilMs": ends_ms(held)}
    return Refused("OnHold", f"{tenant}/{workload}: {words(held)}", facts)


def refuse_frozen(ctx: Context, binding: Binding) -> Refused | None:
    """What is wanted stays where it is while a freeze holds; what is not may go. Claims by a higher rank are the policy's."""
    if not ctx.overrides.has("freeze"):
        return None
    tenant, slot = binding.metadata.namespace, binding.spec.slot
    frozen = ctx.overrides.found("freeze", ctx.now_ms, Where(tenant, slot.workload, ctx.settings.region))
    if frozen is None:
        return None
    rec = ctx.state.get("assignments", tenant, f"{slot.workload}.{ctx.settings.region}")
    if not is_wanted(rec.decode() if rec is not None else None, slot.index):
        return None
    facts = {"override": f"{frozen.metadata.namespace}/{frozen.metadata.name}", "untilMs": ends_ms(frozen)}
    return Refused("Frozen", f"{tenant}/{binding.metadata.name}: {words(frozen)}", facts)


def avoidances(need: Need) -> tuple[Gate, ...]:
    """Of the need's own gates those that an override made: they hold for a place that is reserved already, too."""
    return tuple(gate for gate in need.extra if isinstance(gate, Avoidance))  # type: ignore[misc]  # of a gate's shape


def refuse_override(ctx: Context, caller: Caller, new: Override, old: Override | None) -> Refused | None:
    """What only the plane can tell: the policy's longest TTL, and whether its time is over. A copy was judged at home."""
    if caller.role is Role.MIRROR:
        return None
    if old is not None and new.spec == old.spec:
        return None
    regional = _refuse_regional(ctx, new, old)
    if regional is not None:
        return regional
    if old is not None and ctx.now_ms >= ends_ms(old):
        return Refused("Expired", f"override {new.metadata.name} has ended; ask for another", {"endedMs": ends_ms(old)})
    limit = min(_ttl_max(ctx, tenant) for tenant in (new.metadata.namespace, *tenants_of(new)) if tenant != EVERYONE)
    if new.spec.ttl_seconds <= limit:
        return None
    fault = Fault("spec.ttlSeconds", f"the policy in force allows {limit}, got {new.spec.ttl_seconds}")
    return Refused("Invalid", f"override {new.metadata.name}: {fault.path}: {fault.message}", faults=(fault,))


def _refuse_regional(ctx: Context, new: Override, old: Override | None) -> Refused | None:
    """What is ordered in one region holds there alone, and lifts nothing; its record is for nobody to change."""
    where = (old or new).metadata.annotations.get(ORDERED_IN)
    if where is not None:
        return Refused("NotOwner", f"override {new.metadata.name} was ordered in {where}: it is changed there")
    region = ctx.settings.region
    if ctx.settings.plane != REGION:
        fault = _regional_name(ctx, new) if old is None else None
    else:
        alone = ctx.state.get("grantterms", "", region) is None
        fault = fault_of(new, region) if not alone else None
    if fault is None:
        return None
    return Refused("Invalid", f"override {new.metadata.name}: {fault.path}: {fault.message}", faults=(fault,))


def _regional_name(ctx: Context, new: Override) -> Fault | None:
    """A region that is cut off may give such a name at any moment. Where both had it, the region's would not be told of here, and
    this one would not reach the region."""
    regions = (rec.name for rec in ctx.state.live("regions"))
    found = min((name for name in regions if is_named_for(new.metadata.name, name)), default=None)
    if found is None:
        return None
    return Fault("metadata.name", f"names that begin with {found}- are for what is ordered in {found} while it is on its own")


def refuse_new_region(ctx: Context, region: str) -> Refused | None:
    """The names that begin with its own become its own: nothing that holds may have one."""
    named = [each for each in ctx.overrides if is_named_for(each.metadata.name, region) and not is_record(each)]
    held = [each for each in named if each.metadata.deletion_time is None and ctx.now_ms < ends_ms(each)]
    if not held:
        return None
    first = min(held, key=lambda each: (each.metadata.namespace, each.metadata.name))
    name = f"{first.metadata.namespace}/{first.metadata.name}"
    detail = f"override {name} has a name that only {region} may give: revoke it first, or wait for its end"
    return Refused("InUse", detail, {"override": name, "untilMs": ends_ms(first)})


def refuse_record(caller: Caller, new: Override, old: Override | None) -> Refused | None:
    """A region's mirror tells the global plane of what was ordered there, and of nothing else."""
    region = new.metadata.annotations.get(ORDERED_IN, "")
    marks = [
        [each.metadata.annotations.get(name) for name in (ORDERED_IN, ORDERED_UID)] for each in (old, new) if each is not None
    ]
    same = marks[0] == marks[-1]
    if same and caller.lease == f"{MIRROR_UP}{region}" and is_true_record(new, region):
        return None
    return Refused("NotOwner", f"a mirror may say what was ordered in its own region; {new.metadata.name} is not that")


def _ttl_max(ctx: Context, tenant: str) -> int:
    policy = ctx.policies.compiled(ctx.policy_in_force(tenant)[0])
    return policy.spec.max_override_ttl_seconds if isinstance(policy, CompiledPolicy) else BUILT_IN.max_override_ttl_seconds


def refuse_override_delete(ctx: Context, old: Override) -> Refused | None:
    """Its controller removes what has ended; to end one is for people."""
    if ctx.now_ms >= ends_ms(old):
        return None
    return Refused("InUse", f"override {old.metadata.name} holds until {ends_ms(old)}", {"untilMs": ends_ms(old)})
