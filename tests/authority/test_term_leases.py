"""Leases that are held for the leader's term, by those who run in its process and end with it (ADR 0038)."""

from __future__ import annotations

import pytest

from fairlead.authority.judge import callers
from fairlead.model.commands import Caller, LeaseAcquire, LeaseRelease, LeaseRenew, PutStatus
from fairlead.model.kinds.capacity import NodeStatus
from fairlead.model.lifecycle import Role
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import FakeClock, PlaneForTest, bind_of, no, ok, running_plane
from tests.authority.test_promises import check

FIRST = Caller("server-a", Role.SCHEDULER)
SECOND = Caller("server-b", Role.SCHEDULER)
OF_TERM = LeaseAcquire("s", Role.SCHEDULER, 15.0, of_term=True)
FOR_A_TIME = LeaseAcquire("s", Role.SCHEDULER, 15.0)


async def held(plane: PlaneForTest) -> Caller:
    got = ok(await plane.send(FIRST, OF_TERM))
    return Caller("server-a", Role.SCHEDULER, lease="s", fencing_epoch=got.epoch)


async def test_it_is_held_without_renewals_for_as_long_as_its_leader_leads() -> None:
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        holder = await held(plane)
        clock.offset += 5.0
        for ask in (OF_TERM, FOR_A_TIME):
            refused = no(await plane.send(SECOND, ask), "LeaseHeld")
            assert (refused.facts["holder"], "as long as this leader leads" in refused.detail) == ("server-a", True)
        no(await plane.send(holder, bind_of("risk", "api-0", "n1")), "NotFound")  # of the request: the lease was good
        ok(await plane.send(FIRST, LeaseRelease("s", holder.fencing_epoch)))
        assert ok(await plane.send(SECOND, OF_TERM)).epoch == holder.fencing_epoch + 1


async def test_the_next_leaders_components_wait_for_nobody_and_what_was_held_before_is_over_at_once() -> None:
    clock, disk = FakeClock(), MemoryDisk()
    async with running_plane(MemoryStore(disk), clock) as plane:
        holder = await held(plane)
    async with running_plane(MemoryStore(disk), clock) as plane:
        late = no(await plane.send(holder, bind_of("risk", "api-0", "n1")), "FencedOut")
        assert "ended with term 1" in late.detail, "nobody else has taken it yet"
        no(await plane.send(FIRST, LeaseRenew("s", holder.fencing_epoch)), "FencedOut")
        assert ok(await plane.send(SECOND, OF_TERM)).epoch == holder.fencing_epoch + 1


async def test_one_that_is_held_for_a_time_must_run_out_first() -> None:
    clock, disk = FakeClock(), MemoryDisk()
    async with running_plane(MemoryStore(disk), clock) as plane:
        ok(await plane.send(FIRST, FOR_A_TIME))
    async with running_plane(MemoryStore(disk), clock) as plane:
        no(await plane.send(SECOND, OF_TERM), "LeaseHeld")


async def test_without_the_fence_a_write_of_an_older_term_is_found_in_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "is_over", lambda ctx, spec: False)
    clock, disk = FakeClock(), MemoryDisk()
    async with running_plane(MemoryStore(disk), clock) as plane:
        await plane.add_node("n1")
        got = ok(await plane.send(Caller("server-a", Role.NODE), LeaseAcquire("node", Role.NODE, of_term=True)))
    holder = Caller("server-a", Role.NODE, lease="node", fencing_epoch=got.epoch)
    async with running_plane(MemoryStore(disk), clock) as plane:
        ok(await plane.send(holder, PutStatus("Node", "", "n1", NodeStatus(schedulable=True, health="Unknown", session=1))))
    assert [each.invariant for each in check(disk).violations] == ["S9"]
