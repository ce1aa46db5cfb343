"""A slot of a job that has succeeded never runs again, however late a command comes: it is on record before it goes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from fairlead.decide.queueing import first_epoch
from fairlead.model.commands import Delete, Enqueue, Outcome, Put, PutStatus, Report
from fairlead.model.kinds.intent import JobRule
from fairlead.model.kinds.work import Assignment, AssignmentSpec, AssignmentStatus, SlotRange
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from tests.authority.planes import REGION, agent_of, bind_of, move_of, no, ok, request_of, running_plane, token
from tests.authority.test_epochs import NAME, Ordered

ROLES = (Role.MIRROR, Role.ASSIGNMENT, Role.SCHEDULER, Role.DISRUPTION, Role.REPAIR, Role.JOB)
SLOTS = (SlotRange(first=0, last=3),)


class Jobs(Ordered):
    """A job of four completions; its slot 0 has succeeded, and its binding is still there."""

    async def succeed(self) -> None:
        self.epoch = first_epoch(self.order)
        its = token(epoch=self.epoch)
        ok(await self.queue(self.epoch))
        ok(await self.send(Role.SCHEDULER, bind_of("risk", "api-0", "n1", epoch=self.epoch)))
        for state in (SlotState.STARTING, SlotState.SUCCEEDED):
            ok(await self.plane.send(agent_of("n1"), Report("risk", "api-0", its, state)))

    async def count(self, *completed: SlotRange) -> Outcome:
        status = AssignmentStatus(completed=completed)
        return await self.send(Role.JOB, PutStatus("Assignment", "risk", NAME, status))


@asynccontextmanager
async def succeeded() -> AsyncIterator[Jobs]:
    async with running_plane() as plane:
        await plane.add_node("n1")
        await plane.grant("risk")
        world = Jobs(plane, {role: await plane.as_role(role) for role in ROLES})
        spec = AssignmentSpec("api", "u-risk-api", 1, REGION, slots=SLOTS, job=JobRule(completions=4))
        meta = Metadata(name=NAME, namespace="risk", finalizers=("fairlead.dev/slots-released",))
        ok(await world.send(Role.MIRROR, Put("Assignment", Assignment(meta, spec))))
        await world.succeed()
        yield world


@pytest.mark.parametrize("bulk", [False, True])
async def test_a_late_request_for_a_slot_that_succeeded_is_refused(bulk: bool) -> None:
    async with succeeded() as world:
        no(await world.queue(world.epoch + 1), "AlreadyBound")
        ok(await world.count(SlotRange(first=0, last=0)))
        ok(await world.forget())
        late = request_of("risk", "api", 0, epoch=world.epoch + 1)
        body = Enqueue(late, 1) if bulk else Put("SchedulingRequest", late)
        refused = no(await world.send(Role.ASSIGNMENT, body), "AlreadyDone")
        assert (refused.detail, refused.facts) == ("api-0 has succeeded, and is counted", {"completions": 1})
        other = request_of("risk", "api", 1, epoch=world.epoch)
        ok(await world.send(Role.ASSIGNMENT, Put("SchedulingRequest", other)))


async def test_repair_does_not_run_it_again_either() -> None:
    async with succeeded() as world:
        other = request_of("risk", "api", 1, epoch=world.epoch)
        ok(await world.send(Role.ASSIGNMENT, Put("SchedulingRequest", other)))
        its = token(epoch=world.epoch)
        ok(await world.send(Role.SCHEDULER, bind_of("risk", "api-1", "n1", epoch=world.epoch)))
        ok(await world.send(Role.DISRUPTION, move_of("risk", "api-1", SlotState.DRAINING, token=its)))
        ok(await world.plane.send(agent_of("n1"), Report("risk", "api-1", its, SlotState.RELEASED)))
        ok(await world.count(SlotRange(first=1, last=1)))
        again = request_of("risk", "api", 1, epoch=world.epoch + 1)
        no(await world.send(Role.REPAIR, Put("SchedulingRequest", again)), "AlreadyDone")


async def test_a_success_is_forgotten_only_when_it_is_counted() -> None:
    async with succeeded() as world:
        assert "not on record yet" in no(await world.forget(), "InUse").detail
        ok(await world.count(SlotRange(first=0, last=0)))
        ok(await world.forget())


async def test_what_is_counted_stays_counted() -> None:
    async with succeeded() as world:
        ok(await world.count(SlotRange(first=0, last=1), SlotRange(first=3, last=3)))
        refused = no(await world.count(SlotRange(first=0, last=2)), "Conflict")
        assert refused.facts == {"completions": 3}
        no(await world.count(), "Conflict")
        ok(await world.count(SlotRange(first=0, last=3)))


async def test_all_of_a_job_that_is_deleted_may_be_forgotten() -> None:
    async with succeeded() as world:
        ok(await world.send(Role.MIRROR, Delete("Assignment", "risk", NAME)))
        ok(await world.forget())
