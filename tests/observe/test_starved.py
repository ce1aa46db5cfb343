"""A slot that waits for quota which nobody uses or needs is found, and one whose tenant has none left is not."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from fairlead.model.kinds.capacity import BudgetShape, Holding, HoldingSpec, NodePoolSpec
from fairlead.model.kinds.intent import Quota, QuotaSpec
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from fairlead.observe.escrow import RegionNow
from fairlead.observe.starved import BOUND_S, StarvedChecker
from tests.observe.test_waiting import region

ONE = Resources(1000, 1 << 30)
WAITS = ("risk", "api-0")


def here(granted: int = 0, **spec: Any) -> dict[str, dict[tuple[str, str], Any]]:
    """One slot that waits beside a node with room, in a region with so many slots' part of the quota."""
    objects, at = region(NodePoolSpec()), ("risk", "here")
    grant, request = objects["grants"][at], objects["schedulingrequests"][WAITS]
    objects["grants"][at] = replace(grant, spec=replace(grant.spec, during=ONE.times(granted), after=ONE.times(granted)))
    objects["schedulingrequests"][WAITS] = replace(request, spec=replace(request.spec, **spec))
    return objects


def found(*regions: dict[str, Any], quota: int | None = 1, now_ms: int | None = 0, protected: int = 0) -> list[str]:
    limits = QuotaSpec(limits=ONE.times(quota or 0), protected={"r0": ONE.times(protected)} if protected else {})
    above: Any = {"quotas": {("risk", "q"): Quota(Metadata(name="q", namespace="risk"), limits)} if quota is not None else {}}
    now, checker = [RegionNow(f"r{number}", each, 1, now_ms) for number, each in enumerate(regions)], StarvedChecker()
    assert checker.look(0.0, above, now) == []
    assert checker.look(BOUND_S, above, now) == []
    return checker.look(BOUND_S + 1, above, now)


def test_a_slot_that_waits_for_quota_that_nobody_uses_or_needs_is_found() -> None:
    assert found(here()) == [
        "risk/api-0 in r0 has waited 61 s for quota, and what risk uses and needs everywhere is within its limits"
    ]
    assert len(found(here(), here(), quota=2)) == 2


def test_what_others_need_is_not_there_for_it() -> None:
    assert found(here(), quota=0) == []
    assert found(here(), here(), quota=1) == [], "only one of them can have it, and nobody says which"
    assert found(here(), protected=1) == []
    held = Holding(Metadata(name="b.r0", namespace="risk"), HoldingSpec("b", "u", "r0", (BudgetShape(ONE, 1),)))
    assert found({**here(), "holdings": {("risk", "b.r0"): held}}) == []
    assert found({**here(), "holdings": {("risk", "b.r0"): held}}, quota=2) != []


def test_what_waits_for_something_else_is_not_asked() -> None:
    assert found(here(granted=1)) == [], "its grant has room"
    assert found({**here(), "nodes": {}}) == [], "no node has room"
    assert found(here(suspend=True)) == []
    assert found(here(gang="g", gang_size=1)) == []
    assert found(here(), now_ms=None) == [], "nobody leads there"
    assert found(here(), quota=None) == [], "its grants are people's"


def test_time_counts_anew_when_it_could_not_be_given_for_a_moment() -> None:
    checker, now = StarvedChecker(), [RegionNow("r0", here(), 1, 0)]
    rich, poor = (
        {"quotas": {("risk", "q"): Quota(Metadata(name="q", namespace="risk"), QuotaSpec(limits=ONE.times(slots)))}}
        for slots in (1, 0)
    )
    for now_s, above in ((0.0, rich), (BOUND_S, poor), (BOUND_S + 1, rich)):
        assert checker.look(now_s, above, now) == []
    assert checker.look(2 * BOUND_S, rich, now) == []
    assert len(checker.look(2 * BOUND_S + 2, rich, now)) == 1
