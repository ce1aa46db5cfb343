"""What scheduler policies, their channel and people's overrides must keep. Called through RULES in this package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from fairlead.decide.admission.placement import check_expression
from fairlead.decide.built_in_policy import filled
from fairlead.decide.plugins import BUILT_IN_GATES, BUILT_INS, NAME_WORDS, is_plugin_name, is_well_formed
from fairlead.model.kinds.policy import (
    Override,
    OverrideScope,
    OverrideSpec,
    PolicyChannel,
    PriorityClass,
    SchedulerPolicy,
    SchedulerPolicySpec,
    ScoreWeight,
)
from fairlead.model.quantity import BadQuantity
from fairlead.model.report import COUNT_MAX, SECONDS_MAX, Ranges, Report, shown
from fairlead.model.resources import NOTHING, Resources

OVERRIDE_TTL_S_MAX: Final = 14_400  # four hours: a shift's length, so whoever asked is still there when it ends
REASON_MAX: Final = 1_024
WEIGHT_MAX: Final = 1_000
PRIORITY_MAX: Final = 1_000_000_000  # as in Kubernetes
REVISION_MAX: Final = 1 << 53
AGE_S_MAX: Final = 86_400
PROBE_MAX: Final = 1_024  # more than this is a cycle
NAMED_MAX: Final = 64  # of one sort in one revision; each score is a column operation per shape
GANG_TIMEOUT_S_MAX: Final = 86_400
CANARY_TTL_S_MAX: Final = 14_400  # as of an override, and for the same reason
CHANNEL_NAME: Final = "default"
EVERYONE: Final = "*"  # as a tenant of an override's scope: all of them
APPROVED_KINDS: Final = frozenset({"recovery", "emergency-quota"})  # lift what protects others, so a second person must agree

_NAME_IT: Final = "use a plug-in's name"
COST_MAX: Final = 1_000
_MOVES: Final = Ranges(("max_moves", 1, 16), ("per_hour", 1, 1_000), ("max_cost", 1, 16 * COST_MAX))
_LIMITS: Final = Ranges(
    ("max_pending_per_tenant", 1, COUNT_MAX), ("gang_timeout_seconds", 1, GANG_TIMEOUT_S_MAX), ("probe_size", 1, PROBE_MAX),
    ("max_override_ttl_seconds", 1, OVERRIDE_TTL_S_MAX),
)  # fmt: skip


def check_scheduler_policy(report: Report, new: SchedulerPolicy, old: SchedulerPolicy | None) -> None:
    spec = new.spec
    report.within("spec.revision", spec.revision, 1, REVISION_MAX)
    if new.metadata.name != f"r{spec.revision}":
        report.add("metadata.name", f"must be 'r{spec.revision}', as spec.revision says, got {shown(new.metadata.name)}")
    check_policy_spec(report, spec)


def check_policy_spec(report: Report, spec: SchedulerPolicySpec) -> None:
    """All that can be said of a revision without knowing which plug-ins are loaded."""
    _check_names(report, "gate", "spec.gates", spec.gates, BUILT_IN_GATES)
    _check_weights(report, "spec.scores", spec.scores)
    _check_names(report, "extension", "spec.extensions", spec.extensions, ())
    report.ranges("spec", spec, _LIMITS)
    if spec.defragmentation is not None:
        report.ranges("spec.defragmentation", spec.defragmentation, _MOVES)
        for name, cost in spec.defragmentation.costs.items():
            report.within(f"spec.defragmentation.costs.{name}", cost, 1, COST_MAX)
    _check_age(report, "spec.maxObservationAgeSeconds", spec.max_observation_age_seconds)
    _check_priority_classes(report, spec)
    _check_workload_classes(report, spec)
    _check_modes(report, spec)
    for index, rule in enumerate(spec.residency):
        path = f"spec.residency[{index}]"
        report.labels(f"{path}.tenants", rule.tenants)
        report.labels(f"{path}.areas", rule.areas)
        report.need(bool(rule.areas), f"{path}.areas", "needs at least one area; to forbid all, do not admit the tenant")
        report.need(bool(rule.tenants or rule.labels), path, "needs tenants or labels: say whom it binds")
        for number, expression in enumerate(rule.labels):
            check_expression(report, f"{path}.labels[{number}]", expression)


def _check_names(report: Report, sort: str, path: str, names: Sequence[str], built_in: Sequence[str], field: str = "") -> None:
    """Each once, and each a built-in one or a plug-in's; whether that plug-in is there, only the plane knows."""
    report.unique(path, names, field)
    report.need(len(names) <= NAMED_MAX, path, f"may have {NAMED_MAX} entries, has {len(names)}")
    for index, name in enumerate(names):
        where = f"{path}[{index}]{'.' + field if field else ''}"
        if is_plugin_name(name):
            report.need(is_well_formed(name), where, f"the name of a plug-in must be {NAME_WORDS}, got {shown(name)}")
        elif name not in built_in:  # A gate nobody runs would be a promise nobody keeps.
            use = f"use one of {', '.join(built_in)}, or a plug-in's name" if built_in else f"none is built in; {_NAME_IT}"
            article = "an" if sort[0] in "ae" else "a"
            report.add(where, f"{shown(name)} is not {article} {sort}; {use}")


