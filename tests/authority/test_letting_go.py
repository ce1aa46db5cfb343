"""S19 at the commit: who serves is let go only where the budget of its workload holds without it, whatever its controller saw."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fairlead.authority.ending import AUTHORITY, GRACE_S
from fairlead.decide.queueing import first_epoch
from fairlead.model.commands import Caller, Command, Delete, Move, Outcome, Put, PutStatus, Report
from fairlead.model.kinds.slot import SlotRef
from fairlead.model.kinds.work import (
    Assignment,
    AssignmentSpec,
    EvictionRequest,
    EvictionRequestSpec,
    EvictionRequestStatus,
    SlotRange,
)
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Condition, Metadata
from tests.authority.planes import REGION, PlaneForTest, agent_of, bind_of, move_of, no, ok, request_of, running_plane, token

ROLES = (Role.MIRROR, Role.ASSIGNMENT, Role.SCHEDULER, Role.DISRUPTION, Role.ROLLOUT, Role.NODE, Role.REPAIR)
UID = "u-risk-api"
_S = SlotState


class Budgeted:
    """Slots of risk/api that serve, `least` of which must."""

    def __init__(self, plane: PlaneForTest, callers: dict[Role, Caller]) -> None:
        self.plane, self.callers = plane, callers
        self.epoch = 0  # of every slot's first life

    async def send(self, role: Role, body: Any) -> Outcome:
        return await self.plane.send(self.callers[role], body)

    async def order(self, least: int, slots: int, **spec: Any) -> None:
        spans = (SlotRange(first=0, last=slots - 1),)
        wanted = AssignmentSpec("api", UID, 1, REGION, slots=spans, min_serving=least, **spec)
        meta = Metadata(name=f"api.{REGION}", namespace="risk", finalizers=("fairlead.dev/slots-released",))
        ok(await self.send(Role.MIRROR, Put("Assignment", Assignment(meta, wanted))))
        self.epoch = self.epoch or first_epoch(self.ordered)

    @property
    def ordered(self) -> Assignment:
        rec = self.plane.authority.view().get("assignments", "risk", f"api.{REGION}")
        assert rec is not None
        found: Assignment = rec.decode()
        return found

    async def serve(self, index: int) -> None:
        name = f"api-{index}"
        ok(await self.send(Role.ASSIGNMENT, Put("SchedulingRequest", request_of("risk", "api", index, epoch=self.epoch))))
        ok(await self.send(Role.SCHEDULER, bind_of("risk", name, "n1", epoch=self.epoch)))
        for state in (_S.STARTING, _S.READY):
            ok(await self.plane.send(agent_of("n1"), Report("risk", name, token(epoch=self.epoch), state)))
        ok(await self.move(Role.ROLLOUT, index, _S.SERVING))

    async def move(self, role: Role, index: int, to: SlotState) -> Outcome:
        return await self.send(role, move_of("risk", f"api-{index}", to, token=token(epoch=self.epoch)))

    async def ask(self, index: int, epoch: int = 0, reason: str = "drain") -> None:
        spec = EvictionRequestSpec(slot=SlotRef("api", UID, index), reason=reason, epoch=epoch or self.epoch)
        request = EvictionRequest(Metadata(name=f"api-{index}", namespace="risk"), spec)
        ok(await self.send(Role.REPAIR, Put("EvictionRequest", request)))

    async def rule(self, index: int, *said: str, generation: int = 1) -> Outcome:
        """What the disruption controller says of a request: that it is Approved, Done, or both."""
        conditions = tuple(Condition(type=kind, status="True", reason="x", observed_generation=generation) for kind in said)
        status = EvictionRequestStatus(observed_generation=generation, conditions=conditions)
        return await self.send(Role.DISRUPTION, PutStatus("EvictionRequest", "risk", f"api-{index}", status))

    def staying(self) -> int:
        return self.plane.authority._ctx.staying.of("risk", "api")


@asynccontextmanager
async def budgeted(least: int, serving: int = 3, **spec: Any) -> AsyncIterator[Budgeted]:
    async with running_plane() as plane:
        await plane.add_node("n1")
        await plane.grant("risk")
        world = Budgeted(plane, {role: await plane.as_role(role) for role in ROLES})
        await world.order(least, serving, **spec)
        for index in range(serving):
            await world.serve(index)
        yield world


async def test_each_that_is_let_go_counts_against_the_next() -> None:
    async with budgeted(2) as world:
        for index in range(3):
            await world.ask(index)
        ok(await world.rule(0, "Approved"))
        refused = no(await world.rule(1, "Approved"), "TooFewServe")
        assert refused.detail == "api-1 stays: disruption budget of risk/api: 2 serve, minServing is 2"
        assert refused.facts == {"workload": "risk/api", "serving": 2, "minServing": 2, "wanted": 3}
        ok(await world.rule(0, "Approved"))
        ok(await world.move(Role.ROLLOUT, 0, _S.READY))
        no(await world.rule(1, "Approved"), "TooFewServe")
        ok(await world.rule(1))


async def test_the_last_copy_stays_while_others_are_wanted() -> None:
    async with budgeted(0, serving=2) as world:
        ok(await world.move(Role.ROLLOUT, 1, _S.READY))
        await world.ask(0)
        assert "last copy" in no(await world.rule(0, "Approved"), "TooFewServe").detail


async def test_nobody_drains_what_serves_and_was_not_let_go_beyond_the_budget() -> None:
    async with budgeted(3) as world:
        no(await world.move(Role.DISRUPTION, 0, _S.DRAINING), "TooFewServe")
        await world.ask(0)
        no(await world.move(Role.DISRUPTION, 0, _S.DRAINING), "TooFewServe")
        await world.order(2, 3)
        ok(await world.rule(0, "Approved"))
        await world.order(3, 3)
        ok(await world.move(Role.DISRUPTION, 0, _S.DRAINING))


async def test_a_request_that_was_taken_back_or_filed_again_lets_nobody_go() -> None:
    async with budgeted(2) as world:
        await world.ask(0)
        ok(await world.rule(0, "Approved"))
        await world.order(3, 3)
        await world.ask(0, reason="another")
        no(await world.move(Role.DISRUPTION, 0, _S.DRAINING), "TooFewServe")
        ok(await world.send(Role.ROLLOUT, Delete("EvictionRequest", "risk", "api-0")))
        no(await world.move(Role.DISRUPTION, 0, _S.DRAINING), "TooFewServe")
        assert world.staying() == 3


async def test_what_does_not_serve_or_is_about_another_life_is_let_go_at_any_time() -> None:
    async with budgeted(3, serving=4) as world:
        ok(await world.move(Role.ROLLOUT, 3, _S.READY))
        await world.ask(3)
        ok(await world.rule(3, "Approved"))
        await world.ask(0, epoch=7)
        ok(await world.rule(0, "Approved"))
        assert world.staying() == 3


@pytest.mark.parametrize("suspended", [True, False])
async def test_all_of_a_workload_that_goes_away_may_leave(suspended: bool) -> None:
    async with budgeted(3) as world:
        if suspended:
            await world.order(3, 3, suspend=True)
        else:
            ok(await world.send(Role.MIRROR, Delete("Assignment", "risk", f"api.{REGION}")))
        for index in range(3):
            await world.ask(index)
            ok(await world.rule(index, "Approved"))
            ok(await world.move(Role.DISRUPTION, index, _S.DRAINING))


async def test_what_the_authority_ends_itself_asks_no_budget() -> None:
    async with budgeted(3) as world:
        ends = Move("risk", "api-0", token(epoch=world.epoch), _S.DRAINING, "LeaseEnds", GRACE_S)
        ok((await world.plane.authority._chores._submit([Command(AUTHORITY, ends)]))[0])


async def test_who_serves_and_stays_is_counted_through_every_change_and_its_undoing() -> None:
    async with budgeted(1) as world:
        await world.ask(0)
        assert world.staying() == 3
        ok(await world.rule(0, "Approved"))
        assert world.staying() == 2
        ok(await world.rule(0, "Approved", "Done"))
        assert world.staying() == 3
        ok(await world.move(Role.NODE, 1, _S.UNKNOWN))
        assert world.staying() == 2
        state = world.plane.authority._ctx.state
        before = state.position
        for index in (0, 2):
            state.apply("bindings", "risk", f"api-{index}", None)
        state.apply("evictionrequests", "risk", "api-0", None)
        assert world.staying() == 0
        state.undo_to(before)
        assert world.staying() == 2
