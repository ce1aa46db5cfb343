"""What was bound above the limit that stays says so until it is within it, and no longer (P13)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.authority.confirming import AUTHORITY, ROUND_MAX
from fairlead.authority.judge.context import put
from fairlead.authority.judge.running import CONFIRMED
from fairlead.decide.slots import instant
from fairlead.model.commands import Command, Move
from fairlead.model.kinds.capacity import Grant, GrantStatus
from fairlead.model.kinds.quota import GrantTerm, GrantTermSpec, GrantTermStatus
from fairlead.model.kinds.work import Binding
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from tests.authority.planes import GI, REGION, FakeClock, PlaneForTest, bind_of, ok, reserve_of, running_plane, token

LEASE_S = 600


class Leased:
    """A region whose tenant may use much, and of which little stays: as mirror and grant controller would have written it."""

    def __init__(self, plane: PlaneForTest, clock: FakeClock) -> None:
        self.plane, self.clock = plane, clock
        self.proposed: list[int] = []  # how many each time the authority looked
        confirming = plane.authority._chores._confirming
        commands = confirming.commands

        def counted() -> list[Command]:
            found = commands()
            self.proposed.append(len(found))
            return found

        confirming.commands = counted  # type: ignore[method-assign]

    async def write(self, after_cpu: int, **term: Any) -> None:
        authority = self.plane.authority
        pipeline = authority._pipeline
        assert pipeline is not None
        end = instant(authority.plane_ms() + LEASE_S * 1000)
        grant: Grant = authority._state.hot("grants", "risk", REGION)
        stays = Resources(after_cpu, 1000 * GI)
        status = GrantStatus(accepted_version=1, during=grant.spec.during, after=stays, incarnation=1)
        grant = replace(grant, spec=replace(grant.spec, after=stays, lease_seconds=LEASE_S), status=status)
        told = GrantTermStatus(incarnation=1, asked=1, taken=1, end_time=end, knows=1, **term)
        spec = GrantTermSpec(REGION, incarnation=1, asker=1, answered=1, lease_seconds=LEASE_S)
        made = GrantTerm(Metadata(name=REGION), spec, told)
        await pipeline.commit_own([put("grants", "risk", REGION, grant, grant), put("grantterms", "", REGION, made, made)])

    async def bind(self, count: int) -> None:
        queue, scheduler = await self.plane.as_role(Role.ASSIGNMENT), await self.plane.as_role(Role.SCHEDULER)
        for index in range(count):
            ok(await self.plane.request("risk", "api", index, queue, cpu=1000))
            ok(await self.plane.send(scheduler, bind_of("risk", f"api-{index}", "n0")))

    def binding(self, name: str) -> Binding:
        rec = self.plane.authority.view().get("bindings", "risk", name)
        assert rec is not None
        found: Binding = rec.decode()
        return found

    def provisional(self, count: int) -> list[int]:
        return [n for n in range(count) if self.binding(f"api-{n}").spec.provisional_until_time is not None]

    async def rounds(self) -> None:
        """Until the authority has looked, and what it wrote then is there."""
        looks = len(self.proposed)
        while len(self.proposed) < looks + 3:
            self.clock.offset += 0.25
            await asyncio.sleep(0.002)


async def test_what_is_above_what_stays_is_confirmed_once_all_of_its_tenant_is_within_it_and_nothing_else_changes() -> None:
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        leased = Leased(plane, clock)
        await plane.add_node("n0", cpu=64_000)
        await plane.grant("risk")
        await leased.write(after_cpu=1000)
        await leased.bind(2)
        assert leased.provisional(2) == [1]
        before = leased.binding("api-1")
        await leased.rounds()
        assert leased.provisional(2) == [1], "it would not stay"
        await leased.write(after_cpu=2000, cut_time=instant(1000))
        await leased.rounds()
        assert leased.provisional(2) == [1], "the report of a cut counts it first"
        await leased.write(after_cpu=2000)
        await leased.rounds()
        after = leased.binding("api-1")
        assert after == replace(before, spec=replace(before.spec, provisional_until_time=None), metadata=after.metadata)
        assert after.metadata.uid == before.metadata.uid
        await leased.write(after_cpu=1000)
        await leased.rounds()
        assert leased.provisional(2) == [], "it was said once, and stays so"


@pytest.mark.parametrize(
    ("reason", "by_authority", "after_cpu"), [(CONFIRMED, False, 2000), ("", True, 2000), (CONFIRMED, True, 1999)]
)
async def test_nobody_else_confirms_anything_nor_the_authority_what_does_not_stay(
    reason: str, by_authority: bool, after_cpu: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.authority.confirming.Confirming.commands", lambda self: [])
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        leased = Leased(plane, clock)
        await plane.add_node("n0", cpu=64_000)
        await plane.grant("risk")
        await leased.write(after_cpu=1000)
        await leased.bind(2)
        await leased.write(after_cpu=after_cpu)
        caller = AUTHORITY if by_authority else await plane.as_role(Role.ROLLOUT)
        command = Command(caller, Move("risk", "api-1", token(), SlotState.BOUND, reason))
        submit = plane.authority._chores._submit if by_authority else plane.authority.submit
        ok((await submit([command]))[0])
        assert leased.provisional(2) == [1]


async def test_few_are_confirmed_at_a_time() -> None:
    count = 2 * ROUND_MAX + 2
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        leased = Leased(plane, clock)
        await plane.add_node("n0", cpu=640_000, memory=900 * GI)
        await plane.grant("risk")
        await leased.write(after_cpu=1000)
        await leased.bind(count)
        assert leased.provisional(count) == list(range(1, count))
        await leased.write(after_cpu=1000 * count)
        while leased.provisional(count):
            await leased.rounds()
        assert [each for each in leased.proposed if each] == [ROUND_MAX, ROUND_MAX, 1]


async def test_what_was_held_or_reserved_for_a_slot_is_not_counted_twice_against_what_stays() -> None:
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        leased = Leased(plane, clock)
        await plane.add_node("n0", cpu=64_000)
        await plane.grant("risk")
        await leased.write(after_cpu=3000)
        recovery, queue, scheduler = [await plane.as_role(r) for r in (Role.RECOVERY, Role.ASSIGNMENT, Role.SCHEDULER)]
        ok(await plane.request("risk", "standing.eu", 0, recovery, cpu=2000, budget_name="eu", standing=True))
        ok(await plane.send(scheduler, bind_of("risk", "standing.eu-0", "n0")))
        ok(await plane.request("risk", "api", 0, queue, cpu=2000, budget_name="eu"))
        ok(await plane.send(scheduler, bind_of("risk", "api-0", "n0", claims="standing.eu-0")))
        ok(await plane.request("risk", "api", 1, queue, cpu=1000))
        ok(await plane.send(scheduler, reserve_of("risk", "api-1", "n0", ttl_s=60.0)))
        ok(await plane.send(scheduler, bind_of("risk", "api-1", "n0")))
        assert leased.provisional(2) == [], "all of it stays"
        ok(await plane.request("risk", "api", 2, queue, cpu=1000))
        ok(await plane.send(scheduler, bind_of("risk", "api-2", "n0")))
        assert leased.provisional(3) == [2]
