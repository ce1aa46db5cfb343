"""Whose a change is: what a mirror, an autoscaler, an agent or a stranger may not write; how a request that waits is replaced."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.authority.judge import Settings
from fairlead.model.commands import Caller, Delete, Put, PutStatus
from fairlead.model.kinds.capacity import Grant, GrantSpec, GrantStatus, Node, NodeSpec
from fairlead.model.kinds.intent import Quota, QuotaSpec, Region, RegionSpec, RegionStatus, StageCounts, Tenant
from fairlead.model.kinds.quota import GrantOffer
from fairlead.model.kinds.work import Assignment, AssignmentSpec, AssignmentStatus, SlotRange
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import NOTHING, Resources
from tests.authority.planes import (
    GI,
    OPERATOR,
    REGION,
    FakeClock,
    PlaneForTest,
    agent_of,
    bind_of,
    move_of,
    no,
    ok,
    report_of,
    request_of,
    reserve_of,
    running_plane,
    token,
)
from tests.model.examples import workload


def region(*areas: str) -> Region:
    return Region(metadata=Metadata(name="west"), spec=RegionSpec(areas=areas))


async def test_a_mirror_writes_into_a_regions_plane_and_not_into_the_global_one() -> None:
    async with running_plane() as here:
        mirror = await here.as_role(Role.MIRROR)
        ok(await here.send(mirror, Put("Region", region("us"))))
        ok(await here.send(mirror, Delete("Region", "", "west")))
    async with running_plane(settings=Settings(plane="global", region="")) as above:
        mirror = await above.as_role(Role.MIRROR)
        no(await above.send(mirror, Put("Region", region("us"))), "NotOwner")
        ok(await above.send(OPERATOR, Put("Region", region("us"))))
        no(await above.send(mirror, Put("Region", region("eu"))), "NotOwner")
        ok(await above.send(mirror, Put("Region", region("us"))))
        no(await above.send(mirror, Delete("Region", "", "west")), "NotOwner")
        ok(await above.send(OPERATOR, Put("Region", region("eu"))))


async def test_a_region_that_is_there_is_deleted_when_it_has_said_that_nothing_is_left() -> None:
    async with running_plane(settings=Settings(plane="global", region="")) as plane:
        delete = Delete("Region", "", "west")
        keeper, mirror = await plane.as_role(Role.WORKLOAD), await plane.as_role(Role.MIRROR)
        health = await plane.as_role(Role.REGION_HEALTH)

        async def order(*slots: SlotRange) -> None:
            spec = AssignmentSpec("api", "u-api", 1, "west", slots=slots)
            ok(await plane.send(keeper, Put("Assignment", Assignment(Metadata(name="api.west", namespace="risk"), spec))))

        async def says(generation: int, bound: int, used: int) -> None:
            counts = AssignmentStatus(observed_generation=generation, replicas=StageCounts(bound=bound))
            ok(await plane.send(mirror, PutStatus("Assignment", "risk", "api.west", counts)))
            ok(await plane.send(mirror, PutStatus("Grant", "risk", "west", GrantStatus(used=Resources(used)))))

        ok(await plane.send(OPERATOR, Put("Region", region())))
        by_hand = GrantSpec("west", 1, Resources(4000), Resources(4000))
        ok(await plane.send(OPERATOR, Put("Grant", Grant(Metadata(name="west", namespace="risk"), by_hand))))
        await order(SlotRange(first=0, last=1))
        assert (
            "1 workloads have slots there (assignments/risk/api.west)" in no(await plane.send(OPERATOR, delete), "InUse").detail
        )
        await order()
        ok(await plane.send(OPERATOR, replace(delete, dry_run=True)))  # it was never heard, and has run nothing
        ok(await plane.send(health, PutStatus("Region", "", "west", RegionStatus(health="Healthy"))))
        await says(1, 2, 2000)
        refused = no(await plane.send(OPERATOR, delete), "InUse")
        assert "1 have slots that are still leaving (assignments/risk/api.west)" in refused.detail
        assert "1 tenants are charged there (risk)" in refused.detail
        await says(2, 1, 0)
        no(await plane.send(OPERATOR, delete), "InUse")
        await says(2, 0, 500)
        assert no(await plane.send(OPERATOR, delete), "InUse").facts == {"count": 1, "first": ["risk"]}, "rooms, perhaps"
        ok(await plane.send(health, PutStatus("Region", "", "west", RegionStatus(health="Lost"))))
        assert "by deleting it in " in no(await plane.send(OPERATOR, replace(delete, dry_run=True)), "InUse").detail
        ok(await plane.send(health, PutStatus("Region", "", "west", RegionStatus(health="Healthy"))))
        await says(2, 0, 0)
        ok(await plane.send(OPERATOR, delete))


async def test_who_does_not_own_a_kind_does_not_delete_of_it() -> None:
    async with running_plane() as plane:
        ok(await plane.send(OPERATOR, Put("Region", region())))
        no(await plane.send(await plane.as_role(Role.SCHEDULER), Delete("Region", "", "west")), "NotOwner")
        ok(await plane.send(OPERATOR, Delete("Region", "", "west")))
        await plane.grant("risk")
        ok(await plane.request("risk", "api", 0, await plane.as_role(Role.ASSIGNMENT)))
        no(await plane.send(await plane.as_role(Role.WORKLOAD), Delete("SchedulingRequest", "risk", "api-0")), "NotOwner")
        ok(await plane.send(await plane.as_role(Role.GARBAGE), Delete("SchedulingRequest", "risk", "api-0")))


async def test_a_binding_ends_by_its_steps_and_is_removed_by_those_who_tidy_up() -> None:
    async with running_plane() as plane:
        await plane.add_node("n1")
        await plane.grant("risk")
        ok(await plane.request("risk", "api", 0, await plane.as_role(Role.ASSIGNMENT)))
        ok(await plane.send(await plane.as_role(Role.SCHEDULER), bind_of("risk", "api-0", "n1")))
        garbage, delete = await plane.as_role(Role.GARBAGE), Delete("Binding", "risk", "api-0")
        no(await plane.send(OPERATOR, delete), "NotOwner")
        assert no(await plane.send(garbage, delete), "InUse").facts == {"state": "Bound"}
        ok(await plane.send(agent_of("n1"), report_of("risk", "api-0", SlotState.STARTING)))
        disruption = await plane.as_role(Role.DISRUPTION)
        ok(await plane.send(disruption, move_of("risk", "api-0", SlotState.DRAINING, token=token())))
        ok(await plane.send(agent_of("n1"), report_of("risk", "api-0", SlotState.RELEASED)))
        no(await plane.send(OPERATOR, delete), "NotOwner")
        ok(await plane.send(garbage, delete))


async def test_a_tenant_that_is_still_charged_stays() -> None:
    async with running_plane() as plane:
        ok(await plane.send(OPERATOR, Put("Tenant", Tenant(metadata=Metadata(name="risk")))))
        await plane.add_node("n1")
        await plane.grant("risk")
        ok(await plane.request("risk", "api", 0, await plane.as_role(Role.ASSIGNMENT), cpu=500))
        ok(await plane.send(await plane.as_role(Role.SCHEDULER), bind_of("risk", "api-0", "n1")))
        assert no(await plane.send(OPERATOR, Delete("Tenant", "", "risk")), "InUse").facts["used"]["cpu"] == 500


async def test_a_tenant_in_which_people_left_something_stays_and_what_is_left_is_named() -> None:
    async with running_plane(settings=Settings(plane="global", region="")) as plane:
        delete = Delete("Tenant", "", "risk")
        for tenant in ("risk", "search"):
            ok(await plane.send(OPERATOR, Put("Tenant", Tenant(metadata=Metadata(name=tenant)))))
        ok(await plane.send(OPERATOR, Put("Quota", Quota(metadata=Metadata(name="default", namespace="risk")))))
        for number in range(5):
            made = replace(workload(), metadata=Metadata(name=f"api-{number}", namespace="risk"))
            ok(await plane.send(OPERATOR, Put("Workload", made)))
        said = no(await plane.send(OPERATOR, delete), "InUse")
        assert "5 workloads (api-0, api-1, api-2, ...); 1 quotas (default)" in said.detail, said
        assert said.facts["left"] == {"workloads": 5, "quotas": 1}
        ok(await plane.send(OPERATOR, Delete("Tenant", "", "search")))  # what others have is none of its own
        ok(await plane.send(OPERATOR, Delete("Quota", "risk", "default")))
        for number in range(5):
            ok(await plane.send(OPERATOR, Delete("Workload", "risk", f"api-{number}")))
        assert no(await plane.send(OPERATOR, delete), "InUse").facts["left"] == {"workloads": 5}, "they are on their way out"
        keeper = await plane.as_role(Role.WORKLOAD)
        for rec in list(plane.authority._state.live("workloads")):
            bare = replace(rec.decode(), metadata=replace(rec.decode().metadata, finalizers=()))
            ok(await plane.send(keeper, Put("Workload", bare)))
        ok(await plane.send(OPERATOR, delete))


async def test_the_last_quota_of_a_tenant_stays_while_regions_may_use_what_it_grants() -> None:
    async with running_plane(settings=Settings(plane="global", region="")) as plane:
        sharer, mirror, some = await plane.as_role(Role.QUOTA), await plane.as_role(Role.MIRROR), Resources(1000, GI)
        quota = Quota(metadata=Metadata(name="default", namespace="risk"), spec=QuotaSpec(limits=some))
        delete = Delete("Quota", "risk", "default")

        async def grant(**spec: Any) -> None:
            made = Grant(Metadata(name="west", namespace="risk"), GrantSpec(region="west", **spec))
            ok(await plane.send(sharer, Put("Grant", made)))

        ok(await plane.send(OPERATOR, Put("Quota", quota)))
        ok(await plane.send(OPERATOR, Put("Region", Region(metadata=Metadata(name="west")))))
        await grant(version=1, during=some, lease_seconds=600)
        assert no(await plane.send(OPERATOR, delete), "InUse").facts == {"regions": ["west"]}
        older = (GrantOffer(version=1, during=some, after=some),)
        await grant(version=2, lease_seconds=600, offers=older)
        no(await plane.send(OPERATOR, delete), "InUse")
        ok(await plane.send(OPERATOR, Put("Quota", replace(quota, metadata=Metadata(name="other", namespace="risk")))))
        ok(await plane.send(OPERATOR, Delete("Quota", "risk", "other")))
        ok(await plane.send(mirror, PutStatus("Grant", "risk", "west", GrantStatus(accepted_version=2, incarnation=1))))
        await grant(version=3, lease_seconds=600)
        ok(await plane.send(OPERATOR, delete))


async def test_the_last_quota_of_a_tenant_goes_when_offers_that_granted_something_are_history() -> None:
    clock = FakeClock()
    async with running_plane(settings=Settings(plane="global", region=""), clock=clock) as plane:
        quota, delete = Quota(metadata=Metadata(name="default", namespace="risk")), Delete("Quota", "risk", "default")
        sharer, mirror, some = await plane.as_role(Role.QUOTA), await plane.as_role(Role.MIRROR), Resources(1000, GI)
        long_ago = datetime(2020, 1, 1, tzinfo=UTC)
        for stays, waits_s, accepted in ((some, 0.0, 2), (NOTHING, 900.0, 1)):
            older = (GrantOffer(version=1, during=some, after=stays, until_time=long_ago),)
            spec = GrantSpec(region="west", version=2, lease_seconds=600, offers=older)
            ok(await plane.send(OPERATOR, Put("Quota", quota)))
            ok(await plane.send(sharer, Put("Grant", Grant(Metadata(name="west", namespace="risk"), spec))))
            said = GrantStatus(accepted_version=1, incarnation=1)
            ok(await plane.send(mirror, PutStatus("Grant", "risk", "west", said)))
            no(await plane.send(OPERATOR, delete), "InUse")
            clock.offset += waits_s
            ok(await plane.send(mirror, PutStatus("Grant", "risk", "west", replace(said, accepted_version=accepted))))
            ok(await plane.send(OPERATOR, delete))
            ok(await plane.send(sharer, Delete("Grant", "risk", "west")))


async def test_a_quota_does_not_answer_for_what_was_granted_by_hand() -> None:
    async with running_plane(settings=Settings(plane="global", region="")) as plane:
        await plane.grant("risk")
        ok(await plane.send(OPERATOR, Put("Quota", Quota(metadata=Metadata(name="default", namespace="risk")))))
        ok(await plane.send(OPERATOR, Delete("Quota", "risk", "default")))


async def test_a_node_is_taken_out_by_people_and_by_who_scales_its_pool() -> None:
    async with running_plane() as plane:
        for name in ("n1", "n2"):
            await plane.add_node(name)
        no(await plane.send(agent_of("n1"), Delete("Node", "", "n1")), "NotOwner")
        no(await plane.send(await plane.as_role(Role.NODE), Delete("Node", "", "n1")), "NotOwner")
        ok(await plane.send(OPERATOR, Delete("Node", "", "n1")))
        ok(await plane.send(await plane.as_role(Role.AUTOSCALER), Delete("Node", "", "n2")))


def node(name: str = "n1", **spec: Any) -> Node:
    made = {"region": REGION, "zone": "a", "allocatable": Resources(16_000, 64 * GI), **spec}
    return Node(metadata=Metadata(name=name), spec=NodeSpec(**made))


async def test_of_a_node_an_autoscaler_says_that_it_takes_nothing_new_and_nothing_else() -> None:
    async with running_plane() as plane:
        scaler = await plane.as_role(Role.AUTOSCALER)
        no(await plane.send(scaler, Put("Node", node())), "NotOwner")
        ok(await plane.send(OPERATOR, Put("Node", node())))
        no(await plane.send(scaler, Put("Node", node(allocatable=Resources(32_000, 64 * GI)))), "NotOwner")
        no(await plane.send(scaler, Put("Node", node(unschedulable=True, zone="b"))), "NotOwner")
        ok(await plane.send(scaler, Put("Node", node(unschedulable=True))))
        ok(await plane.send(scaler, Put("Node", node())))


async def test_an_agent_speaks_for_its_own_node_in_its_own_region() -> None:
    async with running_plane() as plane:
        refused = no(await plane.send(Caller("agent-x", Role.AGENT), Put("Node", node())), "WrongNode")
        assert refused.detail == "agent-x speaks for no node, not for n1"
        refused = no(await plane.send(agent_of("n2"), Put("Node", node())), "WrongNode")
        assert refused.detail == "agent-n2 speaks for n2, not for n1"
        no(await plane.send(agent_of("n1"), Put("Node", node(region="elsewhere"))), "WrongNode")
        ok(await plane.send(agent_of("n1"), Put("Node", node())))


class Queue:
    """One request of the workload api, waiting at epoch 3 with generation 5."""

    def __init__(self, plane: PlaneForTest, assigner: Caller) -> None:
        self.plane, self.assigner = plane, assigner

    async def put(self, **spec: Any) -> Any:
        fields = {"epoch": 3, "generation": 5, **spec}
        return await self.plane.send(self.assigner, Put("SchedulingRequest", request_of("risk", "api", 0, **fields)))


async def queue_on(plane: PlaneForTest) -> Queue:
    await plane.grant("risk")
    queue = Queue(plane, await plane.as_role(Role.ASSIGNMENT))
    ok(await queue.put())
    return queue


@pytest.mark.parametrize(
    ("stale", "reason"), [({"epoch": 2}, "Invalid"), ({"generation": 4}, "Invalid"), ({"epoch": 4}, "StaleEpoch")]
)
async def test_a_request_that_waits_is_not_replaced_by_another_life_or_an_older_generation(
    stale: dict[str, int], reason: str
) -> None:
    async with running_plane() as plane:
        queue = await queue_on(plane)
        no(await queue.put(**stale), reason)
        ok(await queue.put(generation=6))


async def test_what_is_reserved_already_keeps_the_request_it_was_reserved_for() -> None:
    async with running_plane() as plane:
        queue = await queue_on(plane)
        await plane.add_node("n1")
        reserve = reserve_of("risk", "api-0", "n1", epoch=3, generation=5)
        ok(await plane.send(await plane.as_role(Role.SCHEDULER), reserve))
        assert no(await queue.put(generation=6), "NotPending").facts == {"state": "Reserved"}
        ok(await queue.put())
