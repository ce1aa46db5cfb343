"""A region that is lost, or silent and not called so because no region is heard (P15): an operator may write it off once all has
ended that it may still stand on; one that is not called Lost in so many words."""

from __future__ import annotations

from msgspec.structs import replace

from fairlead.authority.candidate import Timing
from fairlead.authority.judge import Settings
from fairlead.decide.granting import LEASE_S, honoured_ms
from fairlead.decide.leasing import version_of
from fairlead.decide.regional import MIRROR_UP
from fairlead.decide.slot_lease import lease_of
from fairlead.decide.writing_off import SILENT_MS, WRITE_OFF, Silence, is_silent, may_be_written_off_ms
from fairlead.model.commands import Caller, Delete, LeaseAcquire, Put, PutStatus
from fairlead.model.kinds.capacity import Grant, GrantSpec, GrantStatus
from fairlead.model.kinds.intent import Region, RegionStatus
from fairlead.model.kinds.quota import GrantTerm, GrantTermSpec
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from tests.authority.planes import OPERATOR, FakeClock, PlaneForTest, no, ok, running_plane

LONG = Timing(lease_ttl_s=50_000.0, renew_s=0.5, poll_s=0.02)  # the plane leads through all of it
DELETE = Delete("Region", "", "west")
ENDED_S = honoured_ms(LEASE_S) / 1000 + 10.1  # the longest it may still use what it was granted, counted from its last word


async def charged(plane: PlaneForTest) -> str:
    """The only region, in which a tenant is charged, and which has just been heard. Gives its uid."""
    ok(await plane.send(OPERATOR, Put("Region", Region(Metadata(name="west")))))
    grant = Grant(Metadata(name="west", namespace="risk"), GrantSpec("west", 1, Resources(4000), Resources(4000)))
    ok(await plane.send(OPERATOR, Put("Grant", grant)))
    mirror = await plane.as_role(Role.MIRROR, "west-0", f"{MIRROR_UP}west")
    ok(await plane.send(mirror, PutStatus("Grant", "risk", "west", GrantStatus(used=Resources(1000)))))
    health = await plane.as_role(Role.REGION_HEALTH)
    ok(await plane.send(health, PutStatus("Region", "", "west", RegionStatus(health="Healthy"))))
    return west(plane).metadata.uid


def west(plane: PlaneForTest) -> Region:
    rec = plane.authority.view().get("regions", "", "west")
    assert rec is not None
    return rec.hot  # type: ignore[no-any-return]


async def is_lost(plane: PlaneForTest) -> None:
    health = await plane.as_role(Role.REGION_HEALTH)
    ok(await plane.send(health, PutStatus("Region", "", "west", RegionStatus(health="Lost"))))


async def says(plane: PlaneForTest, text: str) -> None:
    found = west(plane)
    ok(await plane.send(OPERATOR, Put("Region", replace(found, metadata=replace(found.metadata, annotations={WRITE_OFF: text})))))


async def test_a_lost_region_is_deleted_when_what_was_leased_to_it_has_ended_and_not_before() -> None:
    """It may only be cut off: until then it places what is its own to place, on quota that others would be offered (S5)."""
    clock = FakeClock()
    async with running_plane(clock=clock, settings=Settings(plane="global", region=""), timing=LONG) as plane:
        uid = await charged(plane)
        clock.offset += 30
        await is_lost(plane)
        told = no(await plane.send(OPERATOR, DELETE), "InUse").detail
        assert "west is Lost. 1 tenants are charged there (risk)" in told
        assert "It may only be cut off, and go on by what was leased to it. It can be written off by deleting it in 6" in told
        await says(plane, uid)
        no(await plane.send(OPERATOR, DELETE), "InUse")
        await says(plane, "")
        clock.offset += ENDED_S - 30
        ok(await plane.send(OPERATOR, DELETE))


async def test_a_lost_region_that_is_heard_again_is_not_deleted() -> None:
    """Its renewal is here before it is called healthy."""
    clock = FakeClock()
    async with running_plane(clock=clock, settings=Settings(plane="global", region=""), timing=LONG) as plane:
        await charged(plane)
        clock.offset += ENDED_S + 10
        await is_lost(plane)
        await plane.as_role(Role.MIRROR, "west-0", f"{MIRROR_UP}west")
        no(await plane.send(OPERATOR, DELETE), "InUse")


