"""`fairlead bench decisions`: what the decision log costs per attempt, in CPU and in bytes, and how long a look-up takes.

Records are shared by `--shared` attempts of one workload, nine of ten bound, on nodes drawn at random (the worst case for
compression). Making them is not measured. Appending is timed on the calling thread; writing, indexing and compressing are
done by hand here, without the log's thread, so that `cpu_us_per_attempt` is all of it. Cold means opened anew with the files
out of the page cache; warm asks for other slots, so that only directories and pages are warm.
"""

from __future__ import annotations

import gc
import os
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.planes import percentile, result
from bench.registry import Option
from fairlead.client.decisions import DecisionQuery
from fairlead.model.decision import Attempt, Candidate, Decided, DecisionRecord, Result, decision_id
from fairlead.store.decisions import DecisionLog, Settings

OPTIONS = (
    Option("attempts", 5_000_000, "attempts in the log"),
    Option("shared", 100, "attempts that share a record"),
    Option("nodes", 5_000, "nodes they were placed on"),
    Option("asked", 100, "slots looked up"),
)

SLICE = 200  # records made at a time, and appended in calls of ten as a busy cycle would
TENANTS = 50
WORKLOADS = 20_000
STEP_MS = 10


def make(draw: random.Random, number: int, shared: int, nodes: int) -> DecisionRecord:
    workload = draw.randrange(WORKLOADS)
    tenant, time_ms, base = f"tenant-{workload % TENANTS:02d}", 1_700_000_000_000 + number * STEP_MS, number * shared
    attempts, results = [], []
    for index in range(shared):
        name, queued_ms = f"service-{workload}-{index if shared > 1 else draw.randrange(100)}", draw.randrange(3, 60)
        if draw.random() < 0.9:
            attempts.append(Attempt(tenant, name, 3, 1, queued_ms, f"node-{draw.randrange(nodes):05d}"))
            results.append(Result("Bound", "", (1 << 44) + base + index))
        else:
            detail = "asks 2 cpu, no node has it"
            attempts.append(
                Attempt(tenant, name, 3, 1, queued_ms, "", (), "WaitingForCapacity", detail, "nodes", time_ms + 5_000)
            )
            results.append(Result("WaitingForCapacity"))
    decided = Decided(
        scheduler="scheduler-a",
        time_ms=time_ms,
        policy_revision=7,
        observed_revision=(1 << 44) + base,
        age_ms=draw.randrange(40),
        strategy="cycle",
        ask={"cpu": "2", "memory": "4Gi"},
        nodes=nodes,
        feasible=draw.randrange(nodes),
        ruled_out={"capacity": draw.randrange(nodes), "taints": 12},
        reasons={f"node-{draw.randrange(nodes):05d}": "needs 2 cpu, 1 free" for _ in range(3)},
        candidates=tuple(_candidate(draw, nodes) for _ in range(3)),
        quota={tenant: "cpu 200 left of 1000"},
        attempts=tuple(attempts),
    )
    return DecisionRecord(decision_id(decided), decided, tuple(results))


def _candidate(draw: random.Random, nodes: int) -> Candidate:
    rates = (("fill", 70, draw.randrange(10_000)), ("spread", 20, draw.randrange(10_000)), ("locality", 10, 5_000))
    return Candidate(f"node-{draw.randrange(nodes):05d}", draw.randrange(1_000_000), rates)


def fill(
    directory: Path, draw: random.Random, attempts: int, shared: int, nodes: int
) -> tuple[dict[str, Any], list[DecisionRecord]]:
    log = DecisionLog(directory, Settings(flush_s=0, max_age_ms=1 << 60, max_bytes=1 << 50))
    kept: list[DecisionRecord] = []
    caller = everything = longest = 0.0
    gc.freeze()
    for start in range(0, attempts // shared, SLICE):
        records = [make(draw, start + number, shared, nodes) for number in range(SLICE)]
        kept.append(records[0])
        began = time.process_time()
        for call in range(0, SLICE, 10):
            at = time.thread_time()
            log.append(records[call : call + 10])
            took = time.thread_time() - at
            caller, longest = caller + took, max(longest, took)
        log.flush()
        everything += time.process_time() - began
    log.close()
    total = log.meters.decisions_total
    return {
        "attempts": total,
        "dropped": log.meters.decisions_dropped_total,
        "append_us_per_attempt": round(caller / total * 1e6, 2),
        "append_call_max_ms": round(longest * 1e3, 2),
        "cpu_us_per_attempt": round(everything / total * 1e6, 2),
        "bytes_per_attempt": round(sum(path.stat().st_size for path in directory.iterdir()) / total, 1),
        "segments": len(list(directory.glob("*.segment"))),
    }, kept


def forget(directory: Path) -> None:
    """Out of the page cache, as far as the kernel agrees."""
    for path in directory.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def questions(record: DecisionRecord) -> Iterator[tuple[str, DecisionQuery]]:
    first = record.decided.attempts[0]
    workload = first.name.rpartition("-")[0]
    yield "slot", DecisionQuery(tenant=first.tenant, slot=first.name)
    yield "absent", DecisionQuery(tenant=first.tenant, slot=f"{first.name}0000")
    yield "generation", DecisionQuery(tenant=first.tenant, workload=workload, generation=first.generation)
    yield "id", DecisionQuery(id=record.id)
    yield "node", DecisionQuery(node=first.node or "node-00001")
    yield "outcome", DecisionQuery(outcome="WaitingForCapacity")


async def timed(log: DecisionLog, query: DecisionQuery) -> tuple[float, float]:
    """Milliseconds by the clock, and of CPU in all threads."""
    began, cpu = time.perf_counter(), time.process_time()
    page = await log.query(query)
    took = (time.perf_counter() - began) * 1e3, (time.process_time() - cpu) * 1e3
    if not page.items and not query.slot.endswith("0000"):
        raise RuntimeError(f"nothing was found for {query}")
    return took


async def main(attempts: int, shared: int, nodes: int, asked: int) -> dict[str, Any]:
    draw = random.Random(1)
    with tempfile.TemporaryDirectory(prefix="fairlead-decisions-") as folder:
        directory = Path(folder)
        results, kept = fill(directory, draw, attempts, shared, nodes)
        cold: list[float] = []
        for record in draw.sample(kept, min(len(kept), 10)):
            forget(directory)
            log = DecisionLog(directory)
            cold.append((await timed(log, next(questions(record))[1]))[0])
            log.close()
        began = time.perf_counter()
        log = DecisionLog(directory)
        results["open_ms"] = round((time.perf_counter() - began) * 1e3, 1)
        log.flush()  # The log's thread does it half a second after the start.
        warm: dict[str, list[tuple[float, float]]] = {}
        for record in draw.sample(kept, min(len(kept), asked)):
            for kind, query in questions(record):
                warm.setdefault(kind, []).append(await timed(log, query))
        log.close()
    results["slot_cold_p50_ms"] = round(percentile(cold, 0.5), 2)
    results["slot_cold_max_ms"] = round(max(cold), 2)
    for kind, took in warm.items():
        results[f"{kind}_warm_p50_ms"] = round(percentile([clock for clock, _ in took], 0.5), 2)
        results[f"{kind}_warm_p99_ms"] = round(percentile([clock for clock, _ in took], 0.99), 2)
        results[f"{kind}_cpu_ms"] = round(percentile([cpu for _, cpu in took], 0.5), 2)
    return result("decisions", {"attempts": attempts, "shared": shared, "nodes": nodes, "asked": asked}, results)
