"""What the recovery controller tells readiness of a service's placement, and of zones that it alone is to avoid."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.decide.outlooks import READY
from fairlead.decide.slot_lease import lease_of
from fairlead.decide.slots import instant
from fairlead.model.commands import Put, PutStatus
from fairlead.model.kinds.intent import JobRule, Placement, RecoveryRule, SpreadRule
from fairlead.model.kinds.ledger import Lease, LeaseSpec
from fairlead.model.kinds.policy import Override, OverrideScope, OverrideSpec
from fairlead.model.kinds.recovery import RegionOutlook, RegionOutlookSpec, ServiceOutlook
from fairlead.model.kinds.work import SlotRange
from fairlead.model.meta import Condition, Metadata
from tests.controllers.test_breaker import RULES
from tests.controllers.test_no_place import OneService


def outlook(rig: OneService, region: str = "b") -> ServiceOutlook:
    """If it died now."""
    (service,) = spec_of(rig, region).services
    return service


def spec_of(rig: OneService, region: str) -> RegionOutlookSpec:
    rig.now_ms += RULES.outlook_ms
    bodies = rig.controller.reconcile(("", "all"), rig.view, rig.now_ms).bodies
    found = [body.object for body in bodies if isinstance(body, Put) and isinstance(body.object, RegionOutlook)]
    return next(each.spec for each in found if each.spec.region == region)


def placed(rig: OneService, **placement: Any) -> None:
    made = rig.view.cache.get("workloads", "risk", "api")
    rig.put("workloads", "risk", "api", replace(made, spec=replace(made.spec, placement=Placement(**placement))))


def test_four_rooms_are_enough_where_nothing_is_in_their_way() -> None:
    assert (outlook(OneService()).missing, outlook(OneService()).why) == (0, "")


def test_what_is_exclusive_everywhere_is_late_by_the_slot_lease_of_the_region_it_is_in() -> None:
    rig = OneService()
    made = rig.view.cache.get("workloads", "risk", "api")
    rig.put("workloads", "risk", "api", replace(made, spec=replace(made.spec, execution="Exclusive", exclusive="global")))
    assert (outlook(rig).seconds, outlook(rig).why) == (72.0, "")
    lease = LeaseSpec(role="mirror", holder="b-0", epoch=1, incarnation=1, ttl_seconds=300.0)
    rig.put("leases", "", lease_of("b"), Lease(Metadata(name=lease_of("b")), lease))
    assert outlook(rig).seconds == 308 + 6
    assert outlook(rig).why == "it would take about 314 s, and is to serve again within 300 s"


def test_a_region_in_which_a_service_only_stands_in_is_ready_when_that_could_go_on_elsewhere() -> None:
    rig = OneService()
    rig.health("b", "Lost")
    assert rig.looks(2).regions == {"a": 4}
    assert (outlook(rig, "a").region, outlook(rig, "a").new_slots, outlook(rig, "a").missing) == ("c", 4, 0)
    rig.holds("c", 0)
    found = spec_of(rig, "a")
    assert (found.ready, found.short, found.services[0].missing) == (0, 1, 4)
    assert (spec_of(rig, "c").ready, spec_of(rig, "c").short) == (0, 0), "nothing of it is there"


def test_rooms_of_which_nobody_says_on_what_nodes_they_are_promise_nothing_to_one_that_is_kept_apart() -> None:
    rig = OneService()
    placed(rig, max_per_node=1)
    assert outlook(rig).missing == 4
    holding = rig.view.cache.get("holdings", "risk", "critical.c")
    (shape,) = holding.status.shapes
    spread = replace(holding, status=replace(holding.status, shapes=(replace(shape, nodes=(4,)),)))
    rig.put("holdings", "risk", "critical.c", spread)
    assert (outlook(rig).region, outlook(rig).missing) == ("c", 0)


def test_an_even_spread_over_zones_counts_on_what_the_region_says_of_its_zones() -> None:
    rig = OneService()
    placed(rig, spread=(SpreadRule(topology_key="zone"),))
    short = outlook(rig)
    assert (short.missing, "more in one zone than in another" in short.why) == (4, True), "nothing is said yet"
    holding = rig.view.cache.get("holdings", "risk", "critical.c")
    (shape,) = holding.status.shapes
    for zones, missing in (((2, 1, 1), 0), ((4, 0), 3)):
        spread = replace(holding, status=replace(holding.status, shapes=(replace(shape, zones=zones),)))
        rig.put("holdings", "risk", "critical.c", spread)
        assert (outlook(rig).region, outlook(rig).missing) == ("c", missing)


def test_an_even_spread_over_labels_of_nodes_is_short_with_that_reason() -> None:
    rig = OneService()
    placed(rig, spread=(SpreadRule(topology_key="rack"),))
    short = outlook(rig)
    assert short.missing == 4
    assert "spread evenly by rack" in short.why


def test_of_two_blocks_of_one_size_the_larger_says_where_its_rooms_are() -> None:
    rig = OneService()
    placed(rig, spread=(SpreadRule(topology_key="zone"),), max_per_node=1)
    holding = rig.view.cache.get("holdings", "risk", "critical.c")
    (shape,) = holding.status.shapes
    small, large = replace(shape, held=1, nodes=(1,), zones=(1, 0)), replace(shape, held=4, nodes=(4,), zones=(2, 2))
    for shapes in ((small, large), (large, small)):
        rig.put("holdings", "risk", "critical.c", replace(holding, status=replace(holding.status, shapes=shapes)))
        assert (outlook(rig).region, outlook(rig).missing) == ("c", 0)


def test_one_whose_class_the_policy_in_force_does_not_know_is_short_with_that_reason() -> None:
    rig = OneService()
    changed(rig, priority_class_name="dropped")
    assert (outlook(rig).missing, outlook(rig).why) == (4, "the policy in force knows no class 'dropped'")
    changed(rig, priority_class_name="critical-service")
    assert outlook(rig).missing == 0


def test_zones_that_the_workload_itself_is_to_avoid_are_the_reason_while_that_is_in_force() -> None:
    def avoid(ttl_s: int, **scope: tuple[str, ...]) -> OneService:
        rig = OneService()
        over = OverrideScope(zones=("wet",), **scope)
        spec = OverrideSpec(kind="zone-avoidance", reason="water", ttl_seconds=ttl_s, requester="ada", scope=over)
        meta = Metadata(name="wet", namespace="risk", creation_time=instant(rig.now_ms))
        rig.put("overrides", "risk", "wet", Override(meta, spec))
        return rig

    both = outlook(avoid(60, workloads=("api",)))
    assert both.missing == 4
    assert "it is to avoid zones there: zone-avoidance risk/wet by ada" in both.why
    only_a = outlook(avoid(60, workloads=("api",), regions=("a",)))
    assert (only_a.region, only_a.missing) == ("c", 0)
    assert outlook(avoid(60, workloads=("other",))).missing == 0
    assert outlook(avoid(60)).missing == 0, "of the whole tenant: its region counts such rooms out"
    assert outlook(avoid(2, workloads=("api",))).missing == 0, "it is over"


# --- what is not recovered, and names a minimum


def changed(rig: OneService, **spec: Any) -> None:
    made = rig.view.cache.get("workloads", "risk", "api")
    rig.put("workloads", "risk", "api", replace(made, spec=replace(made.spec, **spec)))


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"gang": True}, "a gang is not recovered"),
        ({"job": JobRule(completions=4, parallelism=4)}, "a job is not recovered"),
        ({"execution": "Exclusive"}, "exclusive: region is not recovered"),
    ],
)
def test_what_names_a_minimum_and_is_not_recovered_is_short_with_that_reason(spec: dict[str, Any], why: str) -> None:
    rig = OneService()
    changed(rig, **spec)
    found = spec_of(rig, "b")
    (one,) = found.services
    assert (found.ready, found.short, one.missing, one.region) == (0, 1, 4, "")
    assert one.why.startswith(why)
    assert (spec_of(rig, "a").services, spec_of(rig, "a").short) == ((), 0), "nothing of it is there"
    rig.health("b", "Lost")
    assert rig.looks(RULES.failing_s) is None, "nothing is ordered for it, rooms or not"


def test_the_condition_says_what_is_not_recovered_and_why() -> None:
    rig = OneService()
    changed(rig, gang=True)
    said = spec_of(rig, "b")
    rig.put("regionoutlooks", "", "b", RegionOutlook(metadata=Metadata(name="b"), spec=said))
    rig.now_ms += RULES.outlook_ms
    bodies = rig.controller.reconcile(("", "all"), rig.view, rig.now_ms).bodies
    (status,) = [each.status for each in bodies if isinstance(each, PutStatus) and each.kind == "RegionOutlook"]
    (ready,) = [each for each in status.conditions if each.type == READY]
    assert (ready.status, ready.reason) == ("False", "RecoveryShort")
    assert "risk/api lacks 4: a gang is not recovered" in ready.message


def test_slots_in_other_regions_count_of_what_is_exclusive_in_each() -> None:
    rig = OneService()
    changed(rig, execution="Exclusive")
    rig.assigned("c", own=SlotRange(first=10_000, last=10_002), serving=3)
    assert outlook(rig).missing == 1
    rig.assigned("c", own=SlotRange(first=10_000, last=10_003), serving=4)
    assert (outlook(rig).missing, outlook(rig).why, outlook(rig).region) == (0, "", "c")


def test_what_is_suspended_names_no_minimum_or_is_a_job_that_has_ended_has_nothing_to_lose() -> None:
    for spec in ({"suspend": True}, {"recovery": RecoveryRule(budget_name="critical")}):
        rig = OneService()
        changed(rig, gang=True, **spec)
        assert spec_of(rig, "b").services == ()
    rig = OneService()
    changed(rig, job=JobRule(completions=4, parallelism=4))
    made = rig.view.cache.get("assignments", "risk", "api.b")
    over = replace(made.status, conditions=(Condition("Complete", "True"),))
    rig.put("assignments", "risk", "api.b", replace(made, spec=replace(made.spec, job=JobRule(completions=4)), status=over))
    assert spec_of(rig, "b").services == ()
