"""Slots that run once in the world, when more than one region fails (P11): whoever stands in is lost too, and somebody stands in
for it; then all of them come back, one after the other. S12 looks at every process that ran, in true time."""

from __future__ import annotations

from typing import Any

from fairlead.model.registry import GLOBAL
from fairlead.observe.intervals import Interval
from fairlead.sim.born import BUDGET
from fairlead.sim.loop import sleep
from fairlead.sim.scenario import Work
from tests.sim.races.stage import TENANT, Stage, played

SLOT_LEASE_S = 40.0  # longer than it takes to call a region lost: who did not wait for its end would start too early
BACK_S = 180.0  # a minute of health, what stands in leaves, home starts; with leases of both kinds in between


def runs(stage: Stage) -> list[Interval]:
    return sorted((run for run in stage.platform.intervals if run.name.startswith("sole-")), key=lambda run: run.begin)


def running(stage: Stage) -> list[Interval]:
    return [run for run in runs(stage) if run.end is None]


def runs_in(stage: Stage, region: str) -> bool:
    return [run.where.partition("/")[0] for run in running(stage)] == [region]


def stand_ins(stage: Stage) -> list[Any]:
    order = stage.objects(GLOBAL, "recoveryorders").get((TENANT, "sole"))
    return list(order.spec.stand_ins) if order is not None else []


async def one_that_runs_once(stage: Stage) -> str:
    """A service of one slot; the region it is in. Every region holds room for it."""
    regions = stage.platform.regions
    await stage.create(
        "sole", 1, exclusive="global", priorityClassName="critical-service",
        placement={"regions": {"allowed": list(regions)}}, recovery={"budgetName": BUDGET, "minServing": 1},
    )  # fmt: skip
    await stage.until(lambda: sum(stage.serving("sole", region) for region in regions) == 1)
    await stage.until(lambda: stage.rooms_held(BUDGET) == len(regions))
    (home,) = [region for region in regions if stage.serving("sole", region)]
    return home


def test_one_that_stands_in_and_is_lost_itself_is_stood_in_for_and_the_slot_comes_home_when_all_are_back() -> None:
    """Home goes dark; the region that stands in is cut off, so that it runs on until its own lease ends."""

    async def script(stage: Stage) -> tuple[str, str, str]:
        home = await one_that_runs_once(stage)
        stage.lose(home)
        await stage.until(lambda: any(stage.serving("sole", region) for region in stage.platform.regions if region != home))
        (first,) = stand_ins(stage)
        heal = stage.isolate(first.region)
        await stage.until(lambda: [one.region for one in stand_ins(stage)] not in ([], [first.region]))
        (second,) = stand_ins(stage)
        await stage.until(lambda: runs_in(stage, second.region))
        assert (second.home, second.slot) == (home, first.slot)
        assert [name.partition("/")[0] for name in second.supersedes] == [first.region, home], "the nearest first"
        heal()
        await stage.until(lambda: not stage.bindings("sole", first.region))
        assert runs_in(stage, second.region), "the first in the chain is back, and is not needed"
        stage.light(home)
        await stage.until(lambda: runs_in(stage, home) and stage.serving("sole", home) == 1, BACK_S)
        await stage.until(lambda: not stand_ins(stage))
        return home, first.region, second.region

    async def told(stage: Stage) -> tuple[tuple[str, str, str], list[str]]:
        return await script(stage), [run.where.partition("/")[0] for run in runs(stage)]

    chain, where = played(
        told, regions=3, nodes=1, slot_lease_s=SLOT_LEASE_S,
        work=Work(0, 0.001, operators=0.0, replays=0.0, critical=1.0),
    )  # fmt: skip
    assert len(set(chain)) == 3
    assert where == [*chain, chain[0]], "one after the other; S12 has seen that no two ran at once"


def test_one_that_stands_in_where_no_node_takes_it_any_more_goes_to_a_third_region_and_comes_home_from_there() -> None:
    """The region that stands in is heard all the while, by the word of which the next one comes."""

    async def script(stage: Stage) -> tuple[str, str, str]:
        home = await one_that_runs_once(stage)
        stage.lose(home)
        await stage.until(lambda: any(stage.serving("sole", region) for region in stage.platform.regions if region != home))
        (first,) = stand_ins(stage)
        (bound,) = stage.bindings("sole", first.region)
        for name in sorted(stage.platform.agents):
            if name.startswith(f"{first.region}-") and name != bound.spec.node:
                await stage.cordon(name)
        node = stage.agent_of(bound.spec.node).program.machine
        stage.world.chaos.power_off(node)
        await stage.until(lambda: [one.region for one in stand_ins(stage)] not in ([], [first.region]), 180.0)
        (second,) = stand_ins(stage)
        assert not stage.bindings("sole", first.region), "it is gone from there, in its region's own books"
        await stage.until(lambda: runs_in(stage, second.region))
        assert [name.partition("/")[0] for name in second.supersedes] == [home]
        stage.world.chaos.power_on(node)
        await sleep(60.0)
        assert runs_in(stage, second.region), "the first has its node again, and is not needed"
        stage.light(home)
        await stage.until(lambda: runs_in(stage, home) and stage.serving("sole", home) == 1, BACK_S)
        return home, first.region, second.region

    async def told(stage: Stage) -> tuple[tuple[str, str, str], list[str]]:
        return await script(stage), [run.where.partition("/")[0] for run in runs(stage)]

    chain, where = played(
        told, regions=3, nodes=5, slot_lease_s=SLOT_LEASE_S,
        work=Work(0, 0.001, operators=0.0, replays=0.0, critical=1.0),
    )  # fmt: skip
    assert len(set(chain)) == 3
    assert where == [*chain, chain[0]]
