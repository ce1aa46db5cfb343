"""What one request costs the server: `python -m tests.api.measure [--requests N]`. CPU of this process, through the application
itself, without sockets, TLS or a client; one global plane in memory. Prints one JSON object."""

from __future__ import annotations

import argparse
import resource
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import uvloop

from tests.api.doors import GROUP, Answer, call, open_door, workload

WORKLOADS = f"{GROUP}/namespaces/risk/workloads"
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
            lambda n: call(
                door, "PATCH", f"{WORKLOADS}/w8", {"spec": {"replicas": 2 + n % 9}}, media="application/merge-patch+json"
            ),
        )
        out["apply_changed_us"] = await cost_us(
            times,
            lambda n: call(door, "PATCH", f"{WORKLOADS}/a1?fieldManager=ci", workload("a1", replicas=2 + n % 9), media=apply),
        )
        out["apply_unchanged_us"] = await cost_us(
            times, lambda n: call(door, "PATCH", f"{WORKLOADS}/a2?fieldManager=ci", workload("a2"), media=apply)
        )
        return out


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=1000)
    args = parser.parse_args()
    results = uvloop.run(measure(args.requests))
    print(msgspec.json.encode({"name": "api requests", "params": {"requests": args.requests}, "results": results}).decode())


if __name__ == "__main__":
    main()
