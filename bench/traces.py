"""Reads the real traces beside the project. Owns where they lie and how their files read; knows no experiment.

The folder is the one that FAIRLEAD_TRACES names, else `shared/traces` beside the checkout. Called by benches that replay them.
"""

from __future__ import annotations

import csv
import os
from functools import cache
from pathlib import Path
from typing import NamedTuple


def traces_folder() -> Path:
    beside = Path(__file__).resolve().parents[2] / "shared" / "traces"
    return Path(os.environ.get("FAIRLEAD_TRACES") or beside)


class OpenbNode(NamedTuple):
    name: str
    cpu_millis: int
    memory_mib: int
    gpus: int
    model: str


class OpenbPod(NamedTuple):
    cpu_millis: int
    memory_mib: int
    gpus: int
    gpu_thousandths: int  # of each of its GPUs
    models: tuple[str, ...]  # those it may use; empty for any

    @property
    def thousandths(self) -> int:
        return self.gpus * self.gpu_thousandths

    @property
    def sort(self) -> str:
        """As failures are counted: by how it uses GPUs."""
        if not self.gpus:
            return "cpu-only"
        if self.gpus == 1:
            return "one-gpu" if self.gpu_thousandths == 1000 else "share"
        return f"{self.gpus}-gpu"


def _rows(*path: str) -> list[dict[str, str]]:
    file = traces_folder().joinpath("openb_fgd", *path)
    if not file.exists():
        raise SystemExit(f"the trace file {file} is not there; set FAIRLEAD_TRACES to the folder of traces")
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


@cache
def openb_nodes() -> tuple[OpenbNode, ...]:
    rows = _rows("openb_node_list_gpu_node.csv")
    return tuple(OpenbNode(r["sn"], int(r["cpu_milli"]), int(r["memory_mib"]), int(r["gpu"]), r["model"]) for r in rows)


@cache
def openb_pods(workload: str) -> tuple[OpenbPod, ...]:
    out = []
    for r in _rows(f"openb_pod_list_{workload}.csv"):
        gpus = int(r["num_gpu"])
        share = min(int(r["gpu_milli"] or 0), 1000) if gpus else 0
        models = tuple(sorted(set((r.get("gpu_spec") or "").split("|")) - {""})) if gpus else ()
        out.append(OpenbPod(int(r["cpu_milli"]), int(r["memory_mib"]), gpus, share, models))
    return tuple(out)


@cache
def openb_published(workload: str, policy: str = "06-FGD") -> dict[int, float]:
    """By percent arrived, the published mean of allocated percent over ten seeds."""
    rows = _rows("expected_results", "summary_mean_sd_over_10_seeds.csv")
    mine = [r for r in rows if r["workload"] == f"openb_pod_list_{workload}" and r["policy"] == policy]
    return {int(r["arrived_pct"]): float(r["alloc_pct_mean"]) for r in mine}
