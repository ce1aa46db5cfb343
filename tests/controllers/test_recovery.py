"""A region is lost, another takes over from the room its budget holds, and gives it back: recovery controller, mirrors, standing
controller, scheduler and rollout together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace

from fairlead.controllers.recovery import RecoveryController, RecoveryRules
from fairlead.controllers.standing import StandingController
from fairlead.model.commands import Delete, Put, PutStatus
from fairlead.model.kinds.capacity import BudgetShape, HeldShape, HoldingStatus, RecoveryBudget, RecoveryBudgetSpec
from fairlead.model.kinds.intent import DisruptionRule, Placement, RecoveryRule, RegionStatus, Residency, StageCounts
from fairlead.model.kinds.policy import (
    Override,
    OverrideScope,
    OverrideSpec,
    PolicyChannel,
    PolicyChannelSpec,
    SchedulerPolicy,
    SchedulerPolicySpec,
)
from fairlead.model.kinds.recovery import RecoveryOrder, RegionOutlook
from fairlead.model.kinds.work import Ask
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Condition, Metadata
from fairlead.model.resources import Resources
from tests.authority.planes import GI, OPERATOR, REGION, ok
from tests.controllers.test_planes import World, add_region, grant_at, world

SHAPE = Resources(1000, GI)
RULES = RecoveryRules(look_ms=20, outlook_ms=50, failback_s=0.2, failing_s=0.3)


class Recovering:
    """Two regions: `local`, which is real, and `west`, of which there is only what is said of it."""

    def __init__(self, w: World) -> None:
        self.w = w
        self._health: Any = None
        self._mirror: Any = None

    async def health(self, region: str, health: Any) -> None:
        top = self.w.top.plane
        if self._health is None:
            self._health = await top.as_role(Role.REGION_HEALTH)
        ready = Condition(
            type="Ready",
            status="True" if health == "Healthy" else "False",
            reason="Test",
            last_transition_time=top.authority._ctx.now,
        )
        said = RegionStatus(health=health, conditions=(ready,))
        ok(await top.send(self._health, PutStatus("Region", "", region, said)))

    async def west_serves(self, count: int, *, placed: bool = False, stood_in: int = 0, generation: int = 0) -> None:
        """`placed`: those that do not serve have a place all the same. `stood_in`: how many of them are recovery slots.
        `generation`: of all of them."""
        top = self.w.top
        if self._mirror is None:
            self._mirror = await top.plane.as_role(Role.MIRROR, "west-mirror", "mirror-up-west")
        found = top.get("assignments", "api.west")
        waits = 0 if placed else 2 - count
        counts = StageCounts(desired=2, bound=2 - waits, started=2 - waits, ready=count, serving=count, pending=waits)
        said = replace(found.status, observed_generation=found.metadata.generation, replicas=counts, stood_in=stood_in)
        if generation:
            said = replace(said, generation=generation, generations=(generation,))
        ok(await top.plane.send(self._mirror, PutStatus("Assignment", "risk", "api.west", said)))

    async def west_holds(self, rooms: int) -> None:
        said = HoldingStatus(shapes=(HeldShape(requests=SHAPE, held=rooms),))
        await self.w.until(lambda: self.w.top.get("holdings", "eu.west") is not None)
        ok(await self.w.top.plane.send(self._mirror, PutStatus("Holding", "risk", "eu.west", said)))

    def order(self) -> RecoveryOrder | None:
        found: RecoveryOrder | None = self.w.top.get("recoveryorders", "api")
        return found

    def outlook(self, region: str) -> RegionOutlook | None:
        found: RegionOutlook | None = self.w.top.get("regionoutlooks", region, "")
        return found

    def held(self) -> HeldShape | None:
        """As the global plane knows it, wherever it is."""
        budget: RecoveryBudget = self.w.top.get("recoverybudgets", "eu")
        rows = [row for row in budget.status.regions if row.region == REGION and row.shapes]
        return replace(rows[0].shapes[0], nodes=(), zones=()) if rows else None


@asynccontextmanager
async def two_regions(*, rooms: int = 2, budget_in: str = REGION, **spec: Any) -> AsyncIterator[Recovering]:
    async with world() as w:
        top = w.top
        made = Recovering(w)
        await add_region(top.plane, "west", "us")
        await grant_at(top.plane, name="west")
        for name in (REGION, "west"):
            await made.health(name, "Healthy")
        budget = RecoveryBudgetSpec(regions=(budget_in,), shapes=(BudgetShape(requests=SHAPE, count=rooms),))
        ok(await top.plane.send(OPERATOR, Put("RecoveryBudget", RecoveryBudget(
            metadata=Metadata(name="eu", namespace="risk"), spec=budget))))  # fmt: skip
        w.low.control(StandingController(REGION))
        top.control(RecoveryController(RULES))
        recovery = RecoveryRule(budget_name="eu", min_serving=4)
        await w.apply(**{"replicas": 4, "recovery": recovery, **spec})
        await w.until(lambda: top.get("assignments", "api.west") is not None)
        await made.west_serves(2)
        await w.until(lambda: len(w.low.serving()) == 2)
        await w.until(lambda: rooms == 0 or budget_in != REGION or made.held() == HeldShape(requests=SHAPE, held=rooms))
        yield made


async def test_an_order_names_the_policy_revision_that_decided_it() -> None:
    async with two_regions() as r:
        w = r.w

        async def in_force(number: int) -> None:
            policy = SchedulerPolicy(Metadata(name=f"r{number}"), SchedulerPolicySpec(revision=number))
            channel = PolicyChannel(Metadata(name="default"), PolicyChannelSpec(current=number))
            ok(await w.top.plane.send(OPERATOR, Put("SchedulerPolicy", policy)))
            ok(await w.top.plane.send(OPERATOR, Put("PolicyChannel", channel)))

        await in_force(1)
        await r.health("west", "Lost")
        await w.until(lambda: (found := r.order()) is not None and found.spec.policy_revision == 1)
        await in_force(2)
        await w.until(lambda: (found := r.order()) is not None and found.spec.policy_revision == 2)


async def test_an_outlook_names_the_policy_revision_that_each_service_was_asked_by() -> None:
    async with two_regions() as r:
        await r.w.until(lambda: (o := r.outlook("west")) is not None and [s.policy_revision for s in o.spec.services] == [0])
        policy = SchedulerPolicy(Metadata(name="r3"), SchedulerPolicySpec(revision=3))
        ok(await r.w.top.plane.send(OPERATOR, Put("SchedulerPolicy", policy)))
        channel = PolicyChannel(Metadata(name="default"), PolicyChannelSpec(current=3))
        ok(await r.w.top.plane.send(OPERATOR, Put("PolicyChannel", channel)))
        await r.w.until(lambda: (o := r.outlook("west")) is not None and [s.policy_revision for s in o.spec.services] == [3])


async def test_readiness_is_a_condition_of_the_outlook_and_written_when_it_changes() -> None:
    async with two_regions(rooms=1) as r:
        w = r.w

        def said(status: str) -> bool:
            """Of what is written there now, as `fairlead wait` asks."""
            found = r.outlook("west")
            told = [each for each in found.status.conditions if each.type == "RecoveryReady"] if found is not None else []
            now = found.metadata.generation if found is not None else 0
            return [(each.status, each.observed_generation) for each in told] == [(status, now)]

        def lacks() -> str:
            found = r.outlook("west")
            return found.status.conditions[0].message if found is not None and found.status.conditions else ""

        await w.until(lambda: said("False") and "risk/api lacks 1: " in lacks())
        runtime = next(each for each in w.top.runtimes if each.controller.name == "recovery")
        quiet = [0, 0]  # commands, and at which look they were last more

        def rests() -> bool:
            """Five looks with nothing to write."""
            if runtime.meters.commands_total != quiet[0]:
                quiet[:] = runtime.meters.commands_total, runtime.meters.reconciles_total
            return runtime.meters.reconciles_total >= quiet[1] + 5

        await w.until(rests)
        budget: RecoveryBudget = w.top.get("recoverybudgets", "eu")
        more = replace(budget.spec, shapes=(BudgetShape(requests=SHAPE, count=2),))
        ok(await w.top.plane.send(OPERATOR, Put("RecoveryBudget", replace(budget, spec=more))))
        await w.until(lambda: said("True"))
        await r.health("west", "Unknown")
        await w.until(lambda: said("Unknown"))


async def test_rooms_that_borrowers_run_in_are_said_to_be_lent_until_they_leave() -> None:
    async with two_regions() as r:
        low, free = r.w.low, Ask(requests=SHAPE, workload_class="best-effort")

        def on_a_room() -> bool:
            nodes = {low.get("reservations", f"standing.eu-{index}").spec.node for index in (0, 1)}
            return any(hot.node in nodes for hot in low.slots("scraps").values())

        await low.order("scraps", count=3, ask=free, may_borrow=True)
        await r.w.until(lambda: len(low.serving("scraps")) == 3)
        assert low.get("bindings", "scraps-0").spec.borrowed
        assert on_a_room()
        await r.w.until(lambda: (held := r.held()) is not None and held.held == 2 and held.lent > 0)
        await low.order("scraps", count=0, ask=free, may_borrow=True)
        await r.w.until(lambda: r.held() == HeldShape(requests=SHAPE, held=2))


async def test_a_lost_region_is_stood_in_for_from_the_rooms_of_the_budget_and_the_rooms_come_back() -> None:
    async with two_regions() as r:
        w = r.w
        await w.until(lambda: (o := r.outlook("west")) is not None and (o.spec.ready, o.spec.short) == (1, 0))
        assert r.outlook("west").spec.services[0].new_slots == 2  # type: ignore[union-attr]
        await r.health("west", "Lost")
        await w.until(lambda: len(w.low.serving()) == 4)
        order = r.order()
        assert order is not None
        assert (order.spec.regions, order.spec.lost, order.spec.missing) == ({REGION: 2}, ("west",), 0)
        claimed = {i: w.low.binding(f"api-{i}").spec.claimed for i in w.low.slots() if i >= 10_000}  # type: ignore[union-attr]
        assert sorted(claimed.values()) == ["standing.eu-0", "standing.eu-1"]
        await w.until(lambda: r.held() == HeldShape(requests=SHAPE, claimed=2))
        await w.until(lambda: (c := w.condition("Recovering")) is not None and (c.status, c.reason) == ("True", "RegionLost"))

        await r.health("west", "Healthy")
        await r.west_serves(1)
        await w.until(lambda: (o := r.order()) is not None and o.spec.lost == ())
        assert len(w.low.serving()) == 4, "what stands in stays until its service is well without"
        await r.west_serves(2)
        await w.until(lambda: r.order() is None and len(w.low.slots()) == 2)
        await w.until(lambda: r.held() == HeldShape(requests=SHAPE, held=2))
        await w.until(lambda: (c := w.condition("Recovering")) is not None and c.status == "False")
        await w.low.quiet()


async def test_what_no_budget_has_room_for_is_said_aloud_before_and_after() -> None:
    async with two_regions(rooms=1) as r:
        w = r.w
        await w.until(lambda: (o := r.outlook("west")) is not None and [one.missing for one in o.spec.services] == [1])
        await r.health("west", "Lost")
        await w.until(lambda: len(w.low.serving()) == 3)
        order = r.order()
        assert order is not None
        assert order.spec.missing == 1
        assert "holds no more" in order.spec.why
        await w.until(lambda: (c := w.condition("Recovering")) is not None and c.reason == "RecoveryShort")


async def test_what_its_placement_may_keep_from_the_rooms_is_said_before_and_what_finds_no_place_after() -> None:
    async with two_regions(placement=Placement(max_per_node=1)) as r:  # on three nodes
        w = r.w

        def unsure() -> list[int]:
            found = r.outlook("west")
            return [one.missing for one in found.spec.services if "too few nodes" in one.why] if found is not None else []

        await w.until(lambda: unsure() == [2])
        await r.health("west", "Lost")
        await w.until(lambda: (c := w.condition("Recovering")) is not None and c.reason == "RecoveryShort")
        await w.until(lambda: (o := r.order()) is not None and (o.spec.regions, o.spec.missing) == ({REGION: 2}, 1))
        assert len(w.low.serving()) == 3


async def test_residency_is_kept_when_a_region_is_lost() -> None:
    placement = Placement(residency=Residency(areas=("us",)))
    async with world() as w:
        r = Recovering(w)
        await add_region(w.top.plane, "west", "us")
        await grant_at(w.top.plane, name="west")
        for name in (REGION, "west"):
            await r.health(name, "Healthy")
        w.top.control(RecoveryController(RULES))
        await w.apply(placement=placement, recovery=RecoveryRule(min_serving=2))
        await w.until(lambda: w.top.get("assignments", "api.west") is not None)
        await r.health("west", "Lost")
        await w.until(lambda: (o := r.order()) is not None and o.spec.missing == 2)
        order = r.order()
        assert order is not None
        assert order.spec.regions == {}
        assert "no healthy region may carry it" in order.spec.why
        assert w.low.slots() == {}


async def test_a_region_that_has_no_place_for_a_service_for_a_while_is_lost_for_it() -> None:
    async with two_regions() as r:
        w = r.w
        await r.west_serves(0)  # the region is healthy, its nodes are gone
        await w.until(lambda: (o := r.order()) is not None and o.spec.lost == ("west",))
        await w.until(lambda: len(w.low.serving()) == 4)


async def test_rooms_move_off_a_lost_node_and_go_with_their_budget() -> None:
    async with two_regions() as r:
        w = r.w
        reservations = {name: w.low.get("reservations", name) for name in ("standing.eu-0", "standing.eu-1")}
        nodes = {found.spec.node for found in reservations.values()}
        assert len(nodes) == 2, "one lost node takes one room with it, not both"
        gone = min(nodes)
        w.low.agent.dead.add(gone)

        def places() -> set[str]:
            found = [w.low.get("reservations", f"standing.eu-{index}") for index in (0, 1)]
            return {one.spec.node for one in found if one is not None}

        await w.until(lambda: len(places()) == 2 and gone not in places())
        await w.until(lambda: r.held() == HeldShape(requests=SHAPE, held=2))
        ok(await w.top.plane.send(OPERATOR, Delete("RecoveryBudget", "risk", "eu")))
        await w.until(lambda: not places())


async def test_a_workload_that_names_no_minimum_is_not_recovered() -> None:
    async with two_regions(recovery=RecoveryRule()) as r:
        w = r.w
        await r.health("west", "Lost")
        await w.until(lambda: (o := r.outlook(REGION)) is not None and o.spec.services == ())
        assert r.order() is None
        assert len(w.low.slots()) == 2


async def give_up(r: Recovering, *, approver: str = "bob", ttl_s: int = 3600, **scope: tuple[str, ...]) -> None:
    spec = OverrideSpec(
        kind="recovery", reason="it flaps", ttl_seconds=ttl_s, requester="ada", approver=approver,
        scope=OverrideScope(tenants=("risk",), **scope),
    )  # fmt: skip
    made = Override(metadata=Metadata(name="give-up", namespace="risk"), spec=spec)
    ok(await r.w.top.plane.send(OPERATOR, Put("Override", made)))


async def test_an_override_recovers_from_a_region_that_is_not_lost_and_ends_by_its_time() -> None:
    for ttl_s in (3, 40):  # a machine that is too slow to recover before it ends is given a longer one
        async with two_regions() as r:
            if await recovers_for(r, ttl_s):
                return
    raise AssertionError("nothing was recovered within forty seconds")


async def recovers_for(r: Recovering, ttl_s: int) -> bool:
    """False where the override ended before everything stood elsewhere."""
    w = r.w
    await give_up(r, regions=("west",), ttl_s=ttl_s)
    end_ms = w.top.local.plane_ms() + ttl_s * 1000

    def stands() -> bool:
        ordered = (o := r.order()) is not None and (o.spec.lost, o.spec.regions) == (("west",), {REGION: 2})
        return ordered and len(w.low.serving()) == 4

    await w.until(lambda: stands() or w.top.local.plane_ms() >= end_ms)
    if not stands():
        return False
    await w.until(lambda: r.order() is None and len(w.low.slots()) == 2)
    assert w.top.get("overrides", "give-up") is not None, "nobody has cleared it away"
    return True


async def test_an_override_that_nobody_else_agreed_to_recovers_nothing() -> None:
    async with two_regions() as r:
        await give_up(r, regions=("west",), approver="")
        await r.w.low.quiet()
        assert r.order() is None


async def test_an_override_of_a_workload_alone_gives_up_the_regions_in_which_it_does_not_serve() -> None:
    async with two_regions() as r:
        await give_up(r, workloads=("api",))
        await r.w.low.quiet()
        assert r.order() is None, "it serves everywhere"
        await r.west_serves(1, placed=True)
        await r.w.until(lambda: (o := r.order()) is not None and o.spec.lost == ("west",))


async def test_a_region_that_stands_in_and_is_not_heard_for_a_moment_keeps_what_serves_there() -> None:
    async with two_regions(disruption=DisruptionRule(min_serving=4)) as r:
        w = r.w
        await r.health("west", "Lost")
        await w.until(lambda: len(w.low.serving()) == 4)
        assert w.top.get("assignments", f"api.{REGION}").spec.min_serving == 4, "those that stand in owe what the lost ones owed"
        ordered = r.order()
        await r.health(REGION, "Unknown")
        for _ in range(20):
            await asyncio.sleep(0.02)
            assert len(w.low.serving()) == 4
        assert r.order() == ordered
        await r.health(REGION, "Healthy")
        await r.health("west", "Healthy")
        await r.west_serves(2)
        await w.until(lambda: r.order() is None and len(w.low.slots()) == 2)
        assert w.top.get("assignments", f"api.{REGION}").spec.min_serving == 2


async def test_recovery_slots_that_serve_are_not_taken_for_the_regions_own() -> None:
    async with two_regions() as r:
        w, top = r.w, r.w.top
        await r.health("west", "Lost")
        await w.until(lambda: len(w.low.serving()) == 4)
        await w.until(lambda: top.get("assignments", f"api.{REGION}").status.stood_in == 2)
        await r.health("west", "Healthy")
        await r.west_serves(2)
        await w.until(lambda: r.order() is None and len(w.low.slots()) == 2)
        await w.until(lambda: top.get("assignments", f"api.{REGION}").status.stood_in == 0)


async def test_a_region_whose_own_slots_are_down_is_not_well_because_those_that_stand_in_there_serve() -> None:
    async with two_regions(rooms=2, budget_in="west") as r:
        w, top = r.w, r.w.top
        await r.west_holds(2)
        await r.health(REGION, "Lost")
        await w.until(lambda: (o := r.order()) is not None and o.spec.regions == {"west": 2})
        await r.west_serves(2, stood_in=2)
        await r.health(REGION, "Healthy")
        await w.until(lambda: (o := r.order()) is not None and o.spec.lost == ())
        await asyncio.sleep(RULES.failback_s + 0.2)
        assert r.order() is not None
        await r.west_serves(2)
        await w.until(lambda: r.order() is None)
        await w.until(lambda: top.get("assignments", "api.west").spec.recovery is None)
