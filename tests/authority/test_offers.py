"""The sum of what all regions may use of a quota is asked again when an offer is committed, whoever makes it (P13, S5)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.authority.judge import Settings
from fairlead.decide.leasing import version_of
from fairlead.model.commands import Caller, Delete, Outcome, Put, PutStatus
from fairlead.model.kinds.capacity import Grant, GrantSpec, GrantStatus
from fairlead.model.kinds.intent import Quota, QuotaSpec, Region
from fairlead.model.kinds.policy import Override, OverrideScope, OverrideSpec
from fairlead.model.kinds.quota import GrantOffer, GrantTerm, GrantTermSpec
from fairlead.model.lifecycle import Role
from fairlead.model.meta import MIRRORED_UID, Metadata
from fairlead.model.resources import Resources
from tests.authority.planes import OPERATOR, REGION, PlaneForTest, no, ok, running_plane

BREAK_GLASS = Caller("break-glass:root", Role.BREAK_GLASS)
GLOBAL = Settings(plane="global", region="global")
LEASE_S = 600


def offer(region: str, version: int, cpu: int, lease_s: int = LEASE_S, **spec: Any) -> Put:
    made = GrantSpec(region, version, Resources(cpu), Resources(cpu), lease_seconds=lease_s, **spec)
    return Put("Grant", Grant(Metadata(name=region, namespace="risk"), made))


def older(version: int, cpu: int) -> tuple[GrantOffer, ...]:
    return (GrantOffer(version, Resources(cpu), Resources(cpu)),)


class Rig:
    """A global plane with two regions, and a quota of eight cores that they share evenly."""

    def __init__(self, plane: PlaneForTest, sharer: Caller, mirror: Caller) -> None:
        self.plane, self.sharer, self.mirror = plane, sharer, mirror

    async def by(self, caller: Caller, body: Any) -> Outcome:
        return await self.plane.send(caller, body)

    async def limit(self, cpu: int) -> None:
        quota = Quota(Metadata(name="default", namespace="risk"), QuotaSpec(limits=Resources(cpu)))
        ok(await self.by(OPERATOR, Put("Quota", quota)))

    async def stands_on(self, region: str, version: int) -> None:
        said = GrantStatus(accepted_version=version, incarnation=1)
        ok(await self.by(self.mirror, PutStatus("Grant", "risk", region, said)))


async def shared(plane: PlaneForTest) -> Rig:
    for name in ("east", "west"):
        ok(await plane.send(OPERATOR, Put("Region", Region(Metadata(name=name)))))
    rig = Rig(plane, await plane.as_role(Role.QUOTA), await plane.as_role(Role.MIRROR))
    await rig.limit(8000)
    for name in ("east", "west"):
        ok(await rig.by(rig.sharer, offer(name, 1, 4000)))
        await rig.stands_on(name, 1)
    return rig


@pytest.mark.parametrize("lease_s", [LEASE_S, 0])
async def test_nobody_offers_more_than_the_quota_has_beside_what_other_regions_may_use(lease_s: int) -> None:
    async with running_plane(settings=GLOBAL) as plane:
        rig = await shared(plane)
        for caller in (OPERATOR, BREAK_GLASS, rig.sharer):
            refused = no(await rig.by(caller, offer("east", 2, 4001, lease_s)), "GrantExceeded")
            assert refused.facts == {"exposed": {"cpu": 8001}, "limits": {"cpu": 8000}}
        ok(await rig.by(rig.sharer, offer("west", 2, 3000, offers=older(1, 4000))))
        no(await rig.by(rig.sharer, offer("east", 2, 5000, lease_s)), "GrantExceeded")
        await rig.stands_on("west", 2)
        ok(await rig.by(rig.sharer, offer("east", 2, 5000, lease_s)))


async def test_what_the_quota_does_not_name_is_not_offered_at_all() -> None:
    async with running_plane(settings=GLOBAL) as plane:
        rig = await shared(plane)
        made = offer("east", 2, 4000)
        spec = replace(made.object.spec, during=Resources(4000, 1))
        no(await rig.by(OPERATOR, Put("Grant", replace(made.object, spec=spec))), "GrantExceeded")


async def test_above_limits_that_were_lowered_an_offer_may_give_up_and_stay_and_not_grow() -> None:
    async with running_plane(settings=GLOBAL) as plane:
        rig = await shared(plane)
        await rig.limit(2000)
        ok(await rig.by(rig.sharer, offer("east", 2, 4000)))
        ok(await rig.by(rig.sharer, offer("east", 3, 3000, offers=older(2, 4000))))
        await rig.stands_on("east", 3)
        no(await rig.by(rig.sharer, offer("east", 4, 3001)), "GrantExceeded")


async def test_an_emergency_quota_gives_room_once_it_is_approved() -> None:
    async with running_plane(settings=GLOBAL) as plane:
        rig = await shared(plane)
        more = offer("east", 2, 6000)
        spec = OverrideSpec("emergency-quota", "flood", 60, "ada", "", OverrideScope(tenants=("risk",)), {"cpu": "2"})
        flood = Override(Metadata(name="flood", namespace="risk"), spec)
        ok(await rig.by(OPERATOR, Put("Override", flood)))
        no(await rig.by(rig.sharer, more), "GrantExceeded")
        agreed = Put("Override", replace(flood, spec=replace(spec, approver="bob")))
        ok(await rig.by(Caller("bob", Role.OPERATOR), agreed))
        ok(await rig.by(rig.sharer, more))


async def test_an_offer_is_not_forgotten_by_making_a_smaller_one() -> None:
    """The rest would be given to others while the region still uses it."""
    async with running_plane(settings=GLOBAL) as plane:
        rig = await shared(plane)
        assert no(await rig.by(OPERATOR, offer("east", 2, 1000)), "Conflict").facts == {"version": 1}
        no(await rig.by(OPERATOR, offer("east", 2, 1000, offers=older(1, 3000))), "Conflict")
        ok(await rig.by(rig.sharer, offer("east", 2, 1000, offers=older(1, 4000))))
        no(await rig.by(rig.sharer, offer("east", 3, 500, offers=older(2, 1000))), "Conflict")
        await rig.stands_on("east", 2)
        ok(await rig.by(rig.sharer, offer("east", 3, 500, offers=older(2, 1000))))


async def test_an_answer_does_not_lease_an_offer_that_was_superseded_since_it_was_made() -> None:
    """By hand, between the look and the commit: the rest is offered to others when the lease in the books has ended."""
    async with running_plane(settings=GLOBAL) as plane:
        rig = await shared(plane)
        east = plane.authority.view().get("regions", "", "east")
        assert east is not None

        def answer(floors: dict[str, int]) -> Put:
            residency = version_of(east.hot.metadata, 1)
            spec = GrantTermSpec("east", 1, 1, 1, lease_seconds=LEASE_S, residency=residency, floors=floors)
            return Put("GrantTerm", GrantTerm(Metadata(name="east"), spec))

        ok(await rig.by(rig.sharer, offer("east", 2, 3000, offers=older(1, 4000))))
        assert no(await rig.by(rig.sharer, answer({})), "Conflict").facts == {"tenant": "risk", "version": 2}
        ok(await rig.by(rig.sharer, answer({"risk": 2})))


async def test_a_grant_is_not_deleted_while_its_region_may_use_it() -> None:
    async with running_plane(settings=GLOBAL) as plane:
        rig = await shared(plane)
        for caller in (OPERATOR, rig.sharer):
            no(await rig.by(caller, Delete("Grant", "risk", "east")), "InUse")
        ok(await rig.by(OPERATOR, Delete("Region", "", "east")))
        ok(await rig.by(rig.sharer, Delete("Grant", "risk", "east")))


async def test_grants_for_regions_that_are_not_there_and_grants_of_tenants_without_a_quota() -> None:
    async with running_plane(settings=GLOBAL) as plane:
        rig = await shared(plane)
        no(await rig.by(OPERATOR, offer("north", 1, 1)), "NotFound")
        made = offer("north", 1, 99_000, 0)
        by_hand = Put("Grant", replace(made.object, metadata=Metadata(name="north", namespace="research")))
        ok(await rig.by(OPERATOR, by_hand))
        ok(await rig.by(OPERATOR, Delete("Grant", "research", "north")))


async def test_in_a_region_that_is_led_from_elsewhere_only_the_mirror_writes_grants() -> None:
    async with running_plane() as plane:
        await plane.grant("risk", cpu=1000)
        await plane.grant("risk", version=2, cpu=2000)  # by hand, while it stands alone
        mirror = await plane.as_role(Role.MIRROR)
        ok(await plane.send(mirror, Put("GrantTerm", GrantTerm(Metadata(name=REGION), GrantTermSpec(REGION)))))
        quota = await plane.as_role(Role.QUOTA)
        for caller in (OPERATOR, BREAK_GLASS, quota):
            for lease_s in (0, LEASE_S):
                no(await plane.send(caller, offer(REGION, 3, 9000, lease_s)), "NotOwner")
        ok(await plane.send(OPERATOR, Delete("Grant", "risk", REGION)))  # so that the copy can come
        copy = offer(REGION, 3, 9000).object
        copied = replace(copy, metadata=replace(copy.metadata, annotations={MIRRORED_UID: "u"}))
        ok(await plane.send(mirror, Put("Grant", copied)))
        no(await plane.send(OPERATOR, Delete("Grant", "risk", REGION)), "NotOwner")
        ok(await plane.send(mirror, Delete("Grant", "risk", REGION)))
