"""What repair may end in another's place, and the ledger counted again: both judged on the present state."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fairlead.authority.chores import Chores
from fairlead.authority.judge import Settings
from fairlead.decide.standing import request_for
from fairlead.model.commands import Command, Delete, Put, PutStatus, ReleaseReservation
from fairlead.model.kinds.capacity import BudgetShape, Holding, HoldingSpec
from fairlead.model.kinds.policy import Override, OverrideScope, OverrideSpec
from fairlead.model.kinds.repair import Repair, RepairSpec, RepairStatus
from fairlead.model.kinds.work import Assignment, AssignmentSpec, SlotRange
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from tests.authority.planes import (
    GI,
    OPERATOR,
    REGION,
    FakeClock,
    PlaneForTest,
    agent_of,
    bind_of,
    no,
    ok,
    report_of,
    reserve_of,
    running_plane,
)
from tests.model.examples import workload

GLOBAL = Settings(plane="global", region="global")


@pytest.fixture
def no_chores(monkeypatch: pytest.MonkeyPatch) -> None:
    """An authority that forgets to end what ran out."""

    def nothing(self: Chores) -> list[Command]:
        return []

    monkeypatch.setattr(Chores, "_expired_reservations", nothing)


async def test_repair_ends_a_room_only_when_nobody_holds_it() -> None:
    async with running_plane() as plane:
        await plane.add_node("n1")
        await plane.grant("risk")
        repair, recovery, scheduler = [await plane.as_role(r) for r in (Role.REPAIR, Role.RECOVERY, Role.SCHEDULER)]
        mirror = await plane.as_role(Role.MIRROR)
        shapes = (BudgetShape(requests=Resources(1000, GI)),)
        spec = HoldingSpec(budget="critical", budget_uid="b-1", region=REGION, shapes=shapes)
        holding = Holding(metadata=Metadata(name=f"critical.{REGION}", namespace="risk"), spec=spec)
        ok(await plane.send(mirror, Put("Holding", holding)))
        request = request_for(holding, 0, Resources(1000, GI))
        ok(await plane.send(recovery, Put("SchedulingRequest", request)))
        name = request.metadata.name
        held = bind_of("risk", name, "n1", epoch=request.spec.epoch, generation=request.spec.generation)
        ok(await plane.send(scheduler, held))
        rec = plane.authority.view().get("reservations", "risk", name)
        assert rec is not None
        release = ReleaseReservation("risk", name, rec.hot.spec.token)
        no(await plane.send(repair, release), "NotOwner")
        ok(await plane.send(mirror, Delete("Holding", "risk", holding.metadata.name)))
        ok(await plane.send(repair, release))
        assert plane.authority.view().get("reservations", "risk", name) is None
        assert await plane.authority.figures().drifts() == []


@pytest.mark.usefixtures("no_chores")
async def test_repair_ends_a_reservation_that_ran_out_and_no_other() -> None:
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        await plane.add_node("n1")
        await plane.grant("risk")
        assigner, scheduler, repair = [await plane.as_role(r) for r in (Role.ASSIGNMENT, Role.SCHEDULER, Role.REPAIR)]
        ok(await plane.request("risk", "api", 0, assigner))
        held = ok(await plane.send(scheduler, reserve_of("risk", "api-0", "n1", ttl_s=5.0)))
        assert held.token is not None
        release = ReleaseReservation("risk", "api-0", held.token)
        no(await plane.send(repair, release), "NotOwner")
        clock.offset += 6.0
        repair = await plane.as_role(Role.REPAIR)
        ok(await plane.send(repair, release))
        assert plane.authority.view().get("reservations", "risk", "api-0") is None
        request = plane.authority.view().get("schedulingrequests", "risk", "api-0")
        assert request is not None
        assert request.hot.status.state is SlotState.PENDING
        assert await plane.authority.figures().drifts() == []


async def test_repair_takes_a_workload_s_finalizer_off_only_when_no_region_has_anything_of_it() -> None:
    async with running_plane(settings=GLOBAL) as plane:
        repair, maker = await plane.as_role(Role.REPAIR), await plane.as_role(Role.WORKLOAD)
        uid = ok(await plane.send(OPERATOR, Put("Workload", workload()))).uid

        def bare() -> Put:
            rec = plane.authority.view().get("workloads", "risk", "api")
            assert rec is not None
            return Put("Workload", replace(rec.hot, metadata=replace(rec.hot.metadata, finalizers=())))

        def there() -> bool:
            return plane.authority.view().get("workloads", "risk", "api") is not None

        no(await plane.send(repair, bare()), "NotOwner")
        spec = AssignmentSpec(workload="api", workload_uid=uid, generation=1, region="east", slots=(SlotRange(first=0, last=0),))
        ok(
            await plane.send(
                maker, Put("Assignment", Assignment(metadata=Metadata(name="api.east", namespace="risk"), spec=spec))
            )
        )
        ok(await plane.send(OPERATOR, Delete("Workload", "risk", "api")))
        no(await plane.send(repair, bare()), "NotOwner")
        assert there()
        rec = plane.authority.view().get("assignments", "risk", "api.east")
        assert rec is not None
        gone = replace(rec.hot, metadata=replace(rec.hot.metadata, finalizers=()))
        ok(await plane.send(maker, Delete("Assignment", "risk", "api.east")))
        mirror = await plane.as_role(Role.MIRROR)
        ok(await plane.send(mirror, Put("Assignment", gone)))
        changed = workload(replicas=9)
        no(await plane.send(repair, Put("Workload", changed)), "NotOwner")
        ok(await plane.send(repair, bare()))
        assert not there()


async def test_repair_takes_an_override_s_finalizer_off_only_when_it_has_no_effect() -> None:
    clock = FakeClock()
    async with running_plane(clock=clock, settings=GLOBAL) as plane:
        repair = await plane.as_role(Role.REPAIR)
        spec = OverrideSpec(kind="hold", reason="r", ttl_seconds=60, scope=OverrideScope(workloads=("api",)))
        ok(await plane.send(OPERATOR, Put("Override", Override(metadata=Metadata(name="x", namespace="risk"), spec=spec))))

        def bare() -> Put:
            rec = plane.authority.view().get("overrides", "risk", "x")
            assert rec is not None
            return Put("Override", replace(rec.hot, metadata=replace(rec.hot.metadata, finalizers=())))

        no(await plane.send(repair, bare()), "NotOwner")
        clock.offset += 61.0
        repair = await plane.as_role(Role.REPAIR)
        ok(await plane.send(repair, bare()))
        rec = plane.authority.view().get("overrides", "risk", "x")
        assert rec is not None
        assert rec.hot.metadata.finalizers == ()


async def bound_plane(plane: PlaneForTest) -> None:
    await plane.add_node("n1")
    await plane.grant("risk")
    assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
    ok(await plane.request("risk", "api", 0, assigner))
    ok(await plane.send(scheduler, bind_of("risk", "api-0", "n1")))
    ok(await plane.send(agent_of("n1"), report_of("risk", "api-0", SlotState.STARTING, ready=False)))


async def test_repair_removes_no_instance_that_has_a_binding() -> None:
    async with running_plane() as plane:
        await bound_plane(plane)
        repair = await plane.as_role(Role.REPAIR)
        assert plane.authority.view().get("instances", "risk", "api-0") is not None
        no(await plane.send(repair, Delete("Instance", "risk", "api-0")), "NotOwner")
        del plane.authority._state.bucket("bindings", "risk").members["api-0"]  # damage: no command does this
        ok(await plane.send(repair, Delete("Instance", "risk", "api-0")))
        assert plane.authority.view().get("instances", "risk", "api-0") is None


async def test_only_repair_writes_repairs() -> None:
    async with running_plane() as plane:
        found = Repair(metadata=Metadata(name="x"), spec=RepairSpec(problem="StuckSlot", regarding="workloads/risk/api"))
        no(await plane.send(OPERATOR, Put("Repair", found)), "NotOwner")
        repair = await plane.as_role(Role.REPAIR)
        ok(await plane.send(repair, Put("Repair", found)))
        ok(await plane.send(repair, PutStatus("Repair", "", "x", RepairStatus(1, 2))))


def _use(cpu: int) -> str:
    return str({"cpu": cpu, "memory": GI})


async def test_a_ledger_that_is_right_has_not_drifted_and_one_that_is_wrong_is_told_with_both_figures() -> None:
    async with running_plane() as plane:
        await bound_plane(plane)
        assert await plane.authority.figures().drifts() == []
        ledger = plane.authority._ctx.ledger
        ledger.node("n1").cpu_free += 500
        ledger.tenant("risk").used["cpu"] += 7
        found = {each.regarding: each.detail for each in await plane.authority.figures().drifts()}
        assert found == {
            "nodes//n1": "cpu_free is 15500 in the ledger and 15000 by its objects",
            "tenants//risk": f"use is {_use(1007)} in the ledger and {_use(1000)} by its objects",
        }
        ledger.node("n1").add(Resources(500, 0), (), 0, 1)
        ledger.node("n1").cpu_unlent += 500
        ledger.node("n1").slots_free += 1
        ledger.tenant("risk").used["cpu"] -= 7
        assert await plane.authority.figures().drifts() == [], "put right, it is right"


async def test_a_leader_whose_memory_is_wrong_reads_it_anew_and_leads_on() -> None:
    async with running_plane() as plane:
        await bound_plane(plane)
        fence = plane.authority.fence
        assert fence is not None
        plane.authority._ctx.ledger.node("n1").cpu_free += 500
        assert await plane.authority.figures().drifts()
        plane.authority.hand_over()
        await plane.authority.wait_not_leading()
        await plane.authority.wait_leading()
        assert plane.authority.fence is not None
        assert plane.authority.fence.epoch > fence.epoch, "fenced: whatever the old memory would still have said is refused"
        assert await plane.authority.figures().drifts() == []
        assert plane.authority._ctx.ledger.node("n1").cpu_free == 15_000
        assert plane.authority.view().get("bindings", "risk", "api-0") is not None
