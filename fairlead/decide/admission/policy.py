"""What scheduler policies, their channel and people's overrides must keep. Called through RULES in this package."""

from __future__ import annotations

from typing import Final

from fairlead.decide.admission.placement import check_expression
from fairlead.decide.admission.report import Report, camel, shown
from fairlead.decide.fit import GATES
from fairlead.model.kinds.policy import Override, OverrideSpec, PolicyChannel, SchedulerPolicy, SchedulerPolicySpec

OVERRIDE_TTL_S_MAX: Final = 14_400  # four hours: a shift's length, so whoever asked is still there when it ends
REASON_MAX: Final = 1_024
WEIGHT_MAX: Final = 1_000
PRIORITY_MAX: Final = 1_000_000_000  # as in Kubernetes
REVISION_MAX: Final = 1 << 53
AGE_S_MAX: Final = 86_400
CHANNEL_NAME: Final = "default"


def check_scheduler_policy(report: Report, new: SchedulerPolicy, old: SchedulerPolicy | None) -> None:
    spec = new.spec
    report.within("spec.revision", spec.revision, 1, REVISION_MAX)
    if new.metadata.name != f"r{spec.revision}":
        report.add("metadata.name", f"must be 'r{spec.revision}', as spec.revision says, got {shown(new.metadata.name)}")
    _check_gates(report, spec)
    _check_named(report, spec)
    if not 0 < spec.max_observation_age_seconds <= AGE_S_MAX:
        message = f"must be above 0 and at most {AGE_S_MAX}, got {spec.max_observation_age_seconds}"
        report.add("spec.maxObservationAgeSeconds", message)
    for index, rule in enumerate(spec.residency):
        path = f"spec.residency[{index}]"
        report.labels(f"{path}.tenants", rule.tenants)
        report.labels(f"{path}.areas", rule.areas)
        report.need(bool(rule.areas), f"{path}.areas", "needs at least one area; to forbid all, do not admit the tenant")
        report.need(bool(rule.tenants or rule.labels), path, "needs tenants or labels: say whom it binds")
        for number, expression in enumerate(rule.labels):
            check_expression(report, f"{path}.labels[{number}]", expression)


def _check_gates(report: Report, spec: SchedulerPolicySpec) -> None:
    known = [gate.name for gate in GATES]
    report.unique("spec.gates", spec.gates)
    for index, name in enumerate(spec.gates):
        if name not in known:  # A gate nobody runs would be a promise nobody keeps.
            report.add(f"spec.gates[{index}]", f"{shown(name)} is not a gate; use one of {', '.join(known)}")


def _check_named(report: Report, spec: SchedulerPolicySpec) -> None:
    for field in ("scores", "priority_classes", "workload_classes"):
        path, names = f"spec.{camel(field)}", [item.name for item in getattr(spec, field)]
        report.unique(path, names, "name")
        for index, name in enumerate(names):
            report.label(f"{path}[{index}].name", name)
    for index, score in enumerate(spec.scores):
        report.within(f"spec.scores[{index}].weight", score.weight, 0, WEIGHT_MAX)
    for index, priority in enumerate(spec.priority_classes):
        report.within(f"spec.priorityClasses[{index}].value", priority.value, -PRIORITY_MAX, PRIORITY_MAX)
    known = {priority.name for priority in spec.priority_classes}
    for index, workload_class in enumerate(spec.workload_classes):
        wanted = workload_class.priority_class_name
        if wanted and wanted not in known:
            choices = ", ".join(sorted(known)) or "none"
            message = f"{shown(wanted)} is not in spec.priorityClasses, which has {choices}"
            report.add(f"spec.workloadClasses[{index}].priorityClassName", message)


def check_policy_channel(report: Report, new: PolicyChannel, old: PolicyChannel | None) -> None:
    spec = new.spec
    if new.metadata.name != CHANNEL_NAME:
        report.add("metadata.name", f"must be {CHANNEL_NAME!r}: a plane has one channel, got {shown(new.metadata.name)}")
    report.within("spec.current", spec.current, 1, REVISION_MAX)
    report.unique("spec.history", spec.history)
    for index, revision in enumerate(spec.history):
        report.within(f"spec.history[{index}]", revision, 1, REVISION_MAX)
    if spec.canary is None:
        return
    report.within("spec.canary.revision", spec.canary.revision, 1, REVISION_MAX)
    report.within("spec.canary.sharePercent", spec.canary.share_percent, 0, 100)
    report.labels("spec.canary.tenants", spec.canary.tenants)
    if spec.canary.revision == spec.current:
        report.add("spec.canary.revision", f"is the current revision, {spec.current}; name the one to try")
    if not spec.canary.tenants and spec.canary.share_percent == 0:
        report.add("spec.canary", "needs tenants or sharePercent: say on whom it is tried")


def check_override(report: Report, new: Override, old: Override | None) -> None:
    spec = new.spec
    report.within("spec.ttlSeconds", spec.ttl_seconds, 1, OVERRIDE_TTL_S_MAX)
    if not spec.reason.strip():
        report.add("spec.reason", "is required: say why, for the audit")
    elif len(spec.reason) > REASON_MAX:
        report.add("spec.reason", f"may have {REASON_MAX} characters, has {len(spec.reason)}")
    if spec.approver and spec.approver == spec.requester:
        report.add("spec.approver", f"must be another person than the requester, {shown(spec.requester)}")
    scope = spec.scope
    if not (scope.tenants or scope.workloads or scope.regions or scope.zones):
        report.add(
            "spec.scope", "needs at least one of tenants, workloads, regions and zones; an override for everything is none"
        )
    for field, names in (("tenants", scope.tenants), ("regions", scope.regions), ("zones", scope.zones)):
        report.labels(f"spec.scope.{field}", names)
    report.unique("spec.scope.workloads", scope.workloads)
    for index, name in enumerate(scope.workloads):
        report.need(bool(name), f"spec.scope.workloads[{index}]", "is empty; name a workload")
    if old is not None:
        _check_override_change(report, spec, old.spec)


def _check_override_change(report: Report, new: OverrideSpec, old: OverrideSpec) -> None:
    """An approval is for what the approver read: nothing may change after it, and the requester never."""
    if old.approver and new != old:
        report.add("spec", f"may not change after {shown(old.approver)} approved it; ask for another override")
    elif old.requester:
        report.unchanged("spec.requester", new.requester, old.requester)