def _check_weights(report: Report, path: str, weights: Sequence[ScoreWeight]) -> None:
    _check_names(report, "score", path, [score.name for score in weights], tuple(BUILT_INS.scores), "name")
    for index, score in enumerate(weights):
        report.within(f"{path}[{index}].weight", score.weight, 0, WEIGHT_MAX)


def _check_age(report: Report, path: str, seconds: float) -> None:
    if not 0 < seconds <= AGE_S_MAX:
        report.add(path, f"must be above 0 and at most {AGE_S_MAX}, got {seconds}")


def _check_class_names(report: Report, path: str, names: Sequence[str]) -> None:
    report.unique(path, names, "name")
    report.need(len(names) <= NAMED_MAX, path, f"may have {NAMED_MAX} entries, has {len(names)}")
    for index, name in enumerate(names):
        report.label(f"{path}[{index}].name", name)


def _check_priority_classes(report: Report, spec: SchedulerPolicySpec) -> None:
    path, classes = "spec.priorityClasses", spec.priority_classes
    _check_class_names(report, path, [priority.name for priority in classes])
    report.unique(path, [priority.value for priority in classes], "value")
    by_name = {priority.name: priority for priority in classes}
    for index, priority in enumerate(classes):
        where = f"{path}[{index}]"
        report.within(f"{where}.value", priority.value, -PRIORITY_MAX, PRIORITY_MAX)
        if not priority.preempts and priority.may_break_disruption_budgets:
            report.add(f"{where}.mayBreakDisruptionBudgets", "needs preempts: it evicts nobody")
        if not priority.preempts and priority.preempts_only:
            report.add(f"{where}.preemptsOnly", "needs preempts: it evicts nobody")
        report.unique(f"{where}.preemptsOnly", priority.preempts_only)
        for number, name in enumerate(priority.preempts_only):
            wrong = _wrong_victim(priority, name, by_name)
            report.need(not wrong, f"{where}.preemptsOnly[{number}]", f"{shown(name)} {wrong}")


def _wrong_victim(evictor: PriorityClass, name: str, by_name: dict[str, PriorityClass]) -> str:
    victim = by_name.get(name)
    if victim is None:
        return f"is not in spec.priorityClasses, which has {', '.join(sorted(by_name))}"
    if victim.value >= evictor.value:
        return f"has the value {victim.value}, which is not below {evictor.value}"
    return "" if victim.preemptible else "is not preemptible"


def _check_workload_classes(report: Report, spec: SchedulerPolicySpec) -> None:
    path, classes = "spec.workloadClasses", spec.workload_classes
    _check_class_names(report, path, [workload_class.name for workload_class in classes])
    known = {priority.name for priority in filled(spec).priority_classes}
    for index, workload_class in enumerate(classes):
        where, wanted = f"{path}[{index}]", workload_class.priority_class_name
        if wanted and wanted not in known:
            choices = ", ".join(p.name for p in spec.priority_classes) or f"none; built in are {', '.join(sorted(known))}"
            report.add(f"{where}.priorityClassName", f"{shown(wanted)} is not in spec.priorityClasses, which has {choices}")
        _check_weights(report, f"{where}.scores", workload_class.scores)
        if workload_class.max_observation_age_seconds != 0:
            _check_age(report, f"{where}.maxObservationAgeSeconds", workload_class.max_observation_age_seconds)
        if workload_class.probe_size and workload_class.strategy != "probe":
            report.add(f"{where}.probeSize", f"needs strategy probe; {workload_class.strategy} looks at all nodes")
        report.within(f"{where}.probeSize", workload_class.probe_size, 0, PROBE_MAX)
        report.within(f"{where}.overflowAfterSeconds", workload_class.overflow_after_seconds, 0, SECONDS_MAX)
    if spec.priority_classes and not classes:
        lost = [c for c in filled(spec).workload_classes if c.priority_class_name not in known]
        for workload_class in lost:
            message = f"the built-in class {workload_class.name} needs priority class {workload_class.priority_class_name}"
            report.add(path, f"{message}, which spec.priorityClasses leaves out; name your own workload classes")