async def test_a_lost_region_in_which_nothing_is_left_is_deleted_at_once() -> None:
    async with running_plane(settings=Settings(plane="global", region="")) as plane:
        ok(await plane.send(OPERATOR, Put("Region", Region(Metadata(name="west")))))
        await is_lost(plane)
        ok(await plane.send(OPERATOR, DELETE))


async def test_a_sole_region_that_is_dead_is_written_off_by_an_annotation_and_a_deletion() -> None:
    clock = FakeClock()
    async with running_plane(clock=clock, settings=Settings(plane="global", region=""), timing=LONG) as plane:
        uid = await charged(plane)
        await says(plane, uid)
        assert "written off" not in no(await plane.send(OPERATOR, DELETE), "InUse").detail, "it is heard"
        clock.offset += ENDED_S - 60
        told = no(await plane.send(OPERATOR, DELETE), "InUse").detail
        assert "If west is gone for good it can be written off in " in told
        clock.offset += 70
        await says(plane, "")
        told = no(await plane.send(OPERATOR, DELETE), "InUse").detail
        assert f'can be written off now: annotate it with {WRITE_OFF}: "{uid}", and delete it' in told, "silence alone never does"
        await says(plane, "of-one-that-was-here-before")
        no(await plane.send(OPERATOR, DELETE), "InUse")
        await says(plane, uid)
        ok(await plane.send(OPERATOR, DELETE))


async def test_one_that_was_heard_again_is_not_written_off_by_what_was_said_before() -> None:
    clock = FakeClock()
    async with running_plane(clock=clock, settings=Settings(plane="global", region=""), timing=LONG) as plane:
        uid = await charged(plane)
        clock.offset += ENDED_S + 10
        await says(plane, uid)
        await plane.as_role(Role.MIRROR, "west-0", f"{MIRROR_UP}west")
        assert "written off" not in no(await plane.send(OPERATOR, DELETE), "InUse").detail


async def test_the_leases_that_the_region_has_are_waited_for() -> None:
    """A slot lease of an hour: what runs once in the world may run there for as long."""
    clock = FakeClock()
    async with running_plane(clock=clock, settings=Settings(plane="global", region=""), timing=LONG) as plane:
        uid = await charged(plane)
        ok(await plane.send(Caller("west-0", Role.MIRROR), LeaseAcquire(lease_of("west"), Role.MIRROR, 3600.0)))
        await says(plane, uid)
        clock.offset += ENDED_S + 10
        no(await plane.send(OPERATOR, DELETE), "InUse")
        clock.offset += 3600
        ok(await plane.send(OPERATOR, DELETE))


async def test_leases_that_were_given_before_they_were_made_shorter_are_waited_for() -> None:
    clock = FakeClock()
    async with running_plane(clock=clock, settings=Settings(plane="global", region=""), timing=LONG) as plane:
        await charged(plane)
        residency = version_of(west(plane).metadata, 1)
        answer = GrantTermSpec("west", lease_seconds=60, longest_seconds=3600, residency=residency)
        sharer = await plane.as_role(Role.QUOTA)
        ok(await plane.send(sharer, Put("GrantTerm", GrantTerm(Metadata(name="west"), answer))))
        await is_lost(plane)
        clock.offset += ENDED_S + 10
        no(await plane.send(OPERATOR, DELETE), "InUse")
        clock.offset += 3600
        ok(await plane.send(OPERATOR, DELETE))


def test_it_is_counted_from_when_it_was_heard_or_somebody_began_to_listen() -> None:
    last = Silence(renewed_ms=1_000_000, ttl_s=10.0, grant_lease_s=20, slot_lease_s=60.0)
    assert may_be_written_off_ms(last, 0) == 1_000_000 + SILENT_MS, "short leases do not make a short silence a long one"
    assert may_be_written_off_ms(last, 5_000_000) == 5_000_000 + SILENT_MS
    longer = last._replace(grant_lease_s=600)
    assert may_be_written_off_ms(longer, 0) == 1_000_000 + 10_100 + honoured_ms(600)
    assert (is_silent(last, 0, 1_010_100), is_silent(last, 0, 1_010_101)) == (False, True)
    assert not is_silent(last, 1_005_000, 1_010_101)
