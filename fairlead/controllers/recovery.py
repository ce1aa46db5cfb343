"""Brings critical services back when a region is lost: orders new slots for them in healthy regions, against recovery budgets,
and lets them go once the services are well without. Says for every region what would be if it died now.

Decides for all services together (fairlead/decide/recovery.py), because they share budgets. Writes RecoveryOrders; the slots
themselves are the workload controller's to assign and the regions' to place. Runs in the global plane.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from fairlead.controllers.cache import Cache, Indexes, Item, Name, workload_in_spec
from fairlead.controllers.contract import Result, View
from fairlead.controllers.no_place import NoPlace
from fairlead.controllers.policies import PoliciesInForce
from fairlead.controllers.recovery_facts import (
    as_alone,
    as_known,
    as_placed,
    recovers,
    rooms_in,
    slot_leases_in,
    staying,
    stays,
    with_orders,
)
from fairlead.controllers.regions_seen import regions_seen
from fairlead.decide.assigning import RegionFacts, may_carry, own_slots
from fairlead.decide.folding import owner_of
from fairlead.decide.outlooks import Pace, outlook, spec_of, status_of
from fairlead.decide.overrides import Where, all_in_force, concerns
from fairlead.decide.plugins import BUILT_INS, Registry
from fairlead.decide.recovery import (
    TURN,
    Plan,
    Regions,
    Rooms,
    Service,
    ServiceKey,
    plan,
)
from fairlead.decide.slot_lease import TTL_S, free_ms, is_slot_lease, lease_of, left_behind, taken_from
from fairlead.decide.slots import instant
from fairlead.decide.succession import may_give_back
from fairlead.decide.turns import is_changing
from fairlead.model.commands import Body, Delete, LeaseAcquire, LeaseRelease, Put, PutStatus
from fairlead.model.kinds.capacity import BudgetInRegion, Holding, HoldingSpec, RecoveryBudget
from fairlead.model.kinds.intent import Workload
from fairlead.model.kinds.ledger import LeaseSpec
from fairlead.model.kinds.policy import Override
from fairlead.model.kinds.recovery import RecoveryOrder, RecoveryOrderSpec, RegionOutlook, RegionOutlookSpec
from fairlead.model.kinds.work import Assignment
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata

_ALL: Final[Name] = ("", "all")  # services share budgets: they are decided together
# Whoever has not looked for so long knows nothing of what has lasted. A lease that is lost for a moment is no such time.
UNSEEN_MS: Final = 60_000


class RecoveryRules(msgspec.Struct, frozen=True):
    look_ms: int = 1000  # between two looks, when nothing urgent happened
    outlook_ms: int = 5000
    failback_s: float = 60.0  # a region must have been healthy for so long before what stands in for it may go
    failing_s: float = 60.0  # a region that has had no place for a service's slots for so long counts as lost for it
    # While several regions are silent: 400 services of four slots each are all ordered within 32 s.
    slots_per_s: int = 50
    pace: Pace = Pace(detect_s=18.0, bind_s=1.0, start_s=5.0)


class RecoveryController:
    name = "recovery"
    follows = (
        "regions", "workloads", "assignments", "recoverybudgets", "holdings", "recoveryorders", "regionoutlooks", "grants",
        "schedulerpolicies", "policychannels", "overrides", "leases",
    )  # fmt: skip
    by_spec = ("grants",)  # it asks whether there is one
    follows_other: tuple[str, ...] = ()
    indexes: Indexes = {
        "workloads": {"recovers": lambda item: recovers(item.hot) or None, "stays": lambda item: stays(item.hot) or None},
        "assignments": {"workload": workload_in_spec},
    }
    indexes_other: Indexes = {}
    hears = False
    for_many = True  # services and regions

    def __init__(self, rules: RecoveryRules | None = None, registry: Registry = BUILT_INS) -> None:
        self._rules = rules or RecoveryRules()
        self._policies = PoliciesInForce(registry)
        self._begin()

    def _begin(self) -> None:
        """With nothing seen yet."""
        self._urgent = True
        self._looked_ms = 0
        self._told_ms = 0
        self._no_place = NoPlace(self._rules.failing_s)
        self._given_up_ms: dict[tuple[str, str], int] = {}  # workload uid, region: when it was given up last, and lacked some
        self._ration = float(self._rules.slots_per_s)  # slots that may be ordered now while several regions are silent

    def keys(self, view: View, item: Item, other: bool) -> Iterable[Name]:
        match item.plural:
            case "workloads":
                return (_ALL,) if _is_asked(item) else ()
            case "assignments":
                found = view.cache.item("workloads", *workload_in_spec(item))
                return (_ALL,) if found is not None and _is_asked(found) else ()
            case "leases":  # a region renews its own all the time; whether it has run out is asked for in any case
                own = is_slot_lease(item.name) and item.hot.spec.role == Role.RECOVERY.value
                return (_ALL,) if own else ()
            case "schedulerpolicies" | "policychannels":
                self._policies.forget()
            case "regions" | "overrides":
                self._urgent = True
        return (_ALL,)

    def resync(self, view: View) -> Iterable[Name]:
        return (_ALL,)

    def reconcile(self, key: Name, view: View, now_ms: int) -> Result:
        if not 0 <= now_ms - self._looked_ms <= UNSEEN_MS:  # another decided meanwhile, or plane time went back (a restore)
            self._begin()
        due_ms = self._looked_ms + self._rules.look_ms
        if now_ms < due_ms and not self._urgent:
            return Result((), due_ms)
        cache = view.cache
        regions = regions_seen(cache, self._rules.failback_s, now_ms)
        at_most = self._at_most(cache, regions, now_ms)
        self._urgent, self._looked_ms = False, now_ms
        leases = slot_leases_in(cache)
        services = self._services(cache, regions, taken_from(leases, view.incarnation), now_ms)
        rooms = rooms_in(cache)
        bodies = self._holdings(cache)
        bodies += self._slot_leases(view, leases, regions, services, now_ms)
        planned = plan(services.values(), regions, rooms, at_most)
        self._ration -= _new(services, planned) if at_most is not None else 0
        bodies += self._orders(cache, services, regions, planned, now_ms)
        if now_ms >= self._told_ms + self._rules.outlook_ms:
            self._told_ms = now_ms
            others = staying(cache, self._policies)  # what was changed into one of them, and is stood in for still, is one
            asked = {**services, **{service.key: service for service in others}}
            bodies += self._outlooks(cache, list(asked.values()), regions, rooms, leases, now_ms)
        waits = any(short.why == TURN for short in planned.short.values())
        return Result(bodies, now_ms + (self._rules.look_ms if waits else self._rules.outlook_ms))

    # --- what there is ---------------------------------------------------------------------------------------------------

    def _at_most(self, cache: Cache, regions: Regions, now_ms: int) -> int | None:
        """The breaker (P15): how many new slots this look may order. None where nothing is suspect; when every region is silent,
        it is rather us, and none."""
        per_s = self._rules.slots_per_s
        self._ration = min(per_s, self._ration + per_s * max(0, now_ms - self._looked_ms) / 1000)
        if not regions.suspect:
            self._ration = float(per_s)
            return None
        joined = {item.name for item in cache.all("regions") if item.hot.status.health}
        return int(self._ration) if joined - regions.suspect else 0

    def _services(
        self, cache: Cache, regions: Regions, taken: Mapping[str, int], now_ms: int
    ) -> dict[ServiceKey, Service]:  # fmt: skip
        out = {}
        self._no_place.begin(now_ms)
        before, self._given_up_ms = self._given_up_ms, {}
        ordered = [each.hot for each in cache.all("overrides")]
        avoiding, given_up = (all_in_force(ordered, kind, now_ms) for kind in ("zone-avoidance", "recovery"))
        for item in with_orders(cache):
            workload: Workload = item.hot
            spec, key = workload.spec, item.key
            policy = self._policies.of(cache, item.tenant)
            labels = tuple(sorted(workload.metadata.labels.items()))
            areas = policy.residency_areas(spec.placement.residency, item.tenant, labels)
            facts = {
                each.name: RegionFacts(
                    each.name, frozenset(each.hot.spec.areas), cache.item("grants", item.tenant, each.name) is not None, 0
                )
                for each in cache.all("regions")
            }
            mine: list[Assignment] = [each.hot for each in cache.by("assignments", "workload", key)]
            order: RecoveryOrder | None = cache.get("recoveryorders", *key)
            current = order is not None and order.spec.workload_uid == workload.metadata.uid
            service = Service(
                key=key,
                priority=policy.priority_of(spec.workload_class, spec.priority_class_name) or 0,
                minimum=spec.recovery.min_serving,
                shape=spec.resources.requests,
                budget=f"{item.tenant}/{spec.recovery.budget_name}" if spec.recovery.budget_name else "",
                regions=tuple(may_carry(spec, areas, facts)),
                slots={a.spec.region: own_slots(a.spec) for a in mine},
                alive={a.spec.region: a.status.replicas.serving - a.status.stood_in for a in mine},
                ordered=order.spec.regions if order is not None and current else {},
                stood_in={a.spec.region: a.status.stood_in for a in mine},
                deadline_s=spec.recovery.deadline_seconds,
                changing=frozenset(a.spec.region for a in mine if is_changing(a)),
                policy_revision=policy.revision,
            )
            service = as_known(as_placed(service, spec.placement, avoiding), spec, policy)
            service = self._no_place.seen(service, workload.metadata.uid, mine, regions, now_ms, current)
            given = _given_up(service, given_up)
            restless = self._restless(service, workload.metadata.uid, given, before, now_ms)
            service = service._replace(failing=service.failing | given, restless=restless)
            out[key] = as_alone(service, workload, mine, order if current else None, taken)
        return out

    def _restless(
        self, service: Service, uid: str, given: frozenset[str], before: Mapping[tuple[str, str], int], now_ms: int
    ) -> frozenset[str]:
        """An override that names no region ends with the last slot that comes back, and begins again with the next that fails:
        what stands in would come and go with them."""
        for region in service.slots:
            lacks = region in given and region in _lacking(service)
            since_ms = now_ms if lacks else before.get((uid, region))
            if since_ms is not None and now_ms - since_ms < self._rules.failback_s * 1000:
                self._given_up_ms[uid, region] = since_ms
        return frozenset(region for region in service.slots if (uid, region) in self._given_up_ms)

    # --- what follows ----------------------------------------------------------------------------------------------------

    def _holdings(self, cache: Cache) -> list[Body]:
        """Each region's part of each budget; and what they say of it, added up."""
        out: list[Body] = []
        wanted = set()
        regions = sorted(item.name for item in cache.all("regions"))
        for item in cache.all("recoverybudgets"):
            budget: RecoveryBudget = item.hot
            meta, spec = budget.metadata, budget.spec
            rows = []
            for region in regions if meta.deletion_time is None else ():
                if spec.regions and region not in spec.regions:
                    continue
                key = (item.tenant, f"{item.name}.{region}")
                wanted.add(key)
                part = HoldingSpec(
                    budget=item.name, budget_uid=meta.uid, region=region, shapes=spec.shapes, expiry_time=spec.expiry_time,
                    workload_class=spec.workload_class,
                )  # fmt: skip
                known: Holding | None = cache.get("holdings", *key)
                if known is None or (known.spec != part and known.metadata.deletion_time is None):
                    out.append(Put("Holding", Holding(metadata=Metadata(name=key[1], namespace=key[0]), spec=part)))
                elif known.status.shapes:
                    rows.append(BudgetInRegion(region=region, shapes=known.status.shapes))
            said = msgspec.structs.replace(budget.status, observed_generation=meta.generation, regions=tuple(rows))
            if said != budget.status:
                out.append(PutStatus("RecoveryBudget", *item.key, said, uid=meta.uid))
        gone = [item for item in cache.all("holdings") if item.key not in wanted and item.hot.metadata.deletion_time is None]
        return out + [Delete("Holding", item.tenant, item.name, uid=item.hot.metadata.uid) for item in gone]

    def _slot_leases(
        self, view: View, leases: Mapping[str, LeaseSpec], regions: Regions, services: Mapping[ServiceKey, Service], now_ms: int
    ) -> list[Body]:
        """Takes the slot lease of a lost region once nothing can run there under it; gives it back when the region is there again
        and its assignments name nothing that others stand in for."""
        out: list[Body] = []
        alone = {key: service.alone for key, service in services.items() if service.alone is not None}
        lost = {name for each in alone.values() for name in each.homes} & regions.lost
        for region in sorted(lost | left_behind(leases, view.incarnation)):
            lease = leases.get(region)
            ttl_s = lease.ttl_seconds if lease is not None else TTL_S
            due_ms = free_ms(lease, Role.RECOVERY, ttl_s, view.incarnation, view.since_ms)
            ours = lease is not None and lease.role == Role.RECOVERY.value and lease.incarnation == view.incarnation
            if now_ms >= due_ms and not (ours and lease is not None and lease.holder):
                out.append(LeaseAcquire(lease_of(region), Role.RECOVERY, ttl_s))
        for region, epoch in sorted(taken_from(leases, view.incarnation).items()):
            pairs = [(each.stand_ins, view.cache.get("assignments", key[0], f"{key[1]}.{region}")) for key, each in alone.items()]
            if region in regions.healthy and may_give_back(region, [one for one, _ in pairs], [other for _, other in pairs]):
                out.append(LeaseRelease(lease_of(region), epoch))
        return out

    def _orders(
        self, cache: Cache, services: Mapping[ServiceKey, Service], regions: Regions, found: Plan, now_ms: int
    ) -> list[Body]:
        out: list[Body] = []
        for key in sorted({*found.orders, *found.short}):
            workload: Workload = cache.get("workloads", *key)
            before: RecoveryOrder | None = cache.get("recoveryorders", *key)
            short = found.short.get(key)
            service = services[key]
            gone = sorted(region for region in regions.lost | service.failing if service.slots.get(region))
            since = before.spec.since_time if before is not None else instant(now_ms)
            spec = RecoveryOrderSpec(
                workload=key[1],
                workload_uid=workload.metadata.uid,
                regions=dict(sorted(found.orders.get(key, {}).items())),
                lost=tuple(gone),
                missing=short.missing if short is not None else 0,
                why=short.why if short is not None else "",
                since_time=since,
                stand_ins=found.stand_ins.get(key, ()),
                policy_revision=service.policy_revision,
            )
            if before is None or before.spec != spec:
                meta = Metadata(name=key[1], namespace=key[0], owner_references=(owner_of(workload),))
                out.append(Put("RecoveryOrder", RecoveryOrder(metadata=meta, spec=spec)))
        for item in cache.all("recoveryorders"):
            if item.key not in found.orders and item.key not in found.short:
                out.append(Delete("RecoveryOrder", item.tenant, item.name, uid=item.hot.metadata.uid))
        return out

    def _outlooks(
        self, cache: Cache, services: list[Service], regions: Regions, rooms: Rooms, leases: Mapping[str, LeaseSpec],
        now_ms: int,
    ) -> list[Body]:  # fmt: skip
        out: list[Body] = []
        known: dict[str, RegionOutlook] = {item.name: item.hot for item in cache.all("regionoutlooks")}
        said: dict[str, RegionOutlookSpec] = {}
        there = {item.name for item in cache.all("regions")}
        for region in sorted(there & regions.healthy):
            lease_s = leases[region].ttl_seconds if region in leases else TTL_S
            found = outlook(region, services, regions, rooms, self._rules.pace, lease_s)
            spec = said[region] = spec_of(region, found)
            if region not in known or known[region].spec != spec:
                out.append(Put("RegionOutlook", RegionOutlook(metadata=Metadata(name=region), spec=spec)))
        for region in sorted(known.keys() & there):
            status = status_of(known[region], said.get(region), now_ms)
            if status != known[region].status:
                out.append(PutStatus("RegionOutlook", "", region, status, uid=known[region].metadata.uid))
        return out + [Delete("RegionOutlook", "", name) for name in sorted(known.keys() - there)]


def _is_asked(item: Item) -> bool:
    return recovers(item.hot) or stays(item.hot)


def _new(services: Mapping[ServiceKey, Service], planned: Plan) -> int:
    """How many slots are ordered that were not before."""
    return sum(
        max(0, count - services[key].ordered.get(region, 0))
        for key, regions in planned.orders.items()
        for region, count in regions.items()
    )


def _lacking(service: Service) -> set[str]:
    """Regions in which not all of it serves."""
    return {region for region, own in service.slots.items() if service.alive.get(region, 0) < own}


def _given_up(service: Service, overrides: Sequence[Override]) -> frozenset[str]:
    """Regions that people have given up for this service by overrides of kind recovery, which are in force now: those that one
    names, also for what is to stand in there, else those in which not all of it serves. They end by evaluation, here, whoever
    else is asleep."""
    short = _lacking(service)
    return frozenset(
        region
        for region in (*service.slots, *service.regions)
        for each in overrides
        if (each.spec.scope.regions or region in short) and concerns(each, Where(*service.key, region))
    )
