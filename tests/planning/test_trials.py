"""A trial by itself: it rests, it repeats, it gives the loop back, and it takes nothing for granted that does not run today."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.client.planning import Busy, Planned, PlanRefused, Readable, Step, TooLarge
from fairlead.client.resources import ChangePage, Unreachable
from fairlead.compose.controllers import tried_on
from fairlead.decide.plugins import BUILT_INS
from fairlead.decide.scores import Tier
from fairlead.model import codec
from fairlead.model.kinds.policy import PolicyChannel, PolicyChannelSpec, SchedulerPolicy, SchedulerPolicySpec, WorkloadClass
from fairlead.model.kinds.slot import SlotRef, Token, Transition
from fairlead.model.kinds.work import Binding, BindingSpec, BindingStatus
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Metadata
from fairlead.model.registry import GLOBAL
from fairlead.model.resources import Resources
from fairlead.planning import planner as planning
from fairlead.planning.copied import Copy
from fairlead.planning.planner import TrialPlanner
from fairlead.planning.pretending import YOUNG_MS, Agents
from fairlead.planning.steady import Steady
from fairlead.planning.trial import Trial
from fairlead.ports import SystemClock, Tasks
from tests.planning.measure import GI, Frozen, empty, put, workload


class Counting(SystemClock):
    """How often the loop was given back."""

    def __init__(self) -> None:
        self.rests = 0

    async def sleep(self, seconds: float) -> None:
        self.rests += 1
        await super().sleep(0)


def planes() -> dict[str, Readable]:
    return {name: Frozen(copy) for name, copy in empty(4, Resources(100_000, 400 * GI)).items()}


def more(name: str = "more", replicas: int = 70) -> Step:
    return put(GLOBAL, "Workload", workload(name, replicas))


async def planned(*steps: Step, of: dict[str, Readable] | None = None) -> Planned:
    found, _ = await TrialPlanner(tried_on, SystemClock()).plan(of or planes(), steps)
    assert isinstance(found, Planned), found
    return found


async def test_the_same_plan_of_the_same_state_says_the_same() -> None:
    here = planes()
    first, second = await planned(more(), of=here), await planned(more(), of=here)
    assert first == second
    assert sum(row.bound_after for row in first.workloads[0].regions) == 64
    assert [(row.reason, row.count) for row in first.pending] == [("WaitingForCapacity", 6)]
    assert first.settled


class NoRoom:
    """A plug-in's gate: four slots of these leave what they must on each node, and no more."""

    name, tier, text = "example.no-room", Tier.INVARIANT, "12 CPU stay free on every node"

    def check(self, need: Any, row: Any, view: Any) -> Any:
        return need.cpu + 12_000 <= row.cpu_free

    def why(self, need: Any, row: Any, view: Any) -> str:
        return "12 CPU must stay free"


async def test_a_policy_that_names_a_plug_in_is_tried_with_it_and_refused_without() -> None:
    plugins, _ = BUILT_INS.with_plugins([("gates", NoRoom.name, NoRoom())])
    classes = (WorkloadClass(name="odd", priority_class_name="standard"),)
    spec = SchedulerPolicySpec(revision=1, gates=(NoRoom.name,), workload_classes=classes)
    ask = workload("more", 70)
    steps = [
        put(GLOBAL, "SchedulerPolicy", SchedulerPolicy(Metadata(name="r1"), spec)),
        put(GLOBAL, "PolicyChannel", PolicyChannel(Metadata(name="default"), PolicyChannelSpec(current=1))),
        put(GLOBAL, "Workload", replace(ask, spec=replace(ask.spec, workload_class="odd"))),
    ]
    found, _ = await TrialPlanner(tried_on, SystemClock(), plugins).plan(planes(), steps)
    assert isinstance(found, Planned), found
    # The workload controller knows the class, which only this revision has; scheduler and judges go by its gate.
    assert sum(row.bound_after for row in found.workloads[0].regions) == 16
    refused, _ = await TrialPlanner(tried_on, SystemClock()).plan(planes(), steps)
    assert isinstance(refused, PlanRefused)
    assert (refused.at, refused.refused.reason) == (0, "PluginMissing")


async def test_no_change_is_no_difference() -> None:
    found = await planned()
    assert (found.workloads, found.slots, found.pending, found.budgets) == ((), (), (), ())


async def test_what_is_under_way_anyway_is_not_told_as_the_changes_doing() -> None:
    copies = empty(4, Resources(100_000, 400 * GI))
    copies[GLOBAL].submit(more("before", 3).command)  # somebody has just asked for it; nobody has looked yet
    found = await planned(more("mine", 2), of={name: Frozen(copy) for name, copy in copies.items()})
    assert [row.name for row in found.workloads] == ["mine"]


