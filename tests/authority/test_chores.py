"""What the authority does by itself, where it is not taken the first time."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.authority.chores import AGAIN_MS, AUTHORITY, Chores
from fairlead.authority.judge.context import Settings, instant
from fairlead.model import codec
from fairlead.model.commands import Accepted, BindMany, Command, Delete, Enqueue, Put, Refused, ReleaseReservation
from fairlead.model.ids import Uid
from fairlead.model.kinds.capacity import Grant, GrantStatus, Reservation, ReservationSpec
from fairlead.model.kinds.intent import Region, RegionSpec
from fairlead.model.kinds.slot import Token
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata, OwnerReference
from fairlead.model.resources import NOTHING, Resources
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.faults import DISK_FULL, HandFaults
from tests.authority.planes import GI, OPERATOR, FakeClock, PlaneForTest, bind_of, ok, request_of, reserve_of, running_plane


def test_the_end_of_a_reservation_that_a_store_did_not_take_is_sent_again() -> None:
    now_ms = 1_000_000
    state: Any = SimpleNamespace(derive=lambda plural, told: None, live=lambda plural: ())
    ctx: Any = SimpleNamespace(state=state, plane_ms=lambda: now_ms, settings=Settings())
    nothing: Any = None
    chores = Chores(ctx, nothing, nothing, nothing)
    spec = ReservationSpec(node="n", requests=Resources(1, 1), token=Token(incarnation=1, epoch=1, attempt=1),
                           expiry_time=instant(now_ms))  # fmt: skip
    made: Any = SimpleNamespace(hot=Reservation(metadata=Metadata(name="api-0"), spec=spec), tenant="risk", name="api-0")
    chores._reservation_changed(None, made)
    sent = chores._expired_reservations()
    assert len(sent) == 1
    assert chores._expired_reservations() == []
    chores._again(sent, [Refused("StoreUnavailable", "its disk is full")])
    assert chores._expired_reservations() == []
    now_ms += AGAIN_MS
    again = chores._expired_reservations()
    assert [command.body for command in again] == [command.body for command in sent]
    chores._again(again, [Accepted(1)])
    room = Command(AUTHORITY, ReleaseReservation("risk", "standing.eu-0", Token(incarnation=1, epoch=1, attempt=1)))
    chores._again([room], [Refused("StoreUnavailable", "its disk is full")])
    now_ms += AGAIN_MS
    assert chores._expired_reservations() == [], "whether a budget's room must go is asked anew"


async def test_a_new_leader_ends_the_reservations_it_finds() -> None:
    disk, clock = MemoryDisk(), FakeClock()
    async with running_plane(MemoryStore(disk), clock) as plane:
        await plane.add_node("n0")
        await plane.grant("risk")
        ok(await plane.request("risk", "api", 0, await plane.as_role(Role.ASSIGNMENT)))
        ok(await plane.send(await plane.as_role(Role.SCHEDULER), reserve_of("risk", "api-0", "n0", ttl_s=2.0)))
    async with running_plane(MemoryStore(disk), clock) as plane:
        clock.offset += 3
        while plane.authority.view().get("reservations", "risk", "api-0") is not None:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("without", ["authority.chores.CALL_MAX", "authority.ending.ROUND_MAX"])
async def test_a_lease_that_ends_stops_more_than_one_call_may_hold(without: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Either bound is enough: a call is cut into several, and a round does no more than one may hold."""
    monkeypatch.setattr(f"fairlead.{without}", 1_000_000)
    count, disk = 2100, MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        for node in range(count // 100):
            await plane.add_node(f"n{node}", cpu=10_000_000, memory=9000 * GI)
        await plane.grant("risk", cpu=10_000_000, memory=9000 * GI)
        queue, scheduler = await plane.as_role(Role.ASSIGNMENT), await plane.as_role(Role.SCHEDULER)
        for start in range(0, count, 210):
            ok(await plane.send(queue, Enqueue(request_of("risk", "api", start, cpu=100, memory=GI), 210)))
            binds = tuple(bind_of("risk", f"api-{n}", f"n{n // 100}") for n in range(start, start + 210))
            assert not ok(await plane.send(scheduler, BindMany(binds))).refused
    position, raw = disk.objects["grants/risk/local"]
    grant = codec.decoder(Grant).decode(raw)
    status = GrantStatus(accepted_version=1, during=grant.spec.during, after=NOTHING, incarnation=1, lease_end_time=instant(1000))
    grant = replace(grant, spec=replace(grant.spec, lease_seconds=1, after=NOTHING), status=status)
    disk.objects["grants/risk/local"] = (position, codec.encode(grant))  # it was leased, and that is over
    async with running_plane(MemoryStore(disk)) as plane:
        states = Counter[SlotState]()
        while states[SlotState.DRAINING] < count:
            await asyncio.sleep(0.1)
            states = Counter(rec.hot.state for rec in (await plane.authority.view().page("bindings", limit=5000)).items)


def region(name: str, *owners: tuple[str, str]) -> Region:
    references = tuple(OwnerReference(kind="Region", name=owner, uid=Uid(uid)) for owner, uid in owners)
    return Region(metadata=Metadata(name=name, owner_references=references), spec=RegionSpec(areas=("us",)))


def there(plane: PlaneForTest, name: str) -> Any:
    rec = plane.authority.view().get("regions", "", name)
    return rec.hot if rec is not None else None


@pytest.mark.parametrize("how", ["Background", "Foreground"])
async def test_what_has_two_owners_goes_with_the_last_of_them(how: str) -> None:
    async with running_plane() as plane:
        first, second = [ok(await plane.send(OPERATOR, Put("Region", region(name)))).uid for name in ("a", "b")]
        ok(await plane.send(OPERATOR, Put("Region", region("child", ("a", first), ("b", second)))))
        ok(await plane.send(OPERATOR, Delete("Region", "", "a", how)))  # type: ignore[arg-type]
        while there(plane, "a") is not None or len(there(plane, "child").metadata.owner_references) == 2:
            await asyncio.sleep(0.01)
        assert there(plane, "child").metadata.deletion_time is None
        ok(await plane.send(OPERATOR, Delete("Region", "", "b", how)))  # type: ignore[arg-type]
        while there(plane, "child") is not None or there(plane, "b") is not None:
            await asyncio.sleep(0.01)


async def test_a_finalizer_that_a_store_did_not_take_off_is_taken_off_later() -> None:
    faults = HandFaults()
    async with running_plane(MemoryStore(MemoryDisk(), faults)) as plane:
        owner = ok(await plane.send(OPERATOR, Put("Region", region("a")))).uid
        ok(await plane.send(OPERATOR, Put("Region", region("child", ("a", owner)))))
        ok(await plane.send(OPERATOR, Delete("Region", "", "a", "Foreground")))
        while there(plane, "child") is not None:
            await asyncio.sleep(0.001)
        faults.once("commit", DISK_FULL)
        while there(plane, "a") is not None:
            await asyncio.sleep(0.01)
        assert not faults.next["commit"], "it was refused once"
