"""Slot leases at the authority (P11): whose a lease is, when it may be taken, and what of it is passed down to agents."""

from __future__ import annotations

from msgspec.structs import replace

from fairlead.authority.term import HeartbeatAck
from fairlead.decide.slot_lease import lease_of
from fairlead.model.commands import Caller, LeaseAcquire, LeaseRelease, LeaseRenew
from fairlead.model.lifecycle import Role
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import FakeClock, no, ok, running_plane

FIRST, SECOND = Caller("us-east-0", Role.MIRROR), Caller("us-east-1", Role.MIRROR)
RECOVERY, OTHER = Caller("global-0", Role.RECOVERY), Caller("global-1", Role.RECOVERY)
NAME, TTL_S = lease_of("us-east"), 60.0
ASK = LeaseAcquire(NAME, Role.MIRROR, TTL_S)
TAKE = LeaseAcquire(NAME, Role.RECOVERY, TTL_S)


async def test_recovery_takes_a_lease_only_when_its_region_can_count_on_it_no_more() -> None:
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        held = ok(await plane.send(FIRST, ASK))
        clock.offset += 50.0
        ok(await plane.send(FIRST, LeaseRenew(NAME, held.epoch)))
        clock.offset += 61.0  # its end, with a clock that is wrong, and no margin
        no(await plane.send(RECOVERY, TAKE), "LeaseHeld")
        clock.offset += 4.7
        taken = ok(await plane.send(RECOVERY, TAKE))
        assert taken.epoch == held.epoch + 1
        no(await plane.send(FIRST, LeaseRenew(NAME, held.epoch)), "FencedOut")


async def test_what_recovery_took_does_not_run_out_and_is_given_back_by_whichever_of_its_servers() -> None:
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        taken = ok(await plane.send(RECOVERY, TAKE))
        clock.offset += 3600.0
        no(await plane.send(FIRST, ASK), "LeaseHeld")
        no(await plane.send(FIRST, LeaseRelease(NAME, taken.epoch)), "FencedOut")
        ok(await plane.send(OTHER, LeaseRelease(NAME, taken.epoch)))
        assert ok(await plane.send(FIRST, ASK)).epoch == taken.epoch + 1


async def test_the_next_leader_of_a_region_takes_its_lease_over_at_once() -> None:
    async with running_plane() as plane:
        before = ok(await plane.send(FIRST, ASK))
        after = ok(await plane.send(SECOND, ASK))
        no(await plane.send(FIRST, LeaseRenew(NAME, before.epoch)), "FencedOut")
        ok(await plane.send(SECOND, LeaseRenew(NAME, after.epoch)))


async def test_in_another_history_a_lease_waits_for_the_longest_that_any_region_has() -> None:
    """Another region may have stood in for what this one asks for, by an order that is lost."""
    clock, disk = FakeClock(), MemoryDisk()
    async with running_plane(MemoryStore(disk), clock) as plane:
        ok(await plane.send(FIRST, ASK))
        ok(await plane.send(Caller("us-west-0", Role.MIRROR), LeaseAcquire(lease_of("us-west"), Role.MIRROR, 5 * TTL_S)))
    disk.head = replace(disk.head, incarnation=disk.head.incarnation + 1)  # as a restore leaves it
    async with running_plane(MemoryStore(disk), clock) as plane:
        clock.offset += 2 * TTL_S
        no(await plane.send(FIRST, ASK), "LeaseHeld")
        clock.offset += 4 * TTL_S
        ok(await plane.send(FIRST, ASK))


async def test_a_new_leader_of_the_global_plane_counts_a_slot_lease_from_its_own_start() -> None:
    clock, disk = FakeClock(), MemoryDisk()
    async with running_plane(MemoryStore(disk), clock) as plane:
        ok(await plane.send(FIRST, ASK))
        clock.offset += 60.0
    async with running_plane(MemoryStore(disk), clock) as plane:
        clock.offset += 20.0
        no(await plane.send(RECOVERY, TAKE), "LeaseHeld")


async def test_agents_are_told_what_is_left_of_the_slot_lease_and_never_less_than_nothing() -> None:
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:

        def left() -> float | None:
            heard = plane.authority.heartbeat([("n1", 1)])
            assert isinstance(heard, HeartbeatAck)
            return heard.global_valid_s

        assert left() is None, "a plane that stands alone needs none"
        plane.authority.slots_until = clock.monotonic() + 100.0
        told = left()
        assert told is not None
        assert 0 < told <= 100.0
        plane.authority.slots_until = clock.monotonic() - 1.0
        assert left() == 0.0
