"""A rollout over two regions: one after the other, as the workload controller orders it."""

from __future__ import annotations

import asyncio

from fairlead.model.kinds.intent import RolloutRule, Template
from tests.authority.planes import REGION
from tests.controllers.test_recovery import two_regions


async def test_while_one_region_rolls_out_the_other_keeps_what_it_runs() -> None:
    async with two_regions() as r:
        w, top = r.w, r.w.top

        def carried(region: str) -> int:
            generation: int = top.get("assignments", f"api.{region}").spec.generation
            return generation

        # Who is not known to serve has nothing to lose and waits for nobody, so both must have said what they serve.
        await w.until(lambda: w.condition("Progressing") is not None)
        await w.until(lambda: top.get("assignments", f"api.{REGION}").status.replicas.serving == 2)
        before = carried(REGION)
        await r.west_serves(1, placed=True)  # it serves less than it has: it is first
        await w.apply(
            replicas=4,
            recovery=top.get("workloads", "api").spec.recovery,
            template=Template(command=("serve", "2")),
            rollout=RolloutRule(min_ready_seconds=1),
        )
        await w.until(lambda: carried("west") > before)
        for _ in range(20):
            await asyncio.sleep(0.02)
            assert carried(REGION) == before
            assert w.condition("Progressing").reason == "RollingOut"  # type: ignore[union-attr]
        await r.west_serves(2, generation=carried("west"))
        done_s = w.top.plane.clock.monotonic()
        await w.until(lambda: carried(REGION) == carried("west"))
        assert w.top.plane.clock.monotonic() - done_s >= 1, "a turn ends when all have served for as long as they must"
