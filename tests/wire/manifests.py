"""What the tests of this folder share: a small manifest as a tree, and the two ways to look at an answer."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from fairlead.model.commands import Fault
from fairlead.wire.manifest import Decoded

T = TypeVar("T")

HEAD = {"apiVersion": "fairlead.dev/v1alpha1", "kind": "Workload"}


def as_sent(record: T) -> T:
    """Without what the server writes and no request is asked for."""
    metadata = msgspec.structs.replace(record.metadata, managed_fields=())  # type: ignore[attr-defined]
    return msgspec.structs.replace(record, metadata=metadata)  # type: ignore[type-var]


def told(got: object) -> dict[str, str]:
    assert isinstance(got, tuple), f"expected faults, got {got}"
    assert all(isinstance(fault, Fault) for fault in got)
    return {fault.path: fault.message for fault in got}


def decoded(got: object) -> Decoded:
    assert isinstance(got, Decoded), f"expected an object, got {got}"
    return got


def plain(**spec: Any) -> dict[str, Any]:
    return {**HEAD, "metadata": {"name": "api", "namespace": "risk"}, "spec": spec}