async def test_the_loop_is_given_back_while_a_plan_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "SLICE_S", 0.0)  # after every step, so that the machine's speed does not matter
    clock = Counting()
    await TrialPlanner(tried_on, clock).plan(planes(), [more()])
    assert clock.rests > 300


async def test_a_refused_step_is_said_with_its_place_and_an_unread_plane_is_no_place_for_a_change() -> None:
    bad = workload("bad", 1)
    bad = type(bad)(metadata=Metadata(name="Not A Name", namespace="risk"), spec=bad.spec)
    found, _ = await TrialPlanner(tried_on, SystemClock()).plan(planes(), [more(), put(GLOBAL, "Workload", bad)])
    assert isinstance(found, PlanRefused)
    assert (found.at, found.refused.reason) == (1, "Invalid")
    found, _ = await TrialPlanner(tried_on, SystemClock()).plan(planes(), [put("mars", "Workload", workload("x", 1))])
    assert isinstance(found, PlanRefused)
    assert found.refused.reason == "NotLeader"


class Away(Frozen):
    async def page(
        self, plural: str, tenant: str | None = None, *, after: tuple[str, str] = ("", ""), limit: int = 500, revision: int = 0
    ) -> ChangePage:
        raise Unreachable("east")


async def test_a_plane_that_goes_away_while_it_is_read_is_left_out() -> None:
    copies = empty(1, Resources(1000, GI))
    found = await planned(more(replicas=1), of={GLOBAL: Frozen(copies[GLOBAL]), "east": Away(copies["east"])})
    assert found.unreachable == ("east",)
    with pytest.raises(Unreachable):
        await TrialPlanner(tried_on, SystemClock()).unblock(Away(copies["east"]), "east", "risk", "more-0", 3)


async def test_where_no_plane_can_be_read_nothing_is_planned_and_all_are_named() -> None:
    copies = empty(1, Resources(1000, GI))
    away = {GLOBAL: Away(copies[GLOBAL]), "east": Away(copies["east"])}
    planner = TrialPlanner(tried_on, SystemClock())
    with pytest.raises(Unreachable, match=f"{GLOBAL}, east"):
        await planner.plan(away, [more()])
    with pytest.raises(Unreachable):
        await planner.base(away)
    with pytest.raises(Unreachable):
        await planner.plan({}, [more()])


async def test_more_than_one_plan_reads_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "OBJECTS_MAX", 3)
    with pytest.raises(TooLarge):
        await planned(more())


async def test_so_many_plans_wait_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "WAITING_MAX", 1)
    planner, here = TrialPlanner(tried_on, SystemClock()), planes()
    async with Tasks() as tasks:
        asked = [tasks.start(planner.plan(here, [more()]), f"plan {number}") for number in range(2)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        with pytest.raises(Busy):
            await planner.plan(here, [more()])
    assert all(isinstance(task.result()[0], Planned) for task in asked), "those that wait get their turn"


@pytest.mark.parametrize(("age_ms", "comes_up"), [(1000, True), (YOUNG_MS + 1000, False)])
def test_what_has_tried_to_come_up_for_long_does_not_come_up_in_a_trial(age_ms: int, comes_up: bool) -> None:
    copy: Copy = empty(1, Resources(1000, GI))["east"]
    slot = SlotRef(workload="api", uid="u", index=0)
    when = copy.ctx.now.fromtimestamp((copy.now_ms - age_ms) / 1000, copy.ctx.now.tzinfo)
    step = Transition(to=SlotState.STARTING, by="agent", time=when)
    spec = BindingSpec(slot=slot, node="n0", token=Token(1, 1, 1), requests=Resources(100, GI))
    made = Binding(Metadata(name="api-0", namespace="risk"), spec, BindingStatus(SlotState.STARTING, step))
    copy.state.apply("bindings", "risk", "api-0", codec.encode(made))
    Agents(copy).act()
    assert (copy.state.hot("bindings", "risk", "api-0").state is SlotState.READY) == comes_up


def test_steady_chance_draws_the_same_and_within_its_range() -> None:
    one, other = Steady(7), Steady(7)
    drawn = [one.randrange(3, 9) for _ in range(200)]
    assert drawn == [other.randrange(3, 9) for _ in range(200)]
    assert set(drawn) == set(range(3, 9))
    assert {Steady(3).randrange(4) for _ in range(3)} <= set(range(4))


def test_nobody_who_observes_machines_or_adds_capacity_takes_part() -> None:
    trial = Trial(empty(1, Resources(1000, GI)), tried_on, SystemClock(), Steady())
    for _ in trial.open():
        pass
    seated = {walker.controller.name for walker in trial._walkers}
    assert seated >= {"workload", "assignment", "rollout", "repair", "disruption", "quota", "recovery", "standing", "mirror-down"}
    assert not seated & {"node", "region", "autoscaler", "node-autoscaler"}
