"""What one request costs the server, and one event of a watch: `python -m tests.api.measure [--requests N] [--watchers N]`. CPU
of this process, through the application itself, without sockets, TLS or a client; one global plane in memory. Prints JSON."""

from __future__ import annotations

import argparse
import asyncio
import resource
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import uvloop

from fairlead.ports import Tasks
from tests.api.doors import GROUP, Answer, Stream, call, open_door, scope_of, workload

WORKLOADS = f"{GROUP}/namespaces/risk/workloads"
TOGETHER = 40  # changes: what 100 workloads a second cause in a tenth of a second
MERGE = "application/merge-patch+json"
TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def cost_us(times: int, one: Callable[[int], Awaitable[Answer]]) -> float:
    await one(-1)
    begin = cpu_s()
    for n in range(times):
        got = await one(n)
        assert got.status < 300, got.body[:300]
    return round((cpu_s() - begin) / times * 1e6, 1)


async def measure(times: int) -> dict[str, float]:
    async with open_door() as door:
        out: dict[str, Any] = {}
        for n in range(500):
            await call(door, "POST", WORKLOADS, workload(f"w{n}"))
        few = max(times // 50, 5)
        apply = "application/apply-patch+yaml"
        out["get_us"] = await cost_us(times, lambda n: call(door, "GET", f"{WORKLOADS}/w7"))
        out["list_500_us"] = await cost_us(few, lambda n: call(door, "GET", f"{WORKLOADS}?limit=500"))
        out["table_500_us"] = await cost_us(few, lambda n: call(door, "GET", f"{WORKLOADS}?limit=500", headers=TABLE))
        out["create_us"] = await cost_us(times, lambda n: call(door, "POST", WORKLOADS, workload(f"n{n}")))
        out["merge_patch_us"] = await cost_us(
            times,
            lambda n: call(door, "PATCH", f"{WORKLOADS}/w8", {"spec": {"replicas": 2 + n % 9}}, media=MERGE),
        )
        out["apply_changed_us"] = await cost_us(
            times,
            lambda n: call(door, "PATCH", f"{WORKLOADS}/a1?fieldManager=ci", workload("a1", replicas=2 + n % 9), media=apply),
        )
        out["apply_unchanged_us"] = await cost_us(
            times, lambda n: call(door, "PATCH", f"{WORKLOADS}/a2?fieldManager=ci", workload("a2"), media=apply)
        )
        return out


async def measure_watches(watchers: int, changes: int) -> dict[str, float]:
    """`changes`, so many at a time, shown to so many who all watch the same."""
    heard = [0, 0]

    async def send(message: Any) -> None:
        body = message.get("body", b"")
        heard[0] += body.count(b"\n")
        heard[1] += len(body) > 0

    async with open_door() as door, Tasks() as tasks:
        for n in range(TOGETHER):
            await call(door, "POST", WORKLOADS, workload(f"w{n}"))
        version = (await call(door, "GET", WORKLOADS)).json["metadata"]["resourceVersion"]
        for _ in range(watchers):
            scope = scope_of("GET", WORKLOADS, f"watch=true&resourceVersion={version}")
            tasks.start(door.app(scope, Stream().receive, send), "watch")
        await asyncio.sleep(0.5)
        begin = cpu_s()
        for turn in range(changes // TOGETHER):
            async with Tasks() as writers:
                body = {"metadata": {"labels": {"round": str(turn)}}}
                for n in range(TOGETHER):
                    writers.start(call(door, "PATCH", f"{WORKLOADS}/w{n}", body, media=MERGE), "write")
            while heard[0] < watchers * (turn + 1) * TOGETHER:
                await asyncio.sleep(0.02)
        used = cpu_s() - begin
        tasks.cancel()
    each = watchers * changes
    return {"watch_us_per_event_and_watcher": round(used / each * 1e6, 2), "watch_events_per_send": round(each / heard[1], 1)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--watchers", type=int, default=500)
    args = parser.parse_args()
    results = uvloop.run(measure(args.requests)) if args.requests else {}
    if args.watchers:
        results |= uvloop.run(measure_watches(args.watchers, 200))
    print(msgspec.json.encode({"name": "api requests", "params": vars(args), "results": results}).decode())


if __name__ == "__main__":
    main()
