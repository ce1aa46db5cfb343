"""The way of a slot through the authority: request, reserve, bind, run, drain, lose, release, and back into the queue."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from msgspec.structs import replace

from fairlead.model.commands import BindGang, Command, Delete, Put, ReleaseReservation
from fairlead.model.kinds.capacity import Grant, GrantSpec
from fairlead.model.kinds.work import Binding
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from tests.authority.planes import (
    GI,
    OPERATOR,
    REGION,
    FakeClock,
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


async def test_a_slot_goes_from_request_to_serving_and_each_step_has_its_owner() -> None:
    async with running_plane() as plane:
        await plane.add_node("n1")
        await plane.grant("risk")
        assigner = await plane.as_role(Role.ASSIGNMENT)
        scheduler = await plane.as_role(Role.SCHEDULER)
        rollout = await plane.as_role(Role.ROLLOUT)
        ok(await plane.request("risk", "api", 0, assigner))
        bound = ok(await plane.send(scheduler, bind_of("risk", "api-0", "n1")))
        assert bound.token == token()
        view = plane.authority.view()
        assert view.get("schedulingrequests", "risk", "api-0") is None, "the same entry closes the request"
        ok(await plane.send(agent_of("n1"), report_of("risk", "api-0", SlotState.STARTING, restarts=0)))
        ok(await plane.send(agent_of("n1"), report_of("risk", "api-0", SlotState.READY, ready=True)))
        no(await plane.send(agent_of("n1"), report_of("risk", "api-0", SlotState.SERVING)), "NotOwner")
        ok(await plane.send(rollout, move_of("risk", "api-0", SlotState.SERVING)))
        rec = plane.authority.view().get("bindings", "risk", "api-0")
        assert rec is not None
        binding: Binding = rec.decode()
        assert binding.status.state is SlotState.SERVING
        step = binding.status.last_transition
        assert step is not None
        assert (step.before, step.by, step.epoch) == (SlotState.READY, rollout.actor, 1)


async def test_a_second_binding_of_a_slot_is_refused_and_a_repeated_one_is_answered_again() -> None:
    async with running_plane() as plane:
        await plane.add_node("n1")
        await plane.add_node("n2")
        await plane.grant("risk")
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        ok(await plane.request("risk", "api", 0, assigner))
        first = ok(await plane.send(scheduler, bind_of("risk", "api-0", "n1")))
        again = ok(await plane.send(scheduler, bind_of("risk", "api-0", "n1")))
        assert again.replayed
        assert again.revision == first.revision
        refused = no(await plane.send(scheduler, bind_of("risk", "api-0", "n2")), "AlreadyBound")
        assert refused.facts["node"] == "n1"


async def test_a_binding_is_repeated_only_for_the_life_that_stands() -> None:
    async with running_plane() as plane:
        await plane.add_node("n1")
        await plane.grant("risk")
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        ok(await plane.request("risk", "api", 0, assigner))
        first = ok(await plane.send(scheduler, bind_of("risk", "api-0", "n1")))
        no(await plane.send(scheduler, bind_of("risk", "api-0", "n1", epoch=2)), "AlreadyBound")
        assert ok(await plane.send(scheduler, bind_of("risk", "api-0", "n1"))).token == first.token
        disruption = await plane.as_role(Role.DISRUPTION)
        ok(await plane.send(disruption, move_of("risk", "api-0", SlotState.DRAINING, token=first.token)))
        ok(await plane.send(agent_of("n1"), report_of("risk", "api-0", SlotState.RELEASED)))
        late = no(await plane.send(scheduler, bind_of("risk", "api-0", "n1")), "AlreadyBound")
        assert late.facts["state"] == "Released", "whoever asks late is not told that it is bound"


async def test_only_a_scheduler_reserves_and_binds_and_only_its_kin_let_a_reservation_go() -> None:
    async with running_plane() as plane:
        await plane.add_node("n1")
        await plane.grant("risk")
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        ok(await plane.request("risk", "api", 0, assigner))
        for caller in (assigner, await plane.as_role(Role.DISRUPTION), await plane.as_role(Role.REPAIR)):
            no(await plane.send(caller, bind_of("risk", "api-0", "n1")), "NotOwner")
            no(await plane.send(caller, reserve_of("risk", "api-0", "n1")), "NotOwner")
        held = ok(await plane.send(scheduler, reserve_of("risk", "api-0", "n1"))).token
        assert held is not None
        for caller in (assigner, await plane.as_role(Role.DISRUPTION)):
            no(await plane.send(caller, ReleaseReservation("risk", "api-0", held)), "NotOwner")
        ok(await plane.send(scheduler, ReleaseReservation("risk", "api-0", held)))


@pytest.mark.parametrize(
    ("stale", "reason"),
    [
        ({"epoch": 2}, "StaleEpoch"),
        ({"generation": 9}, "StaleGeneration"),
        ({"policy_revision": 3}, "StalePolicy"),
        ({"grant_version": 7}, "StaleGrant"),
    ],
)
async def test_each_stale_part_of_a_proposal_is_refused_with_its_own_reason(stale: dict[str, int], reason: str) -> None:
    async with running_plane() as plane:
        await plane.add_node("n1")
        await plane.grant("risk")
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        ok(await plane.request("risk", "api", 0, assigner))
        no(await plane.send(scheduler, bind_of("risk", "api-0", "n1", **stale)), reason)
        no(await plane.send(scheduler, reserve_of("risk", "api-0", "n1", **stale)), reason)
        ok(await plane.send(scheduler, reserve_of("risk", "api-0", "n1")))
        no(await plane.send(scheduler, bind_of("risk", "api-0", "n1", **stale)), reason)  # nor by what it has reserved
        ok(await plane.send(scheduler, bind_of("risk", "api-0", "n1")))


async def test_a_request_on_its_way_out_gets_no_place() -> None:
    async with running_plane() as plane:
        await plane.add_node("n1")
        await plane.grant("risk")
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        request = request_of("risk", "api", 0)
        kept = replace(request, metadata=replace(request.metadata, finalizers=("fairlead.dev/slots-released",)))
        ok(await plane.send(assigner, Put("SchedulingRequest", kept, mode="create")))
        ok(await plane.send(assigner, Delete("SchedulingRequest", "risk", "api-0")))
        no(await plane.send(scheduler, bind_of("risk", "api-0", "n1")), "BeingDeleted")
        no(await plane.send(scheduler, reserve_of("risk", "api-0", "n1")), "BeingDeleted")


async def test_a_full_node_refuses_with_every_reason_and_what_is_free() -> None:
    async with running_plane() as plane:
        await plane.add_node("n1", cpu=1500, memory=GI)
        await plane.grant("risk")
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        ok(await plane.request("risk", "api", 0, assigner))
        ok(await plane.request("risk", "api", 1, assigner))
        ok(await plane.send(scheduler, bind_of("risk", "api-0", "n1")))
        refused = no(await plane.send(scheduler, bind_of("risk", "api-1", "n1")), "NoFit")
        assert refused.facts["reasons"] == {"cpu": "needs 1 cpu, 500m free", "memory": "needs 1Gi memory, 0 free"}
        assert refused.facts["cpuFree"] == 500


async def test_use_never_rises_above_the_grant_and_a_release_counts_once() -> None:
    async with running_plane() as plane:
        await plane.add_node("n1")
        await plane.grant("risk", cpu=1500)
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        disruption = await plane.as_role(Role.DISRUPTION)
        ok(await plane.request("risk", "api", 0, assigner))
        ok(await plane.request("risk", "api", 1, assigner))
        ok(await plane.send(scheduler, bind_of("risk", "api-0", "n1")))
        refused = no(await plane.send(scheduler, bind_of("risk", "api-1", "n1")), "GrantExceeded")
        assert refused.facts["short"] == {"cpu": "asks 1, 500m left of 1500m"}
        ok(await plane.send(disruption, move_of("risk", "api-0", SlotState.DRAINING)))
        no(await plane.send(scheduler, bind_of("risk", "api-1", "n1")), "GrantExceeded")
        ok(await plane.send(agent_of("n1"), report_of("risk", "api-0", SlotState.RELEASED)))
        ok(await plane.send(agent_of("n1"), report_of("risk", "api-0", SlotState.RELEASED)))
        ok(await plane.send(scheduler, bind_of("risk", "api-1", "n1")))
        assert plane.authority._ctx.ledger.tenant("risk").used == {"cpu": 1000, "memory": GI}


async def test_a_grant_that_changes_between_two_binds_of_one_batch_counts_for_the_second() -> None:
    async with running_plane() as plane:
        await plane.add_node("n1")
        await plane.grant("risk", cpu=4000)
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        for index in range(3):
            ok(await plane.request("risk", "api", index, assigner))
        less = Resources(1500, 4000 * GI)
        smaller = Grant(
            metadata=Metadata(name=REGION, namespace="risk"), spec=GrantSpec(REGION, version=2, during=less, after=less)
        )
        first, _, stale, above = await plane.authority.submit(
            [
                Command(scheduler, bind_of("risk", "api-0", "n1")),
                Command(OPERATOR, Put("Grant", smaller)),
                Command(scheduler, bind_of("risk", "api-1", "n1")),
                Command(scheduler, bind_of("risk", "api-2", "n1", grant_version=2)),
            ]
        )
        ok(first)
        assert no(stale, "StaleGrant").facts == {"grantVersion": 2}
        assert no(above, "GrantExceeded").facts["short"] == {"cpu": "asks 1, 500m left of 1500m"}


async def test_a_grant_ends_with_time_though_nobody_wrote_it() -> None:
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        await plane.add_node("n1")
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        ends = datetime.fromtimestamp(plane.authority.plane_ms() / 1000 + 600.0, tz=UTC)
        much, little = Resources(4000, 4000 * GI), Resources(1500, 4000 * GI)
        spec = GrantSpec(REGION, version=1, during=much, after=little, lease_end_time=ends)
        ok(await plane.send(OPERATOR, Put("Grant", Grant(metadata=Metadata(name=REGION, namespace="risk"), spec=spec))))
        ok(await plane.request("risk", "api", 0, assigner))
        ok(await plane.send(scheduler, bind_of("risk", "api-0", "n1")))
        clock.offset += 601.0
        ok(await plane.request("risk", "api", 1, assigner))  # its commit renews the leader, whom the node's heartbeat needs
        plane.authority.heartbeat([("n1", 1)])
        no(await plane.send(scheduler, bind_of("risk", "api-1", "n1")), "GrantExceeded")


async def test_without_a_grant_nothing_of_a_tenant_is_queued_or_placed() -> None:
    async with running_plane() as plane:
        await plane.add_node("n1")
        assigner = await plane.as_role(Role.ASSIGNMENT)
        no(await plane.request("risk", "api", 0, assigner), "NoGrant")


async def test_a_gang_is_bound_whole_or_not_at_all() -> None:
    async with running_plane() as plane:
        await plane.add_node("n1", cpu=2500)
        await plane.grant("risk")
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        for index in range(3):
            ok(await plane.request("risk", "fit", index, assigner, gang="g", gang_size=3))
        members = tuple(bind_of("risk", f"fit-{index}", "n1") for index in range(3))
        no(await plane.send(scheduler, members[0]), "GangIncomplete")
        no(await plane.send(scheduler, BindGang(members[:2])), "GangIncomplete")
        before = plane.authority.view().revision
        refused = no(await plane.send(scheduler, BindGang(members)), "GangRefused")
        assert refused.facts["member"] == "fit-2"
        assert plane.authority.view().revision == before, "a refused gang leaves no trace"
        await plane.add_node("n2")
        whole = (*members[:2], bind_of("risk", "fit-2", "n2"))
        ok(await plane.send(scheduler, BindGang(whole)))
        assert ok(await plane.send(scheduler, BindGang(whole))).replayed
        page = await plane.authority.view().page("bindings", "risk")
        assert [rec.name for rec in page.items] == ["fit-0", "fit-1", "fit-2"]


async def test_an_agent_speaks_for_its_own_node_and_under_the_slots_token_only() -> None:
    async with running_plane() as plane:
        await plane.add_node("n1")
        await plane.grant("risk")
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        ok(await plane.request("risk", "api", 0, assigner))
        ok(await plane.send(scheduler, bind_of("risk", "api-0", "n1")))
        no(await plane.send(agent_of("n2"), report_of("risk", "api-0", SlotState.STARTING)), "WrongNode")
        stale = move_of("risk", "api-0", SlotState.UNKNOWN, token=token(attempt=2))
        node_controller = await plane.as_role(Role.NODE)
        no(await plane.send(node_controller, stale), "StaleToken")


async def test_repair_releases_an_unknown_slot_only_after_its_fence_time() -> None:
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        await plane.add_node("n1")
        await plane.grant("risk")
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        node_controller, repair = await plane.as_role(Role.NODE), await plane.as_role(Role.REPAIR)
        ok(await plane.request("risk", "job", 0, assigner, execution="Exclusive"))
        ok(await plane.send(scheduler, bind_of("risk", "job-0", "n1")))
        no(await plane.send(repair, move_of("risk", "job-0", SlotState.RELEASED)), "NoSuchStep")
        ok(await plane.send(node_controller, move_of("risk", "job-0", SlotState.UNKNOWN)))
        refused = no(await plane.send(repair, move_of("risk", "job-0", SlotState.RELEASED)), "FenceNotPassed")
        assert 15 < refused.retry_after_s < 18
        clock.offset += refused.retry_after_s + 0.1
        ok(await plane.send(repair, move_of("risk", "job-0", SlotState.RELEASED)))


async def test_a_released_slot_returns_to_the_queue_with_the_next_epoch_and_its_old_token_is_dead() -> None:
    async with running_plane() as plane:
        await plane.add_node("n1")
        await plane.grant("risk")
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        repair, disruption = await plane.as_role(Role.REPAIR), await plane.as_role(Role.DISRUPTION)
        ok(await plane.request("risk", "api", 0, assigner))
        ok(await plane.send(scheduler, bind_of("risk", "api-0", "n1")))
        ok(await plane.send(disruption, move_of("risk", "api-0", SlotState.DRAINING)))
        no(await plane.request("risk", "api", 0, repair, epoch=2), "AlreadyBound")
        ok(await plane.send(agent_of("n1"), report_of("risk", "api-0", SlotState.RELEASED)))
        no(await plane.request("risk", "api", 0, repair, epoch=3), "StaleEpoch")
        no(await plane.request("risk", "api", 0, assigner, epoch=2), "NotOwner")
        ok(await plane.request("risk", "api", 0, repair, epoch=2))
        no(await plane.send(scheduler, bind_of("risk", "api-0", "n1", epoch=1)), "StaleEpoch")
        bound = ok(await plane.send(scheduler, bind_of("risk", "api-0", "n1", epoch=2)))
        assert bound.token == token(epoch=2)
        no(await plane.send(agent_of("n1"), report_of("risk", "api-0", SlotState.STARTING)), "StaleToken")


async def test_a_reservation_holds_capacity_until_it_is_bound_or_released() -> None:
    async with running_plane() as plane:
        await plane.add_node("n1", cpu=1000)
        await plane.grant("risk")
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        ok(await plane.request("risk", "api", 0, assigner))
        ok(await plane.request("risk", "api", 1, assigner))
        held = ok(await plane.send(scheduler, reserve_of("risk", "api-0", "n1")))
        no(await plane.send(scheduler, bind_of("risk", "api-1", "n1")), "NoFit")
        assert held.token is not None
        ok(await plane.send(scheduler, ReleaseReservation("risk", "api-0", held.token)))
        ok(await plane.send(scheduler, ReleaseReservation("risk", "api-0", held.token)))
        again = ok(await plane.send(scheduler, reserve_of("risk", "api-0", "n1")))
        assert again.token == token(attempt=2), "each life of a slot has its own token"
        bound = ok(await plane.send(scheduler, bind_of("risk", "api-0", "n1")))
        assert bound.token == again.token
        assert plane.authority.view().get("reservations", "risk", "api-0") is None


async def test_a_claim_drains_its_victims_and_waits_for_them_in_one_entry() -> None:
    async with running_plane() as plane:
        await plane.add_node("n1", cpu=1000)
        await plane.grant("risk")
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        ok(await plane.request("risk", "low", 0, assigner, priority=0))
        ok(await plane.request("risk", "high", 0, assigner, priority=1000))
        ok(await plane.request("risk", "other", 0, assigner, priority=500))
        ok(await plane.send(scheduler, bind_of("risk", "low-0", "n1")))
        no(await plane.send(scheduler, bind_of("risk", "high-0", "n1")), "NoFit")
        no(await plane.send(scheduler, bind_of("risk", "high-0", "n1", victims=("risk/none-0",))), "VictimNotAllowed")
        ok(await plane.send(scheduler, bind_of("risk", "high-0", "n1", victims=("risk/low-0",))))
        rec = plane.authority.view().get("bindings", "risk", "high-0")
        assert rec is not None
        assert rec.decode().spec.start_after == ("risk/low-0",)
        no(await plane.send(scheduler, bind_of("risk", "other-0", "n1", victims=("risk/high-0",))), "VictimNotAllowed")
        ok(await plane.send(agent_of("n1"), report_of("risk", "low-0", SlotState.RELEASED)))
        assert plane.authority._ctx.ledger.node("n1").cpu_free == 0


async def test_one_workload_uid_under_two_names_is_refused_because_its_slots_would_be_bound_twice() -> None:
    async with running_plane() as plane:
        await plane.grant("risk")
        await plane.grant("search")
        assigner = await plane.as_role(Role.ASSIGNMENT)
        ok(await plane.request("risk", "api", 0, assigner))
        for tenant, workload in (("search", "api"), ("risk", "other")):
            forged = request_of(tenant, workload, 0)
            slot = msgspec.structs.replace(forged.spec.slot, uid="u-risk-api")
            forged = msgspec.structs.replace(forged, spec=msgspec.structs.replace(forged.spec, slot=slot))
            no(await plane.send(assigner, Put("SchedulingRequest", forged)), "Conflict")


async def test_a_user_cannot_write_what_belongs_to_a_controller() -> None:
    async with running_plane() as plane:
        await plane.grant("risk")
        no(await plane.send(OPERATOR, Put("SchedulingRequest", request_of("risk", "api", 0))), "NotOwner")
