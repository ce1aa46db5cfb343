"""Slots without a place move to another region, and the old region gives them up first: workload controller, mirrors and a real
region, beside one of which there is only what is said of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from msgspec.structs import replace

from fairlead.compose.metrics import ServerMetrics
from fairlead.controllers.cache import Cache
from fairlead.controllers.given import GivenTotals
from fairlead.controllers.overflowing import Overflowing, Where
from fairlead.controllers.workload import WorkloadController
from fairlead.decide.assigning import RegionFacts
from fairlead.decide.queueing import first_epoch
from fairlead.decide.slots import instant
from fairlead.decide.spans import indices, size, spans_of
from fairlead.model.commands import Put, PutStatus
from fairlead.model.kinds.intent import JobRule, PendingReason, Placement, ResourceSpec, StageCounts, Workload, WorkloadSpec
from fairlead.model.kinds.policy import PolicyChannel, PolicyChannelSpec, SchedulerPolicy, SchedulerPolicySpec, WorkloadClass
from fairlead.model.kinds.work import Assignment, AssignmentSpec, AssignmentStatus
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from fairlead.observe.exposition import Page
from tests.authority.planes import GI, OPERATOR, REGION, no, ok
from tests.controllers.test_given import WAITS
from tests.controllers.test_given import World as Given
from tests.controllers.test_planes import World, add_region, grant_at, world
from tests.controllers.test_repair import Row

AFTER_S = 0.3


class Moving:
    """Two regions: `local`, which is real, and `west`, of which there is only what is said of it."""

    def __init__(self, w: World, mirror: Any) -> None:
        self.w = w
        self._mirror = mirror

    def order(self, region: str) -> AssignmentSpec:
        found: Assignment = self.w.top.get("assignments", f"api.{region}")
        return found.spec

    def slots(self, region: str) -> list[int]:
        found: Assignment | None = self.w.top.get("assignments", f"api.{region}")
        return list(indices(found.spec.slots)) if found is not None else []

    async def west_says(self, waits: int = 0, given: tuple[int, ...] = (), reason: str = "WaitingForCapacity") -> None:
        found: Assignment = self.w.top.get("assignments", "api.west")
        bound = size(found.spec.slots) - waits - len(given)
        counts = StageCounts(desired=bound + waits, bound=bound, started=bound, ready=bound, serving=bound, pending=waits)
        why = (PendingReason(reason=reason, count=waits, since_time=instant(0)),) if waits else ()
        said = replace(
            found.status, observed_generation=found.metadata.generation, replicas=counts, pending=why, given_up=spans_of(given)
        )
        ok(await self.w.top.plane.send(self._mirror, PutStatus("Assignment", "risk", "api.west", said)))


@asynccontextmanager
async def two_regions(after_s: float = AFTER_S, **spec: Any) -> AsyncIterator[Moving]:
    async with world() as w:
        top = w.top.plane
        classes = tuple(WorkloadClass(name=n, overflow_after_seconds=after_s) for n in ("standard", "critical"))
        policy = SchedulerPolicySpec(revision=1, workload_classes=classes)
        ok(await top.send(OPERATOR, Put("SchedulerPolicy", SchedulerPolicy(Metadata(name="r1"), policy))))
        channel = PolicyChannel(Metadata(name="default"), PolicyChannelSpec(current=1))
        ok(await top.send(OPERATOR, Put("PolicyChannel", channel)))
        await add_region(top, "west", "us")
        await grant_at(top, name="west")
        await w.apply(**{"replicas": 4, **spec})
        await w.until(lambda: w.top.get("assignments", "api.west") is not None)
        yield Moving(w, await top.as_role(Role.MIRROR, "west-mirror", "mirror-up-west"))


async def test_slots_without_a_place_come_to_another_region_only_after_theirs_has_given_them_up() -> None:
    async with two_regions() as m:
        w = m.w
        await w.until(lambda: len(w.low.serving()) == 2)
        theirs = m.slots("west")
        await m.west_says(waits=2)
        await w.until(lambda: m.order("west").give_up == 2)
        assert len(m.slots(REGION)) == 2, "asked is not given"
        await m.west_says(waits=2)
        await m.west_says(waits=1, given=(theirs[0],))
        await w.until(lambda: len(w.low.serving()) == 3)
        assert m.slots("west") == theirs[1:], "the one that it still holds, whichever number it has"
        assert m.order("west").overflow.gave_time is not None
        assert m.order(REGION).overflow.took_time is not None
        assert not set(m.slots("west")) & set(m.slots(REGION))

        await m.west_says(waits=1)
        await w.until(lambda: m.order("west").give_up == 1)
        await m.west_says(given=(theirs[1],))
        await w.until(lambda: len(w.low.serving()) == 4)
        await w.until(lambda: w.serves(4))
        assert m.slots("west") == []
        await w.until(lambda: 'fairlead_region_skew_ratio{region="local",workload_class="standard"} 0.5' in metrics(w))
        assert 'fairlead_overflow_slots_total{region="west"}' in metrics(w)
        await w.low.quiet()


def metrics(w: World) -> str:
    page = Page()
    ServerMetrics._controller(page, next(each for each in w.top.runtimes if each.controller.name == "workload"))
    return page.render().decode()


async def test_a_region_gives_up_what_waits_and_keeps_what_runs_as_it_runs() -> None:
    """Three nodes of 16 cores: of five slots of 9 cores, three have a place."""
    async with two_regions(replicas=10, resources=ResourceSpec(requests=Resources(9000, GI))) as m:
        w = m.w
        await w.until(lambda: len(m.slots("west")) == 5)
        await w.until(lambda: len(w.low.serving()) == 3)
        ran = {index: hot.token for index, hot in w.low.slots().items()}
        await m.west_says()
        await w.until(lambda: len(m.slots("west")) == 7)
        assert sorted(ran) == m.slots(REGION), "those that have a place stay, under their numbers"
        await w.until(lambda: w.low.status().given_up == () and w.low.status().replicas.pending == 0)
        assert {index: hot.token for index, hot in w.low.slots().items()} == ran, "nothing was restarted"
        await m.west_says()
        await w.low.quiet()


def test_nothing_moves_where_the_workload_or_its_class_says_so_or_while_it_is_exclusive_or_in_one_region() -> None:
    long_ago = instant(0)
    status = AssignmentStatus(
        observed_generation=1, pending=(PendingReason(reason="WaitingForCapacity", count=2, since_time=long_ago),)
    )
    order = AssignmentSpec("api", "u", 1, "west", slots=spans_of(range(4)))
    here = Assignment(Metadata(name="api.west", namespace="risk", generation=1), order, status)
    facts = {name: RegionFacts(name, frozenset(), True, 9) for name in ("local", "west")}
    where = Where(facts, frozenset(facts), frozenset(), lambda region: False)

    def asks(after_ms: int = 1000, **spec: Any) -> dict[str, int]:
        moving, made = Overflowing(), Workload(Metadata(name="api", namespace="risk"), WorkloadSpec(replicas=4, **spec))
        assert moving.look(made, [here], where, after_ms, 0).asks == {}, "not at once"
        return moving.look(made, [here], where, after_ms, 60_000).asks

    assert asks() == {"west": 2}
    assert asks(after_ms=0) == {}
    assert asks(placement=Placement(overflow=False)) == {}
    assert asks(execution="Exclusive") == {}
    assert asks(suspend=True) == {}
    assert asks(gang=True) == {}
    assert asks(job=JobRule(completions=4)) == {}


def test_a_region_is_crowded_by_what_is_no_larger_and_of_somebody_else() -> None:
    cache = Cache(WorkloadController.indexes)
    totals = cache.derived = GivenTotals(cache)
    small, large = Resources(100, GI), Resources(4000, GI)
    made: dict[str, Assignment] = {}

    def put(name: str, ask: Resources, *reasons: str) -> None:
        why = tuple(PendingReason(reason=reason, count=1) for reason in reasons)
        order = AssignmentSpec(name, "u", 1, "west", requests=ask)
        made[name] = Assignment(Metadata(name=f"{name}.west", namespace="risk"), order, AssignmentStatus(pending=why))
        cache.apply(Row("assignments", "risk", f"{name}.west", next(positions), b"", made[name]))

    positions = count(1)
    put("huge", large, "WaitingForCapacity")
    put("held", small, "OnHold")
    assert not totals.is_crowded("west", small, None), "what is larger may wait for ever"
    assert totals.is_crowded("west", large, None)
    assert not totals.is_crowded("west", large, made["huge"]), "it does not stand in its own way"
    assert not totals.is_crowded("east", large, None)
    put("other", large, "WaitingForCapacity")
    assert totals.is_crowded("west", large, made["huge"])
    put("other", large)
    put("huge", large, "TopologyBlocked")
    assert not totals.is_crowded("west", large, None)


async def test_a_region_cannot_say_that_it_gave_up_what_it_still_holds() -> None:
    async with world() as w:
        low = w.low
        for runtime in low.runtimes:
            if runtime.controller.name in ("assignment", "mirror-down"):
                runtime.stop()
        await low.order("big", count=2, give_up=1, uid="u-risk-big")
        asker = await low.plane.as_role(Role.ASSIGNMENT, "asker", "asker")
        found: Assignment = low.get("assignments", f"big.{REGION}")

        async def says(*given: int) -> Any:
            said = replace(found.status, given_up=spans_of(given))
            return await low.plane.send(asker, PutStatus("Assignment", "risk", found.metadata.name, said))

        assert "asked for" in no(await says(0, 1), "Conflict").detail
        assert "not this region's" in no(await says(7), "Conflict").detail
        ok(await says(1))
        ok(await low.plane.request("risk", "big", 0, asker, epoch=first_epoch(found)))
        assert "still" in no(await says(0), "Conflict").detail


def asked_of_b(granted: int) -> tuple[int, int]:
    """Region b has four slots, one of which has waited for a minute: how many it is asked for, and how many it is left."""
    given = Given()
    given.workload("w")
    given.order("w", WAITS, slots=4)
    given.controller.reconcile(("t", "w"), given.view, 1_000)
    given.grant("b", granted)
    result = given.controller.reconcile(("t", "w"), given.view, 62_000)
    put = [each.object.spec for each in result.bodies if isinstance(each, Put) and each.kind == "Assignment"]
    order: AssignmentSpec = next(spec for spec in put if spec.region == "b")
    return order.give_up, size(order.slots)


def test_a_region_that_loses_slots_anyway_is_not_asked_for_some_in_the_same_breath() -> None:
    assert asked_of_b(10) == (1, 4)
    assert asked_of_b(0) == (0, 0), "no quota is for it any more"
