"""Policy revisions made of a few fields: compiled, or told what is wrong with them."""

from __future__ import annotations

from typing import Any

from fairlead.decide.admission import faults
from fairlead.decide.policy import CompiledPolicy, compile_policy
from fairlead.model.kinds.intent import Residency
from fairlead.model.kinds.policy import SchedulerPolicy, SchedulerPolicySpec
from fairlead.model.meta import Metadata
from fairlead.model.registry import BY_KIND

ANYWHERE = Residency()


def spec(**fields: Any) -> SchedulerPolicySpec:
    return SchedulerPolicySpec(revision=7, **fields)


def compiled(**fields: Any) -> CompiledPolicy:
    found = compile_policy(spec(**fields))
    assert isinstance(found, CompiledPolicy), found
    return found


def told(**fields: Any) -> dict[str, str]:
    """The faults that admission and compiling both name, by path."""
    policy = SchedulerPolicy(metadata=Metadata(name="r7"), spec=spec(**fields))
    admitted = {fault.path: fault.message for fault in faults(BY_KIND["SchedulerPolicy"], policy, None)}
    found = compile_policy(policy.spec)
    assert isinstance(found, CompiledPolicy) == (not admitted)
    return admitted


def weights(policy: CompiledPolicy, name: str) -> dict[str, int]:
    rules = policy.rules_of(name)
    assert rules is not None
    return {score.name: weight for score, weight in rules.scores}
