"""What a policy revision means: who evicts whom, how a class is ranked, where work may run, which revision decides for whom."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.decide.built_in_policy import BUILT_IN
from fairlead.decide.plugins import BUILT_INS
from fairlead.decide.policy import CompiledPolicy, built_in_policy, compile_policy, revision_for, tenant_share
from fairlead.decide.scores import PlainScore, Tier
from fairlead.model.kinds.intent import LabelExpression, Placement, Residency, SpreadRule
from fairlead.model.kinds.policy import Canary, PolicyChannelSpec, PriorityClass, ResidencyRule, ScoreWeight, WorkloadClass
from fairlead.model.kinds.work import Ask
from tests.decide.policies import ANYWHERE, compiled, spec, told, weights

# --- the built-in revision -------------------------------------------------------------------------------------------------


def test_the_built_in_revision_is_number_0_and_has_the_four_classes() -> None:
    policy = built_in_policy()
    assert policy.revision == 0
    assert {name: rules.priority for name, rules in policy.classes.items()} == {
        "critical": 1000, "standard": 500, "batch": 300, "best-effort": 0,
    }  # fmt: skip
    best_effort = policy.rules_of("best-effort")
    assert best_effort is not None
    assert best_effort.may_borrow
    assert [rules.strategy for rules in policy.classes.values()] == ["cycle", "cycle", "cycle", "probe"]
    assert [rules.may_borrow for rules in policy.classes.values()] == [False, False, False, True]


def test_the_built_in_revision_has_nothing_wrong_with_it() -> None:
    fields = {name: getattr(BUILT_IN, name) for name in BUILT_IN.__struct_fields__ if name != "revision"}
    assert told(**fields) == {}
    assert {weight.name for weight in BUILT_IN.scores} <= set(BUILT_INS.scores)


def test_a_revision_that_says_nothing_means_what_the_built_in_one_means() -> None:
    plain, built_in = compiled(), built_in_policy()
    assert plain.classes == built_in.classes
    assert plain.priorities == built_in.priorities
    assert plain.revision == 7


# --- priorities ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("evictor", "victim", "may"),
    [
        (1000, 500, True),
        (1000, 0, True),
        (500, 300, True),
        (500, 500, False),  # never within one class
        (501, 500, False),  # nor by a value in between
        (500, 1000, False),
        (300, 0, True),
        (300, -5, False),  # batch may evict best-effort only, and this is of no class
        (1000, -5, True),
        (0, -5, False),  # best-effort evicts nobody
        (-5, -9, False),
        (2000, 1000, False),  # above the highest is the highest, which is not preemptible
    ],
)
def test_who_may_evict_whom_under_the_built_in_revision(evictor: int, victim: int, may: bool) -> None:
    assert built_in_policy().may_preempt(evictor, victim) is may


@given(st.integers(-20, 1200), st.integers(-20, 1200))
@settings(deadline=None)
def test_a_victim_always_has_a_strictly_lower_priority(evictor: int, victim: int) -> None:
    policy = built_in_policy()
    if policy.may_preempt(evictor, victim):
        assert victim < evictor
        assert not policy.may_preempt(victim, evictor)


def test_a_class_evicts_only_those_it_names_and_never_one_that_is_not_preemptible() -> None:
    policy = compiled(
        priority_classes=(
            PriorityClass(name="top", value=9, preempts=True, preempts_only=("low",)),
            PriorityClass(name="mid", value=5, preempts=True),
            PriorityClass(name="safe", value=3, preemptible=False),
            PriorityClass(name="low", value=1),
        ),
        workload_classes=(WorkloadClass(name="w", priority_class_name="mid"), WorkloadClass(name="none")),
    )
    assert [policy.may_preempt(9, victim) for victim in (5, 3, 1)] == [False, False, True]
    assert [policy.may_preempt(5, victim) for victim in (3, 1)] == [False, True]
    assert not policy.may_preempt(3, 1)
    assert not policy.may_break_budgets(9)
    assert built_in_policy().may_break_budgets(1000)
    assert not built_in_policy().may_break_budgets(999)
    assert not built_in_policy().may_break_budgets(-5)
    assert policy.priority_of("w") == 5
    assert policy.priority_of("w", "top") == 9
    assert policy.priority_of("none") == 0
    assert policy.priority_of("unheard-of") is None
    assert policy.priority_of("w", "unheard-of") is None


# --- classes ---------------------------------------------------------------------------------------------------------------


def test_the_packing_mode_takes_its_opposite_out_and_a_class_may_choose_another() -> None:
    both = (ScoreWeight(name="packing", weight=3), ScoreWeight(name="balance", weight=4), ScoreWeight(name="cost", weight=5))
    policy = compiled(
        scores=both,
        packing="Balance",
        workload_classes=(WorkloadClass(name="even"), WorkloadClass(name="tight", packing="Pack")),
    )
    assert weights(policy, "even") == {"balance": 4, "cost": 5}
    assert weights(policy, "tight") == {"packing": 3, "cost": 5}


def test_a_class_may_weigh_scores_its_own_way_and_leave_one_out_with_0() -> None:
    own = (ScoreWeight(name="cost", weight=0), ScoreWeight(name="image", weight=9), ScoreWeight(name="packing", weight=1))
    policy = compiled(
        scores=(ScoreWeight(name="packing", weight=3), ScoreWeight(name="cost", weight=5)),
        workload_classes=(WorkloadClass(name="own", scores=own), WorkloadClass(name="plain")),
    )
    assert weights(policy, "own") == {"packing": 1, "image": 9}
    assert weights(policy, "plain") == {"packing": 3, "cost": 5}


def test_scores_that_would_rate_all_nodes_alike_are_left_out_of_the_ranking() -> None:
    silent = PlainScore("example.silent", Tier.HINT, "says nothing", lambda need, row, view: 0, applies=lambda need: False)
    registry, _ = BUILT_INS.with_plugins([("scores", "example.silent", silent)])
    found = compile_policy(spec(scores=(ScoreWeight(name="example.silent"), ScoreWeight(name="cost"))), registry)
    assert isinstance(found, CompiledPolicy)
    rules = found.rules_of("standard")
    assert rules is not None
    need: Any = None
    assert [score.name for score, _ in rules.ranked_by(need)] == ["cost"]


def test_a_workload_may_ask_for_fresher_nodes_than_its_class_never_for_staler_ones() -> None:
    policy = compiled(
        max_observation_age_seconds=20.0,
        workload_classes=(WorkloadClass(name="w"), WorkloadClass(name="quick", max_observation_age_seconds=2.5)),
    )
    assert policy.max_age_ms(Ask(workload_class="w")) == 20_000
    assert policy.max_age_ms(Ask(workload_class="quick")) == 2_500
    assert policy.max_age_ms(Ask(workload_class="unheard-of")) == 20_000
    assert policy.max_age_ms(Ask(workload_class="w", max_observation_age_seconds=5.0)) == 5_000
    assert policy.max_age_ms(Ask(workload_class="quick", max_observation_age_seconds=5.0)) == 2_500


def test_a_tenants_own_limit_on_pending_slots_goes_before_the_policys() -> None:
    policy = compiled(max_pending_per_tenant=50)
    assert policy.max_pending(0) == 50
    assert policy.max_pending(7) == 7


# --- residency -------------------------------------------------------------------------------------------------------------

RULES = (
    ResidencyRule(tenants=("risk", "pay"), areas=("eu", "uk")),
    ResidencyRule(labels=(LabelExpression(key="data", values=("personal",)),), areas=("eu", "ch")),
    ResidencyRule(tenants=("pay",), labels=(LabelExpression(key="tier", values=("gold",)),), areas=("uk",)),
)


@pytest.mark.parametrize(
    ("tenant", "labels", "residency", "areas"),
    [
        ("shop", (), ANYWHERE, None),
        ("risk", (), ANYWHERE, {"eu", "uk"}),
        ("shop", (("data", "personal"),), ANYWHERE, {"eu", "ch"}),
        ("risk", (("data", "personal"),), ANYWHERE, {"eu"}),
        ("pay", (("tier", "gold"),), ANYWHERE, {"uk"}),
        ("risk", (("tier", "gold"),), ANYWHERE, {"eu", "uk"}),  # a rule binds whoever matches all it names
        ("pay", (("data", "personal"), ("tier", "gold")), ANYWHERE, set()),  # nothing in common: nowhere
        ("risk", (), Residency(areas=("uk",)), {"uk"}),
        ("risk", (), Residency(areas=("uk", "us")), {"uk"}),  # narrowed, never widened
        ("risk", (), Residency(areas=("us",)), set()),
        ("risk", (), Residency(areas=("us",), enforcement="Preferred"), {"eu", "uk"}),
        ("shop", (), Residency(areas=("us",)), {"us"}),
        ("shop", (), Residency(areas=("us",), enforcement="Preferred"), None),
    ],
)
def test_where_work_may_run(
    tenant: str, labels: tuple[tuple[str, str], ...], residency: Residency, areas: set[str] | None
) -> None:
    assert compiled(residency=RULES).residency_areas(residency, tenant, labels) == areas


_areas = st.sets(st.sampled_from(["eu", "uk", "us", "ch"]), min_size=1).map(lambda areas: tuple(sorted(areas)))


@given(st.lists(_areas, max_size=3), _areas)
@settings(deadline=None)
def test_a_workload_never_widens_what_the_rules_allow(ruled: list[tuple[str, ...]], wanted: tuple[str, ...]) -> None:
    policy = compiled(residency=tuple(ResidencyRule(tenants=("t",), areas=areas) for areas in ruled))
    allowed = policy.residency_areas(ANYWHERE, "t", ())
    narrowed = policy.residency_areas(Residency(areas=wanted), "t", ())
    assert narrowed is not None
    assert narrowed <= set(wanted)
    assert allowed is None or narrowed <= allowed


# --- the channel -----------------------------------------------------------------------------------------------------------


def test_a_canary_decides_for_the_tenants_it_names_and_for_its_share_and_the_current_for_the_rest() -> None:
    named = PolicyChannelSpec(current=3, canary=Canary(revision=4, tenants=("risk",)))
    assert [revision_for(named, tenant) for tenant in ("risk", "pay")] == [4, 3]
    tenants = [f"tenant-{n}" for n in range(2000)]
    for percent in (0, 1, 10, 50, 99, 100):
        shared = PolicyChannelSpec(current=3, canary=Canary(revision=4, share_percent=percent))
        chosen = [tenant for tenant in tenants if revision_for(shared, tenant) == 4]
        assert abs(len(chosen) - 20 * percent) <= 80, percent
        assert chosen == [tenant for tenant in tenants if tenant_share(tenant) < percent]
    assert revision_for(PolicyChannelSpec(current=3), "risk") == 3


def test_a_tenants_share_is_the_same_on_every_machine() -> None:
    assert [tenant_share(tenant) for tenant in ("a", "risk", "")] == [50, 94, 52]
    code = "from fairlead.decide.policy import tenant_share; print(tenant_share('risk'))"
    runs = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert runs == {"94\n"}


def test_spread_of_a_class_is_preferred_where_the_workload_states_none() -> None:
    own = Placement(spread=(SpreadRule(topology_key="hostname"),))
    plain = compiled()
    assert plain.with_spread(Ask()) == Ask()
    assert plain.with_spread(Ask(placement=own)).placement == own
