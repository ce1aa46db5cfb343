"""What is wrong with a policy revision is told at once, each fault with its path; a sound manifest means what it says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.decide.admission import faults
from fairlead.decide.plugins import BUILT_IN_GATES, BUILT_INS
from fairlead.decide.policy import CompiledPolicy, compile_policy
from fairlead.decide.scores import SCORE_MAX, TOTAL_MAX, Tier
from fairlead.model.kinds.intent import SpreadRule
from fairlead.model.kinds.policy import PriorityClass, ResidencyRule, SchedulerPolicy, ScoreWeight, WorkloadClass
from fairlead.model.meta import Metadata
from fairlead.model.registry import BY_KIND
from fairlead.wire.manifest import decode_object
from tests.decide.policies import compiled, spec, told, weights

TWO = (PriorityClass(name="high", value=10, preempts=True), PriorityClass(name="low", value=1))
BOLD = PriorityClass(name="high", value=2, may_break_disruption_budgets=True)
WORK = (WorkloadClass(name="w", priority_class_name="high"),)


def test_all_faults_are_told_at_once_each_with_its_path() -> None:
    found = told(
        gates=("cpu", "vibes", "example..gate"),
        scores=(ScoreWeight(name="packing", weight=-1), ScoreWeight(name="charm")),
        extensions=("loose",),
        priority_classes=(PriorityClass(name="a", value=1), PriorityClass(name="a", value=1)),
        workload_classes=(WorkloadClass(name="w", priority_class_name="gone"),),
        residency=(ResidencyRule(tenants=("risk",)),),
        max_pending_per_tenant=0,
        gang_timeout_seconds=0.0,
        probe_size=0,
        max_observation_age_seconds=-1.0,
    )
    assert set(found) == {
        "spec.gates[1]", "spec.gates[2]", "spec.scores[0].weight", "spec.scores[1].name", "spec.extensions[0]",
        "spec.priorityClasses[1].name", "spec.priorityClasses[1].value", "spec.workloadClasses[0].priorityClassName",
        "spec.residency[0].areas", "spec.maxPendingPerTenant", "spec.gangTimeoutSeconds", "spec.probeSize",
        "spec.maxObservationAgeSeconds",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "path", "says"),
    [
        ({"scores": (ScoreWeight(name="charm"),)}, "spec.scores[0].name", "'charm' is not a score; use one of packing"),
        ({"extensions": ("gang",)}, "spec.extensions[0]", "'gang' is not an extension; none is built in"),
        ({"gates": ("cpu", "cpu")}, "spec.gates[1]", "repeats spec.gates[0]"),
        ({"gates": tuple(f"example.g{n}" for n in range(65))}, "spec.gates", "may have 64 entries, has 65"),
        ({"gang_timeout_seconds": float("nan")}, "spec.gangTimeoutSeconds", "got nan"),
        ({"probe_size": 1025}, "spec.probeSize", "must be 1 to 1024"),
        (
            {
                "priority_classes": (PriorityClass(name="high", value=1), PriorityClass(name="low", value=1)),
                "workload_classes": WORK,
            },
            "spec.priorityClasses[1].value",
            "repeats spec.priorityClasses[0]",
        ),
        (
            {
                "priority_classes": (PriorityClass(name="high", value=2, may_break_disruption_budgets=True),),
                "workload_classes": WORK,
            },
            "spec.priorityClasses[0].mayBreakDisruptionBudgets",
            "needs preempts",
        ),
        (
            {"priority_classes": (TWO[1], PriorityClass(name="high", value=2, preempts_only=("low",))), "workload_classes": WORK},
            "spec.priorityClasses[1].preemptsOnly",
            "needs preempts",
        ),
        (
            {
                "priority_classes": (PriorityClass(name="high", value=2, preempts=True, preempts_only=("gone",)),),
                "workload_classes": WORK,
            },
            "spec.priorityClasses[0].preemptsOnly[0]",
            "'gone' is not in spec.priorityClasses, which has high",
        ),
        (
            {
                "priority_classes": (*TWO, PriorityClass(name="mid", value=5, preempts=True, preempts_only=("high",))),
                "workload_classes": WORK,
            },
            "spec.priorityClasses[2].preemptsOnly[0]",
            "'high' has the value 10, which is not below 5",
        ),
        (
            {
                "priority_classes": (
                    PriorityClass(name="high", value=5, preempts=True, preempts_only=("low",)),
                    PriorityClass(name="low", value=1, preemptible=False),
                ),
                "workload_classes": WORK,
            },
            "spec.priorityClasses[0].preemptsOnly[0]",
            "'low' is not preemptible",
        ),
        (
            {
                "priority_classes": (
                    PriorityClass(name="critical-service", value=1),
                    PriorityClass(name="standard", value=2),
                    PriorityClass(name="batch", value=3),
                )
            },
            "spec.workloadClasses",
            "the built-in class best-effort needs priority class best-effort",
        ),
        (
            {"workload_classes": (WorkloadClass(name="w", probe_size=3),)},
            "spec.workloadClasses[0].probeSize",
            "needs strategy probe",
        ),
        (
            {"workload_classes": (WorkloadClass(name="w", scores=(ScoreWeight(name="charm"),)),)},
            "spec.workloadClasses[0].scores[0].name",
            "is not a score",
        ),
        (
            {"workload_classes": (WorkloadClass(name="w", scores=(ScoreWeight(name="cost", weight=1001),)),)},
            "spec.workloadClasses[0].scores[0].weight",
            "must be 0 to 1000, got 1001",
        ),
        (
            {"workload_classes": (WorkloadClass(name="w", max_observation_age_seconds=-1.0),)},
            "spec.workloadClasses[0].maxObservationAgeSeconds",
            "must be above 0",
        ),
        (
            {"scores": (ScoreWeight(name="packing"),), "packing": "Balance"},
            "spec.packing",
            "Balance needs a weight for the score balance",
        ),
        ({"scores": (ScoreWeight(name="packing"),), "spread": "Zone"}, "spec.spread", "Zone needs a weight for the score spread"),
        (
            {"scores": (ScoreWeight(name="packing"),), "workload_classes": (WorkloadClass(name="w", packing="Balance"),)},
            "spec.workloadClasses[0].packing",
            "needs a weight for the score balance",
        ),
        (
            {"scores": (ScoreWeight(name="packing"),), "workload_classes": (WorkloadClass(name="w", spread="Node"),)},
            "spec.workloadClasses[0].spread",
            "needs a weight for the score spread",
        ),
    ],
)
def test_a_revision_that_contradicts_itself_is_told(fields: dict[str, Any], path: str, says: str) -> None:
    found = told(**fields)
    assert says in found[path], found
    assert set(found) == {path}


def test_the_built_in_gates_may_be_listed_and_hold_whether_they_are_or_not() -> None:
    assert told(gates=BUILT_IN_GATES) == {}
    assert compiled(gates=BUILT_IN_GATES).gates == compiled().gates == ()


def test_a_plug_ins_name_is_admitted_and_asked_for_when_compiling() -> None:
    policy = SchedulerPolicy(
        metadata=Metadata(name="r7"),
        spec=spec(
            gates=("example.power",),
            scores=(ScoreWeight(name="example.quiet"),),
            extensions=("example.licences",),
            workload_classes=(WorkloadClass(name="w", scores=(ScoreWeight(name="example.loud"),)),),
        ),
    )
    assert faults(BY_KIND["SchedulerPolicy"], policy, None) == ()
    found = compile_policy(policy.spec)
    assert isinstance(found, tuple)
    assert {fault.path for fault in found} == {
        "spec.gates[0]", "spec.scores[0].name", "spec.extensions[0]", "spec.workloadClasses[0].scores[0].name",
    }  # fmt: skip
    assert "the gate 'example.power' is not loaded here" in found[0].message


def test_weights_that_could_leave_the_bounds_of_a_total_are_refused() -> None:
    class Wide:
        name, tier, text, scope = "example.wide", Tier.HINT, "wide", "node"
        rate_max = TOTAL_MAX // 10

        def rate(self, need: Any, row: Any, view: Any) -> Any:
            return 0

    registry, wrong = BUILT_INS.with_plugins([("scores", "example.wide", Wide())])
    assert wrong == ()
    assert isinstance(compile_policy(spec(scores=(ScoreWeight(name="example.wide", weight=9),)), registry), CompiledPolicy)
    found = compile_policy(spec(scores=(ScoreWeight(name="example.wide", weight=11),)), registry)
    assert isinstance(found, tuple)
    assert found[0].path == "spec.scores"
    assert "must stay below 2^40" in found[0].message
    assert 64 * 1000 * SCORE_MAX < TOTAL_MAX, "what admission lets through without plug-ins can never reach it"


MANIFEST = b"""
apiVersion: fairlead.dev/v1alpha1
kind: SchedulerPolicy
metadata: {name: r7}
spec:
  revision: 7
  gates: [cpu, example.power]
  scores: [{name: packing, weight: 40}, {name: spread, weight: 20}, {name: balance, weight: 30}]
  priorityClasses:
    - {name: urgent, value: 100, preempts: true, preemptsOnly: [spare], mayBreakDisruptionBudgets: true, preemptible: false}
    - {name: spare, value: 1}
  workloadClasses:
    - {name: web, priorityClassName: urgent, spread: Zone, packing: Balance, localAutonomy: true, maxObservationAgeSeconds: 5}
    - {name: idle, priorityClassName: spare, strategy: probe, probeSize: 8, mayBorrow: true, scores: [{name: packing, weight: 0}]}
  residency: [{tenants: [risk], areas: [eu]}]
  maxPendingPerTenant: 500
  gangTimeoutSeconds: 20
