"""Leftovers found, written down and mended on a plane that runs, look by look."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.authority.chores import Chores
from fairlead.authority.judge import Settings
from fairlead.authority.local import LocalPlane
from fairlead.compose.config import PlaneConfig
from fairlead.compose.patrolling import LedgerPatrol, leftovers_of
from fairlead.controllers.contract import part_of
from fairlead.controllers.leftovers import SLOTS_PERIODS, SWEEP_S, LeftoversController
from fairlead.model.commands import Caller, Command, Delete, Put
from fairlead.model.controllers import CONTROLLERS
from fairlead.model.kinds.policy import Override, OverrideScope, OverrideSpec
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from tests.authority.planes import (
    OPERATOR,
    REGION,
    FakeClock,
    PlaneForTest,
    agent_of,
    bind_of,
    ok,
    report_of,
    reserve_of,
    running_plane,
)
from tests.model.examples import workload


class Looking:
    """A controller's looks, each submitted as its runtime would."""

    def __init__(self, plane: PlaneForTest, controller: LeftoversController) -> None:
        self.plane = plane
        self.local = LocalPlane(plane.authority, plane.clock)
        self.controller = controller

    async def look(self) -> list[Any]:
        bodies = await self.controller.sweep(self.local, self.plane.clock)
        assert {part_of(body) for body in bodies} <= set(CONTROLLERS[self.controller.name].writes)
        repair = await self.caller() if bodies else None
        for body in bodies:
            assert repair is not None
            ok(await self.plane.send(repair, body))
        return bodies

    async def caller(self) -> Caller:
        return await self.plane.as_role(Role.REPAIR)

    def said(self) -> list[tuple[str, str, str]]:
        """(problem, reason of Mended, reason of Overdue) of every Repair."""
        out = []
        for rec in sorted(self.plane.authority._state.live("repairs"), key=lambda rec: rec.name):
            reasons = {c.type: c.reason for c in rec.hot.status.conditions}
            out.append((rec.hot.spec.problem, reasons.get("Mended", ""), reasons.get("Overdue", "")))
        return out


def region(plane: PlaneForTest, ledger: LedgerPatrol | None = None) -> Looking:
    return Looking(plane, LeftoversController("repair-leftovers", REGION, ledger))


async def placed(plane: PlaneForTest) -> None:
    await plane.add_node("n1")
    await plane.grant("risk")
    assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
    for index in (0, 1):
        ok(await plane.request("risk", "api", index, assigner))
    ok(await plane.send(scheduler, bind_of("risk", "api-0", "n1")))
    ok(await plane.send(agent_of("n1"), report_of("risk", "api-0", SlotState.STARTING, ready=False)))


async def test_a_reservation_that_the_authority_forgot_is_told_ended_and_on_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Chores, "_expired_reservations", lambda self: list[Command]())
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        await placed(plane)
        looking = region(plane)
        scheduler = await plane.as_role(Role.SCHEDULER)
        ok(await plane.send(scheduler, reserve_of("risk", "api-1", "n1", ttl_s=5.0)))
        assert await looking.look() == []
        clock.offset += 16.0
        await looking.look()
        assert looking.said() == [("LeakedReservation", "", "")]
        assert plane.authority.view().get("reservations", "risk", "api-1") is not None, "the evidence comes first"
        await looking.look()
        assert plane.authority.view().get("reservations", "risk", "api-1") is None
        await looking.look()
        assert looking.said() == [("LeakedReservation", "Mended", "Mended")]
        assert await looking.look() == [], "nothing is left to say"


async def test_an_override_that_asks_for_approval_holds_it_back_and_delay_is_escalated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Chores, "_expired_reservations", lambda self: list[Command]())
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        await placed(plane)
        looking = region(plane)
        scheduler, mirror = await plane.as_role(Role.SCHEDULER), await plane.as_role(Role.MIRROR)
        ok(await plane.send(scheduler, reserve_of("risk", "api-1", "n1", ttl_s=5.0)))
        spec = OverrideSpec(kind="repair-approval", reason="incident 7", ttl_seconds=600, requester="ada",
                            scope=OverrideScope(workloads=("api",)))  # fmt: skip
        ok(await plane.send(mirror, Put("Override", Override(metadata=Metadata(name="wait", namespace="risk"), spec=spec))))
        clock.offset += 16.0
        await looking.look()
        await looking.look()
        assert looking.said() == [("LeakedReservation", "AwaitingApproval", "InTime")]
        clock.offset += 90.0
        await looking.look()
        assert looking.said()[0] == ("LeakedReservation", "AwaitingApproval", "Escalated")
        told = [rec.decode() for rec in plane.authority._state.live("events")]
        assert [event.spec.reason for event in told] == ["RepairOverdue"]
        assert plane.authority.view().get("reservations", "risk", "api-1") is not None


