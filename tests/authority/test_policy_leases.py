"""Policy and residency are judged by at commit under a lease that runs; an answer leases what is in force when it lands (P14)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec.structs import replace

from fairlead.authority.judge import Settings
from fairlead.decide.leasing import VERSION, version_of
from fairlead.model.commands import Accepted, Caller, Outcome, Put, PutStatus
from fairlead.model.kinds.intent import Region, RegionSpec
from fairlead.model.kinds.policy import PolicyChannel, PolicyChannelSpec, SchedulerPolicy, SchedulerPolicySpec
from fairlead.model.kinds.quota import GrantTerm, GrantTermSpec, GrantTermStatus
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from tests.authority.planes import (
    OPERATOR,
    REGION,
    FakeClock,
    PlaneForTest,
    bind_of,
    no,
    ok,
    reserve_of,
    running_plane,
)

LEASE_S = 100
R1 = SchedulerPolicy(Metadata(name="r1"), SchedulerPolicySpec(revision=1))


class Leased:
    """A region's plane, whose questions are answered as the test says."""

    def __init__(self, plane: PlaneForTest, clock: FakeClock) -> None:
        self.plane, self.clock = plane, clock
        self.mirror = self.quota = self.scheduler = self.assigner = OPERATOR
        self.slots = 0

    async def begin(self) -> None:
        plane = self.plane
        self.mirror, self.quota = await plane.as_role(Role.MIRROR), await plane.as_role(Role.QUOTA)
        self.scheduler, self.assigner = await plane.as_role(Role.SCHEDULER), await plane.as_role(Role.ASSIGNMENT)
        await plane.add_node("n0")
        await plane.grant("risk")
        ok(await plane.send(OPERATOR, Put("SchedulerPolicy", R1)))
        await self.put("GrantTerm", GrantTerm(Metadata(name=REGION), GrantTermSpec(REGION)))

    async def put(self, kind: str, thing: object) -> Outcome:
        return await self.plane.send(self.mirror, Put(kind, thing))

    async def channel(self, version: int) -> Outcome:
        meta = Metadata(name="default", annotations={VERSION: str(version)})
        return await self.put(
            "PolicyChannel", PolicyChannel(meta, PolicyChannelSpec(current=1, history=tuple(range(2, 2 + version))))
        )

    async def region(self, version: int) -> Outcome:
        meta = Metadata(name=REGION, annotations={VERSION: str(version)})
        return await self.put("Region", Region(meta, RegionSpec((f"area-{version}",))))

    def term(self) -> GrantTerm:
        rec = self.plane.authority.view().get("grantterms", "", REGION)
        assert rec is not None
        found: GrantTerm = rec.hot
        return found

    async def answered(self, policy: int, residency: int) -> None:
        """One question, and the answer to it, taken."""
        self.plane.authority.heartbeat([("n0", 1)])
        asks = replace(self.term().status, incarnation=1, asked=self.term().status.asked + 1)
        ok(await self.plane.send(self.quota, PutStatus("GrantTerm", "", REGION, asks)))
        number = self.term().status.asked
        spec = GrantTermSpec(REGION, 1, 1, number, LEASE_S, policy=policy, residency=residency)
        ok(await self.put("GrantTerm", GrantTerm(self.term().metadata, spec)))
        ok(await self.plane.send(self.quota, PutStatus("GrantTerm", "", REGION, replace(self.term().status, taken=number))))
        assert self.term().status.taken == number

    async def place(self, *, reserve: bool = False) -> Outcome:
        name, self.slots = f"api-{self.slots}", self.slots + 1
        ok(await self.plane.request("risk", "api", int(name[4:]), self.assigner))
        self.plane.authority.heartbeat([("n0", 1)])
        revision = 1 if self.plane.authority.view().get("policychannels", "", "default") is not None else 0
        made = (reserve_of if reserve else bind_of)("risk", name, "n0", policy_revision=revision)
        return await self.plane.send(self.scheduler, made)


@asynccontextmanager
async def leased() -> AsyncIterator[Leased]:
    clock = FakeClock()
    async with running_plane(clock=clock, settings=Settings(region=REGION, max_observation_age_s=10_000.0)) as plane:
        made = Leased(plane, clock)
        await made.begin()
        yield made


async def test_a_region_places_by_what_it_has_installed_until_its_lease_ends_and_then_nothing() -> None:
    async with leased() as w:
        no(await w.place(), "PolicyLeaseEnded")  # it has asked nobody yet
        await w.channel(7)
        await w.region(3)
        await w.answered(7, 3)
        ok(await w.place())
        w.clock.offset += 90.0
        ok(await w.place())
        w.clock.offset += 9.5  # 99 s of the lease, on a clock that may be slow: one per cent is not used
        no(await w.place(), "PolicyLeaseEnded")
        no(await w.place(reserve=True), "PolicyLeaseEnded")


