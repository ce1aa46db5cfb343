"""`fairlead bench recovery`: thousands of nodes in three regions, one region killed: how long until every critical workload has
its minimum serving in one of the others, and what that costs the control plane.

Real processes: a global plane and three regions on SQLite with TLS and tokens as in production, hosts of simulated nodes, and
this one, which is the client. A share of the workloads is critical: it names a minimum, and a recovery budget holds room for what
one lost region would take with it. The rest of them churn all the time: some are scaled every second. Load of the
planes that survive is compared between a while of that before the loss, and the same while beginning a minute after it. Times
are as the front door tells them, asked once a second.

`quota_violations` is what the patrols of the surviving regions found broken of S1 to S4, each in its own region. Each must have
looked since the loss, which it does once a minute, or the run has failed. S5, the quota over all regions together, no patrol
sees: that is asked by `fairlead bench grid`, by the drill `region-cut` and in every simulated run.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.api_client import GROUP, Api
from bench.api_rig import Rig, open_rig
from bench.planes import percentile, result
from bench.registry import Option
from fairlead.model.kinds.capacity import BudgetShape, RecoveryBudget, RecoveryBudgetSpec
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from fairlead.ports import Tasks

REGIONS = ("east", "north", "west")
LOST = "west"
SURVIVORS = ("global", *(region for region in REGIONS if region != LOST))  # whose load is compared, before and after
USED_TENANTS = 10
PER_REGION = 2  # replicas of a critical workload in each region; its minimum is four in one
OPTIONS = (
    Option("nodes", 10_000, "simulated nodes, over three regions"),
    Option("hosts", 1, "processes that carry them, in each region"),
    Option("workloads", 2_000, "how many there are"),
    Option("critical", 20, "percent of them that are critical"),
    Option("churn", 4.0, "workloads scaled a second, all the while"),
    Option("steady_seconds", 60, "how long load is measured, before the loss and after"),
    Option("after_seconds", 60, "from the loss until load is measured again"),
    Option("seconds_max", 300, "what is promised; waiting ends there"),
)
LOAD_MAX = 3  # times the load before the loss that there may be a minute after it
_IN_FLIGHT = 16


class Bench:
    def __init__(self, rig: Rig, api: Api, options: dict[str, Any]) -> None:
        self.rig, self.api, self.options = rig, api, options
        critical = options["workloads"] * options["critical"] // 100
        self.critical = [(f"t{n % USED_TENANTS}", f"c{n}") for n in range(critical)]
        self.others = [(f"t{n % USED_TENANTS}", f"w{n}") for n in range(options["workloads"] - critical)]
        self.there = list(REGIONS)
        self.peak_queue = 0
        self.failures: list[str] = []

    # --- beforehand ------------------------------------------------------------------------------------------------------

    async def fill(self) -> None:
        """Every workload serves, every room is held."""
        await self._until(self._fleet_is_up, "the fleet did not come up")
        todo = iter([*self.critical, *self.others])

        async def worker() -> None:
            for tenant, name in todo:
                await self._create(tenant, name)

        async with Tasks() as tasks:
            for number in range(_IN_FLIGHT):
                tasks.start(worker(), f"worker {number}")
        await self._until(self._all_serve, "not every critical workload came to serve")
        await self._until(self._all_held, "not every room was held")

    async def _create(self, tenant: str, name: str) -> None:
        if not name.startswith("c"):
            await self.api.create(tenant, name, len(REGIONS))
            return
        made = {
            "recovery": {"budgetName": "critical", "minServing": 2 * PER_REGION},
            "placement": {"regions": {"allowed": list(REGIONS), "perRegionMinimum": PER_REGION}},
            "workloadClass": "critical",
        }
        await self.api.create(tenant, name, PER_REGION * len(REGIONS), **made)

    async def _fleet_is_up(self) -> bool:
        for region in REGIONS:
            nodes = await self.api.list("nodes", region)
            if sum(bool(node.get("status", {}).get("schedulable")) for node in nodes) < self.rig.nodes:
                return False
        return True

    async def _statuses(self) -> dict[tuple[str, str], dict[str, int]]:
        """Of every critical workload: how many serve in which region."""
        out = {}
        for tenant in {tenant for tenant, _ in self.critical}:
            page = await self.api.request("GET", f"{GROUP}/namespaces/{tenant}/workloads")
            for one in page["items"]:
                rows = one.get("status", {}).get("regions") or ()
                serving = {row["region"]: row.get("replicas", {}).get("serving", 0) for row in rows}
                out[tenant, one["metadata"]["name"]] = serving
        return {key: out.get(key, {}) for key in self.critical}

    async def _all_serve(self) -> bool:
        found = await self._statuses()
        return all(min((serving.get(r, 0) for r in REGIONS), default=0) >= PER_REGION for serving in found.values())

    async def _all_held(self) -> bool:
        budgets = await self.api.list("recoverybudgets")
        rows = [shape for one in budgets for row in one.get("status", {}).get("regions") or () for shape in row["shapes"]]
        return len(rows) >= len(budgets) * len(REGIONS) and not any(row.get("waiting") or row.get("silent") for row in rows)

    async def _until(self, condition: Any, otherwise: str) -> None:
        until = time.perf_counter() + max(300.0, self.options["seconds_max"])
        while not await condition():
            if time.perf_counter() > until:
                raise RuntimeError(otherwise)
            await asyncio.sleep(0.5)

    # --- while it goes on ------------------------------------------------------------------------------------------------

    async def churn(self) -> None:
        """Somebody always changes something."""
        for number in itertools.count():
            await asyncio.sleep(1 / self.options["churn"])
            tenant, name = self.others[number * 7 % len(self.others)]
            replicas = len(REGIONS) + number // len(self.others) % 2 + 1
            try:
                await self.api.patch(tenant, name, {"replicas": replicas})
            except (RuntimeError, OSError) as error:
                self.failures.append(f"a change failed: {str(error)[:200]}")

    async def queue(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            for region in self.there:
                try:
                    pending = (await self.api.metrics(region)).get("fairlead_pending", {})
                except (RuntimeError, OSError):
                    continue
                self.peak_queue = max(self.peak_queue, int(sum(pending.values())))

    async def load(self) -> tuple[float, float]:
        """(commands a second, share of a core) of the planes that survive, without the client, over a while: before the loss
        too, or a lost plane's part would hide that the others have more to do."""
        commands, used, began = await self._commands(), self._cpu_s(), time.perf_counter()
        await asyncio.sleep(self.options["steady_seconds"])
        took = time.perf_counter() - began
        return (await self._commands() - commands) / took, (self._cpu_s() - used) / took

    async def _commands(self) -> float:
        found = [await self.api.metrics(plane) for plane in SURVIVORS]
        return sum(sum(page.get("fairlead_commands_total", {}).values()) for page in found)

    def _cpu_s(self) -> float:
        return sum(used for name, used in self.rig.cpu_s().items() if name in SURVIVORS)

    async def violations(self) -> float:
        found = [await self.api.metrics(plane) for plane in ("global", *self.there)]
        return sum(sum(page.get("fairlead_invariant_violations_total", {}).values()) for page in found)

    async def looks(self) -> dict[str, float]:
        """How often the patrol has looked, by region that is left: until it has, what it found is nothing and not none."""
        pages = {region: await self.api.metrics(region) for region in self.there}
        return {region: sum(page.get("fairlead_invariant_checks_total", {}).values()) for region, page in pages.items()}

    async def lose(self) -> tuple[list[float], float]:
        """Seconds from the loss until each critical workload has its minimum, and how many never had."""
        self.there.remove(LOST)
        began = time.perf_counter()
        await self.rig.lose(LOST)
        waiting, took = set(self.critical), []
        while waiting and time.perf_counter() - began < self.options["seconds_max"]:
            await asyncio.sleep(1.0)
            found = await self._statuses()
            back = {k for k in waiting if any(found[k].get(region, 0) >= 2 * PER_REGION for region in self.there)}
            took += [time.perf_counter() - began] * len(back)
            waiting -= back
        return took, len(waiting)


