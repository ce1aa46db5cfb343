"""A region that is heard and has lost machines: that is said of it, its services are stood in for one by one, and it is over when
the machines are back."""

from __future__ import annotations

from typing import Any

from fairlead.model.kinds.access import SYSTEM_TENANT
from fairlead.model.registry import GLOBAL
from fairlead.sim.born import BUDGET
from fairlead.sim.scenario import Work
from tests.sim.races.stage import REGION, TENANT, Stage, played

WORK = Work(0, 0.001, operators=0.0, replays=0.0, critical=1.0)


def region(stage: Stage) -> Any:
    return stage.objects(GLOBAL, "regions")["", REGION].status


def partial(stage: Stage) -> str:
    said = [c for c in region(stage).conditions if c.type == "Partial"]
    return f"{said[0].status} {said[0].reason}" if said else ""


def power(stage: Stage, numbers: tuple[int, ...], on: bool) -> None:
    switch = stage.world.chaos.power_on if on else stage.world.chaos.power_off
    for number in numbers:
        switch(stage.agent_of(f"{REGION}-n{number}").program.machine)


def told(stage: Stage) -> set[str]:
    found = stage.objects(GLOBAL, "events").items()
    return {event.spec.reason for (tenant, _), event in found if tenant == SYSTEM_TENANT and REGION in event.spec.regarding}


def test_a_region_without_a_zone_and_then_without_most_of_its_nodes_says_so_and_stays_healthy() -> None:
    async def script(stage: Stage) -> None:
        regions = stage.platform.regions
        place = {"regions": {"allowed": list(regions), "perRegionMinimum": 2}}
        recovery = {"budgetName": BUDGET, "minServing": 4}
        await stage.create("api", 6, placement=place, recovery=recovery, priorityClassName="critical-service", cpu="3")
        await stage.until(lambda: all(stage.serving("api", each) == 2 for each in regions))
        await stage.until(lambda: partial(stage) == "False Whole")
        assert sum(zone.ready for zone in region(stage).zones) == 5

        power(stage, (0, 3), on=False)  # the machines of one zone of three
        await stage.until(lambda: partial(stage) == "True ZoneLost", 40.0)
        power(stage, (1, 2), on=False)
        await stage.until(lambda: partial(stage) == "True NodesLost", 40.0)
        assert region(stage).health == "Healthy"
        await stage.until(lambda: "RegionPartial" in told(stage), 20.0)

        power(stage, (0, 1, 2, 3), on=True)
        await stage.until(lambda: partial(stage) == "False Whole", 120.0)
        await stage.until(lambda: "RegionWhole" in told(stage), 20.0)
        await stage.until(lambda: stage.objects(GLOBAL, "recoveryorders").get((TENANT, "api")) is None, 200.0)

    played(script, regions=3, nodes=5, work=WORK)
