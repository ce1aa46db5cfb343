"""A tenant's burst waits with its sender: the authority refuses a new request above the tenant's limit, and only a new one."""

from __future__ import annotations

import pytest

from fairlead.model.commands import Caller, Put
from fairlead.model.kinds.intent import Tenant, TenantSpec
from fairlead.model.kinds.policy import PolicyChannel, PolicyChannelSpec, SchedulerPolicy, SchedulerPolicySpec
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from fairlead.model.refusals import REFUSALS
from tests.authority.planes import (
    OPERATOR,
    PlaneForTest,
    agent_of,
    bind_of,
    move_of,
    no,
    ok,
    report_of,
    request_of,
    running_plane,
)


async def _limit(plane: PlaneForTest, tenant: str, max_pending: int) -> None:
    made = Tenant(metadata=Metadata(name=tenant), spec=TenantSpec(max_pending=max_pending))
    ok(await plane.send(OPERATOR, Put("Tenant", made)))


async def _fill(plane: PlaneForTest, tenant: str, count: int) -> Caller:
    await plane.grant(tenant)
    assigner = await plane.as_role(Role.ASSIGNMENT)
    for index in range(count):
        ok(await plane.request(tenant, "index", index, assigner))
    return assigner


async def test_a_request_above_the_tenants_limit_is_refused_with_when_to_come_again() -> None:
    async with running_plane() as plane:
        await _limit(plane, "search", 3)
        assigner = await _fill(plane, "search", 3)
        refused = no(await plane.request("search", "index", 3, assigner), "QueueFull")
        assert refused.facts == {"queued": 3, "limit": 3}
        assert refused.retry_after_s > 0
        assert REFUSALS["QueueFull"].http_status == 429


async def test_one_tenants_full_queue_is_nobody_elses() -> None:
    async with running_plane() as plane:
        await _limit(plane, "search", 1)
        assigner = await _fill(plane, "search", 1)
        await plane.grant("risk")
        ok(await plane.request("risk", "api", 0, assigner))
        ok(await plane.request("risk", "api", 1, assigner))


async def test_a_place_in_the_queue_is_free_again_when_a_slot_is_bound() -> None:
    async with running_plane() as plane:
        await plane.add_node("n1")
        await _limit(plane, "search", 1)
        assigner = await _fill(plane, "search", 1)
        no(await plane.request("search", "index", 1, assigner), "QueueFull")
        ok(await plane.send(await plane.as_role(Role.SCHEDULER), bind_of("search", "index-0", "n1")))
        ok(await plane.request("search", "index", 1, assigner))


async def test_a_new_generation_of_a_queued_request_is_let_in_above_the_limit() -> None:
    async with running_plane() as plane:
        await _limit(plane, "search", 1)
        assigner = await _fill(plane, "search", 1)
        newer = request_of("search", "index", 0, generation=2, cpu=2000)
        ok(await plane.send(assigner, Put("SchedulingRequest", newer)))


async def test_a_slot_that_repair_brings_back_is_let_in_above_the_limit() -> None:
    async with running_plane() as plane:
        await plane.add_node("n1")
        await _limit(plane, "search", 1)
        assigner = await _fill(plane, "search", 1)
        scheduler, disruption = await plane.as_role(Role.SCHEDULER), await plane.as_role(Role.DISRUPTION)
        repair = await plane.as_role(Role.REPAIR)
        ok(await plane.send(scheduler, bind_of("search", "index-0", "n1")))
        ok(await plane.request("search", "index", 1, assigner))
        ok(await plane.send(disruption, move_of("search", "index-0", SlotState.DRAINING)))
        ok(await plane.send(agent_of("n1"), report_of("search", "index-0", SlotState.RELEASED)))
        no(await plane.request("search", "index", 2, assigner), "QueueFull")
        ok(await plane.request("search", "index", 0, repair, epoch=2))


async def test_slots_of_a_recovery_budget_and_its_rooms_are_let_in_above_the_limit() -> None:
    async with running_plane() as plane:
        await _limit(plane, "search", 1)
        assigner = await _fill(plane, "search", 1)
        ok(await plane.request("search", "api", 15_000, assigner, budget_name="critical"))
        standing = await plane.as_role(Role.RECOVERY)
        ok(await plane.request("search", "standing.critical", 0, standing, budget_name="critical", standing=True))
        no(await plane.request("search", "index", 1, assigner), "QueueFull")


@pytest.mark.parametrize("named", [False, True])
async def test_without_a_limit_of_its_own_a_tenant_has_the_policys(named: bool) -> None:
    async with running_plane() as plane:
        policy = SchedulerPolicySpec(revision=1, max_pending_per_tenant=2)
        ok(await plane.send(OPERATOR, Put("SchedulerPolicy", SchedulerPolicy(metadata=Metadata(name="r1"), spec=policy))))
        channel = PolicyChannel(metadata=Metadata(name="default"), spec=PolicyChannelSpec(current=1))
        ok(await plane.send(OPERATOR, Put("PolicyChannel", channel)))
        if named:
            await _limit(plane, "search", 0)
        assigner = await _fill(plane, "search", 2)
        assert no(await plane.request("search", "index", 2, assigner), "QueueFull").facts["limit"] == 2
