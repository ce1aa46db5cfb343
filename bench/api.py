"""`fairlead bench api`: workloads through HTTPS, from their create to bound, ready and serving, and what it costs.

Real processes: a global plane and a region on SQLite with TLS and tokens as in production, hosts of simulated nodes, and this
one, which is the client. It creates workloads at the front door and watches bindings at the region's own. CPU is that of all of
them together. Parts: `idle` (the fleet alone), `steady` (latencies at a rate, and undo), `bulk` (slots a second), `watchers`
(steady with many watches open), `quota` (grants in reach of what is asked against one that nothing reaches; they take turns),
`long` (one workload of many replicas: created, rolled out, deleted), `reconnect` (the region's server is killed, and all nodes
come back at once).
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bench.api_client import Api, Slots
from bench.api_probes import Probe, Stalls, conflicts
from bench.api_rig import FREE, REGION, TENANTS, Rig, open_rig
from bench.paired import paired
from bench.planes import percentile, result
from bench.registry import Option
from fairlead.ports import Tasks

QUOTA_PAIRS = 8  # with three, the noise of one decided the sign
PARTS = ("idle", "steady", "bulk", "watchers", "quota", "long", "reconnect")
OPTIONS = (
    Option("part", "all", "what is measured", ("all", *PARTS)),
    Option("nodes", 5000, "simulated nodes"),
    Option("hosts", 1, "processes that carry them"),
    Option("rate", 100, "creates a second of the steady part"),
    Option("seconds", 12, "how long the steady part creates"),
    Option("idle_seconds", 31, "how long the idle part looks: every controller lists again within thirty"),
    Option("slots", 10_000, "slots of the bulk part"),
    Option("replicas", 100, "of each workload of the bulk part; the other half of it are workloads of ten"),
    Option("watchers", 1000, "open watches of the watchers part"),
    Option("long", 10_000, "replicas of the long workload"),
    Option("seconds_max", 60, "give up on a part after this long"),
)
_IN_FLIGHT = 32  # requests of a bulk create under way at once


class Bench:
    def __init__(self, rig: Rig, api: Api, options: dict[str, Any], tasks: Tasks) -> None:
        self.rig = rig
        self.api = api
        self.options = options
        self.tasks = tasks
        self.slots = Slots(api)
        self.probe = Probe(api, rig)
        self.stalls = Stalls(api)
        self.failures: list[str] = []
        self.limit_s = float(options["seconds_max"])
        self._watching: asyncio.Task[None] | None = None
        self._serial = 0

    async def open(self) -> dict[str, Any]:
        """The fleet is up and every node takes work."""
        began = time.perf_counter()
        until = began + max(self.limit_s, 120.0)
        while await self._schedulable() < self.rig.nodes:
            if time.perf_counter() > until:
                raise RuntimeError(f"the fleet did not come up: {self.rig.log_of('fleet-0')}")
            await asyncio.sleep(0.25)
        for plane in ("global", REGION):
            self.tasks.start(self.probe.run(plane), f"probe {plane}")
        await self._watch()
        return {"fleet_up_s": round(time.perf_counter() - began, 2)}

    async def _watch(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        self._watching = self.tasks.start(self.slots.run(await self.slots.version()), "watch")

    async def _schedulable(self) -> int:
        try:
            nodes = await self.api.list("nodes", REGION)
        except (RuntimeError, OSError):
            return 0
        return sum(bool(node.get("status", {}).get("schedulable")) for node in nodes)

    def name(self) -> str:
        self._serial += 1
        return f"w{self._serial}"

    async def _many(self, works: list[Callable[[], Awaitable[Any]]]) -> None:
        """All of them, so many at once."""
        todo = iter(works)

        async def worker() -> None:
            for work in todo:
                await work()

        async with Tasks() as tasks:
            for number in range(_IN_FLIGHT):
                tasks.start(worker(), f"worker {number}")

    async def _cost(self, before: dict[str, float]) -> dict[str, float]:
        return {name: used - before.get(name, 0.0) for name, used in self.rig.cpu_s().items()}

    # --- parts -----------------------------------------------------------------------------------------------------------

    async def idle(self) -> dict[str, Any]:
        await asyncio.sleep(1.0)
        self.probe.take()
        before, began = self.rig.cpu_s(), time.perf_counter()
        await asyncio.sleep(float(self.options["idle_seconds"]))
        took = time.perf_counter() - began
        spent = await self._cost(before)
        shares = {f"idle_{name.replace('-', '_')}_share": round(used / took, 4) for name, used in spent.items()}
        total = sum(used for name, used in spent.items() if name != "client")
        return {"idle_share_of_core": round(total / took, 4), **shares, **_named("idle", self.probe.take())}

    async def steady(self) -> dict[str, Any]:
        return await self._steady("")

    async def _steady(self, prefix: str) -> dict[str, Any]:
        rate, seconds = int(self.options["rate"]), float(self.options["seconds"])
        self.slots.clear()
        warm = await self._open_loop(rate, 1.0)  # connections are made, caches are warm
        await self.slots.wait("Serving", len(warm), self.limit_s)
        await self._remove(warm)
        self.slots.clear()
        self.probe.take()
        before, began = self.rig.cpu_s(), time.perf_counter()
        names = await self._open_loop(rate, seconds)
        await self.slots.wait("Serving", len(names), self.limit_s)
        took = time.perf_counter() - began
        spent = await self._cost(before)
        figures: dict[str, Any] = {}
        for state in ("Bound", "Ready", "Serving"):
            found = self.slots.latencies(state)
            if len(found) < len(names):
                self.failures.append(f"{prefix or 'steady'}: {len(names) - len(found)} of {len(names)} slots not {state}")
            for word, share in (("p50", 0.5), ("p99", 0.99)):
                figures[f"create_to_{state.lower()}_{word}_ms"] = round(percentile(found, share) * 1e3, 2)
        figures["cpu_us_per_object"] = round(sum(spent.values()) / len(names) * 1e6)
        figures |= {f"{name.replace('-', '_')}_share": round(used / took, 3) for name, used in spent.items()}
        figures |= self.probe.take()
        if not prefix:
            figures |= await self._undo(names)
        await self._remove(names)
        return _named(prefix, figures) if prefix else figures

    async def _open_loop(self, rate: int, seconds: float) -> list[tuple[str, str]]:
        names: list[tuple[str, str]] = []
        count = int(rate * seconds)
        started = time.perf_counter()
        async with Tasks() as tasks:
            for number in range(count):
                wait_s = started + number / rate - time.perf_counter()
                if wait_s > 0:
                    await asyncio.sleep(wait_s)
                tenant, name = f"t{number % TENANTS}", self.name()
                names.append((tenant, name))
                self.slots.sent(tenant, name)
                tasks.start(self.api.create(tenant, name, 1), "create")
        return names

    async def _undo(self, names: list[tuple[str, str]]) -> dict[str, float]:
        """Some get another image and, once it serves, the one before again."""
        chosen = names[:20]
        rolled: list[float] = []
        undone: list[float] = []
        for tenant, name in chosen:
            rolled.append(await self._until_serving(tenant, name, {"template": {"image": "two"}}, 2))
        for tenant, name in chosen:
            undone.append(await self._until_serving(tenant, name, {"template": {"image": "one"}}, 1))
        return {
            "rollout_to_serving_p50_ms": round(percentile(rolled, 0.5) * 1e3, 1),
            "undo_to_serving_p50_ms": round(percentile(undone, 0.5) * 1e3, 1),
            "undo_to_serving_p99_ms": round(percentile(undone, 0.99) * 1e3, 1),
        }

    async def _until_serving(self, tenant: str, name: str, spec: dict[str, Any], generation: int) -> float:
        seen = self.slots.seen.setdefault("Serving", {})
        for key in [key for key in seen if key[0] == tenant and key[1].rpartition("-")[0] == name]:
            del seen[key]
        started = time.perf_counter()
        await self.api.patch(tenant, name, spec)
        while time.perf_counter() < started + self.limit_s:
            for key, when in list(seen.items()):
                if key[0] == tenant and key[2] == generation and key[1].rpartition("-")[0] == name:
                    return when - started
            await asyncio.sleep(0.005)
        self.failures.append(f"{tenant}/{name} did not serve generation {generation}")
        return self.limit_s

    async def _remove(self, names: list[tuple[str, str]], replicas: int = 1) -> float:
        """Deleted, and every slot gone."""
        began = time.perf_counter()
        self.slots.seen.pop("gone", None)  # a slot may go several times: whenever it is replaced
        await self._many([lambda t=tenant, n=name: self.api.delete(t, n) for tenant, name in names])  # type: ignore[misc]
        if not await self.slots.wait("gone", len(names) * replicas, self.limit_s):
            gone = self.slots.count("gone")
            self.failures.append(f"{len(names) * replicas - gone} slots were not gone {self.limit_s:.0f} s after their delete")
        return time.perf_counter() - began

    async def bulk(self) -> dict[str, Any]:
        slots, replicas = int(self.options["slots"]), int(self.options["replicas"])
        figures = await self._bulk(slots // 2, replicas, None)
        small = await self._bulk(slots - slots // 2, 10, None)
        out = {**figures, **_named("small", small)}
        out["binds_per_s"] = figures["binds_per_s"]
        return out

    async def _bulk(self, slots: int, replicas: int, tenant: str | None) -> dict[str, Any]:
        self.slots.clear()
        self.probe.take()
        names = [(tenant or f"t{n % TENANTS}", self.name()) for n in range(max(1, slots // replicas))]
        count = len(names) * replicas
        refused = await conflicts(self.api)
        before, began = self.rig.cpu_s(), time.perf_counter()

        async def create(tenant: str, name: str) -> None:
            self.slots.sent(tenant, name)
            await self.api.create(tenant, name, replicas)

        await self._many([lambda t=t, n=n: create(t, n) for t, n in names])  # type: ignore[misc]
        created_s = time.perf_counter() - began
        if not await self.slots.wait("Bound", count, self.limit_s):
            self.failures.append(f"bulk: {count - self.slots.count('Bound')} of {count} slots were not bound")
        bound_s = self.slots.last("Bound") - began
        bound = self.slots.count("Bound")
        spent_bound = await self._cost(before)
        await self.slots.wait("Serving", count, self.limit_s)
        serving_s = self.slots.last("Serving") - began
        spent = await self._cost(before)
        probes = self.probe.take()
        removed_s = await self._remove(names, replicas)
        return {
            "binds_per_s": round(bound / max(bound_s, 1e-9), 1),
            "serving_per_s": round(self.slots.count("Serving") / max(serving_s, 1e-9), 1),
            "cpu_us_per_bind": round(sum(spent_bound.values()) / max(bound, 1) * 1e6, 1),
            "cpu_us_per_serving": round(sum(spent.values()) / max(bound, 1) * 1e6, 1),
            "cpu_us_per_serving_of": {name: round(used / max(bound, 1) * 1e6, 1) for name, used in spent.items()},
            "creates_per_s": round(len(names) / max(created_s, 1e-9), 1),
            "bound": bound,
            "pending": count - bound,
            "conflicts": await conflicts(self.api) - refused,
            "removed_per_s": round(count / removed_s, 1),
            **probes,
        }

    async def watchers(self) -> dict[str, Any]:
        count = int(self.options["watchers"])
        told = [0]
        version = await self.api.version("workloads", "global")

        def heard(line: bytes) -> None:
            told[0] += 1

        async with Tasks() as tasks:
            for number in range(count):
                tenant = f"t{number % TENANTS}" if number % 2 else ""  # half watch their tenant, half everything
                tasks.start(self.api.watch("workloads", "global", version, heard, tenant), "watch")
                if number % 50 == 49:
                    await asyncio.sleep(0.05)
            await asyncio.sleep(1.0)
            figures = await self._steady("watched")
            tasks.cancel()
        return {**figures, "watchers": count, "watched_deliveries": told[0]}

    async def quota(self) -> dict[str, Any]:
        """Pairs of short rounds; each side is first in every other pair, or whoever is first would pay for what it finds cold."""
        slots = int(self.options["slots"]) // 10
        spent: dict[str | None, list[float]] = {FREE: [], None: []}
        await self._bulk(slots, 50, FREE)
        for number in range(QUOTA_PAIRS):
            for tenant in (FREE, None) if number % 2 else (None, FREE):
                spent[tenant].append((await self._bulk(slots, 50, tenant))["cpu_us_per_bind"])
        return {
            "quota_on_cpu_us_per_bind": statistics.median(spent[None]),
            "quota_off_cpu_us_per_bind": statistics.median(spent[FREE]),
            **paired("quota", spent[None], spent[FREE]),
        }

    async def long(self) -> dict[str, Any]:
        count = int(self.options["long"])
        self.slots.clear()
        self.probe.take()
        name, figures = self.name(), {}
        before, began = self.rig.cpu_s(), time.perf_counter()
        rollout = {"maxSurge": max(1, count // 10), "maxUnavailable": count // 10, "progressDeadlineSeconds": 600}
        await self.api.create(FREE, name, count, rollout=rollout)
        for word, generation, change in (("created", 1, None), ("rolled_out", 2, {"template": {"image": "two"}})):
            if change is not None:
                began, before = time.perf_counter(), self.rig.cpu_s()
                self.slots.seen.clear()
                await self.api.patch(FREE, name, change)
            if not await self._serving(name, count, generation):
                self.failures.append(f"long: {count} replicas were not {word}: {self.slots.count('Serving')} serve")
            figures[f"long_{word}_s"] = round(time.perf_counter() - began, 2)
            figures[f"long_{word}_cpu_s"] = round(sum((await self._cost(before)).values()), 2)
            figures |= _named(f"long_{word}", self.probe.take())
        before = self.rig.cpu_s()
        self.slots.seen.pop("gone", None)
        await asyncio.sleep(1.0)
        figures["long_deleted_s"] = round(await self._remove([(FREE, name)], count), 2)
        figures["long_deleted_cpu_s"] = round(sum((await self._cost(before)).values()), 2)
        return {**figures, **_named("long_deleted", self.probe.take())}

    async def _serving(self, name: str, count: int, generation: int) -> bool:
        until = time.perf_counter() + 2 * self.limit_s
        while time.perf_counter() < until:
            status = (await self.api.get("workloads", FREE, name))["status"]
            done = status.get("replicas", {})
            if done.get("serving", 0) == count == done.get("updated", 0) and status.get("observedGeneration") == generation:
                return True
            await asyncio.sleep(0.2)
        return False

    async def reconnect(self) -> dict[str, Any]:
        """The region's server is killed and started again: everything that served serves, and every node is heard."""
        self.slots.clear()
        names = [(f"t{n % TENANTS}", self.name()) for n in range(min(1000, 10 * self.rig.nodes) // 50)]
        count = 50 * len(names)
        await self._many([lambda t=t, n=n: self.api.create(t, n, 50) for t, n in names])  # type: ignore[misc]
        await self.slots.wait("Serving", count, self.limit_s)
        before = await self._standing()
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None
        await self.rig.kill(REGION)
        await asyncio.sleep(1.0)
        self.probe.take()
        began, cpu, started = time.perf_counter(), self.rig.cpu_s(), time.time()
        await self.rig.start_plane(REGION)
        await self.rig.wait_ready(REGION)
        ready_s = time.perf_counter() - began
        heard = await self.rig.wait_heard(started, self.limit_s)
        if not heard:
            self.failures.append(f"reconnect: not every node was heard again within {self.limit_s:.0f} s")
        heard_s = time.perf_counter() - began
        spent = await self._cost(cpu)
        await self._watch()
        self.slots.clear()
        more = [(f"t{n % TENANTS}", self.name()) for n in range(20)]
        await self._many([lambda t=t, n=n: self.api.create(t, n, 10) for t, n in more])  # type: ignore[misc]
        if not await self.slots.wait("Serving", 200, self.limit_s):
            self.failures.append("reconnect: new work was not started after the restart")
        worked_s = time.perf_counter() - began
        after = await self._standing()
        lost = sorted(slot for slot, state in before.items() if after.get(slot) != state)
        if lost:
            self.failures.append(f"reconnect: {len(lost)} of {len(before)} slots did not survive, such as {lost[0]}")
        return {
            "restart_ready_s": round(ready_s, 2),
            "restart_all_heard_s": round(heard_s, 2),
            "restart_new_work_serves_s": round(worked_s, 2),
            "restart_cpu_s": round(sum(spent.values()), 2),
            "restart_slots_kept": len(before) - len(lost),
            **_named("restart", self.probe.take()),
        }

    async def _standing(self) -> dict[tuple[str, str], tuple[str, str]]:
        """Every slot, its node and its state."""
        found = await self.api.list("bindings", REGION)
        return {(b["metadata"]["namespace"], b["metadata"]["name"]): (b["spec"]["node"], b["status"]["state"]) for b in found}


def _named(prefix: str, figures: dict[str, Any]) -> dict[str, Any]:
    return {f"{prefix}_{name}": value for name, value in figures.items()}


async def main(**options: Any) -> dict[str, Any]:
    parts = PARTS if options["part"] == "all" else (options["part"],)
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="fairlead-api-", dir=os.environ.get("FAIRLEAD_BENCH_DIR")) as folder:
        async with open_rig(Path(folder), options["nodes"], options["hosts"]) as rig, Api(rig) as api, Tasks() as tasks:
            bench = Bench(rig, api, options, tasks)
            figures |= await bench.open()
            for part in parts:
                began = time.perf_counter()
                await bench.stalls.take()
                figures |= await getattr(bench, part)()
                figures |= _named(part, await bench.stalls.take())
                figures[f"{part}_took_s"] = round(time.perf_counter() - began, 1)
            tasks.cancel()
    figures["failures"] = bench.failures
    return result("api", options, figures)