def _check_modes(report: Report, spec: SchedulerPolicySpec) -> None:
    """A mode that no score carries out would be a promise nobody keeps."""
    weights = {score.name: score.weight for score in filled(spec).scores}
    if spec.packing == "Balance" and not weights.get("balance"):
        report.add("spec.packing", "Balance needs a weight for the score balance in spec.scores")
    if spec.spread != "Off" and not weights.get("spread"):
        report.add("spec.spread", f"{spec.spread} needs a weight for the score spread in spec.scores")
    for index, workload_class in enumerate(spec.workload_classes):
        own = {**weights, **{score.name: score.weight for score in workload_class.scores}}
        path = f"spec.workloadClasses[{index}]"
        score = {"Pack": "packing", "Balance": "balance"}.get(workload_class.packing)
        if score and not own.get(score):
            report.add(f"{path}.packing", f"{workload_class.packing} needs a weight for the score {score}")
        if workload_class.spread not in ("", "Off") and not own.get("spread"):
            report.add(f"{path}.spread", f"{workload_class.spread} needs a weight for the score spread")


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
        report.add("spec.canary.revision", f"is the current revision: {spec.current} decides for everybody already; name another")
    report.labels("spec.canary.regions", spec.canary.regions)
    report.within("spec.canary.ttlSeconds", spec.canary.ttl_seconds, 1, CANARY_TTL_S_MAX)
    if not spec.canary.tenants and spec.canary.share_percent == 0 and not spec.canary.regions:
        report.add("spec.canary", "needs tenants, sharePercent or regions: say on whom it is tried")


def person_of(name: str) -> str:
    """Whoever asks at a server's local socket and agrees with a token is one person."""
    return name.removeprefix("break-glass:")


def check_override(report: Report, new: Override, old: Override | None) -> None:
    spec = new.spec
    report.within("spec.ttlSeconds", spec.ttl_seconds, 1, OVERRIDE_TTL_S_MAX)
    if not spec.reason.strip():
        report.add("spec.reason", "is required: say why, for the audit")
    elif len(spec.reason) > REASON_MAX:
        report.add("spec.reason", f"may have {REASON_MAX} characters, has {len(spec.reason)}")
    if spec.approver and person_of(spec.approver) == person_of(spec.requester):
        report.add("spec.approver", f"must be another person than the requester, {shown(spec.requester)}")
    scope = spec.scope
    if not (scope.tenants or scope.workloads or scope.regions or scope.zones):
        report.add(
            "spec.scope", "needs at least one of tenants, workloads, regions and zones; an override for everything is none"
        )
    named = tuple(name for name in scope.tenants if name != EVERYONE)
    for field, names in (("tenants", named), ("regions", scope.regions), ("zones", scope.zones)):
        report.labels(f"spec.scope.{field}", names)
    _check_override_kind(report, spec)
    if spec.kind == "emergency-quota" and (old is None or old.spec != spec):  # One that stands must be able to end.
        _check_amounts(report, spec.parameters)
    report.unique("spec.scope.workloads", scope.workloads)
    for index, name in enumerate(scope.workloads):
        report.need(bool(name), f"spec.scope.workloads[{index}]", "is empty; name a workload")
    if old is not None:
        _check_override_change(report, spec, old.spec)


def _check_override_kind(report: Report, spec: OverrideSpec) -> None:
    """What the kind needs to mean something, and what is too much for it."""
    scope, path = spec.scope, "spec.scope"
    if EVERYONE in scope.tenants:
        report.need(len(scope.tenants) == 1, f"{path}.tenants", f"{EVERYONE} is all of them; name it alone")
        report.need(spec.kind not in APPROVED_KINDS, f"{path}.tenants", f"{spec.kind} is for tenants that are named, not for all")
    if spec.kind == "zone-avoidance":
        report.need(bool(scope.zones or scope == OverrideScope()), f"{path}.zones", "name the zones to be avoided")
    else:
        report.need(not scope.zones, f"{path}.zones", f"{spec.kind} holds for whole regions; zones are for zone-avoidance")
    if spec.kind == "recovery":
        report.need(bool(scope.regions or scope.workloads), path, "recovery is of regions or workloads; name them")
    if spec.kind == "emergency-quota":
        report.need(bool(spec.parameters), "spec.parameters", "say how much more: such as cpu: 20")


def _check_amounts(report: Report, parameters: Mapping[str, str]) -> None:
    """Of an emergency quota, one by one, as they are read when it is in force: one that cannot be would leave all of it out."""
    for name, text in parameters.items():
        try:
            added = Resources.parse({name: text})
        except BadQuantity as wrong:
            report.add(f"spec.parameters[{name}]", str(wrong))
        else:
            report.need(added != NOTHING, f"spec.parameters[{name}]", f"{shown(text)} adds nothing; say how much more")


def _check_override_change(report: Report, new: OverrideSpec, old: OverrideSpec) -> None:
    """An approval is for what the approver read: nothing may change after it, and the requester never."""
    if old.approver and new != old:
        report.add("spec", f"may not change after {shown(old.approver)} approved it; ask for another override")
    elif old.requester:
        report.unchanged("spec.requester", new.requester, old.requester)