"""


def test_a_manifest_is_read_admitted_and_means_what_it_says() -> None:
    found = decode_object(MANIFEST, media="yaml")
    assert not isinstance(found, tuple), found
    policy = found.record
    assert isinstance(policy, SchedulerPolicy)
    assert faults(BY_KIND["SchedulerPolicy"], policy, None) == ()
    gate: Any = SimpleNamespace(name="example.power", tier=Tier.INVARIANT, text="power", check=len, why=len)
    meant = compile_policy(policy.spec, BUILT_INS.with_plugins([("gates", "example.power", gate)])[0])
    assert isinstance(meant, CompiledPolicy)
    assert meant.gates == (gate,)
    web, idle = meant.rules_of("web"), meant.rules_of("idle")
    assert web is not None
    assert idle is not None
    assert (web.priority, web.local_autonomy, web.max_age_ms, idle.probe_size, idle.may_borrow) == (100, True, 5000, 8, True)
    assert weights(meant, "web") == {"spread": 20, "balance": 30}
    assert weights(meant, "idle") == {"spread": 20}
    assert web.spread == (SpreadRule(topology_key="zone", when_unsatisfiable="ScheduleAnyway"),)
    assert meant.max_pending(0) == 500
    assert meant.spec.gang_timeout_seconds == 20


def test_a_manifest_with_an_unknown_field_or_mode_is_told_where() -> None:
    wrong = MANIFEST.replace(b"packing: Balance", b"packing: Sideways").replace(b"preempts: true", b"preempt: true")
    found = decode_object(wrong, media="yaml")
    assert isinstance(found, tuple)
    assert {fault.path for fault in found} == {"spec.workloadClasses[0].packing", "spec.priorityClasses[0].preempt"}
