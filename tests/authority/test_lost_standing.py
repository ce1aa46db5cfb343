"""A region whose store lost history, or was restored, does not know which offer of a grant it took last (P6, P13). What runs
without an end goes on, however long nobody is heard; nothing is placed before it has taken an offer again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.authority.judge.context import put
from fairlead.decide.granting import margin_ms
from fairlead.decide.slots import instant
from fairlead.model.commands import Put
from fairlead.model.kinds.capacity import BudgetShape, Grant, GrantStatus, Holding, HoldingSpec
from fairlead.model.kinds.quota import GrantTerm, GrantTermSpec, GrantTermStatus
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import GI, REGION, FakeClock, PlaneForTest, bind_of, no, ok, reserve_of, running_plane

LEASE_S = 600
ROOM = Resources(1000, GI)
NAMES = ("api-0", "db-0", "burst-0")  # the last is above what stays


async def write(plane: PlaneForTest, **fields: Any) -> None:
    """As mirror and grant controller would have written it: a lease, and an offer of which 2000 cpu stay."""
    authority = plane.authority
    assert authority._pipeline is not None
    incarnation, offered = fields.get("incarnation", 1), fields.get("offered", 2000)
    grant: Grant = authority._state.hot("grants", "risk", REGION)
    stays = Resources(2000, 99 * GI)
    status = GrantStatus(accepted_version=1, during=Resources(4000, 99 * GI), after=stays, incarnation=1)
    spec = replace(grant.spec, during=status.during, after=Resources(offered, 99 * GI), lease_seconds=LEASE_S)
    grant = replace(grant, spec=spec, status=status)
    until = instant(authority.plane_ms() + LEASE_S * 1000)
    told = GrantTermStatus(incarnation=incarnation, asked=1, taken=1, end_time=until, knows=1)
    term = GrantTerm(Metadata(name=REGION), GrantTermSpec(REGION, 1, incarnation, 1, LEASE_S), told)
    await authority._pipeline.commit_own([put("grants", "risk", REGION, grant, grant), put("grantterms", "", REGION, term, term)])


async def furnish(plane: PlaneForTest) -> None:
    """Two slots that stay, one that does not, and a room of a recovery budget."""
    await plane.add_node("n0", cpu=64_000)
    await plane.grant("risk")
    await write(plane)
    recovery, assigner, scheduler = [await plane.as_role(role) for role in (Role.RECOVERY, Role.ASSIGNMENT, Role.SCHEDULER)]
    for name in NAMES:
        ok(await plane.request("risk", name[:-2], 0, assigner))
        ok(await plane.send(scheduler, bind_of("risk", name, "n0")))
    spec = HoldingSpec("eu", "u-eu", REGION, (BudgetShape(ROOM, 1),))
    ok(await plane.send(recovery, Put("Holding", Holding(Metadata(name=f"eu.{REGION}", namespace="risk"), spec))))
    asked = {"cpu": ROOM.cpu, "memory": ROOM.memory, "budget_name": "eu", "standing": True}
    ok(await plane.request("risk", "standing.eu", 0, recovery, **asked))
    ok(await plane.send(scheduler, bind_of("risk", "standing.eu-0", "n0")))


class Restored:
    def __init__(self, plane: PlaneForTest, clock: FakeClock) -> None:
        self.plane, self.clock = plane, clock

    async def wait(self, seconds: float) -> None:
        """Agents are heard all the time."""
        ends = self.clock.monotonic() + seconds
        while self.clock.monotonic() < ends:
            self.plane.authority.heartbeat([("n0", 1)])
            self.clock.offset += 1.0
            await asyncio.sleep(0.003)

    def states(self) -> list[SlotState]:
        found = [self.plane.authority._state.get("bindings", "risk", name) for name in NAMES]
        return [rec.hot.state for rec in found if rec is not None]

    def rooms(self) -> int:
        return len(list(self.plane.authority._state.live("reservations", "risk")))


@asynccontextmanager
async def restored() -> AsyncIterator[Restored]:
    clock, disk = FakeClock(), MemoryDisk()
    async with running_plane(MemoryStore(disk), clock) as plane:
        await furnish(plane)
    disk.set_incarnation(disk.head.fence(), 2)
    async with running_plane(MemoryStore(disk), clock) as plane:
        plane.authority.heartbeat([("n0", 1)])
        yield Restored(plane, clock)


async def test_what_runs_without_an_end_goes_on_and_what_may_have_been_given_up_ends() -> None:
    """The global plane is not heard for a minute. Whatever the region took last, what stays of it holds these two."""
    bound = SlotState.BOUND
    async with restored() as region:
        await region.wait(margin_ms(LEASE_S) / 2000 - 2.0)
        assert (region.states(), region.rooms()) == ([bound] * 3, 1), "it asks first: it may be answered at once"
        await region.wait(60.0)
        assert (region.states(), region.rooms()) == ([bound, bound, SlotState.DRAINING], 0)


async def test_nothing_is_placed_before_it_has_taken_an_offer_again() -> None:
    async with restored() as region:
        plane = region.plane
        await write(plane, incarnation=2)  # it is answered; its copy of the offer has not been taken
        await region.wait(30.0)
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        ok(await plane.request("risk", "more", 0, assigner, cpu=1, memory=1))
        no(await plane.send(scheduler, bind_of("risk", "more-0", "n0")), "GrantExceeded")


async def test_nor_is_what_was_reserved_in_lost_history_bound() -> None:
    clock, disk = FakeClock(), MemoryDisk()
    async with running_plane(MemoryStore(disk), clock) as plane:
        await plane.add_node("n0", cpu=64_000)
        await plane.grant("risk")
        await write(plane)
        ok(await plane.request("risk", "kept", 0, await plane.as_role(Role.ASSIGNMENT), cpu=1, memory=1))
        ok(await plane.send(await plane.as_role(Role.SCHEDULER), reserve_of("risk", "kept-0", "n0")))
    disk.set_incarnation(disk.head.fence(), 2)
    async with running_plane(MemoryStore(disk), clock) as plane:
        plane.authority.heartbeat([("n0", 1)])
        await write(plane, incarnation=2)
        refused = no(await plane.send(await plane.as_role(Role.SCHEDULER), bind_of("risk", "kept-0", "n0")), "GrantExceeded")
        assert "has taken no offer" in refused.detail


@pytest.mark.parametrize("offered", [2000, 1000])
async def test_where_less_is_offered_than_runs_it_goes_a_whole_lease_after_the_global_plane_is_heard(offered: int) -> None:
    """No such offer is taken, and without one nothing is ever placed. Most of this time it is offered what it says it uses."""
    async with restored() as region:
        await write(region.plane, incarnation=2, offered=offered)
        await region.wait(LEASE_S - 30.0)
        assert region.states()[:2] == [SlotState.BOUND] * 2
        await write(region.plane, incarnation=2, offered=offered)
        await region.wait(40.0)
        last = SlotState.BOUND if offered == 2000 else SlotState.DRAINING
        assert region.states()[:2] == [SlotState.BOUND, last], "the youngest, and no more than needed"
