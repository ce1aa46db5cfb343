"""What the recovery controller tells readiness of a service's placement, and of zones that it alone is to avoid."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from fairlead.decide.slots import instant
from fairlead.model.commands import Put
from fairlead.model.kinds.intent import Placement, SpreadRule
from fairlead.model.kinds.policy import Override, OverrideScope, OverrideSpec
from fairlead.model.kinds.recovery import RegionOutlook, ServiceOutlook
from fairlead.model.meta import Metadata
from tests.controllers.test_breaker import RULES
from tests.controllers.test_no_place import OneService


def outlook(rig: OneService) -> ServiceOutlook:
    """If b died now."""
    rig.now_ms += RULES.outlook_ms
    bodies = rig.controller.reconcile(("", "all"), rig.view, rig.now_ms).bodies
    found = [body.object for body in bodies if isinstance(body, Put) and isinstance(body.object, RegionOutlook)]
    (service,) = next(each.spec.services for each in found if each.spec.region == "b")
    return service


def placed(rig: OneService, **placement: Any) -> None:
    made = rig.view.cache.get("workloads", "risk", "api")
    rig.put("workloads", "risk", "api", replace(made, spec=replace(made.spec, placement=Placement(**placement))))


def test_four_rooms_are_enough_where_nothing_is_in_their_way() -> None:
    assert (outlook(OneService()).missing, outlook(OneService()).why) == (0, "")


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
