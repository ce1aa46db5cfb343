"""A policy revision ready for use, and which revision decides for a tenant.

Owns what the fields of a SchedulerPolicy mean: who may evict whom, which scores a class is ranked by, where residency rules let
work run. Never reads a channel or a revision from anywhere: callers hand them in. Used by the scheduler for every decision and
by the authority to judge whether a decision was made under the revision in force.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from typing import Final, Literal

import msgspec

from fairlead.decide.admission.policy import check_policy_spec
from fairlead.decide.built_in_policy import BUILT_IN, filled
from fairlead.decide.classes import matches
from fairlead.decide.extensions import NO_EXTENSIONS, Extensions
from fairlead.decide.fit import Need
from fairlead.decide.plugins import BUILT_INS, GatePlugin, Registry, is_plugin_name
from fairlead.decide.scores import TOTAL_MAX, Score, applies, rate_max
from fairlead.model.commands import Fault
from fairlead.model.kinds.intent import Residency, SpreadRule
from fairlead.model.kinds.policy import (
    PolicyChannelSpec,
    PriorityClass,
    ResidencyRule,
    SchedulerPolicySpec,
    ScoreWeight,
    WorkloadClass,
)
from fairlead.model.kinds.work import Ask
from fairlead.model.report import Report, shown

Strategy = Literal["cycle", "probe", "gang"]
Labels = tuple[tuple[str, str], ...]
Weighted = tuple[tuple[Score, int], ...]

# The mode takes its opposite out of the ranking; a revision may give weights to both and let classes choose.
_OPPOSITE: Final = {"Pack": "balance", "Balance": "packing"}
_SPREAD_KEYS: Final = {"Off": (), "Node": ("hostname",), "Zone": ("zone",), "NodeAndZone": ("zone", "hostname")}


class ClassRules(msgspec.Struct, frozen=True):
    """What a workload class means under one revision."""

    name: str
    priority: int
    strategy: Strategy
    probe_size: int
    may_borrow: bool
    local_autonomy: bool
    max_age_ms: int
    scores: Weighted  # those with a weight, in the policy's order
    spread: tuple[SpreadRule, ...]  # preferred where the workload states none
    overflow_after_ms: int  # 0: never

    def ranked_by(self, need: Need) -> Weighted:
        """Without the scores that would rate all nodes alike for this need."""
        return tuple((score, weight) for score, weight in self.scores if applies(score, need))


class CompiledPolicy(msgspec.Struct, frozen=True):
    revision: int
    spec: SchedulerPolicySpec  # with the built-in parts filled in
    classes: dict[str, ClassRules]
    gates: tuple[GatePlugin, ...]  # beside the built-in ones, which always hold
    extensions: Extensions
    priorities: tuple[PriorityClass, ...]  # by value, lowest first
    priority_values: tuple[int, ...]

    def rules_of(self, workload_class: str) -> ClassRules | None:
        """None: this revision does not know the class, and work of it waits (Misconfigured)."""
        return self.classes.get(workload_class)

    def priority_of(self, workload_class: str, priority_class_name: str = "") -> int | None:
        """The named priority class, else that of the workload class. None: the name is not known."""
        if priority_class_name:
            found = next((p for p in self.priorities if p.name == priority_class_name), None)
            return found.value if found is not None else None
        rules = self.classes.get(workload_class)
        return rules.priority if rules is not None else None

    def priority_class(self, priority: int) -> PriorityClass | None:
        """The class a value belongs to: the highest that is not above it, because bindings outlive the revision that ranked them.
        None: it lies below all."""
        index = bisect_right(self.priority_values, priority)
        return self.priorities[index - 1] if index else None

    def may_preempt(self, evictor_priority: int, victim_priority: int) -> bool:
        """Only a strictly higher class, only one that preempts, and only whom it may."""
        evictor, victim = self.priority_class(evictor_priority), self.priority_class(victim_priority)
        if evictor is None or not evictor.preempts:
            return False
        if victim is None:  # of no class: lower than all, protected by none
            return not evictor.preempts_only
        return victim.value < evictor.value and victim.preemptible and _names(evictor, victim.name)

    def may_break_budgets(self, evictor_priority: int) -> bool:
        evictor = self.priority_class(evictor_priority)
        return evictor is not None and evictor.preempts and evictor.may_break_disruption_budgets

    def residency_areas(self, residency: Residency, tenant: str, labels: Labels) -> frozenset[str] | None:
        """Where the work may run: what all rules that bind it have in common, narrowed by what the workload itself requires.
        None: no rule binds it. Empty: nowhere, and it fails closed."""
        named = dict(labels)
        bounds = [frozenset(rule.areas) for rule in self.spec.residency if _binds(rule, tenant, named)]
        if residency.areas and residency.enforcement == "Required":
            bounds.append(frozenset(residency.areas))
        return frozenset.intersection(*bounds) if bounds else None

    def max_age_ms(self, ask: Ask) -> int:
        """How long ago a node may have been heard. The workload may ask for less than its class allows, never for more."""
        rules = self.classes.get(ask.workload_class)
        bound = rules.max_age_ms if rules is not None else _ms(self.spec.max_observation_age_seconds)
        return min(bound, _ms(ask.max_observation_age_seconds)) if ask.max_observation_age_seconds else bound

    def with_spread(self, ask: Ask) -> Ask:
        """The ask with the class's preferred spread, where it states none of its own. For ranking only: it adds no hard rule."""
        rules = self.classes.get(ask.workload_class)
        if rules is None or not rules.spread or ask.placement.spread:
            return ask
        return msgspec.structs.replace(ask, placement=msgspec.structs.replace(ask.placement, spread=rules.spread))

    def max_pending(self, tenant_limit: int) -> int:
        """A tenant's own limit, where it has one, else the policy's."""
        return tenant_limit or self.spec.max_pending_per_tenant


