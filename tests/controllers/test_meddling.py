"""Crashes in mid-reconcile, missed events and stale reads at each step of each controller: all of it converges, then rests."""

from __future__ import annotations

import pytest

from fairlead.model.kinds.intent import JobRule
from fairlead.model.kinds.work import SlotRange
from tests.authority.planes import REGION
from tests.controllers.faults import Meddling, Mode
from tests.controllers.running import RegionRig, all_controllers, region

MODES: tuple[Mode, ...] = ("before", "half", "after", "missed", "stale")


def meddle(r: RegionRig, mode: Mode) -> list[Meddling]:
    planes = []
    for controller in all_controllers():
        plane = Meddling(r.local, mode)
        planes.append(plane)
        r.control(controller, plane=plane)
    return planes


@pytest.mark.parametrize("mode", MODES)
async def test_a_rollout_and_a_lost_node_come_to_rest_whatever_each_controller_meets(mode: Mode) -> None:
    async with region() as r:
        r.schedule()
        planes = meddle(r, mode)
        await r.order("api", 3)
        await r.until(lambda: r.serving() == [0, 1, 2])
        await r.order("api", 3, 2)
        await r.until(lambda: r.serving(generation=2) == [0, 1, 2])
        victim = r.slots()[0].node
        r.agent.dead.add(victim)
        await r.until(lambda: r.serving() == [0, 1, 2] and all(hot.node != victim for hot in r.slots().values()))
        await r.order("api", 1, 2)
        await r.until(lambda: sorted(r.states()) == [0])
        await r.quiet()
        assert r.serving() == r.endpoints() == [0]
        met = sum(len(plane.met) for plane in planes)
        assert met > 8 or mode == "stale", "a campaign that met nothing proves nothing"
        if mode == "missed":
            assert sum(runtime.meters.resync_only_progress_total for runtime in r.runtimes) > 0, "progress only a resync made"


@pytest.mark.parametrize("mode", MODES)
async def test_a_job_counts_right_whatever_its_controllers_meet(mode: Mode) -> None:
    async with region() as r:
        r.schedule()
        meddle(r, mode)
        r.agent.finishing = True
        r.agent.crashing.add("fraud-1")
        job = JobRule(completions=4, parallelism=2, retries=3)
        await r.order("fraud", slots=(SlotRange(first=0, last=3),), job=job, execution="Exclusive")
        await r.until(lambda: r.get("assignments", f"fraud.{REGION}").status.failures == 1)
        r.agent.crashing.clear()
        await r.until(lambda: (c := r.condition("Complete", "fraud")) is not None and c.status == "True")
        await r.until(lambda: r.states("fraud") == {})
        await r.quiet()
        assert (r.status("fraud").failures, r.status("fraud").replicas.succeeded) == (1, 4)
