"""A region's side of its slot lease (P11): counted from when it was asked for, worth nothing before the region has caught up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from fairlead.client.resources import ChangePage
from fairlead.controllers.mirror import GENERATION, UID
from fairlead.controllers.slot_lease import SlotLease
from fairlead.model.commands import Accepted, Command, LeaseAcquire, LeaseRenew, Outcome, Refused
from fairlead.model.ids import Uid
from fairlead.model.kinds.work import Assignment, AssignmentSpec, AssignmentStatus, SlotRange
from fairlead.model.meta import Metadata
from tests.authority.planes import FakeClock

TTL_S = 60.0


class Found:
    def __init__(self, hot: Assignment) -> None:
        self.hot, self.tenant, self.name = hot, hot.metadata.namespace, hot.metadata.name


def original(generation: int = 2) -> Assignment:
    spec = AssignmentSpec("api", "u", 1, "us-east", exclusive="global")
    return Assignment(Metadata(name="api.us-east", namespace="risk", uid=Uid("a"), generation=generation), spec)


def copy_of(found: Assignment, unwanted: int = 0) -> Assignment:
    annotations = {UID: found.metadata.uid, GENERATION: str(found.metadata.generation)}
    meta = replace(found.metadata, uid=Uid("c"), generation=5, annotations=annotations)
    return replace(found, metadata=meta, status=AssignmentStatus(5, unwanted=unwanted))


class Planes:
    """Both planes, as the lease's keeper sees them."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.above = [original()]
        self.here = [copy_of(original())]
        self.revision = 100
        self.asked: list[Any] = []
        self.answer: Callable[[Any], Outcome] = lambda body: Accepted(100, epoch=4)
        self.takes_s = 0.0  # until an answer comes
        self.told: list[float] = []
        self.vouches = True

    async def page(self, plural: str, tenant: str | None = None, **_: Any) -> ChangePage:
        items: list[Any] = [Found(each) for each in self.above]
        return ChangePage(items, self.revision)

    async def submit(self, commands: list[Command]) -> list[Outcome]:
        self.asked += [command.body for command in commands]
        self.clock.offset += self.takes_s
        return [self.answer(command.body) for command in commands]

    async def list(self, plural: str) -> list[Found]:
        return [Found(each) for each in self.here]

    def lease(self) -> SlotLease:
        plane: Any = self
        return SlotLease("us-east", plane, plane, self.clock, "us-east-0", TTL_S, self.told.append)


async def test_a_lease_is_counted_from_when_it_was_asked_for_and_by_a_clock_that_may_be_slow() -> None:
    clock = FakeClock()
    planes = Planes(clock)
    planes.takes_s = 7.0
    before = clock.monotonic()
    await planes.lease()._look()
    (until,) = planes.told
    assert before + TTL_S * 0.99 <= until < before + TTL_S * 0.99 + 5.0, "what the answer took does not prolong it"


async def test_nothing_is_asked_for_where_nothing_is_exclusive_everywhere() -> None:
    planes = Planes(FakeClock())
    planes.here = [replace(each, spec=replace(each.spec, exclusive="")) for each in planes.here]
    await planes.lease()._look()
    assert (planes.asked, planes.told) == ([], [])


async def test_a_new_lease_counts_for_nothing_before_the_region_has_caught_up() -> None:
    planes = Planes(FakeClock())
    lease = planes.lease()
    planes.here = [copy_of(original(1))]
    await lease._look()
    planes.here = [copy_of(original(), unwanted=1)]
    await lease._look()
    planes.here, planes.revision = [copy_of(original())], 99
    await lease._look()
    assert planes.told == [], "an old copy, a slot that may still run, a server that is behind"
    planes.revision = 100
    await lease._look()
    assert len(planes.told) == 1
    assert [type(body) for body in planes.asked] == [LeaseAcquire, LeaseRenew, LeaseRenew, LeaseRenew]
    planes.here = [copy_of(original(), unwanted=1)]
    await lease._look()
    assert len(planes.told) == 2, "while it lasts, work goes on as ever"


async def test_one_that_ran_out_is_asked_for_anew_and_the_region_catches_up_again() -> None:
    clock = FakeClock()
    planes = Planes(clock)
    lease = planes.lease()
    await lease._look()
    clock.offset += TTL_S
    planes.here = [copy_of(original(), unwanted=1)]
    await lease._look()
    assert [type(body) for body in planes.asked] == [LeaseAcquire, LeaseAcquire]
    assert len(planes.told) == 1


async def test_one_that_is_refused_or_taken_prolongs_nothing() -> None:
    planes = Planes(FakeClock())
    lease = planes.lease()
    await lease._look()
    planes.answer = lambda body: Refused("FencedOut", "recovery holds it")
    await lease._look()
    planes.answer = lambda body: Refused("LeaseHeld", "recovery holds it")
    await lease._look()
    assert [type(body) for body in planes.asked] == [LeaseAcquire, LeaseRenew, LeaseAcquire]
    assert len(planes.told) == 1


async def test_a_region_that_cannot_write_prolongs_nothing_and_goes_on_when_it_can() -> None:
    planes = Planes(FakeClock())
    lease = planes.lease()
    await lease._look()
    planes.vouches = False
    await lease._look()
    assert ([type(body) for body in planes.asked], len(planes.told)) == ([LeaseAcquire], 1)
    planes.vouches = True
    await lease._look()
    assert ([type(body) for body in planes.asked], len(planes.told)) == ([LeaseAcquire, LeaseRenew], 2)


async def test_a_copy_that_is_of_the_same_generation_of_another_history_has_not_caught_up() -> None:
    """The global plane was restored, and has numbered another order the same."""
    planes = Planes(FakeClock())
    planes.here = [copy_of(replace(original(), spec=replace(original().spec, slots=(SlotRange(first=0, last=1),))))]
    keeper = planes.lease()
    await keeper._look()
    assert planes.told == []
    planes.here = [copy_of(original())]
    await keeper._look()
    assert len(planes.told) == 1
