"""What the tests of this folder share: a small manifest as a tree, and the two ways to look at an answer."""

from __future__ import annotations

from typing import Any

from fairlead.model.commands import Fault
from fairlead.wire.manifest import Decoded

HEAD = {"apiVersion": "fairlead.dev/v1alpha1", "kind": "Workload"}


def told(got: object) -> dict[str, str]:
    assert isinstance(got, tuple), f"expected faults, got {got}"
    assert all(isinstance(fault, Fault) for fault in got)
    return {fault.path: fault.message for fault in got}


def decoded(got: object) -> Decoded:
    assert isinstance(got, Decoded), f"expected an object, got {got}"
    return got


def plain(**spec: Any) -> dict[str, Any]:
    return {**HEAD, "metadata": {"name": "api", "namespace": "risk"}, "spec": spec}
