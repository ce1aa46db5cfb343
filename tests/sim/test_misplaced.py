"""Slots that are asked for where they may not be: what keeps them away, and what a region says to them."""

from __future__ import annotations

import pytest

from fairlead.model.kinds.intent import Region, RegionSpec
from fairlead.model.kinds.policy import PolicyChannel, PolicyChannelSpec, ResidencyRule, SchedulerPolicy, SchedulerPolicySpec
from fairlead.model.meta import Metadata
from fairlead.sim.misplaced import ELSEWHERE, RULES, kept_away, misplaced
from tests.authority.planes import request_of


def rules(current: int, *areas: str) -> dict[str, dict[tuple[str, str], object]]:
    rule = ResidencyRule(tenants=("risk",), areas=areas)
    policy = SchedulerPolicy(Metadata(name="r3"), SchedulerPolicySpec(revision=3, residency=(rule,)))
    return {
        "policychannels": {("", "default"): PolicyChannel(Metadata(name="default"), PolicyChannelSpec(current=current))},
        "regions": {("", "us-east"): Region(Metadata(name="us-east"), RegionSpec(("us",)))},
        "schedulerpolicies": {("", "r3"): policy},
    }


@pytest.mark.parametrize(
    ("objects", "away"), [(rules(3, "eu"), {"risk"}), (rules(3, "us", "eu"), set()), (rules(1, "eu"), set()), ({}, set())]
)
def test_the_policy_in_force_keeps_a_tenant_from_a_region_in_another_area(objects: dict[str, object], away: set[str]) -> None:
    assert kept_away(objects, "us-east") == away  # type: ignore[arg-type]


@pytest.mark.parametrize("rule", RULES)
def test_a_misplaced_slot_is_like_another_but_for_its_index_and_what_keeps_it_away(rule: str) -> None:
    asked = request_of("risk", "api", 2)
    made = misplaced(asked, rule, 7)
    place = made.spec.ask.placement
    assert (made.metadata.name, made.spec.slot.index, made.spec.slot.uid) == ("api-907", 907, asked.spec.slot.uid)
    named = {"regions": place.regions.allowed, "zones": place.zones, "areas": place.residency.areas}
    assert {name for name, value in named.items() if value == (ELSEWHERE,)} == {rule} - {"policy"}
    assert made.spec.ask.requests == asked.spec.ask.requests
