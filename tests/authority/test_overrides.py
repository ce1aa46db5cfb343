"""Overrides at commit: what is held or avoided is refused whoever proposes it, until the instant the override ends."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from fairlead.authority.judge import Settings
from fairlead.model.commands import Delete, Put, PutStatus
from fairlead.model.kinds.intent import Region
from fairlead.model.kinds.policy import (
    Override,
    OverrideScope,
    OverrideSpec,
    OverrideStatus,
    PolicyChannel,
    PolicyChannelSpec,
    SchedulerPolicy,
    SchedulerPolicySpec,
)
from fairlead.model.kinds.work import Assignment, AssignmentSpec, SlotRange
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from tests.authority.planes import (
    OPERATOR,
    REGION,
    FakeClock,
    PlaneForTest,
    bind_of,
    move_of,
    no,
    ok,
    reserve_of,
    running_plane,
)


def _override(kind: Any, name: str = "o", ttl_s: int = 600, **scope: Any) -> Override:
    spec = OverrideSpec(kind=kind, reason="flood", ttl_seconds=ttl_s, requester="ada", scope=OverrideScope(**scope))
    return Override(metadata=Metadata(name=name, namespace="risk"), spec=spec)


async def _waiting(plane: PlaneForTest, *workloads: str) -> Any:
    """Nodes n1 in zone a and n2 in zone b, and a slot of each workload that waits."""
    await plane.add_node("n1", zone="a")
    await plane.add_node("n2", zone="b")
    assignment = await plane.as_role(Role.ASSIGNMENT)
    await plane.grant("risk")
    for workload in workloads:
        ok(await plane.request("risk", workload, 0, assignment))
    return await plane.as_role(Role.SCHEDULER)


async def _later(plane: PlaneForTest, clock: FakeClock, seconds: float) -> Any:
    """Time passes for the plane; its nodes are heard, and a scheduler takes over."""
    before = plane.authority.plane_ms()
    clock.offset += seconds
    assert plane.authority.plane_ms() >= before + int(seconds * 1000)
    scheduler = await plane.as_role(Role.SCHEDULER)
    plane.authority.heartbeat([("n1", 1), ("n2", 1)])
    return scheduler


async def test_nothing_is_bound_under_a_hold_and_what_is_not_in_its_scope_is() -> None:
    async with running_plane() as plane:
        scheduler = await _waiting(plane, "api", "web")
        ok(await plane.send(OPERATOR, Put("Override", _override("hold", workloads=("api",)))))
        refused = no(await plane.send(scheduler, bind_of("risk", "api-0", "n1")), "OnHold")
        assert refused.facts["override"] == "risk/o"
        no(await plane.send(scheduler, reserve_of("risk", "api-0", "n1")), "OnHold")
        ok(await plane.send(scheduler, bind_of("risk", "web-0", "n1")))
        ok(await plane.send(OPERATOR, Delete("Override", "risk", "o")))
        ok(await plane.send(scheduler, bind_of("risk", "api-0", "n1")))


async def test_a_name_that_a_region_may_give_by_itself_is_not_given_in_the_global_plane() -> None:
    """Both would have it, and each would hide the other from the plane it was not ordered in."""
    async with running_plane(settings=Settings(plane="global", region="global")) as plane:
        early = _override("hold", f"{REGION}-early", workloads=("api",))
        ok(await plane.send(OPERATOR, Put("Override", early)))
        region = Put("Region", Region(Metadata(name=REGION)))
        assert f"risk/{REGION}-early" in no(await plane.send(OPERATOR, region), "InUse").detail
        ok(await plane.send(OPERATOR, Delete("Override", "risk", f"{REGION}-early")))
        ok(await plane.send(OPERATOR, region))
        refused = no(
            await plane.send(OPERATOR, Put("Override", _override("hold", f"{REGION}-stop", workloads=("api",)))), "Invalid"
        )
        assert [fault.path for fault in refused.faults] == ["metadata.name"]
        for name in (REGION, f"{REGION}s-stop", f"not-{REGION}-stop"):
            ok(await plane.send(OPERATOR, Put("Override", _override("hold", name, workloads=("api",)))))


async def test_a_hold_of_another_region_holds_nothing_here() -> None:
    async with running_plane() as plane:
        scheduler = await _waiting(plane, "api")
        ok(await plane.send(OPERATOR, Put("Override", _override("hold", regions=("elsewhere",)))))
        ok(await plane.send(scheduler, bind_of("risk", "api-0", "n1")))


async def test_a_zone_to_be_avoided_takes_nothing_and_other_zones_do() -> None:
    async with running_plane() as plane:
        scheduler = await _waiting(plane, "api", "web", "job")
        ok(await plane.send(scheduler, reserve_of("risk", "job-0", "n1")))
        ok(await plane.send(OPERATOR, Put("Override", _override("zone-avoidance", zones=("a",), regions=(REGION,)))))
        refused = no(await plane.send(scheduler, bind_of("risk", "api-0", "n1")), "NoFit")
        assert "zone a is avoided" in refused.facts["reasons"]["avoided"]
        no(await plane.send(scheduler, bind_of("risk", "job-0", "n1")), "NoFit")
        ok(await plane.send(scheduler, bind_of("risk", "api-0", "n2")))
        ok(await plane.send(OPERATOR, Delete("Override", "risk", "o")))
        ok(await plane.send(scheduler, bind_of("risk", "web-0", "n1")))


async def test_an_avoidance_of_one_workload_leaves_equal_work_of_others_alone() -> None:
    async with running_plane() as plane:
        scheduler = await _waiting(plane, "api", "web")
        ok(await plane.send(OPERATOR, Put("Override", _override("zone-avoidance", zones=("a",), workloads=("api",)))))
        ok(await plane.send(scheduler, bind_of("risk", "web-0", "n1")))
        no(await plane.send(scheduler, bind_of("risk", "api-0", "n1")), "NoFit")


async def test_an_override_has_no_effect_from_its_expiry_on_though_nobody_cleaned_up() -> None:
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        scheduler = await _waiting(plane, "api", "web")
        ok(await plane.send(OPERATOR, Put("Override", _override("hold", "held", 3600, workloads=("api",)))))
        ok(await plane.send(OPERATOR, Put("Override", _override("zone-avoidance", "dry", 3600, zones=("a",)))))
        no(await plane.send(scheduler, bind_of("risk", "api-0", "n2")), "OnHold")
        no(await plane.send(scheduler, bind_of("risk", "web-0", "n1")), "NoFit")
        scheduler = await _later(plane, clock, 3600)
        ok(await plane.send(scheduler, bind_of("risk", "api-0", "n2")))
        ok(await plane.send(scheduler, bind_of("risk", "web-0", "n1")))
        assert plane.authority.view().get("overrides", "risk", "held") is not None, "it is still there, and says nothing"


async def test_one_that_has_ended_cannot_be_extended_back_to_life() -> None:
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        await _waiting(plane)
        made = _override("hold", ttl_s=60, workloads=("api",))
        ok(await plane.send(OPERATOR, Put("Override", made)))
        longer = replace(made, spec=replace(made.spec, ttl_seconds=120))
        ok(await plane.send(OPERATOR, Put("Override", longer)))
        await _later(plane, clock, 121)
        forever = replace(made, spec=replace(made.spec, ttl_seconds=14_400))
        no(await plane.send(OPERATOR, Put("Override", forever)), "Expired")


async def test_the_policy_in_force_bounds_how_long_an_override_may_last() -> None:
    async with running_plane() as plane:
        await _waiting(plane)
        spec = SchedulerPolicySpec(revision=1, max_override_ttl_seconds=300)
        ok(await plane.send(OPERATOR, Put("SchedulerPolicy", SchedulerPolicy(metadata=Metadata(name="r1"), spec=spec))))
        channel = PolicyChannel(metadata=Metadata(name="default"), spec=PolicyChannelSpec(current=1))
        ok(await plane.send(OPERATOR, Put("PolicyChannel", channel)))
        refused = no(await plane.send(OPERATOR, Put("Override", _override("hold", ttl_s=301, workloads=("api",)))), "Invalid")
        assert refused.faults[0].path == "spec.ttlSeconds"
        ok(await plane.send(OPERATOR, Put("Override", _override("hold", ttl_s=300, workloads=("api",)))))


async def test_only_its_controller_says_what_became_of_an_override() -> None:
    async with running_plane() as plane:
        ok(await plane.send(OPERATOR, Put("Override", _override("hold", workloads=("api",)))))
        no(await plane.send(OPERATOR, PutStatus("Override", "risk", "o", OverrideStatus())), "NotOwner")


async def test_what_is_wanted_is_not_drained_under_a_freeze_and_what_is_not_wanted_may_go() -> None:
    """Also where the controller that drains has not heard of it."""
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        scheduler = await _waiting(plane, "api", "web")
        mirror, drainer = await plane.as_role(Role.MIRROR), await plane.as_role(Role.DISRUPTION)
        for workload in ("api", "web"):
            spec = AssignmentSpec(workload, f"u-risk-{workload}", 1, REGION, slots=(SlotRange(first=0, last=0),))
            wanted = Assignment(Metadata(name=f"{workload}.{REGION}", namespace="risk"), spec)
            ok(await plane.send(mirror, Put("Assignment", wanted)))
            ok(await plane.send(scheduler, bind_of("risk", f"{workload}-0", "n1")))
        ok(await plane.send(OPERATOR, Put("Override", _override("freeze", ttl_s=60, workloads=("api",)))))
        refused = no(await plane.send(drainer, move_of("risk", "api-0", SlotState.DRAINING)), "Frozen")
        assert refused.facts["override"] == "risk/o"
        ok(await plane.send(drainer, move_of("risk", "web-0", SlotState.DRAINING)))
        nothing = AssignmentSpec("api", "u-risk-api", 1, REGION)
        ok(await plane.send(mirror, Put("Assignment", Assignment(Metadata(name=f"api.{REGION}", namespace="risk"), nothing))))
        ok(await plane.send(drainer, move_of("risk", "api-0", SlotState.DRAINING)))


async def test_a_freeze_ends_by_its_time_though_nobody_cleaned_up() -> None:
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        scheduler = await _waiting(plane, "api")
        mirror = await plane.as_role(Role.MIRROR)
        spec = AssignmentSpec("api", "u-risk-api", 1, REGION, slots=(SlotRange(first=0, last=0),))
        ok(await plane.send(mirror, Put("Assignment", Assignment(Metadata(name=f"api.{REGION}", namespace="risk"), spec))))
        ok(await plane.send(scheduler, bind_of("risk", "api-0", "n1")))
        ok(await plane.send(OPERATOR, Put("Override", _override("freeze", ttl_s=60, workloads=("api",)))))
        await _later(plane, clock, 60.0)
        drainer = await plane.as_role(Role.DISRUPTION)
        ok(await plane.send(drainer, move_of("risk", "api-0", SlotState.DRAINING)))
