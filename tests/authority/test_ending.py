"""What a lease or an emergency quota that ends leaves no room for (P13): rooms of recovery budgets go before anything that runs,
and nothing goes for a dimension that it uses nothing of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from fairlead.authority.ending import to_end
from fairlead.authority.judge.context import put
from fairlead.decide.grants import limits_of
from fairlead.decide.slots import instant
from fairlead.model.commands import Put
from fairlead.model.kinds.capacity import BudgetShape, Grant, GrantStatus, Holding, HoldingSpec
from fairlead.model.kinds.quota import GrantTerm, GrantTermSpec, GrantTermStatus
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import Device, DeviceAsk, Resources
from tests.authority.planes import GI, REGION, FakeClock, PlaneForTest, agent_of, bind_of, ok, report_of, running_plane

LEASE_S = 600
ROOM = Resources(2000, 2 * GI)
_S = SlotState


class Rig:
    """A region with a leased grant, of whose tenant slots run and rooms are held."""

    def __init__(self, plane: PlaneForTest, clock: FakeClock) -> None:
        self.plane, self.clock = plane, clock

    async def begin(self, **node: Any) -> None:
        plane = self.plane
        await plane.add_node("n0", cpu=64_000, **node)
        await plane.grant("risk", gpu=16, fpga=16)
        roles = (Role.RECOVERY, Role.ASSIGNMENT, Role.SCHEDULER)
        self.recovery, self.assigner, self.scheduler = [await plane.as_role(role) for role in roles]
        spec = HoldingSpec("eu", "u-eu", REGION, (BudgetShape(ROOM, 9),))
        ok(await plane.send(self.recovery, Put("Holding", Holding(Metadata(name=f"eu.{REGION}", namespace="risk"), spec))))

    async def stand(self, index: int) -> None:
        made = {"cpu": ROOM.cpu, "memory": ROOM.memory, "budget_name": "eu", "standing": True}
        ok(await self.plane.request("risk", "standing.eu", index, self.recovery, **made))
        ok(await self.plane.send(self.scheduler, bind_of("risk", f"standing.eu-{index}", "n0")))

    async def bind(self, name: str, claims: str = "", **spec: Any) -> None:
        ok(await self.plane.request("risk", name, 0, self.assigner, budget_name="eu" if claims else "", **spec))
        ok(await self.plane.send(self.scheduler, bind_of("risk", f"{name}-0", "n0", claims=claims)))

    async def end_lease(self, stays: Resources) -> None:
        """As mirror and grant controller would have written it: of what was granted this stays, and the lease is over."""
        authority = self.plane.authority
        assert authority._pipeline is not None
        grant: Grant = authority._state.hot("grants", "risk", REGION)
        status = GrantStatus(accepted_version=1, during=grant.spec.during, after=stays, incarnation=1)
        grant = replace(grant, spec=replace(grant.spec, after=stays, lease_seconds=LEASE_S), status=status)
        told = GrantTermStatus(incarnation=1, asked=1, taken=1, end_time=instant(authority.plane_ms()), knows=1)
        spec = GrantTermSpec(REGION, incarnation=1, asker=1, answered=1, lease_seconds=LEASE_S)
        term = GrantTerm(Metadata(name=REGION), spec, told)
        await authority._pipeline.commit_own(
            [put("grants", "risk", REGION, grant, grant), put("grantterms", "", REGION, term, term)]
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        """The authority looks twice a second."""
        for _ in range(400):
            if condition():
                return
            self.clock.offset += 0.25
            await asyncio.sleep(0.002)
        raise AssertionError("nothing of it happened")

    def rooms(self) -> list[int]:
        return sorted(rec.hot.spec.index for rec in self.plane.authority._state.live("reservations", "risk"))

    def draining(self) -> list[str]:
        return sorted(rec.name for rec in self.plane.authority._state.live("bindings", "risk") if rec.hot.state is _S.DRAINING)

    def used(self) -> int:
        return self.plane.authority._ctx.ledger.tenant("risk").used["cpu"]


async def test_rooms_are_given_up_before_anything_that_runs_is_stopped_and_no_more_of_them_than_needed() -> None:
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        rig = Rig(plane, clock)
        await rig.begin()
        for index in range(3):
            await rig.stand(index)
        await rig.bind("api", cpu=1000)
        await rig.bind("web", cpu=1000)
        await rig.end_lease(Resources(4000, 99 * GI))
        await rig.until(lambda: rig.used() == 4000)
        assert (rig.rooms(), rig.draining()) == ([0], []), "the youngest room goes first"


async def test_where_rooms_are_not_enough_slots_follow_and_a_room_that_one_had_claimed_is_not_kept_either() -> None:
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        rig = Rig(plane, clock)
        await rig.begin()
        await rig.stand(0)
        await rig.stand(1)
        await rig.bind("stand-in", "standing.eu-0", cpu=2000, memory=2 * GI)
        await rig.bind("api", cpu=1000, priority=500)
        await rig.end_lease(Resources(1000, 99 * GI))
        await rig.until(lambda: rig.draining() == ["stand-in-0"])
        assert rig.rooms() == []
        ok(await plane.send(agent_of("n0"), report_of("risk", "stand-in-0", _S.RELEASED)))
        await rig.until(lambda: rig.used() == 1000)
        assert (rig.rooms(), rig.draining()) == ([], [])


async def test_a_device_counts_for_its_own_kind_and_who_has_none_is_not_stopped_for_it() -> None:
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        rig = Rig(plane, clock)
        devices = (Device(id="g0", model="a100"), Device(id="f0", model="u55", resource="fpga"))
        await rig.begin(devices=devices)
        await rig.bind("plain", cpu=1000)
        await rig.bind("fpga", cpu=1000, devices=(DeviceAsk(resource="fpga"),))
        await rig.bind("gpu", cpu=1000, devices=(DeviceAsk(resource="gpu"),), priority=100)
        limits = limits_of(Resources(99_000, 99 * GI, (("fpga", 1),)))
        rooms, bound = to_end(plane.authority._state, plane.authority._ctx.ledger, "risk", limits)
        assert (rooms, [rec.name for rec in bound]) == ([], ["gpu-0"])
