"""A region's store loses the end of its history while nobody reaches the global plane: what runs goes on (P6, P13)."""

from __future__ import annotations

from fairlead.model.registry import GLOBAL
from fairlead.sim.loop import sleep
from tests.sim.races.stage import REGION, TENANT, Stage, played

LEASE_S = 20
CUT_S = 90.0


def test_a_cut_off_region_that_loses_history_serves_on_and_places_again_once_it_is_answered() -> None:
    async def script(stage: Stage) -> None:
        here = {"regions": {"allowed": [REGION]}}
        await stage.create("base", 2, cpu="100m", placement=here)
        await stage.until(lambda: stage.serving("base") == 2)
        bound = {binding.metadata.name: binding.spec for binding in stage.bindings("base")}
        await stage.until(lambda: all(b.spec.provisional_until_time is None for b in stage.bindings("base")), 30.0)
        above = [program.machine for program in stage.platform.planes[GLOBAL].servers]
        await stage.cut(above, stage.machines(servers=True), CUT_S)
        cut = stage.loop.now
        await sleep(2.0)
        assert stage.store.disk.lose_tail(2)
        await stage.until(lambda: stage.store.disk.head.incarnation == 2 and stage.leader(), 30.0)
        while stage.loop.now < cut + CUT_S:
            await sleep(0.5)
            runs = [name for name, spec in bound.items() if stage.platform.runs(spec.node, TENANT, name)]
            assert len(runs) == 2, f"{runs} {stage.loop.now - cut:.1f} s after the cut"
        assert {b.metadata.name: b.spec.token for b in stage.bindings("base")} == {n: s.token for n, s in bound.items()}
        await stage.create("more", 1, cpu="100m", placement=here)
        await stage.until(lambda: stage.serving("more") == 1, 60.0)
        assert stage.serving("base") == 2

    played(script, regions=2, tight=True, grant_lease_s=LEASE_S)
