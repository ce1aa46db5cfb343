"""`fairlead bench openb`: the published packing experiment on Alibaba's GPU cluster, through the production gates and scores.

1,213 nodes in a random order per seed; the workload's pods shuffled, then pods drawn again until 130 % of the GPUs are asked for.
Each pod is tried once, in order, without looking ahead, and nothing departs. What is allocated is averaged over the arrivals at
95, 100, 120 and 130 % and over the seeds, beside the published mean of FGD. A pod that fits somewhere must be placed: the bench
keeps books of its own and stops if one was not, or if one was placed where it does not fit.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from bench.openb_fleet import Books, Placer
from bench.planes import result
from bench.registry import Option
from bench.traces import OpenbNode, OpenbPod, openb_nodes, openb_pods, openb_published

WORKLOADS = (
    "default", "cpu050", "cpu100", "cpu200", "cpu250", "gpushare40", "gpushare60", "gpushare80", "gpushare100",
    "gpuspec10", "gpuspec20", "gpuspec25", "gpuspec33", "multigpu20", "multigpu30", "multigpu40", "multigpu50",
)  # fmt: skip
OPTIONS = (
    Option("workload", "default", "which of the published workloads, or all", (*WORKLOADS, "all")),
    Option("seeds", 10, "orders of arrival; the published figures are means of ten"),
    Option("limit", 0, "stop each run after this many pods; 0: all"),
)
BINS = (95, 100, 120, 130)
MUST_BEAT = (100, 130)
ARRIVING = 1.3  # of all GPUs
_AT_ONCE = 256  # pods between two looks at the clock, which costs as much as a tenth of a decision
TIE_RULE = "the first node in the seed's order; on a node the GPU with least free, then by id"


def arrivals(pods: tuple[OpenbPod, ...], total: int, chance: random.Random) -> Iterator[OpenbPod]:
    order = list(pods)
    chance.shuffle(order)
    yield from order
    asked = sum(pod.thousandths for pod in order)
    while True:
        pod = chance.choice(pods)
        if asked + pod.gpu_thousandths > ARRIVING * total:
            return
        asked += pod.thousandths
        yield pod


class Run:
    """One workload in one order."""

    def __init__(self, workload: str, seed: int) -> None:
        chance = random.Random(seed)
        nodes = list(openb_nodes())
        chance.shuffle(nodes)
        self.nodes: list[OpenbNode] = nodes
        self.total = sum(node.gpus for node in nodes) * 1000
        self.pods = list(arrivals(openb_pods(workload), self.total, chance))
        self.failed: Counter[str] = Counter()
        self.curve: dict[int, list[float]] = {}
        self.cpu_s = 0.0
        self.decisions = 0
        self._books = Books(nodes)
        self._arrived = self._used = 0

    def play(self, limit: int = 0) -> None:
        placer, pods = Placer(self.nodes), self.pods[: limit or None]
        for first in range(0, len(pods), _AT_ONCE):
            some = pods[first : first + _AT_ONCE]
            started = time.process_time()
            placed = [placer.place(pod, first + number) for number, pod in enumerate(some)]
            self.cpu_s += time.process_time() - started
            for pod, where in zip(some, placed, strict=True):
                self._check(pod, where)

    def _check(self, pod: OpenbPod, placed: tuple[int, tuple[int, ...]] | None) -> None:
        """Into the books, in the order of the arrivals."""
        if placed is None:
            assert not self._books.fits(pod).any(), f"pod {self.decisions} fits somewhere and was not placed"
            self.failed[pod.sort] += 1
        else:
            self._books.take(pod, *placed)
            self._used += pod.thousandths
        self._arrived += pod.thousandths
        self.curve.setdefault(round(self._arrived / self.total * 100), []).append(self._used / self.total * 100)
        self.decisions += 1

    def allocated(self) -> dict[int, float]:
        return {at: float(np.mean(values)) for at, values in self.curve.items()}


def measure(workload: str, seeds: int, limit: int) -> dict[str, Any]:
    failed: Counter[str] = Counter()
    curves, cpu_s, decisions = [], 0.0, 0
    for seed in range(seeds):
        run = Run(workload, seed)
        run.play(limit)
        curves.append(run.allocated())
        failed.update(run.failed)
        cpu_s += run.cpu_s
        decisions += run.decisions
    published = openb_published(workload)
    reached = [at for at in BINS if all(at in curve for curve in curves)]
    return {
        "alloc_pct": {str(at): round(sum(curve[at] for curve in curves) / seeds, 3) for at in reached},
        "fgd_alloc_pct": {str(at): published[at] for at in BINS if at in published},
        "failed": {sort: round(count / seeds, 1) for sort, count in sorted(failed.items())},
        "ms_per_decision": round(cpu_s / decisions * 1e3, 3),
    }


def behind(workloads: dict[str, Any]) -> list[str]:
    out = []
    for name, found in workloads.items():
        for at in map(str, MUST_BEAT):
            mine, theirs = found["alloc_pct"].get(at), found["fgd_alloc_pct"].get(at)
            if mine is not None and theirs is not None and mine <= theirs:
                out.append(f"{name} at {at} %: {mine} is not more than FGD's {theirs}")
    return out


async def main(workload: str = "default", seeds: int = 10, limit: int = 0) -> dict[str, Any]:
    names = WORKLOADS if workload == "all" else (workload,)
    workloads = {name: measure(name, seeds, limit) for name in names}
    figures = {
        "workloads": workloads,
        "tie_rule": TIE_RULE,
        "ms_per_decision": round(sum(found["ms_per_decision"] for found in workloads.values()) / len(workloads), 3),
        "failures": behind(workloads),
    }
    return result("openb", {"workload": workload, "seeds": seeds, "limit": limit}, figures)
