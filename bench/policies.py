"""The policy revisions that come with the project, as the benchmarks use them: read from the files that people apply."""

from __future__ import annotations

from pathlib import Path

from fairlead.decide.admission import faults
from fairlead.model.kinds.policy import SchedulerPolicy, SchedulerPolicySpec
from fairlead.wire.manifest import decode_objects

FOLDER = Path(__file__).resolve().parent.parent / "deploy" / "policies"


def shipped(name: str) -> SchedulerPolicySpec:
    """The one policy in deploy/policies/NAME.yaml."""
    decoded = decode_objects((FOLDER / f"{name}.yaml").read_bytes(), media="yaml")
    assert isinstance(decoded, list), decoded
    (one,) = decoded
    assert isinstance(one.record, SchedulerPolicy), one.info.kind
    assert not (found := faults(one.info, one.record, None)), found
    return one.record.spec
