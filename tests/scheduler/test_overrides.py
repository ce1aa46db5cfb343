"""Overrides as the scheduler sees them: what is held is not tried, what is avoided is not chosen, and both end by themselves."""

from __future__ import annotations

from typing import Any

from fairlead.model.commands import Delete, Put
from fairlead.model.kinds.policy import Override, OverrideScope, OverrideSpec
from fairlead.model.meta import Metadata
from tests.authority.planes import OPERATOR, REGION, ok
from tests.scheduler.running import Rig, rig


async def _put(r: Rig, kind: Any, name: str = "o", ttl_s: int = 600, **scope: Any) -> None:
    spec = OverrideSpec(kind=kind, reason="flood", ttl_seconds=ttl_s, requester="ada", scope=OverrideScope(**scope))
    ok(await r.plane.send(OPERATOR, Put("Override", Override(metadata=Metadata(name=name, namespace="risk"), spec=spec))))


async def test_work_goes_around_a_zone_to_be_avoided_and_waits_where_there_is_no_other() -> None:
    async with rig() as r:
        await r.plane.add_node("n-a", zone="a")
        await r.plane.add_node("n-b", zone="b")
        scheduler = await r.schedule()
        await r.bound(await r.ask("web", 0))  # the node is ranked before the override comes
        chosen = r.node_of("web-0")
        await _put(r, "zone-avoidance", zones=(chosen[-1],))
        await r.bound(await r.ask("web", 1))
        assert {chosen, r.node_of("web-1")} == {"n-a", "n-b"}
        await _put(r, "zone-avoidance", "both", zones=("a", "b"))
        await r.ask("web", 2)
        assert "avoided" in (await r.waits("web-2", "NoMatchingCapacity")).status.detail
        assert scheduler.meters.conflicts_total == 0, "nothing was proposed that the authority had to refuse"
        ok(await r.plane.send(OPERATOR, Delete("Override", "risk", "both")))
        await r.bound("web-2")


async def test_a_hold_and_an_avoidance_end_by_themselves_and_what_waited_is_placed() -> None:
    async with rig() as r:
        await r.plane.add_node("n1", zone="a")
        await r.schedule()
        await _put(r, "hold", "held", 3, workloads=("api",))
        await _put(r, "zone-avoidance", "dry", 3, zones=("a",), workloads=("web",))
        await r.ask("api", 0)
        await r.ask("web", 0)
        await r.bound("api-0", "web-0")


async def test_of_two_holds_on_one_workload_the_second_still_holds_when_the_first_is_lifted() -> None:
    async with rig() as r:
        await r.plane.add_node("n1")
        await r.schedule()
        await _put(r, "hold", "one", workloads=("api",))
        await _put(r, "hold", "two", 900, workloads=("api",))
        await r.ask("api", 0)
        await r.waits("api-0", "OnHold")
        ok(await r.plane.send(OPERATOR, Delete("Override", "risk", "one")))
        await r.bound(await r.ask("web", 0))
        assert not r.binding("api-0")
        ok(await r.plane.send(OPERATOR, Delete("Override", "risk", "two")))
        await r.bound("api-0")


async def test_a_hold_on_everyone_holds_a_tenant_that_comes_later_and_one_for_another_region_nobody() -> None:
    async with rig() as r:
        await r.plane.add_node("n1")
        await r.plane.grant("shop")
        await r.schedule()
        await _put(r, "hold", "far", tenants=("*",), regions=("elsewhere",))
        await r.bound(await r.ask("web", 0))
        await _put(r, "hold", "all", tenants=("*",), regions=(REGION,))
        await r.ask("late", 0, "shop")
        await r.waits("late-0", "OnHold", "shop")
        ok(await r.plane.send(OPERATOR, Delete("Override", "risk", "all")))
        await r.bound("late-0", tenant="shop")


async def test_a_freeze_keeps_nothing_from_being_placed() -> None:
    async with rig() as r:
        await r.plane.add_node("n1")
        await r.schedule()
        await _put(r, "freeze", workloads=("api",))
        await r.bound(await r.ask("api", 0))
