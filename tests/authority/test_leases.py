"""Leases of roles and the fence they put before every command (S9)."""

from __future__ import annotations

from fairlead.model.commands import Caller, LeaseAcquire, LeaseRelease, LeaseRenew
from fairlead.model.lifecycle import LEASED_ROLES, Role
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import FakeClock, bind_of, no, ok, running_plane

FIRST = Caller("scheduler-a", Role.SCHEDULER)
SECOND = Caller("scheduler-b", Role.SCHEDULER)


async def test_a_held_lease_is_refused_until_it_ran_out_and_the_next_holder_gets_a_higher_epoch() -> None:
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        first = ok(await plane.send(FIRST, LeaseAcquire("s", Role.SCHEDULER, 10.0)))
        refused = no(await plane.send(SECOND, LeaseAcquire("s", Role.SCHEDULER, 10.0)), "LeaseHeld")
        assert refused.facts["holder"] == "scheduler-a"
        clock.offset += 9.0
        ok(await plane.send(FIRST, LeaseRenew("s", first.epoch)))
        clock.offset += 9.0
        no(await plane.send(SECOND, LeaseAcquire("s", Role.SCHEDULER, 10.0)), "LeaseHeld")
        clock.offset += 1.2
        second = ok(await plane.send(SECOND, LeaseAcquire("s", Role.SCHEDULER, 10.0)))
        assert second.epoch == first.epoch + 1
        no(await plane.send(FIRST, LeaseRenew("s", first.epoch)), "FencedOut")


async def test_a_command_with_an_old_epoch_is_refused_and_told_the_present_one() -> None:
    async with running_plane() as plane:
        old = await plane.as_role(Role.SCHEDULER, "scheduler-a", "s")
        ok(await plane.send(FIRST, LeaseRelease("s", old.fencing_epoch)))
        await plane.as_role(Role.SCHEDULER, "scheduler-b", "s")
        refused = no(await plane.send(old, bind_of("risk", "api-0", "n1")), "FencedOut")
        assert refused.facts == {"epoch": 2, "holder": "scheduler-b", "role": "scheduler"}


async def test_every_leased_role_needs_a_lease_of_its_own_role() -> None:
    async with running_plane() as plane:
        node = await plane.as_role(Role.NODE)
        for role in sorted(LEASED_ROLES, key=lambda role: role.value):
            if role is not Role.NODE:
                borrowed = Caller(node.actor, role, lease=node.lease, fencing_epoch=node.fencing_epoch)
                no(await plane.send(borrowed, bind_of("risk", "api-0", "n1")), "FencedOut")


async def test_nobody_acquires_a_lease_for_another_role_and_nobody_speaks_as_the_authority() -> None:
    async with running_plane() as plane:
        no(await plane.send(FIRST, LeaseAcquire("s", Role.REPAIR)), "NotOwner")
        no(await plane.send(Caller("eve", Role.AUTHORITY), LeaseAcquire("s", Role.AUTHORITY)), "NotOwner")


async def test_a_new_leader_counts_every_lease_from_its_own_start() -> None:
    clock, disk = FakeClock(), MemoryDisk()
    async with running_plane(MemoryStore(disk), clock) as plane:
        ok(await plane.send(FIRST, LeaseAcquire("s", Role.SCHEDULER, 300.0)))
        clock.offset += 295.0
    async with running_plane(MemoryStore(disk), clock) as plane:
        clock.offset += 10.0
        refused = no(await plane.send(SECOND, LeaseAcquire("s", Role.SCHEDULER, 300.0)), "LeaseHeld")
        assert refused.retry_after_s > 200, "of 300, less the ten above and what this machine took"