def _names(evictor: PriorityClass, victim: str) -> bool:
    return not evictor.preempts_only or victim in evictor.preempts_only


def _binds(rule: ResidencyRule, tenant: str, labels: dict[str, str]) -> bool:
    return (not rule.tenants or tenant in rule.tenants) and all(matches(expression, labels) for expression in rule.labels)


def _ms(seconds: float) -> int:
    return int(seconds * 1000)


def missing_plugins(spec: SchedulerPolicySpec, registry: Registry) -> tuple[Fault, ...]:
    """What the revision names and this process has not loaded, each with its path."""
    named = [
        *((f"spec.gates[{n}]", "gate", name, registry.gates) for n, name in enumerate(spec.gates)),
        *((f"spec.scores[{n}].name", "score", s.name, registry.scores) for n, s in enumerate(spec.scores)),
        *((f"spec.extensions[{n}]", "extension", name, registry.extensions) for n, name in enumerate(spec.extensions)),
        *(
            (f"spec.workloadClasses[{number}].scores[{n}].name", "score", score.name, registry.scores)
            for number, workload_class in enumerate(spec.workload_classes)
            for n, score in enumerate(workload_class.scores)
        ),
    ]
    return tuple(
        Fault(path, f"the {sort} {shown(name)} is not loaded here; install the plug-in that has it, then restart")
        for path, sort, name, table in named
        if is_plugin_name(name) and name not in table
    )


def compile_policy(spec: SchedulerPolicySpec, registry: Registry = BUILT_INS) -> CompiledPolicy | tuple[Fault, ...]:
    """The revision ready for use, or everything that is wrong with it."""
    report = Report()
    check_policy_spec(report, spec)
    for fault in missing_plugins(spec, registry):
        report.add(fault.path, fault.message)
    if report.faults():
        return report.faults()
    whole = filled(spec)
    classes = {workload_class.name: _class_rules(whole, workload_class, registry) for workload_class in whole.workload_classes}
    for rules in classes.values():
        total = sum(weight * rate_max(score) for score, weight in rules.scores)
        report.need(total < TOTAL_MAX, "spec.scores", f"for {rules.name} weights times rates reach {total}, must stay below 2^40")
    if report.faults():
        return report.faults()
    extensions = NO_EXTENSIONS
    for name in whole.extensions:
        extensions = extensions.then(registry.extensions[name].points)
    priorities = tuple(sorted(whole.priority_classes, key=lambda priority: priority.value))
    return CompiledPolicy(
        revision=whole.revision,
        spec=whole,
        classes=classes,
        gates=tuple(registry.gates[name] for name in whole.gates if is_plugin_name(name)),
        extensions=extensions,
        priorities=priorities,
        priority_values=tuple(priority.value for priority in priorities),
    )


def _class_rules(spec: SchedulerPolicySpec, workload_class: WorkloadClass, registry: Registry) -> ClassRules:
    priorities = {priority.name: priority.value for priority in spec.priority_classes}
    return ClassRules(
        name=workload_class.name,
        priority=priorities.get(workload_class.priority_class_name, 0),
        strategy=workload_class.strategy,
        probe_size=workload_class.probe_size or spec.probe_size,
        may_borrow=workload_class.may_borrow,
        local_autonomy=workload_class.local_autonomy,
        max_age_ms=_ms(workload_class.max_observation_age_seconds or spec.max_observation_age_seconds),
        scores=_weighted(spec.scores, workload_class.scores, workload_class.packing or spec.packing, registry),
        spread=tuple(
            SpreadRule(topology_key=key, when_unsatisfiable="ScheduleAnyway")
            for key in _SPREAD_KEYS[workload_class.spread or spec.spread]
        ),
        overflow_after_ms=_ms(workload_class.overflow_after_seconds),
    )


def _weighted(policy: tuple[ScoreWeight, ...], own: tuple[ScoreWeight, ...], packing: str, registry: Registry) -> Weighted:
    weights = {score.name: score.weight for score in policy} | {score.name: score.weight for score in own}
    weights.pop(_OPPOSITE[packing], None)
    return tuple((registry.scores[name], weight) for name, weight in weights.items() if weight)


def built_in_policy(registry: Registry = BUILT_INS) -> CompiledPolicy:
    """Revision 0."""
    compiled = compile_policy(BUILT_IN, registry)
    assert isinstance(compiled, CompiledPolicy), compiled
    return compiled


def revision_for(channel: PolicyChannelSpec, tenant: str, region: str = "") -> int:
    """The one revision that decides for this tenant in this region: the canary's if it is tried there, on a tenant that is named
    or falls in its share (on all, where neither is said); else the current. An empty region is the global plane."""
    canary = channel.canary
    if canary is None or (canary.regions and region not in canary.regions):
        return channel.current
    everyone = bool(canary.regions) and not canary.tenants and canary.share_percent == 0
    tried = everyone or tenant in canary.tenants or tenant_share(tenant) < canary.share_percent
    return canary.revision if tried else channel.current


def tenant_share(tenant: str) -> int:
    """0..99, the same on every machine and for every revision: a tenant in a share of 10 stays in one of 20."""
    return int.from_bytes(hashlib.sha256(tenant.encode()).digest()[:8], "big") % 100
