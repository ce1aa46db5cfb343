"""Manifests for plans, as files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from fairlead.client.rest_shapes import GROUP, VERSION


def written(folder: Path, *trees: dict[str, Any], name: str = "change.json") -> Path:
    body = {"kind": "List", "apiVersion": "v1", "items": [{"apiVersion": f"{GROUP}/{VERSION}", **tree} for tree in trees]}
    file = folder / name
    file.write_bytes(msgspec.json.encode(body))
    return file


def workload(name: str, replicas: int = 2, cpu: str = "1", *, tenant: str = "risk", **spec: Any) -> dict[str, Any]:
    made = {
        "replicas": replicas, "template": {"driver": "process", "command": ["/bin/api"]},
        "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}, **spec,
    }  # fmt: skip
    return {"kind": "Workload", "metadata": {"name": name, "namespace": tenant}, "spec": made}


def critical(name: str, budget: str) -> dict[str, Any]:
    """A service with one replica in east and one in west, which must have both wherever a region is lost."""
    return workload(
        name, replicas=2, workloadClass="critical",
        placement={"regions": {"allowed": ["east", "west"], "perRegionMinimum": 1}},
        recovery={"budgetName": budget, "minServing": 2, "deadlineSeconds": 300},
    )  # fmt: skip
