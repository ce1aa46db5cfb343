"""What runs once, on its way to another process: a new generation, a node that is drained, another region. The next life begins
when the last one has ended, whatever number it has."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Literal

import pytest

from fairlead.model.registry import GLOBAL
from fairlead.observe.intervals import Interval
from fairlead.sim.loop import sleep
from tests.sim.races.stage import API, REGION, TENANT, Stage, played

WEST = "us-west"


def runs(stage: Stage) -> list[Interval]:
    return sorted((run for run in stage.platform.intervals if run.name.startswith("once-")), key=lambda run: run.begin)


def are_apart(found: list[Interval]) -> bool:
    return all(one.end is not None and one.end <= other.begin for one, other in pairwise(found))


async def change(stage: Stage, **spec: Any) -> None:
    answer = await stage.world.people.write("PATCH", f"{API}/namespaces/{TENANT}/workloads/once", {"spec": spec}, "once")
    assert answer is None or answer.status < 300, answer


async def roll_out(stage: Stage) -> None:
    await change(stage, template={"env": [{"name": "REVISION", "value": "2"}]})


async def drain(stage: Stage) -> None:
    await stage.drain(stage.bindings("once")[0].spec.node)


@pytest.mark.parametrize("how", [roll_out, drain])
def test_the_next_life_of_what_runs_once_begins_when_the_last_has_ended(how: Any) -> None:
    async def script(stage: Stage) -> None:
        await stage.create("once", 1, exclusive=True)
        await stage.until(lambda: stage.serving("once") == 1)
        await how(stage)
        await stage.until(lambda: len(runs(stage)) == 2 and stage.serving("once") == 1)
        assert {run.name for run in runs(stage)} == {"once-0"}, "by the same number: no other had its place meanwhile"
        assert are_apart(runs(stage))

    played(script)


def test_a_drain_that_a_budget_forbids_gets_no_second_copy_to_make_up_for_it() -> None:
    async def script(stage: Stage) -> None:
        await stage.create("once", 1, exclusive=True, disruption={"minServing": 1})
        await stage.until(lambda: stage.serving("once") == 1)
        await drain(stage)
        await sleep(20.0)
        assert len(runs(stage)) == 1
        (eviction,) = stage.objects(REGION, "evictionrequests").values()
        assert eviction.status.blocked_by == "disruption budget of risk/once: 1 serve, minServing is 1"

    played(script)


def pending(stage: Stage) -> list[tuple[str, int, str]]:
    return [(one.reason, one.count, one.next_owner) for one in stage.objects(GLOBAL, "workloads")[TENANT, "once"].status.pending]


@pytest.mark.parametrize("exclusive", [True, "global"])
def test_a_slot_that_runs_once_comes_to_another_region_when_the_old_one_has_let_go_of_it(
    exclusive: bool | Literal["global"],
) -> None:
    async def script(stage: Stage) -> None:
        await stage.create("once", 2, exclusive=exclusive, placement={"regions": {"allowed": [REGION]}})
        await stage.until(lambda: stage.serving("once") == 2)
        await change(stage, placement={"regions": {"allowed": [WEST]}})
        await stage.until(lambda: stage.serving("once", WEST) == 2)
        first = {run.name: run for run in runs(stage)[:2]}
        assert all(run.end is not None for run in first.values())
        came = [run.begin for run in runs(stage) if run.name not in first]
        assert sorted(came)[0] >= min(run.end for run in first.values() if run.end is not None)
        assert not pending(stage)

    played(script, regions=2)


def test_what_runs_once_in_its_region_stays_in_one_that_is_cut_off_until_that_is_heard() -> None:
    async def script(stage: Stage) -> None:
        await stage.create("once", 1, exclusive=True, placement={"regions": {"allowed": [REGION]}})
        await stage.until(lambda: stage.serving("once") == 1)
        above = [program.machine for program in stage.platform.planes[GLOBAL].servers]
        below = [*stage.machines(servers=True), *stage.machines(servers=False)]
        await stage.cut(above, below, 60.0)
        await sleep(2.0)
        await change(stage, placement={"regions": {"allowed": [WEST]}})
        await sleep(50.0)
        (only,) = runs(stage)
        assert only.end is None, "nobody there has heard that it is to go"
        assert pending(stage) == [("WaitingForFence", 1, "disruption-controller")]
        await stage.until(lambda: stage.serving("once", WEST) == 1, 60.0)
        assert are_apart(runs(stage))

    played(script, regions=2)