def budgets(options: dict[str, Any]) -> list[RecoveryBudget]:
    """Room in each region for what another would take with it, for each tenant."""
    critical = options["workloads"] * options["critical"] // 100
    out = []
    for number in range(USED_TENANTS):
        own = len(range(number, critical, USED_TENANTS))
        shape = BudgetShape(requests=Resources(100, 64 << 20), count=max(1, PER_REGION * own))
        out.append(RecoveryBudget(
            metadata=Metadata(name="critical", namespace=f"t{number}"), spec=RecoveryBudgetSpec(shapes=(shape,)),
        ))  # fmt: skip
    return out


def unseen(before: Mapping[str, float], after: Mapping[str, float]) -> list[str]:
    """Regions that are left, and whose patrol has not looked since then."""
    return [
        f"nobody looked for broken promises in {region} after the loss"
        for region, looks in after.items()
        if looks <= before.get(region, 0.0)
    ]


def broken(never: int, critical: int, violations: float, loads: Mapping[str, tuple[float, float]]) -> list[str]:
    """What of the promise was not kept. `loads`: of each the load before the loss, and after it."""
    out = [f"{never} of {critical} critical workloads did not get their minimum"] if never else []
    out += [f"{violations:.0f} promises were found broken"] if violations else []
    for what, (before, now) in loads.items():
        if not before:
            out.append(f"no {what} were seen before the loss: there is nothing to compare with")
        elif now > LOAD_MAX * before:
            out.append(f"{what} {now:.2f} a second after the loss, {before:.2f} before: more than {LOAD_MAX} times")
    return out