async def test_orphans_are_told_after_two_looks_and_only_an_instance_without_a_binding_is_removed() -> None:
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        await placed(plane)
        looking = region(plane)
        del plane.authority._state.bucket("bindings", "risk").members["api-0"]  # damage
        scheduler = await plane.as_role(Role.SCHEDULER)
        ok(await plane.send(scheduler, bind_of("risk", "api-1", "n1")))
        for _ in range(3):
            await looking.look()
            clock.offset += SLOTS_PERIODS * SWEEP_S + 1
        found = {problem for problem, _, _ in looking.said()}
        assert found == {"OrphanedBinding", "OrphanedInstance"}, "no Assignment wants api-1, and api-0 lost its binding"
        assert plane.authority.view().get("instances", "risk", "api-0") is None
        assert plane.authority.view().get("bindings", "risk", "api-1") is not None, "nobody has shown that it does not run"


async def test_what_was_told_of_slots_is_neither_over_nor_told_anew_before_a_new_leader_has_looked_twice() -> None:
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        await placed(plane)  # and no Assignment wants it
        (before, after), deadlines = (region(plane), region(plane)), []
        for looking in (before, before, after, after, after):
            await looking.look()
            clock.offset += SLOTS_PERIODS * SWEEP_S + 1
            deadlines += [rec.hot.spec.deadline_time for rec in plane.authority._state.live("repairs")]
            assert all(reason != "Gone" for _, reason, _ in looking.said())
        assert len(deadlines) == 4
        assert len(set(deadlines)) == 1
        assert after.said() == [("OrphanedBinding", "OwnerMustAct", "Escalated")]
        del plane.authority._state.bucket("bindings", "risk").members["api-0"]
        await after.look()
        assert "Gone" in after.said()[0]


async def test_a_ledger_that_drifted_is_written_down_and_then_built_anew_under_a_new_epoch() -> None:
    async with running_plane() as plane:
        await placed(plane)
        ledger = LedgerPatrol(plane.authority, plane.clock)
        looking = region(plane, ledger)
        assert await looking.look() == [], "nobody has counted yet"
        plane.authority._ctx.ledger.node("n1").cpu_free += 500
        await ledger.look()
        await looking.look()
        assert looking.said() == [("DriftedLedger", "", "")]
        assert plane.authority._ctx.ledger.node("n1").cpu_free == 15_500
        assert await looking.look() == []
        await plane.authority.wait_not_leading()
        await plane.authority.wait_leading()
        assert plane.authority._ctx.ledger.node("n1").cpu_free == 15_000
        await looking.look()
        assert looking.said() == [("DriftedLedger", "", "")], "nobody has counted since"
        assert not await ledger.look()
        await looking.look()
        assert looking.said()[0][1] == "Gone"
        assert (ledger.drifts_total, ledger.rebuilds_total) == (1, 1)
        plane.authority._ctx.ledger.node("n1").cpu_free += 500
        await ledger.look()
        for _ in range(3):
            await looking.look()
        assert ledger.rebuilds_total == 1, "one that drifts again at once is a bug that building anew does not cure"
        assert plane.authority.leading


async def test_a_workload_s_finalizer_that_nobody_takes_off_goes_when_no_region_has_anything_of_it() -> None:
    clock = FakeClock()
    async with running_plane(clock=clock, settings=Settings(plane="global", region="global")) as plane:
        controller = leftovers_of(PlaneConfig(plane="global", store="", data=""), LedgerPatrol(plane.authority, clock))
        looking = Looking(plane, controller)
        ok(await plane.send(OPERATOR, Put("Workload", workload())))
        ok(await plane.send(OPERATOR, Delete("Workload", "risk", "api")))
        assert await looking.look() == []
        clock.offset += 31.0
        await looking.look()
        assert looking.said() == [("StaleFinalizer", "", "")]
        await looking.look()
        assert plane.authority.view().get("workloads", "risk", "api") is None
        await looking.look()
        assert looking.said() == [("StaleFinalizer", "Mended", "Mended")]
