"""Reservations end exactly once: bound, released or expired (S8)."""

from __future__ import annotations

import asyncio

import pytest

from fairlead.model.commands import BindGang, Put, ReleaseReservation
from fairlead.model.lifecycle import Role, SlotState
from tests.authority.planes import FakeClock, bind_of, no, ok, request_of, reserve_of, running_plane, token


async def test_an_expired_reservation_is_ended_by_the_authority_exactly_once() -> None:
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        await plane.add_node("n1")
        await plane.grant("risk")
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        ok(await plane.request("risk", "api", 0, assigner))
        held = ok(await plane.send(scheduler, reserve_of("risk", "api-0", "n1", ttl_s=5.0)))
        after = plane.authority.view().revision
        sending = asyncio.ensure_future(plane.send(scheduler, bind_of("risk", "api-0", "n1")))
        await asyncio.sleep(0)  # it is with the judge, so that the authority's own round cannot come before it
        clock.offset += 6.0
        no(await sending, "Expired")
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
        no(await plane.send(scheduler, bind_of("risk", "api-0", "n1", claims="standing.eu-0")), "StandingGone")
        no(await plane.send(scheduler, bind_of("risk", "api-0", "n1", victims=("risk/api-1",))), "StandingGone")
        ok(await plane.send(scheduler, bind_of("risk", "api-0", "n1")))


@pytest.mark.parametrize("what", ["healthy", "schedulable"])
async def test_what_is_reserved_is_not_bound_to_a_node_that_is_not_ready_any_more(what: str) -> None:
    async with running_plane() as plane:
        await plane.add_node("n1")
        await plane.grant("risk")
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        ok(await plane.request("risk", "api", 0, assigner))
        ok(await plane.send(scheduler, reserve_of("risk", "api-0", "n1")))
        setattr(plane.authority._ctx.ledger.node("n1"), what, 0)
        no(await plane.send(scheduler, bind_of("risk", "api-0", "n1")), "NoFit")


async def test_a_reservation_has_an_end_and_not_one_far_off() -> None:
    async with running_plane() as plane:
        await plane.add_node("n1")
        await plane.grant("risk")
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        ok(await plane.request("risk", "api", 0, assigner))
        for ttl_s in (0.0, -1.0, 300.5):
            no(await plane.send(scheduler, reserve_of("risk", "api-0", "n1", ttl_s=ttl_s)), "Invalid")
        ok(await plane.send(scheduler, reserve_of("risk", "api-0", "n1", ttl_s=300.0)))


async def test_a_release_meant_for_another_life_of_the_slot_leaves_this_one_its_reservation() -> None:
    async with running_plane() as plane:
        await plane.add_node("n1")
        await plane.grant("risk")
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        ok(await plane.request("risk", "api", 0, assigner))
        first = ok(await plane.send(scheduler, reserve_of("risk", "api-0", "n1"))).token
        assert first is not None
        ok(await plane.send(scheduler, ReleaseReservation("risk", "api-0", first)))
        second = ok(await plane.send(scheduler, reserve_of("risk", "api-0", "n1"))).token
        assert second != first
        ok(await plane.send(scheduler, ReleaseReservation("risk", "api-0", first)))
        ok(await plane.send(scheduler, ReleaseReservation("risk", "api-0", token(attempt=9))))
        assert plane.authority.view().get("reservations", "risk", "api-0") is not None
        assert plane.authority._ctx.ledger.node("n1").cpu_free == 15_000


async def test_a_gang_has_members_each_once_and_all_of_the_same_gang() -> None:
    async with running_plane() as plane:
        await plane.add_node("n1")
        await plane.grant("risk")
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        for gang in ("red", "blue"):
            for index in range(2):
                ok(await plane.request("risk", gang, index, assigner, gang=gang, gang_size=2))
        no(await plane.send(scheduler, BindGang(())), "Invalid")
        twice = (bind_of("risk", "red-0", "n1"), bind_of("risk", "red-0", "n1"))
        no(await plane.send(scheduler, BindGang(twice)), "Invalid")
        mixed = (bind_of("risk", "red-0", "n1"), bind_of("risk", "blue-0", "n1"))
        refused = no(await plane.send(scheduler, BindGang(mixed)), "GangIncomplete")
        assert "different gangs" in refused.detail, "as many as a gang has, and yet half of each (S20)"
        ok(await plane.send(scheduler, BindGang(tuple(bind_of("risk", f"red-{n}", "n1") for n in range(2)))))


async def test_a_gang_that_grows_while_it_is_being_bound_is_as_large_as_any_of_its_members_says() -> None:
    """Its requests are changed one by one, and those that were decided on are still there (S20)."""
    async with running_plane() as plane:
        await plane.add_node("n1")
        await plane.grant("risk")
        assigner, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        for index in range(2):
            ok(await plane.request("risk", "red", index, assigner, gang="red", gang_size=2))
        both = BindGang(tuple(bind_of("risk", f"red-{n}", "n1") for n in range(2)))
        ok(await plane.send(assigner, Put("SchedulingRequest", request_of("risk", "red", 0, gang="red", gang_size=3))))
        assert "has 3 members" in no(await plane.send(scheduler, both), "GangIncomplete").detail
        ok(await plane.send(assigner, Put("SchedulingRequest", request_of("risk", "red", 0, gang="red", gang_size=2))))
        ok(await plane.send(scheduler, both))
