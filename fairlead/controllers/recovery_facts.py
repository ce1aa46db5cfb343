"""What the recovery controller reads: which workloads it is about, where rooms are, who stands in for whom.

Decides nothing: that is fairlead/decide/recovery.py's. Called by recovery.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fairlead.controllers.cache import Cache, Item
from fairlead.controllers.given import is_over
from fairlead.controllers.policies import PoliciesInForce
from fairlead.decide.admission.workload import is_alone, not_recovered
from fairlead.decide.assigning import own_slots
from fairlead.decide.claimable import room_rules
from fairlead.decide.overrides import Where, concerns, words
from fairlead.decide.policy import CompiledPolicy
from fairlead.decide.recovery import Place, Rooms, Service
from fairlead.decide.slot_lease import lease_of
from fairlead.decide.succession import Alone, blocks_of, gone, homes_of
from fairlead.model.kinds.capacity import HeldShape, Holding
from fairlead.model.kinds.intent import Placement, Workload, WorkloadSpec
from fairlead.model.kinds.ledger import LeaseSpec
from fairlead.model.kinds.policy import Override
from fairlead.model.kinds.recovery import RecoveryOrder
from fairlead.model.kinds.work import Assignment
from fairlead.model.resources import Resources


def recovers(workload: Workload) -> bool:
    """It names a minimum, is to run, and may be ordered in another region."""
    return _wants(workload) and not_recovered(workload.spec) is None


def stays(workload: Workload) -> bool:
    """It names a minimum, is to run, and nothing of it is ordered in another region."""
    return _wants(workload) and not_recovered(workload.spec) is not None


def _wants(workload: Workload) -> bool:
    spec = workload.spec
    return spec.recovery.min_serving > 0 and not spec.suspend and workload.metadata.deletion_time is None


def staying(cache: Cache, policies: PoliciesInForce) -> list[Service]:
    """Workloads that name a minimum and are not recovered, as far as outlooks ask: with the reason. A job that has ended has
    nothing to lose."""
    out = []
    for item in cache.by("workloads", "stays", True):
        workload: Workload = item.hot
        spec, policy, found = workload.spec, policies.of(cache, item.tenant), not_recovered(workload.spec)
        assert found is not None, f"{item.key} is recovered, and stays"
        assignments: list[Assignment] = [each.hot for each in cache.by("assignments", "workload", item.key)]
        mine = [each for each in assignments if not is_over(each)]
        service = Service(
            key=item.key,
            priority=policy.priority_of(spec.workload_class, spec.priority_class_name) or 0,
            minimum=spec.recovery.min_serving,
            shape=spec.resources.requests,
            budget="",
            regions=(),
            slots={a.spec.region: own_slots(a.spec) for a in mine},
            alive={a.spec.region: a.status.replicas.serving for a in mine},
            ordered={},
            policy_revision=policy.revision,
            stays=found.why,
        )
        out.append(service)
    return out


def with_orders(cache: Cache) -> list[Item]:
    """Services that recover, and those for whose slots others stand in still: these leave first, whatever was changed."""
    found = {item.key: item for item in cache.by("workloads", "recovers", True)}
    for order in cache.all("recoveryorders"):
        item = cache.item("workloads", *order.key)
        if item is not None and order.hot.spec.stand_ins and order.hot.spec.workload_uid == item.hot.metadata.uid:
            found.setdefault(item.key, item)
    return list(found.values())


def slot_leases_in(cache: Cache) -> dict[str, LeaseSpec]:
    found = {item.name: cache.get("leases", "", lease_of(item.name)) for item in cache.all("regions")}
    return {region: lease.spec for region, lease in found.items() if lease is not None}


def as_alone(
    service: Service, workload: Workload, mine: list[Assignment], order: RecoveryOrder | None, taken: Mapping[str, int]
) -> Service:  # fmt: skip
    """Where its slots are exclusive everywhere: who stands in for them."""
    if not is_alone(workload.spec):
        return service
    stand_ins = order.spec.stand_ins if order is not None else ()
    ordered: dict[str, int] = {}
    for one in stand_ins:
        ordered[one.region] = ordered.get(one.region, 0) + 1
    alone = Alone(
        workload=service.key[1],
        homes={a.spec.region: homes_of(a.spec) for a in mine},
        stand_ins=stand_ins,
        taken=taken,
        gone=gone(order, {a.spec.region: a for a in mine}) if order is not None else frozenset(),
        blocks=blocks_of(mine),
        wanted=recovers(workload),
    )
    return service._replace(alone=alone, ordered=ordered)


def as_placed(service: Service, placement: Placement, avoiding: Iterable[Override]) -> Service:
    """With what its placement, and zones that it alone is to avoid, say about rooms. Those that all of its tenant's work is to
    avoid are no rooms to begin with: their region counts them out."""
    rules = room_rules(placement)
    unsure = dict.fromkeys(service.regions, rules.why) if rules.why else {}
    for each in avoiding:
        for region in service.regions if each.spec.scope.workloads else ():
            if concerns(each, Where(*service.key, region, next(iter(each.spec.scope.zones), ""))):
                unsure[region] = f"it is to avoid zones there: {words(each)}"
    return service._replace(per_node=rules.per_node, zone_skew=rules.zone_skew, unsure=unsure)


def as_known(service: Service, spec: WorkloadSpec, policy: CompiledPolicy) -> Service:
    """While the policy in force knows its class no more, nothing new is given to any region: what is ordered waits."""
    if policy.priority_of(spec.workload_class, spec.priority_class_name) is not None:
        return service
    why = f"the policy in force knows no class {spec.priority_class_name or spec.workload_class!r}"
    return service._replace(unsure=dict.fromkeys(service.regions, why))


def rooms_in(cache: Cache) -> Rooms:
    """What may be claimed, as the regions say: rooms on nodes that take work."""
    out: dict[Place, dict[Resources, int]] = {}
    where: dict[Place, dict[Resources, HeldShape]] = {}
    claimed: dict[Place, int] = {}
    for item in cache.all("holdings"):
        holding: Holding = item.hot
        place = (f"{item.tenant}/{holding.spec.budget}", holding.spec.region)
        shapes, most = out.setdefault(place, {}), where.setdefault(place, {})
        for shape in holding.status.shapes:
            shapes[shape.requests] = shapes.get(shape.requests, 0) + shape.held
            # Two of one size are two blocks, and may share nodes: the larger speaks for both.
            most[shape.requests] = max(most.get(shape.requests, shape), shape, key=lambda one: one.held)
            claimed[place] = claimed.get(place, 0) + shape.claimed
    nodes = {place: {size: one.nodes for size, one in most.items()} for place, most in where.items()}
    return Rooms(out, claimed, nodes, {place: {size: one.zones for size, one in most.items()} for place, most in where.items()})
