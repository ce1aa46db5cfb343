"""The global plane hears nobody for a while: it is rather itself, also in the moment in which the first is heard again (P15)."""

from __future__ import annotations

from fairlead.model.registry import GLOBAL
from fairlead.sim.loop import sleep
from fairlead.sim.scenario import Work
from tests.sim.races.stage import Stage, played

CUT_S = 60.0
APART_S = 4.0  # between the first region that is heard again and the last


def test_after_the_global_plane_was_cut_off_no_region_is_lost_before_it_could_be_heard() -> None:
    async def script(stage: Stage) -> set[str]:
        await stage.until(lambda: all(region.status.health == "Healthy" for region in stage.objects(GLOBAL, "regions").values()))
        server = [program.machine for program in stage.platform.planes[GLOBAL].servers]
        for number, name in enumerate(stage.platform.regions):
            own = [machine for where, machine in stage.platform.machines.all.items() if where.startswith(f"{name}/")]
            await stage.cut(server, own, CUT_S + number * APART_S)
        began, seen, deaf = stage.loop.now, set[str](), False
        while stage.loop.now < began + CUT_S + 30.0:
            await sleep(0.1)
            regions = stage.objects(GLOBAL, "regions").values()
            seen |= {region.status.health for region in regions}
            said = [one for region in regions for one in region.status.conditions if one.type == "MassSilence"]
            deaf = deaf or sum(one.status == "True" for one in said) == len(regions)
        assert deaf, "nobody was heard"
        return seen

    work = Work(workloads=0, actions=0.001, operators=0.0, replays=0.0, critical=1.0)
    assert "Lost" not in played(script, regions=3, nodes=1, work=work)
