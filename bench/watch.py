"""`fairlead bench watch`: what a watch costs per event and watcher, and that one stuck watcher costs the rest nothing.

Runs the same traffic three times in one process: with no watchers, with N, and with N of which one never reads. The cost of a
delivery is the CPU that the watchers add, divided by the events they were given.
"""

from __future__ import annotations

import time
from typing import Any

from bench.planes import PlaneUnderBench, engine_named, open_plane, percentile, result
from bench.registry import Option
from fairlead.authority.hub import Expired, Watch
from fairlead.model.commands import Caller, Command, Put
from fairlead.model.kinds.intent import Tenant, TenantSpec
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.ports import Tasks

_OPERATOR = Caller("ada", Role.OPERATOR)


class Watcher:
    def __init__(self, watch: Watch, sent: dict[str, float]) -> None:
        self._watch = watch
        self._sent = sent
        self.events = 0
        self.expired = False
        self.lags: list[float] = []

    async def run(self) -> None:
        while True:
            try:
                events = await self._watch.wait()
            except Expired:
                self.expired = True
                return
            self.events += len(events)
            # The newest event of each delivery stands for it: timing every event would cost more than delivering it.
            self.lags.append(time.perf_counter() - self._sent[events[-1].name])


async def _write(plane: PlaneUnderBench, run: str, events: int, bulk: int, sent: dict[str, float]) -> None:
    for start in range(0, events, bulk):
        names = [f"{run}-{n}" for n in range(start, min(start + bulk, events))]
        now = time.perf_counter()
        for name in names:
            sent[name] = now
        spec = TenantSpec(weight=2)
        await plane.send([Command(_OPERATOR, Put("Tenant", Tenant(metadata=Metadata(name=n), spec=spec))) for n in names])


async def _traffic(plane: PlaneUnderBench, run: str, watchers: int, stuck: bool, events: int, bulk: int) -> dict[str, Any]:
    sent: dict[str, float] = {}
    after = plane.authority.view().revision
    crowd = [Watcher(plane.authority.watch("tenants", after), sent) for _ in range(watchers)]
    idle = plane.authority.watch("tenants", after) if stuck else None
    async with Tasks() as tasks:
        for watcher in crowd:
            tasks.start(watcher.run(), "watcher")
        cpu, wall = time.process_time(), time.perf_counter()
        await _write(plane, run, events, bulk, sent)
        while any(watcher.events < events for watcher in crowd):
            await plane.clock.sleep(0.001)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        tasks.cancel()
    told = False
    if idle is not None:
        try:
            idle.take_nowait()
        except Expired:
            told = True
    lags = [lag for watcher in crowd for lag in watcher.lags]
    return {
        "cpu_s": cpu,
        "wall_s": wall,
        "deliveries": sum(watcher.events for watcher in crowd),
        "p99_ms": round(percentile(lags, 0.99) * 1e3, 2),
        "stuck_told_to_list_again": told,
        "expired": sum(watcher.expired for watcher in crowd),
    }


OPTIONS = (
    Option("watchers", 1000, "Watchers of the same kind."),
    Option("events", 25_000, "Events each of them is given."),
    Option("bulk", 250, "Events written in one call."),
)


async def main(watchers: int, events: int, bulk: int) -> dict[str, Any]:
    async with engine_named("memory") as engine, open_plane(engine, nodes=10) as plane:
        await _traffic(plane, "warm", 10, False, bulk * 4, bulk)
        alone = await _traffic(plane, "alone", 0, False, events, bulk)
        crowd = await _traffic(plane, "crowd", watchers, False, events, bulk)
        stuck = await _traffic(plane, "stuck", watchers, True, events, bulk)
    per_delivery = (crowd["cpu_s"] - alone["cpu_s"]) / max(crowd["deliveries"], 1) * 1e6
    with_stuck = (stuck["cpu_s"] - alone["cpu_s"]) / max(stuck["deliveries"], 1) * 1e6
    failures = []
    if not stuck["stuck_told_to_list_again"]:
        failures.append("the stuck watcher was not told to list again")
    if crowd["expired"] or stuck["expired"]:
        failures.append(f"{crowd['expired'] + stuck['expired']} watchers that kept up were told to list again")
    measured = {
        "cpu_us_per_delivery": round(per_delivery, 3),
        "p99_ms": crowd["p99_ms"],
        "cpu_us_per_delivery_beside_a_stuck_one": round(with_stuck, 3),
        "p99_ms_beside_a_stuck_one": stuck["p99_ms"],
        "deliveries": crowd["deliveries"],
        "deliveries_per_s": round(crowd["deliveries"] / crowd["wall_s"], 1),
        "failures": failures,
    }
    return result("watch", {"watchers": watchers, "events": events, "bulk": bulk}, measured)
