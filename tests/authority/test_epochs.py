"""No epoch of a slot is used twice, however late a command comes: not by what begins, nor by what is forgotten."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.decide.queueing import first_epoch
from fairlead.model.commands import Caller, Delete, Enqueue, Outcome, Put, PutStatus, Report
from fairlead.model.kinds.work import Assignment, AssignmentSpec, AssignmentStatus, SlotRange
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from fairlead.observe.checkers import JournalChecker
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import REGION, PlaneForTest, agent_of, bind_of, move_of, no, ok, request_of, running_plane, token

NAME = f"api.{REGION}"


class Ordered:
    """One slot, api-0, as an assignment has it; and who queues, binds and ends it."""

    def __init__(self, plane: PlaneForTest, callers: dict[Role, Caller]) -> None:
        self.plane, self.callers = plane, callers

    @property
    def order(self) -> Assignment:
        rec = self.plane.authority.view().get("assignments", "risk", NAME)
        assert rec is not None
        found: Assignment = rec.decode()
        return found

    async def send(self, role: Role, body: Any) -> Outcome:
        return await self.plane.send(self.callers[role], body)

    async def queue(self, epoch: int, **spec: Any) -> Outcome:
        return await self.send(Role.ASSIGNMENT, Put("SchedulingRequest", request_of("risk", "api", 0, epoch=epoch, **spec)))

    async def live(self, epoch: int) -> None:
        """From the queue to its end, at which its binding is Released and there still."""
        its = token(epoch=epoch)
        ok(await self.send(Role.SCHEDULER, bind_of("risk", "api-0", "n1", epoch=epoch)))
        ok(await self.send(Role.DISRUPTION, move_of("risk", "api-0", SlotState.DRAINING, token=its)))
        ok(await self.plane.send(agent_of("n1"), Report("risk", "api-0", its, SlotState.RELEASED)))

    async def floor(self, epoch: int) -> Outcome:
        return await self.send(Role.ASSIGNMENT, PutStatus("Assignment", "risk", NAME, AssignmentStatus(epoch_floor=epoch)))

    async def forget(self) -> Outcome:
        return await self.send(Role.ASSIGNMENT, Delete("Binding", "risk", "api-0"))


@asynccontextmanager
async def ordered(disk: MemoryDisk | None = None) -> AsyncIterator[Ordered]:
    async with running_plane(MemoryStore(disk or MemoryDisk())) as plane:
        await plane.add_node("n1")
        await plane.grant("risk")
        roles = (Role.MIRROR, Role.ASSIGNMENT, Role.SCHEDULER, Role.DISRUPTION, Role.REPAIR)
        world = Ordered(plane, {role: await plane.as_role(role) for role in roles})
        spec = AssignmentSpec("api", "u-risk-api", 1, REGION, slots=(SlotRange(first=0, last=0),))
        meta = Metadata(name=NAME, namespace="risk", finalizers=("fairlead.dev/slots-released",))
        ok(await world.send(Role.MIRROR, Put("Assignment", Assignment(meta, spec))))
        yield world


@pytest.mark.parametrize("bulk", [False, True])
async def test_a_late_request_for_a_life_that_is_over_and_forgotten_is_refused(bulk: bool) -> None:
    async with ordered() as world:
        first = first_epoch(world.order)
        ok(await world.queue(first))
        await world.live(first)
        repaired = Put("SchedulingRequest", request_of("risk", "api", 0, epoch=first + 1))
        ok(await world.send(Role.REPAIR, repaired))
        await world.live(first + 1)
        ok(await world.floor(first + 1))
        ok(await world.forget())
        for epoch in (first, first + 1):
            late = request_of("risk", "api", 0, epoch=epoch)
            refused = no(
                await world.send(Role.ASSIGNMENT, Enqueue(late, 1) if bulk else Put("SchedulingRequest", late)), "StaleEpoch"
            )
            assert refused.facts == {"epoch": first + 2}
        ok(await world.queue(first + 2))


async def test_an_earlier_workload_of_the_name_has_no_late_request_either() -> None:
    async with ordered() as world:
        no(await world.queue(first_epoch(world.order) - 1), "StaleEpoch")


async def test_nothing_begins_any_more_of_an_assignment_that_is_being_deleted() -> None:
    async with ordered() as world:
        first = first_epoch(world.order)
        ok(await world.queue(first))
        await world.live(first)
        ok(await world.send(Role.MIRROR, Delete("Assignment", "risk", NAME)))
        ok(await world.forget())
        assert "being deleted" in no(await world.queue(first), "BeingDeleted").detail
        no(await world.queue(first + 1), "BeingDeleted")


async def test_a_life_is_forgotten_only_when_its_epoch_is_on_record_and_the_record_does_not_go_back() -> None:
    async with ordered() as world:
        first = first_epoch(world.order)
        ok(await world.queue(first))
        await world.live(first)
        refused = no(await world.forget(), "InUse")
        assert refused.facts == {"epoch": first, "epochFloor": 0}
        ok(await world.floor(first))
        no(await world.floor(first - 1), "Conflict")
        ok(await world.forget())


async def test_the_checker_finds_a_token_that_was_given_out_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.authority.judge.kinds.refuse_begun_before", lambda *_: None)
    disk = MemoryDisk()
    async with ordered(disk) as world:
        first = first_epoch(world.order)
        for _ in range(2):
            ok(await world.queue(first))
            await world.live(first)
            ok(await world.floor(first))
            ok(await world.forget())
    checker = JournalChecker()
    for entry in disk.journal:
        checker.feed(entry.batch)
    assert [(one.invariant, one.detail) for one in checker.violations] == [
        ("S9", f"risk/api-0 was bound under token 1-{first}-1, after 1-{first}-1")
    ]


async def test_a_slot_of_a_workload_that_is_gone_does_not_begin_again_under_the_one_that_has_its_name() -> None:
    """A request of repair, or of the assignment controller, that was long under way."""
    async with ordered() as world:
        first = first_epoch(world.order)
        ok(await world.queue(first))
        await world.live(first)
        no(await world.send(Role.REPAIR, former(first + 1)), "StaleGeneration")
        ok(await world.floor(first))
        ok(await world.forget())
        no(await world.send(Role.ASSIGNMENT, former(first_epoch(world.order))), "StaleGeneration")


def former(epoch: int) -> Put:
    """As a workload asked that had the name before."""
    made = request_of("risk", "api", 0, epoch=epoch)
    slot = replace(made.spec.slot, uid="u-before")
    return Put("SchedulingRequest", replace(made, spec=replace(made.spec, slot=slot)))
