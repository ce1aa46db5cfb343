"""A region whose store takes nothing any more: it is heard, and nothing that happens there can be written down. It is no more
well than one that is silent, and its services are stood in for elsewhere."""

from __future__ import annotations

from typing import Any

from fairlead.model.registry import GLOBAL
from fairlead.sim.born import BUDGET
from fairlead.sim.loop import sleep
from fairlead.sim.scenario import Work
from tests.sim.races.stage import REGION, TENANT, Stage, played

WORK = Work(0, 0.001, operators=0.0, replays=0.0, critical=1.0)


async def begin(stage: Stage) -> None:
    """A critical service with two replicas in each of three regions, and room held for it."""
    regions = stage.platform.regions
    place = {"regions": {"allowed": list(regions), "perRegionMinimum": 2}}
    recovery = {"budgetName": BUDGET, "minServing": 4}
    await stage.create("api", 6, placement=place, recovery=recovery, priorityClassName="critical-service")
    await stage.until(lambda: all(stage.serving("api", region) == 2 for region in regions))
    await stage.until(lambda: stage.rooms_held(BUDGET) == len(regions))


def health(stage: Stage) -> str:
    return str(stage.objects(GLOBAL, "regions")["", REGION].status.health)


def order(stage: Stage) -> Any:
    found = stage.objects(GLOBAL, "recoveryorders").get((TENANT, "api"))
    return found.spec if found is not None else None


def test_a_region_that_cannot_commit_is_lost_and_its_services_are_stood_in_for() -> None:
    async def script(stage: Stage) -> float:
        await begin(stage)
        others = [region for region in stage.platform.regions if region != REGION]
        stage.store.faults.unavailable = 1.0
        began = stage.loop.now
        await stage.until(lambda: health(stage) == "Lost", 60.0)
        await sleep(60.0)
        nodes = {binding.spec.node for binding in stage.bindings("api")}
        for node in nodes:
            stage.world.chaos.power_off(stage.agent_of(node).program.machine)
        await stage.until(lambda: max(stage.serving("api", region) for region in others) >= 4, 60.0)
        took_s = stage.loop.now - began
        assert order(stage).lost == (REGION,)
        assert order(stage).missing == 0

        stage.store.faults.unavailable = 0.0  # it goes on where it was, and what stood in leaves
        for node in nodes:
            stage.world.chaos.power_on(stage.agent_of(node).program.machine)
        await stage.until(lambda: health(stage) == "Healthy", 30.0)
        await stage.until(lambda: order(stage) is None, 150.0)
        await stage.until(lambda: all(stage.serving("api", region) == 2 for region in stage.platform.regions), 60.0)
        return took_s

    played(script, regions=3, nodes=3, work=WORK)


def test_a_store_that_is_away_for_less_than_the_lease_changes_nothing() -> None:
    async def script(stage: Stage) -> set[str]:
        await begin(stage)
        seen = set()
        for _ in range(3):
            stage.store.faults.unavailable = 1.0
            await sleep(4.0)
            stage.store.faults.unavailable = 0.0
            for _ in range(8):
                seen.add(health(stage))
                await sleep(1.0)
        assert order(stage) is None
        assert stage.platform.machines.counts["unavailable"] >= 3, "it refused what was to be written"
        return seen

    assert played(script, regions=3, nodes=1, work=WORK) == {"Healthy"}


def test_what_is_exclusive_everywhere_waits_for_the_slot_lease_of_a_region_that_cannot_commit() -> None:
    """S12 looks on: the old one has ended before the new one starts, though the region's servers are heard all the time."""
    slot_lease_s = 30.0

    async def script(stage: Stage) -> float:
        place = {
            "regions": {"allowed": list(stage.platform.regions)},
            "preferences": [{"weight": 10, "locality": {"regions": [REGION]}}],
        }
        recovery = {"budgetName": BUDGET, "minServing": 1}
        await stage.create(
            "sole", 1, exclusive="global", placement=place, recovery=recovery, priorityClassName="critical-service"
        )
        await stage.until(lambda: stage.serving("sole") == 1)
        await stage.until(lambda: stage.rooms_held(BUDGET) == 3)
        stage.store.faults.unavailable = 1.0
        began = stage.loop.now
        others = [region for region in stage.platform.regions if region != REGION]
        await stage.until(lambda: any(stage.serving("sole", region) for region in others), 120.0)
        return stage.loop.now - began

    assert played(script, regions=3, nodes=1, work=WORK, slot_lease_s=slot_lease_s) > slot_lease_s
