"""One scheduler on a plane in this process: what it places, what it says of what waits, and what ends each wait."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from fairlead.model.commands import Delete, Put, Refused, Report
from fairlead.model.kinds.capacity import Node
from fairlead.model.kinds.intent import AffinityRule, LabelExpression, Placement, Region, RegionSpec, Residency, SpreadRule
from fairlead.model.kinds.policy import (
    Override,
    OverrideScope,
    OverrideSpec,
    ResidencyRule,
)
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import DeviceAsk
from fairlead.scheduler.scheduler import Scheduler
from fairlead.scheduler.units import NEXT_OWNER
from tests.authority.planes import GI, OPERATOR, REGION, agent_of, gpu, ok, request_of
from tests.authority.preemption_stage import order_of
from tests.scheduler.fleets import NOW_MS, node, snapshot_of
from tests.scheduler.running import Rig, rig


def progress_by_resync(scheduler: Scheduler) -> int:
    return scheduler.queue.meters(scheduler.snapshot.now_ms).resync_only_progress_total


# --- placing


async def test_queued_slots_are_bound_within_what_the_nodes_hold() -> None:
    async with rig() as r:
        for name in ("n1", "n2"):
            await r.plane.add_node(name, cpu=4000)
        names = [await r.ask("api", index) for index in range(4)]
        scheduler = await r.schedule()
        names += [await r.ask("web", index) for index in range(4)]
        await r.bound(*names)
        assert sorted(r.node_of(name) for name in names) == ["n1"] * 4 + ["n2"] * 4
        assert (scheduler.meters.bound_total, scheduler.meters.conflicts_total) == (8, 0)
        assert not any(r.request(name) for name in names), "a bound slot is no longer in the queue"


async def test_rules_about_neighbours_are_kept_over_several_cycles() -> None:
    apart = Placement(anti_affinity=(AffinityRule(topology_key="hostname", match=(LabelExpression(key="app", values=("db",)),)),))
    even = Placement(spread=(SpreadRule(topology_key="zone", max_skew=1),))
    async with rig() as r:
        for number in range(6):
            await r.plane.add_node(f"n{number}", zone="abc"[number % 3])
        await r.schedule(cycle_slots=2)
        for index in range(6):
            labelled = request_of("risk", "db", index, placement=apart, priority=500)
            labelled = replace(labelled, spec=replace(labelled.spec, ask=replace(labelled.spec.ask, labels=(("app", "db"),))))
            ok(await r.plane.send(r.roles[Role.ASSIGNMENT], Put("SchedulingRequest", labelled, mode="create")))
            await r.ask("web", index, placement=even)
        await r.bound(*(f"{workload}-{index}" for workload in ("db", "web") for index in range(6)))
        assert len({r.node_of(f"db-{index}") for index in range(6)}) == 6
        zones = ["abc"[int(r.node_of(f"web-{index}")[1:]) % 3] for index in range(6)]
        assert sorted(zones) == list("aabbcc")


async def test_devices_are_shared_as_asked_and_the_picture_follows_the_authority() -> None:
    async with rig() as r:
        await r.plane.grant("risk", 2, gpu=4)
        await r.plane.add_node("n1", devices=(gpu("g0"), gpu("g1")))
        scheduler = await r.schedule()
        half = (DeviceAsk(resource="gpu", count=1, share_thousandths=500),)
        names = [await r.ask("infer", index, cpu=100, devices=half) for index in range(4)]
        await r.bound(*names)
        held = sorted(hold.id for name in names for hold in r.binding(name).devices)  # type: ignore[union-attr]
        assert held == ["g0", "g0", "g1", "g1"]
        await r.ask("infer", 4, cpu=100, devices=half)
        await r.waits("infer-4", "WaitingForCapacity")
        assert scheduler.snapshot.fleet.device_used[0] == {"g0": 1000, "g1": 1000}


async def test_the_same_requests_and_seed_lead_to_the_same_places() -> None:
    async def places() -> dict[str, str]:
        async with rig() as r:
            for number in range(8):
                await r.plane.add_node(f"n{number}", cpu=4000 + 100 * number, zone="ab"[number % 2])
            names = []
            for n in range(40):  # by deadline, because when each is created is the clock's affair
                due = datetime(2100, 1, 1, second=n, tzinfo=UTC)
                names.append(await r.ask(f"w{n % 3}", n, cpu=300 + 70 * (n % 5), memory=GI // 4, deadline_time=due))
            await r.schedule(seed=7)
            await r.bound(*names)
            return {name: r.node_of(name) for name in names}

    assert await places() == await places()


# --- what waits, and what ends the wait


async def test_a_slot_that_fits_nowhere_has_its_reason_since_owner_and_next_attempt_in_its_durable_status() -> None:
    async with rig() as r:
        await r.plane.add_node("n1", cpu=1000)
        scheduler = await r.schedule()
        before_ms = r.plane.authority.plane_ms()
        await r.bound(await r.ask("api", 0))
        await r.ask("api", 1)
        status = (await r.waits("api-1", "WaitingForCapacity")).status
        assert status.next_owner == NEXT_OWNER["WaitingForCapacity"]
        assert "1 cpu" in status.detail
        assert status.since_time is not None
        assert before_ms <= status.since_time.timestamp() * 1000 <= r.plane.authority.plane_ms()
        assert status.next_attempt_time is not None
        assert status.next_attempt_time > status.since_time
        assert scheduler.meters.unschedulable_total > 0


Help = Callable[[Rig], Awaitable[None]]


async def _freed(r: Rig) -> None:
    await r.end("old-0")


async def _added(r: Rig) -> None:
    await r.plane.add_node("n2", cpu=2000)


async def _uncordoned(r: Rig) -> None:
    rec = r.plane.authority.view().get("nodes", "", "shut")
    assert rec is not None
    node: Node = rec.hot
    opened = Node(metadata=Metadata(name="shut"), spec=replace(node.spec, unschedulable=False))
    ok(await r.plane.send(OPERATOR, Put("Node", opened)))


@pytest.mark.parametrize("help_comes", [_freed, _added, _uncordoned])
async def test_capacity_that_appears_wakes_what_waits_for_it(help_comes: Help) -> None:
    async with rig() as r:
        await r.plane.add_node("n1", cpu=2000)
        await r.plane.add_node("shut", cpu=2000, unschedulable=True)
        scheduler = await r.schedule()
        await r.bound(await r.ask("old", 0, cpu=2000))
        await r.ask("api", 0, cpu=2000)
        await r.until(lambda: r.reason("api-0") in ("WaitingForCapacity", "NoMatchingCapacity"))
        await help_comes(r)
        await r.bound("api-0")
        assert progress_by_resync(scheduler) == 0, "a change brought it back, not the clock"


async def test_a_grant_that_grows_lets_its_tenant_go_on() -> None:
    async with rig() as r:
        await r.plane.add_node("n1")
        await r.plane.grant("shop", cpu=1000)
        scheduler = await r.schedule()
        await r.bound(await r.ask("api", 0, "shop"), tenant="shop")
        await r.ask("api", 1, "shop")
        status = (await r.waits("api-1", "WaitingForQuota", "shop")).status
        assert status.next_owner == "quota-controller"
        await r.plane.grant("shop", 2, cpu=2000)
        await r.bound("api-1", tenant="shop")
        assert progress_by_resync(scheduler) == 0


async def test_a_policy_that_is_promoted_opens_what_the_one_before_forbade() -> None:
    async with rig() as r:
        region = Region(metadata=Metadata(name=REGION), spec=RegionSpec(areas=("eu",)))
        ok(await r.plane.send(OPERATOR, Put("Region", region)))
        await r.plane.add_node("n1")
        await r.promote(1, residency=(ResidencyRule(tenants=("risk",), areas=("us",)),))
        scheduler = await r.schedule()
        await r.ask("api", 0, placement=Placement(residency=Residency()))
        await r.waits("api-0", "ResidencyBlocked")
        await r.promote(2)
        await r.bound("api-0")
        assert progress_by_resync(scheduler) == 0


async def test_a_hold_keeps_its_workload_back_and_nothing_else_until_it_is_lifted() -> None:
    async with rig() as r:
        await r.plane.add_node("n1")
        await r.schedule()
        spec = OverrideSpec(
            kind="hold", reason="incident 7", ttl_seconds=600, requester="ada",
            scope=OverrideScope(tenants=("risk",), workloads=("api",)),
        )  # fmt: skip
        ok(
            await r.plane.send(
                OPERATOR, Put("Override", Override(metadata=Metadata(name="stop-api", namespace="risk"), spec=spec))
            )
        )
        await r.ask("api", 0)
        await r.bound(await r.ask("web", 0))
        status = (await r.waits("api-0", "OnHold")).status
        assert "incident 7" in status.detail
        assert not r.binding("api-0")
        ok(await r.plane.send(OPERATOR, Delete("Override", "risk", "stop-api")))
        await r.bound("api-0")


async def test_holds_of_one_name_in_two_tenants_are_two_and_hold_their_own_tenant_where_they_name_none() -> None:
    async with rig() as r:
        await r.plane.add_node("n1")
        await r.plane.grant("shop")
        await r.schedule()
        scope = OverrideScope(workloads=("api",))
        spec = OverrideSpec(kind="hold", reason="a look", ttl_seconds=600, requester="ada", scope=scope)
        for tenant in ("risk", "shop"):
            hold = Override(metadata=Metadata(name="stop", namespace=tenant), spec=spec)
            ok(await r.plane.send(OPERATOR, Put("Override", hold)))
            await r.ask("api", 0, tenant)
        ok(await r.plane.send(OPERATOR, Delete("Override", "shop", "stop")))
        await r.bound("api-0", tenant="shop")
        assert not r.binding("api-0")
        ok(await r.plane.send(OPERATOR, Delete("Override", "risk", "stop")))
        await r.bound("api-0")


async def test_a_suspended_slot_is_kept_and_tried_when_it_is_resumed() -> None:
    async with rig() as r:
        await r.plane.add_node("n1")
        await r.schedule()
        await r.ask("api", 0, suspend=True)
        await r.bound(await r.ask("web", 0))
        await r.waits("api-0", "Suspended")
        resumed = request_of("risk", "api", 0, priority=500)
        ok(await r.plane.send(r.roles[Role.ASSIGNMENT], Put("SchedulingRequest", resumed)))
        await r.bound("api-0")


async def test_an_exclusive_slot_that_may_still_run_somewhere_is_tried_again_until_it_does_not() -> None:
    async with rig() as r:
        await r.plane.add_node("n1")
        refusals: list[Refused] = []

        def unlisted(name: str) -> Refused | None:
            if len(refusals) == 3:
                return None
            refusals.append(Refused("FenceNotPassed", "n2 has not said what it runs", retry_after_s=1.0))
            return refusals[-1]

        r.plane.authority._ctx.refuse_unlisted = unlisted  # type: ignore[method-assign]
        scheduler = await r.schedule()
        failed: list[str] = []
        scheduler.queue.failed = lambda item, reason, *facts: failed.append(reason)  # type: ignore[method-assign]
        await r.bound(await r.ask("job", 0, execution="Exclusive"))
        assert (len(refusals), failed) == (3, []), "nobody has to mend anything"


def test_a_node_that_was_heard_before_it_was_seen_counts_as_heard() -> None:
    snapshot = snapshot_of()
    assert snapshot.heard([("n1", NOW_MS - 10)], 30_000) == []
    snapshot.set_node("n1", node("n1"))
    assert snapshot.fleet.cells["observed_ms"][0] == NOW_MS - 10


# --- gangs and claims


async def test_a_gang_waits_for_its_members_and_is_bound_in_one_entry() -> None:
    async with rig() as r:
        for name in ("n1", "n2", "n3"):
            await r.plane.add_node(name, cpu=1000)
        await r.schedule()
        for index in range(2):
            await r.ask("train", index, gang="train", gang_size=3)
        status = (await r.waits("train-1", "WaitingForGang")).status
        assert "2 of 3" in status.detail
        await r.ask("train", 2, gang="train", gang_size=3)
        await r.bound("train-0", "train-1", "train-2")
        recs = [r.plane.authority.view().get("bindings", "risk", f"train-{index}") for index in range(3)]
        positions = [rec.position for rec in recs if rec is not None]
        assert max(positions) - min(positions) < 2 * 3, "no other entry lies between"


async def test_a_gang_that_does_not_fit_whole_takes_nothing() -> None:
    async with rig() as r:
        await r.plane.add_node("n1", cpu=2000)
        scheduler = await r.schedule()
        for index in range(3):
            await r.ask("train", index, gang="train", gang_size=3)
        await r.waits("train-0", "WaitingForCapacity")
        assert not any(r.binding(f"train-{index}") for index in range(3))
        await r.bound(await r.ask("api", 0, cpu=2000))  # what the gang looked at is free
        await r.end("api-0")
        await r.plane.add_node("n2", cpu=1000)
        await r.bound("train-0", "train-1", "train-2")
        assert progress_by_resync(scheduler) == 0


async def test_a_gang_takes_back_what_is_lent_and_its_members_start_when_the_borrowers_are_gone() -> None:
    async with rig() as r:
        for name in ("n1", "n2"):
            await r.plane.add_node(name, cpu=1000)
        scheduler = await r.schedule()
        await r.bound(*[await r.ask("guest", index, cpu=1000, priority=1000, may_borrow=True) for index in range(2)])
        for index in range(2):
            await r.ask("train", index, cpu=1000, gang="train", gang_size=2)
        await r.bound("train-0", "train-1")
        members = [r.binding(f"train-{index}") for index in range(2)]
        assert sorted(name for member in members if member is not None for name in member.start_after) == [
            "risk/guest-0",
            "risk/guest-1",
        ]
        assert (scheduler.meters.victims_total, scheduler.meters.conflicts_total) == (2, 0)


async def test_a_claim_drains_its_victim_and_starts_when_it_is_gone() -> None:
    async with rig() as r:
        await r.plane.add_node("n1", cpu=2000)
        scheduler = await r.schedule()
        await r.bound(await r.ask("batch", 0, cpu=1000, priority=0), await r.ask("batch", 1, cpu=1000, priority=0))
        await r.ask("api", 0, cpu=1000, priority=1000)
        await r.bound("api-0")
        claimer = r.binding("api-0")
        assert claimer is not None
        (victim,) = claimer.start_after
        drained = r.binding(victim.removeprefix("risk/"))
        assert drained is not None
        assert drained.state is SlotState.DRAINING
        assert scheduler.meters.victims_total == 1
        await r.ask("web", 0, cpu=1000)
        await r.bound("web-0")
        other = r.binding("web-0")
        assert other is not None
        assert other.start_after
        assert other.start_after != claimer.start_after, "what one victim frees is taken once"
        for name in (victim, *other.start_after):
            gone = r.binding(name.removeprefix("risk/"))
            assert gone is not None
            ok(await r.plane.send(agent_of("n1"), Report("risk", name.removeprefix("risk/"), gone.token, SlotState.RELEASED)))
        await r.ask("web", 1, cpu=1000)
        await r.waits("web-1", "WaitingForCapacity")


async def test_a_claim_that_a_raised_budget_refuses_is_not_proposed_again() -> None:
    async with rig() as r:
        await r.plane.add_node("n1", cpu=2000)
        scheduler = await r.schedule()
        await r.bound(await r.ask("web", 0, cpu=1000, priority=0), await r.ask("web", 1, cpu=1000, priority=0))
        mirror = await r.plane.as_role(Role.MIRROR)
        ok(await r.plane.send(mirror, Put("Assignment", order_of("risk", "web", 2, min_serving=2))))
        for index in range(3):
            await r.ask("api", index, cpu=1000)
            await r.waits(f"api-{index}", "WaitingForCapacity")
        assert scheduler.meters.conflicts_total == 1, "the first refusal has taught it"


async def test_stopping_gives_the_lease_back() -> None:
    async with rig() as r:
        scheduler = await r.schedule()
        lease = r.plane.authority.view().get("leases", "", "scheduler-0")
        assert lease is not None
        assert lease.hot.spec.holder == "scheduler-0"
        scheduler.stop()
        await r.until(lambda: r.plane.authority.view().get("leases", "", "scheduler-0").hot.spec.holder == "")  # type: ignore[union-attr]