async def main(**options: Any) -> dict[str, Any]:
    nodes = -(-options["nodes"] // len(REGIONS))
    with tempfile.TemporaryDirectory(prefix="fairlead-recovery-", dir=os.environ.get("FAIRLEAD_BENCH_DIR")) as folder:
        async with (
            open_rig(Path(folder), nodes, options["hosts"], REGIONS, budgets(options)) as rig,
            Api(rig) as api,
            Tasks() as tasks,
        ):
            bench = Bench(rig, api, options)
            began = time.perf_counter()
            await bench.fill()
            filled = time.perf_counter() - began
            for part in (bench.churn(), bench.queue()):
                tasks.start(part, "background")
            await asyncio.sleep(5.0)
            steady_commands, steady_cpu = await bench.load()
            bench.peak_queue = 0
            looks = await bench.looks()
            lost_at = time.perf_counter()
            took, never = await bench.lose()
            await asyncio.sleep(max(0.0, options["after_seconds"] - (time.perf_counter() - lost_at)))
            commands, cpu = await bench.load()
            violations, not_seen = await bench.violations(), unseen(looks, await bench.looks())
            tasks.cancel()
    loads = {"commands": (steady_commands, commands), "cpu": (steady_cpu, cpu)}
    failures = [*bench.failures, *not_seen, *broken(never, len(bench.critical), violations, loads)]
    figures = {
        "filled_s": round(filled, 1),
        "critical": len(bench.critical),
        "recovered": len(took),
        "recovered_p50_s": round(percentile(took, 0.5), 1),
        "recovered_max_s": round(max(took, default=0.0), 1),
        "steady_commands_per_s": round(steady_commands, 1),
        "commands_per_s": round(commands, 1),
        "commands_ratio": round(commands / steady_commands, 2) if steady_commands else None,
        "steady_cpu_share": round(steady_cpu, 3),
        "cpu_share": round(cpu, 3),
        "cpu_ratio": round(cpu / steady_cpu, 2) if steady_cpu else None,
        "peak_queue": bench.peak_queue,
        "quota_violations": int(violations),
        "failures": failures,
    }
    return result("recovery", options, figures)
