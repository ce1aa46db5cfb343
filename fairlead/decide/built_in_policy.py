"""The policy that holds where nobody wrote one: revision 0, in force while a plane has no channel, and the source of whatever
another revision leaves out. Read by policy.py and by admission."""

from __future__ import annotations

from typing import Final

import msgspec

from fairlead.model.kinds.policy import PriorityClass, SchedulerPolicySpec, ScoreWeight, WorkloadClass

# What a workload asked for itself outweighs what is good for the fleet; failing nodes are avoided before either of the rest.
# Those that apply only where an ask names something cost nothing elsewhere, so a plain slot is ranked by two. Cost and
# fragmentation are left to fleets that want them.
BUILT_IN: Final = SchedulerPolicySpec(
    revision=0,
    scores=(
        ScoreWeight(name="locality", weight=100),
        ScoreWeight(name="affinity", weight=100),
        ScoreWeight(name="spread", weight=100),
        ScoreWeight(name="stability", weight=60),
        ScoreWeight(name="packing", weight=40),
        ScoreWeight(name="balance", weight=40),
        ScoreWeight(name="image", weight=10),
    ),
    priority_classes=(
        PriorityClass(name="critical-service", value=1000, preempts=True, preemptible=False, may_break_disruption_budgets=True),
        PriorityClass(name="standard", value=500, preempts=True),
        PriorityClass(name="batch", value=300, preempts=True, preempts_only=("best-effort",)),
        PriorityClass(name="best-effort", value=0),
    ),
    workload_classes=(
        WorkloadClass(name="critical", priority_class_name="critical-service", local_autonomy=True),
        WorkloadClass(name="standard", priority_class_name="standard"),
        WorkloadClass(name="batch", priority_class_name="batch"),
        WorkloadClass(name="best-effort", priority_class_name="best-effort", strategy="probe", may_borrow=True),
    ),
)


def filled(spec: SchedulerPolicySpec) -> SchedulerPolicySpec:
    """The revision with the built-in scores and classes in place of those it leaves out."""
    return msgspec.structs.replace(
        spec,
        scores=spec.scores or BUILT_IN.scores,
        priority_classes=spec.priority_classes or BUILT_IN.priority_classes,
        workload_classes=spec.workload_classes or BUILT_IN.workload_classes,
    )
