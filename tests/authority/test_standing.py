"""Standing reservations (P12): held, claimed in one entry, held again in one entry, and never for sale in between."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import pytest

from fairlead.decide.slots import instant
from fairlead.model.commands import Caller, Delete, Put, PutStatus, ReleaseReservation
from fairlead.model.kinds.capacity import BudgetShape, Holding, HoldingSpec, NodeStatus, Reservation
from fairlead.model.kinds.slot import Token
from fairlead.model.kinds.work import Binding
from fairlead.model.lifecycle import Role, SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from tests.authority.planes import (
    GI,
    REGION,
    PlaneForTest,
    agent_of,
    bind_of,
    move_of,
    no,
    ok,
    report_of,
    reserve_of,
    running_plane,
)

SHAPE = Resources(4000, 4 * GI)
ASK: dict[str, Any] = {"cpu": SHAPE.cpu, "memory": SHAPE.memory}
_S = SlotState
HOLDING = f"eu.{REGION}"


class Rig:
    """A plane with one node of 16 cores, a budget, and those who act on it."""

    def __init__(self, plane: PlaneForTest, recovery: Caller, assigner: Caller, scheduler: Caller) -> None:
        self.plane, self.recovery, self.assigner, self.scheduler = plane, recovery, assigner, scheduler

    async def stand(self, index: int = 0, node: str = "n1", **spec: Any) -> Reservation:
        made = {**ASK, "budget_name": "eu", "standing": True, **spec}
        ok(await self.plane.request("risk", "standing.eu", index, self.recovery, **made))
        ok(await self.plane.send(self.scheduler, bind_of("risk", f"standing.eu-{index}", node)))
        found: Reservation = self.hot("reservations", f"standing.eu-{index}")
        return found

    async def hold(self, finalizers: tuple[str, ...] = (), count: int = 2, expiry_time: datetime | None = None) -> None:
        shapes = (BudgetShape(requests=SHAPE, count=count),)
        spec = HoldingSpec(budget="eu", budget_uid="u-eu", region=REGION, shapes=shapes, expiry_time=expiry_time)
        holding = Holding(metadata=Metadata(name=HOLDING, namespace="risk", finalizers=finalizers), spec=spec)
        ok(await self.plane.send(self.recovery, Put("Holding", holding)))

    def hot(self, plural: str, name: str) -> Any:
        rec = self.plane.authority.view().get(plural, "risk", name)
        return rec.hot if rec is not None else None

    def binding(self, name: str) -> Binding:
        rec = self.plane.authority.view().get("bindings", "risk", name)
        assert rec is not None
        found: Binding = rec.decode()
        return found

    def account(self, node: str = "n1") -> Any:
        return self.plane.authority._ctx.ledger.node(node)

    def used(self) -> int:
        return int(self.plane.authority._ctx.ledger.tenant("risk").used["cpu"])


async def rig_on(plane: PlaneForTest, *, cpu: int = 100_000) -> Rig:
    await plane.add_node("n1")
    await plane.grant("risk", cpu=cpu)
    roles = [await plane.as_role(role) for role in (Role.RECOVERY, Role.ASSIGNMENT, Role.SCHEDULER)]
    rig = Rig(plane, *roles)
    await rig.hold()
    return rig


async def test_a_standing_request_becomes_room_that_is_held_charged_and_kept_from_firm_work() -> None:
    async with running_plane() as plane:
        rig = await rig_on(plane)
        room = await rig.stand()
        assert (room.spec.budget, room.spec.index, room.spec.node) == ("eu", 0, "n1")
        assert rig.hot("schedulingrequests", "standing.eu-0") is None, "nobody waits for it any more"
        assert (rig.account().cpu_free, rig.account().cpu_unlent) == (12_000, 16_000)
        assert rig.used() == 4000, "a budget carries quota as well as capacity"
        ok(await plane.request("risk", "api", 0, rig.assigner, cpu=13_000))
        no(await plane.send(rig.scheduler, bind_of("risk", "api-0", "n1")), "NoFit")


async def test_only_recovery_stands_and_it_queues_nothing_else() -> None:
    async with running_plane() as plane:
        rig = await rig_on(plane)
        no(await plane.request("risk", "standing.eu", 0, rig.assigner, budget_name="eu", standing=True), "NotOwner")
        no(await plane.request("risk", "api", 0, rig.recovery), "NotOwner")
        no(await plane.request("risk", "api", 0, rig.recovery, budget_name="eu", standing=True), "Invalid")
        room = await rig.stand()
        again = await plane.request("risk", "standing.eu", 0, rig.recovery, **ASK, budget_name="eu", standing=True)
        no(again, "AlreadyBound")
        assert room.spec.token is not None
        no(await plane.send(rig.scheduler, ReleaseReservation("risk", "standing.eu-0", room.spec.token)), "NotOwner")
        ok(await plane.send(rig.recovery, ReleaseReservation("risk", "standing.eu-0", room.spec.token)))
        assert (rig.account().cpu_free, rig.used()) == (16_000, 0)


async def test_a_claim_takes_the_room_in_one_entry_and_is_charged_once() -> None:
    async with running_plane() as plane:
        rig = await rig_on(plane, cpu=4000)  # the quota is what the budget holds, and not a core more
        await rig.stand()
        ok(await plane.request("risk", "api", 0, rig.assigner, **ASK, budget_name="eu"))
        no(await plane.send(rig.scheduler, bind_of("risk", "api-0", "n1")), "GrantExceeded")
        before = plane.authority.view().revision
        ok(await plane.send(rig.scheduler, bind_of("risk", "api-0", "n1", claims="standing.eu-0")))
        assert rig.hot("reservations", "standing.eu-0") is None
        assert rig.binding("api-0").spec.claimed == "standing.eu-0"
        assert (rig.account().cpu_free, rig.used()) == (12_000, 4000)
        ended = plane.authority.watch("reservations", before).take_nowait()
        bound = plane.authority.watch("bindings", before).take_nowait()
        assert len(ended) == len(bound) == 1


async def test_nobody_claims_what_is_another_budgets_another_nodes_or_no_budgets() -> None:
    async with running_plane() as plane:
        rig = await rig_on(plane)
        await plane.add_node("n2")
        await rig.stand()
        ok(await plane.request("risk", "api", 0, rig.assigner, **ASK, budget_name="other"))
        no(await plane.send(rig.scheduler, bind_of("risk", "api-0", "n1", claims="standing.eu-0")), "StandingGone")
        ok(await plane.request("risk", "api", 1, rig.assigner, **ASK))
        no(await plane.send(rig.scheduler, bind_of("risk", "api-1", "n1", claims="standing.eu-0")), "StandingGone")
        ok(await plane.request("risk", "api", 2, rig.assigner, **ASK, budget_name="eu"))
        no(await plane.send(rig.scheduler, bind_of("risk", "api-2", "n2", claims="standing.eu-0")), "StandingGone")
        no(await plane.send(rig.scheduler, bind_of("risk", "api-2", "n1", claims="standing.eu-7")), "StandingGone")
        await plane.grant("bank")
        ok(await plane.request("bank", "api", 0, rig.assigner, **ASK, budget_name="eu"))
        no(await plane.send(rig.scheduler, bind_of("bank", "api-0", "n1", claims="standing.eu-0")), "StandingGone")


async def test_what_is_reserved_for_a_slot_is_nobodys_room() -> None:
    async with running_plane() as plane:
        rig = await rig_on(plane)
        for index in range(2):
            ok(await plane.request("risk", "api", index, rig.assigner, **ASK))
        ok(await plane.send(rig.scheduler, reserve_of("risk", "api-0", "n1")))
        refused = no(await plane.send(rig.scheduler, bind_of("risk", "api-1", "n1", claims="api-0")), "StandingGone")
        assert refused.detail == "api-0 belongs to a slot; api-1 names no budget"


async def test_borrowers_use_held_room_and_leave_in_the_entry_that_claims_it() -> None:
    async with running_plane() as plane:
        rig = await rig_on(plane)
        for index in range(4):
            await rig.stand(index)
        ok(await plane.request("risk", "scan", 0, rig.assigner, cpu=14_000, may_borrow=True))
        ok(await plane.send(rig.scheduler, bind_of("risk", "scan-0", "n1")))
        assert rig.account().cpu_free == 0, "all of it is held still"
        ok(await plane.request("risk", "api", 0, rig.assigner, **ASK, budget_name="eu", priority=1000))
        no(await plane.send(rig.scheduler, bind_of("risk", "api-0", "n1", claims="standing.eu-0")), "NoFit")
        claim = bind_of("risk", "api-0", "n1", claims="standing.eu-0", victims=("risk/scan-0",))
        ok(await plane.send(rig.scheduler, claim))
        assert rig.binding("scan-0").status.state is _S.DRAINING
        assert rig.binding("api-0").spec.start_after == ("risk/scan-0",), "it starts when its borrower is gone"


async def test_a_released_claimer_leaves_its_room_held_and_not_free() -> None:
    async with running_plane() as plane:
        rig = await rig_on(plane)
        await leaving_claimer(rig)
        before = plane.authority.view().revision
        ok(await plane.send(agent_of("n1"), report_of("risk", "api-0", _S.RELEASED)))
        room = rig.hot("reservations", "standing.eu-0")
        assert (room.spec.budget, room.spec.index, room.spec.requests) == ("eu", 0, SHAPE)
        assert (rig.account().cpu_free, rig.used()) == (12_000, 4000)
        assert len(plane.authority.watch("reservations", before).take_nowait()) == 1
        ok(await plane.request("risk", "api", 1, rig.assigner, **ASK, budget_name="eu"))
        ok(await plane.send(rig.scheduler, bind_of("risk", "api-1", "n1", claims="standing.eu-0")))


async def leaving_claimer(rig: Rig, **ask: Any) -> None:
    """api-0 runs in the room standing.eu-0 and is told to leave."""
    plane = rig.plane
    await rig.stand()
    ok(await plane.request("risk", "api", 0, rig.assigner, **ASK, budget_name="eu", **ask))
    token = ok(await plane.send(rig.scheduler, bind_of("risk", "api-0", "n1", claims="standing.eu-0"))).token
    disruption = await plane.as_role(Role.DISRUPTION)
    ok(await plane.send(disruption, move_of("risk", "api-0", _S.DRAINING, token=token)))


async def small_claimer(rig: Rig) -> Token:
    """api-0 runs in the room standing.eu-0 and needs half of its cores."""
    await rig.stand()
    ok(await rig.plane.request("risk", "api", 0, rig.assigner, cpu=2000, memory=SHAPE.memory, budget_name="eu"))
    token = ok(await rig.plane.send(rig.scheduler, bind_of("risk", "api-0", "n1", claims="standing.eu-0"))).token
    assert token is not None
    return token


async def left(rig: Rig, token: Token) -> None:
    disruption = await rig.plane.as_role(Role.DISRUPTION)
    ok(await rig.plane.send(disruption, move_of("risk", "api-0", _S.DRAINING, token=token)))
    ok(await rig.plane.send(agent_of("n1"), report_of("risk", "api-0", _S.RELEASED)))


async def test_what_a_smaller_claimer_leaves_of_its_room_is_for_sale_at_no_moment() -> None:
    async with running_plane() as plane:
        rig = await rig_on(plane)
        token = await small_claimer(rig)
        rest = rig.hot("reservations", "standing.eu-0")
        assert (rest.spec.requests, rest.spec.claimer) == (Resources(2000), "api-0")
        assert (rig.account().cpu_free, rig.used()) == (12_000, 4000), "as much as before the claim"
        ok(await plane.request("risk", "web", 0, rig.assigner, cpu=14_000))
        no(await plane.send(rig.scheduler, bind_of("risk", "web-0", "n1")), "NoFit")
        ok(await plane.request("risk", "api", 1, rig.assigner, cpu=1000, budget_name="eu"))
        refused = no(await plane.send(rig.scheduler, bind_of("risk", "api-1", "n1", claims="standing.eu-0")), "StandingGone")
        assert refused.detail == "standing.eu-0 is claimed by api-0"
        await left(rig, token)
        room = rig.hot("reservations", "standing.eu-0")
        assert (room.spec.requests, room.spec.claimer) == (SHAPE, "")
        assert room.spec.token != rest.spec.token, "a late release of the rest does not end the room"
        assert (rig.account().cpu_free, rig.used()) == (12_000, 4000)
        no(await plane.send(rig.scheduler, bind_of("risk", "web-0", "n1")), "NoFit")


async def test_a_claimer_that_is_larger_than_its_room_gives_back_the_room_and_no_more() -> None:
    async with running_plane() as plane:
        rig = await rig_on(plane)
        await rig.stand()
        ok(await plane.request("risk", "api", 0, rig.assigner, cpu=3000, memory=6 * GI, budget_name="eu"))
        token = ok(await plane.send(rig.scheduler, bind_of("risk", "api-0", "n1", claims="standing.eu-0"))).token
        assert rig.hot("reservations", "standing.eu-0").spec.requests == Resources(1000)
        assert token is not None
        await left(rig, token)
        assert rig.hot("reservations", "standing.eu-0").spec.requests == SHAPE


async def _node_shrinks(rig: Rig) -> None:
    await rig.plane.add_node("n1", cpu=3000)


async def _grant_shrinks(rig: Rig) -> None:
    await rig.plane.grant("risk", cpu=3000, version=2)


@pytest.mark.parametrize("meanwhile", [_node_shrinks, _grant_shrinks])
async def test_a_claim_keeps_no_rest_that_its_node_or_its_grant_has_no_room_for(
    meanwhile: Callable[[Rig], Awaitable[None]],
) -> None:
    async with running_plane() as plane:
        rig = await rig_on(plane)
        await rig.stand()
        await meanwhile(rig)
        version = 2 if meanwhile is _grant_shrinks else 1
        ok(await plane.request("risk", "api", 0, rig.assigner, cpu=2000, memory=SHAPE.memory, budget_name="eu"))
        claim = bind_of("risk", "api-0", "n1", claims="standing.eu-0", grant_version=version)
        ok(await plane.send(rig.scheduler, claim))
        assert rig.hot("reservations", "standing.eu-0") is None
        assert rig.used() == 2000


async def _deleted(rig: Rig) -> None:
    ok(await rig.plane.send(rig.recovery, Delete("Holding", "risk", HOLDING)))


async def _being_deleted(rig: Rig) -> None:
    await rig.hold(finalizers=("fairlead.dev/slots-released",))
    await _deleted(rig)
    assert rig.hot("holdings", HOLDING) is not None, "it waits for its finalizer"


async def _cordoned(rig: Rig) -> None:
    await rig.plane.add_node("n1", unschedulable=True)


async def _not_healthy(rig: Rig) -> None:
    role = await rig.plane.as_role(Role.NODE)
    ok(await rig.plane.send(role, PutStatus("Node", "", "n1", NodeStatus(schedulable=True, health="Unknown", session=1))))


async def _not_schedulable(rig: Rig) -> None:
    ok(await rig.plane.send(agent_of("n1"), PutStatus("Node", "", "n1", NodeStatus(health="Ready", session=1))))


async def _no_longer_wanted(rig: Rig) -> None:
    await rig.hold(count=0)


async def _expired(rig: Rig) -> None:
    await rig.hold(expiry_time=instant(rig.plane.authority.plane_ms()))


async def _asked_for(rig: Rig) -> None:
    ok(await rig.plane.request("risk", "standing.eu", 0, rig.recovery, **ASK, budget_name="eu", standing=True))


async def _found_elsewhere(rig: Rig) -> None:
    await rig.plane.add_node("n2")
    await rig.stand(node="n2")


@pytest.mark.parametrize(
    "meanwhile",
    [
        _deleted,
        _being_deleted,
        _no_longer_wanted,
        _expired,
        _cordoned,
        _not_healthy,
        _not_schedulable,
        _asked_for,
        _found_elsewhere,
        _grant_shrinks,
    ],
)
async def test_room_is_not_held_again_where_its_budget_or_node_has_no_use_for_it(
    meanwhile: Callable[[Rig], Awaitable[None]],
) -> None:
    async with running_plane() as plane:
        rig = await rig_on(plane)
        await leaving_claimer(rig)
        await meanwhile(rig)
        before = rig.hot("reservations", "standing.eu-0")
        ok(await plane.send(agent_of("n1"), report_of("risk", "api-0", _S.RELEASED)))
        assert rig.hot("reservations", "standing.eu-0") == before
        assert rig.account().cpu_free == 16_000


@pytest.mark.parametrize(
    "meanwhile",
    [_deleted, _being_deleted, _cordoned, _not_healthy, _not_schedulable, _no_longer_wanted, _expired, _grant_shrinks],
)
async def test_the_rest_of_a_room_goes_with_its_claimer_where_the_room_is_not_held_again(
    meanwhile: Callable[[Rig], Awaitable[None]],
) -> None:
    async with running_plane() as plane:
        rig = await rig_on(plane)
        token = await small_claimer(rig)
        await meanwhile(rig)
        await left(rig, token)
        assert rig.hot("reservations", "standing.eu-0") is None
        assert (rig.account().cpu_free, rig.used()) == (16_000, 0)
