"""What the authority adds to the report after a cut: bindings that are removed in it, and in the global plane what is charged."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from fairlead.authority.judge import Settings
from fairlead.authority.state import Rec
from fairlead.decide.queueing import first_epoch
from fairlead.decide.slots import instant
from fairlead.model.commands import Outcome, Put, PutStatus
from fairlead.model.ids import split_revision
from fairlead.model.kinds.capacity import Grant, GrantSpec
from fairlead.model.kinds.intent import Region
from fairlead.model.kinds.quota import GrantTerm, GrantTermSpec, GrantTermStatus, MergeProof, MergeReport
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from tests.authority.planes import OPERATOR, REGION, PlaneForTest, no, ok, request_of, running_plane
from tests.authority.test_epochs import Ordered, ordered


def term_of(plane: PlaneForTest, region: str) -> Rec:
    rec = plane.authority.view().get("grantterms", "", region)
    assert rec is not None
    return rec


class Told:
    """A region's term, as its grant controller speaks of it."""

    def __init__(self, world: Ordered) -> None:
        self.world = world

    async def begin(self) -> None:
        self.world.callers[Role.QUOTA] = await self.world.plane.as_role(Role.QUOTA)
        made = GrantTerm(Metadata(name=REGION), GrantTermSpec(REGION))
        ok(await self.world.send(Role.MIRROR, Put("GrantTerm", made)))
        ok(await self.say(incarnation=1, asked=1))
        answer = GrantTermSpec(REGION, incarnation=1, asker=1, answered=1, lease_seconds=600)
        ok(await self.world.send(Role.MIRROR, Put("GrantTerm", replace(made, spec=answer))))
        ok(await self.say(taken=1))

    @property
    def position(self) -> int:
        return term_of(self.world.plane, REGION).position

    @property
    def status(self) -> GrantTermStatus:
        found: GrantTermStatus = term_of(self.world.plane, REGION).hot.status
        return found

    async def say(self, revision: int = 0, **fields: Any) -> Outcome:
        body = PutStatus("GrantTerm", "", REGION, replace(self.status, **fields), expected_revision=revision)
        return await self.world.send(Role.QUOTA, body)


async def test_a_binding_that_goes_in_a_cut_is_counted_with_its_going_until_that_is_reported() -> None:
    async with ordered() as world:
        told, first = Told(world), first_epoch(world.order)
        await told.begin()
        ok(await world.queue(first))
        await world.live(first)
        ok(await told.say(cut_time=instant(world.plane.authority.plane_ms() + 1)))
        repaired = Put("SchedulingRequest", request_of("risk", "api", 0, epoch=first + 1))
        ok(await world.send(Role.REPAIR, repaired))
        assert told.status.ended is None, "it was made before the cut"
        await world.plane.clock.sleep(0.01)
        await world.live(first + 1)
        read = told.position
        again = ok(await world.send(Role.REPAIR, Put("SchedulingRequest", request_of("risk", "api", 0, epoch=first + 2))))
        assert (told.status.ended and told.status.ended.tenants) == {"risk": 1}
        incarnation, position = split_revision(again.revision)
        assert read < told.position <= position, "in the same entry"
        await world.live(first + 2)
        ok(await world.floor(first + 2))
        ok(await world.forget())
        assert (told.status.ended and told.status.ended.tenants) == {"risk": 2}, "also where it is deleted"
        ok(await told.say(ended=None, policy=0))
        assert told.status.ended is not None, "nobody else counts"
        healed, report = instant(world.plane.authority.plane_ms() + 1), MergeReport(cut_time=told.status.cut_time)
        no(await told.say((incarnation << 44) + read, healed_time=healed, merge=report), "Conflict")
        ok(await told.say(healed_time=healed, merge=report))
        assert told.status.ended is None


async def test_outside_of_a_cut_nothing_is_counted_and_nothing_more_is_written() -> None:
    async with ordered() as world:
        told, first = Told(world), first_epoch(world.order)
        await told.begin()
        read = told.position
        ok(await world.queue(first))
        await world.live(first)
        ok(await world.send(Role.REPAIR, Put("SchedulingRequest", request_of("risk", "api", 0, epoch=first + 1))))
        assert (told.position, told.status.ended) == (read, None)


def charged(plane: PlaneForTest) -> Any:
    return term_of(plane, "east").hot.status.checked


async def test_the_global_plane_holds_a_report_against_what_it_charges_when_it_comes_and_once() -> None:
    async with running_plane(settings=Settings(plane="global", region="global")) as plane:
        quota = await plane.as_role(Role.QUOTA)
        mirror = await plane.as_role(Role.MIRROR, "mirror-east", "mirror-up-east")
        spec = GrantSpec("east", 1, Resources(300), Resources(100), lease_seconds=600)
        ok(await plane.send(OPERATOR, Put("Region", Region(Metadata(name="east")))))
        ok(await plane.send(OPERATOR, Put("Grant", Grant(Metadata(name="east", namespace="risk"), spec))))
        ok(await plane.send(quota, Put("GrantTerm", GrantTerm(Metadata(name="east"), GrantTermSpec("east")))))

        async def report(used: int, cut_ms: int) -> GrantTermStatus:
            proof = MergeProof("risk", 1, Resources(used), Resources(9_999))  # whatever the region thinks it was offered
            merge = MergeReport(cut_time=instant(cut_ms), healed_time=instant(cut_ms + 1), proof=(proof,))
            said = GrantTermStatus(incarnation=1, asked=cut_ms, merge=merge)
            ok(await plane.send(mirror, PutStatus("GrantTerm", "", "east", said)))
            return said

        said = await report(300, 5)
        assert [(each.used.cpu, each.offered.cpu) for each in charged(plane).charged] == [(300, 300)]
        assert charged(plane).over == ()
        ok(await plane.send(OPERATOR, Put("Grant", Grant(Metadata(name="east", namespace="risk"), replace(spec, version=2)))))
        ok(await plane.send(mirror, PutStatus("GrantTerm", "", "east", replace(said, asked=6))))
        assert charged(plane).charged[0].version == 1, "as it was then"
        await report(301, 7)
        assert charged(plane).over == ("risk",)