async def test_a_place_that_was_reserved_is_not_bound_after_the_lease() -> None:
    async with leased() as w:
        await w.answered(0, 0)
        ok(await w.place(reserve=True))
        w.clock.offset += 99.5
        no(await w.plane.send(w.scheduler, bind_of("risk", "api-0", "n0")), "PolicyLeaseEnded")


async def test_an_answer_about_something_newer_prolongs_nothing_until_that_is_installed() -> None:
    async with leased() as w:
        await w.channel(7)
        await w.region(3)
        await w.answered(7, 3)
        w.clock.offset += 60.0
        await w.answered(8, 3)  # of which the channel has not come down yet
        ok(await w.place())
        w.clock.offset += 39.5
        no(await w.place(), "PolicyLeaseEnded")
        ok(await w.channel(8))
        ok(await w.place())
        await w.answered(8, 4)
        w.clock.offset += 70.0  # beyond the lease of the answer before
        no(await w.place(), "PolicyLeaseEnded")
        ok(await w.region(4))
        ok(await w.place())


async def test_what_is_newer_than_the_answer_is_leased_by_it_too() -> None:
    async with leased() as w:
        await w.channel(7)
        await w.answered(7, 0)
        ok(await w.channel(9))
        w.clock.offset += 90.0
        ok(await w.place())


async def test_a_copy_never_goes_back() -> None:
    async with leased() as w:
        ok(await w.channel(7))
        ok(await w.region(7))
        no(await w.channel(6), "Conflict")
        no(await w.region(6), "Conflict")


async def test_a_region_says_itself_what_it_has_installed() -> None:
    async with leased() as w:
        await w.channel(7)
        await w.region(3)
        lie = replace(w.term().status, policy=99, residency=99)
        ok(await w.plane.send(w.quota, PutStatus("GrantTerm", "", REGION, lie)))
        assert (w.term().status.policy, w.term().status.residency) == (7, 3)
        lie = replace(w.term().status, leased_policy=1, end_time=w.term().status.asked_time, taken=1, asked=1)
        assert not isinstance(await w.plane.send(w.quota, PutStatus("GrantTerm", "", REGION, lie)), Accepted)


async def test_a_plane_that_has_nobody_to_ask_needs_no_lease() -> None:
    async with running_plane() as plane:
        scheduler, assigner = await plane.as_role(Role.SCHEDULER), await plane.as_role(Role.ASSIGNMENT)
        await plane.add_node("n0")
        await plane.grant("risk")
        ok(await plane.request("risk", "api", 0, assigner))
        ok(await plane.send(scheduler, bind_of("risk", "api-0", "n0")))


async def test_an_answer_that_was_made_on_an_older_policy_is_refused() -> None:
    async with running_plane(settings=Settings(plane="global", region="global")) as plane:
        quota: Caller = await plane.as_role(Role.QUOTA)
        ok(await plane.send(OPERATOR, Put("SchedulerPolicy", R1)))
        ok(await plane.send(OPERATOR, Put("Region", Region(Metadata(name="east"), RegionSpec(("eu",))))))
        ok(
            await plane.send(
                OPERATOR, Put("PolicyChannel", PolicyChannel(Metadata(name="default"), PolicyChannelSpec(current=1)))
            )
        )
        ok(await plane.send(quota, Put("GrantTerm", GrantTerm(Metadata(name="east"), GrantTermSpec("east")))))

        def version(plural: str, name: str) -> int:
            rec = plane.authority.view().get(plural, "", name)
            assert rec is not None
            return version_of(rec.hot.metadata, 1)

        policy, residency = version("policychannels", "default"), version("regions", "east")
        good = GrantTermSpec("east", 1, 1, 1, LEASE_S, policy=policy, residency=residency)

        async def answer(spec: GrantTermSpec) -> Outcome:
            return await plane.send(quota, Put("GrantTerm", GrantTerm(Metadata(name="east"), spec, GrantTermStatus())))

        no(await answer(replace(good, policy=policy - 1)), "StalePolicy")
        no(await answer(replace(good, residency=residency - 1)), "StalePolicy")
        ok(await answer(good))
        changed = PolicyChannel(Metadata(name="default"), PolicyChannelSpec(current=1, history=(2,)))
        ok(await plane.send(OPERATOR, Put("PolicyChannel", changed)))
        no(await answer(replace(good, answered=2)), "StalePolicy")
        assert version("policychannels", "default") > policy
        ok(await answer(replace(good, answered=2, policy=version("policychannels", "default"))))
