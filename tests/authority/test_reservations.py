"""Reservations end exactly once: bound, released or expired (S8)."""

from __future__ import annotations

from fairlead.model.commands import ReleaseReservation
from fairlead.model.lifecycle import Role, SlotState
from tests.authority.planes import FakeClock, bind_of, no, ok, reserve_of, running_plane


async def test_an_expired_reservation_is_ended_by_the_authority_exactly_once() -> None:
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        await plane.add_node("n1")
        await plane.grant("risk")
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        ok(await plane.request("risk", "api", 0, assigner))
        held = ok(await plane.send(scheduler, reserve_of("risk", "api-0", "n1", ttl_s=5.0)))
        after = plane.authority.view().revision
        clock.offset += 6.0
        no(await plane.send(scheduler, bind_of("risk", "api-0", "n1")), "Expired")
        while plane.authority.view().get("reservations", "risk", "api-0") is not None:
            await clock.sleep(0.02)
        rec = plane.authority.view().get("schedulingrequests", "risk", "api-0")
        assert rec is not None
        assert rec.hot.status.state is SlotState.PENDING
        assert rec.hot.status.last_transition.by == "authority"
        assert held.token is not None
        ok(await plane.send(scheduler, ReleaseReservation("risk", "api-0", held.token)))
        ended = [r for r in plane.authority.watch("reservations", after).take_nowait() if r.raw is None]
        assert len(ended) == 1
        assert plane.authority._ctx.ledger.node("n1").cpu_free == 16_000


async def test_only_its_owner_binds_a_reservation_and_only_where_it_was_made() -> None:
    async with running_plane() as plane:
        await plane.add_node("n1")
        await plane.add_node("n2")
        await plane.grant("risk")
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        other = await plane.as_role(Role.SCHEDULER, "scheduler-1", "scheduler-1")
        ok(await plane.request("risk", "api", 0, assigner))
        ok(await plane.send(scheduler, reserve_of("risk", "api-0", "n1")))
        no(await plane.send(scheduler, bind_of("risk", "api-0", "n2")), "NotPending")
        no(await plane.send(other, bind_of("risk", "api-0", "n1")), "NotPending")
        no(await plane.send(other, reserve_of("risk", "api-0", "n2")), "NotPending")
        assert ok(await plane.send(scheduler, reserve_of("risk", "api-0", "n1"))).replayed
        ok(await plane.send(scheduler, bind_of("risk", "api-0", "n1")))
