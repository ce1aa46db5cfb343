"""What the global plane's absence costs (P11): slots that run once in the world stop when it is away longer than their lease."""

from __future__ import annotations

from fairlead.model.lifecycle import Role
from fairlead.model.registry import GLOBAL
from fairlead.sim.loop import sleep
from tests.sim.races.stage import REGION, Stage, played


def test_a_global_outage_longer_than_the_slot_lease_stops_what_is_exclusive_everywhere_and_nothing_else() -> None:
    async def script(stage: Stage) -> None:
        await stage.create("sole", 1, exclusive="global")
        await stage.create("here", 1, exclusive=True)
        await stage.until(lambda: stage.serving("sole") == stage.serving("here") == 1)

        def running(name: str) -> int:
            return sum(run.name == f"{name}-0" and run.end is None for run in stage.platform.intervals)

        above = [program.machine for program in stage.platform.planes[GLOBAL].servers]
        below = [*stage.machines(servers=True), *stage.machines(servers=False)]
        began = stage.loop.now
        await stage.cut(above, below, 60.0)
        await sleep(10.0)
        assert running("sole") == 1, "it was renewed a few seconds before, and lasts"
        await stage.until(lambda: not running("sole"), 20.0)
        assert stage.loop.now - began <= 20.0, "and no longer"
        assert running("here") == 1
        await stage.until(lambda: stage.loop.now > began + 60.0)
        await stage.until(lambda: running("sole") == 1 and stage.serving("sole") == 1)
        (run,) = [run for run in stage.platform.intervals if run.name == "here-0"]
        assert run.end is None
        assert stage.world.watches[GLOBAL].objects["leases"]["", f"slots-{REGION}"].spec.role == Role.MIRROR.value

    played(script, slot_lease_s=20.0)
