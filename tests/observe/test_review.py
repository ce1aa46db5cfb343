"""The readiness review: what turns a row green, and everything that turns it red by itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.registry import NAMES
from fairlead.drills.catalogue import DRILLS
from fairlead.observe.audit import CHECKED
from fairlead.observe.evidence import Record
from fairlead.observe.readiness import CLAIMS, EIGHT, EXCUSED, LIVENESS, MET_LEAST, SAFETY, SETTLED, TESTS, Ask, Claim, Kind
from fairlead.observe.review import AGE_MAX_S, AHEAD_MAX_S, GREEN, RED, Row, review
from fairlead.sim.coverage import ELSEWHERE, FAULTS, NOT_INJECTED, SAFEGUARDS

NOW_S = 1_800_000_000.0
BUILD = "1+abc"
DRILL = Ask("drill loss", "fairlead drill loss", most=(("timings_s.serving", 300.0),))
SIM = Ask("sim run", "fairlead sim run", ("S1",), ("F10",), (("seeds", 100), ("checked.S1", 1)))
CAMPAIGN: dict[str, Any] = {"seeds": 100, "checked": {"S1": 5}, "violations": [], "mismatches": 0, "void": []}
CAMPAIGN |= {"faults": {"F10": 9, "F3": 1}, "refusals": {"NoFit": 9}}


def record(name: str, figures: dict[str, Any], **changes: Any) -> Record:
    made = Record(name, "", f"fairlead {name} --json", NOW_S - 60, BUILD, True, figures)
    return made._replace(**changes)


def drilled(serving: float = 17.0, **changes: Any) -> Record:
    return record("drill loss", {"timings_s": {"serving": serving}}, **changes)


def campaign(key: str = "a", **figures: Any) -> Record:
    return record("sim run", CAMPAIGN | figures, key=key)


def row_of(records: list[Record], *asks: Ask) -> Row:
    claim = Claim("C", "it works", (Kind("drill", asks or (DRILL,)),))
    return review([claim], records, NOW_S, BUILD)[0]


def state_of(records: list[Record], *asks: Ask) -> str:
    row = row_of(records, *asks)
    assert (row.status == GREEN) == all(piece.is_present for piece in row.pieces)
    return next((piece.state for piece in row.pieces if not piece.is_present), "present")


def test_evidence_of_this_build_that_is_fresh_and_passed_is_green_and_shows_its_figure_and_command() -> None:
    row = row_of([drilled()])
    assert row.status == GREEN
    assert row.next == []
    (piece,) = row.pieces
    assert (piece.detail, piece.command, piece.time_s) == ("timings_s.serving 17.0", "fairlead drill loss --json", NOW_S - 60)


@pytest.mark.parametrize(
    ("records", "state"),
    [
        ([], "missing"),
        ([drilled(build="1+other")], "other build"),
        ([drilled(time_s=NOW_S - AGE_MAX_S - 1)], "old"),
        ([drilled(time_s=NOW_S + AHEAD_MAX_S + 1)], "old"),
        ([drilled(passed=False)], "failed"),
        ([drilled(301.0)], "short"),
        ([record("drill loss", {})], "short"),
        ([record("drill other", {"timings_s": {"serving": 1.0}})], "missing"),
        ([drilled(time_s=NOW_S - AGE_MAX_S)], "present"),
    ],
)
def test_what_is_missing_old_foreign_failed_or_short_is_red_and_says_what_to_run(records: list[Record], state: str) -> None:
    assert state_of(records) == state
    assert row_of(records).next == ([] if state == "present" else ["fairlead drill loss"])


def test_the_last_run_counts_a_pass_before_a_failure_does_not_hide_it() -> None:
    assert state_of([drilled(time_s=NOW_S - 20), drilled(time_s=NOW_S - 10, passed=False)]) == "failed"
    assert state_of([drilled(time_s=NOW_S - 10), drilled(time_s=NOW_S - 20, passed=False)]) == "present"
    early = record("drill loss", {}, time_s=NOW_S - 5, passed=False)
    assert state_of([drilled(), early]) == "failed", "one that failed before it could measure counts too"


def test_a_benchmark_that_measured_another_part_says_nothing() -> None:
    other = record("drill loss", {"other": 1}, time_s=NOW_S - 5)
    assert state_of([drilled(), other]) == "present"


def test_a_kind_nothing_can_show_is_red_and_asks_for_no_command() -> None:
    row = row_of([drilled()], Ask("", "no command measures it"))
    assert (row.status, row.next) == (RED, [])
    assert row.pieces[0].detail == "no command measures it"


def test_every_kind_is_needed() -> None:
    claim = Claim("C", "it works", (Kind("drill", (DRILL,)), Kind("simulation", (SIM,)), Kind("nobody asks", ())))
    both = Claim("C", "it works", claim.kinds[:2])
    assert [row.status for row in review([both, claim], [drilled(), campaign()], NOW_S, BUILD)] == [GREEN, RED]
    assert [row.status for row in review([both], [drilled()], NOW_S, BUILD)] == [RED]
    assert review([Claim("C", "nothing asked", ())], [drilled()], NOW_S, BUILD)[0].status == RED


# --- campaigns add up --------------------------------------------------------------------------------------------------------


def test_campaigns_over_different_seeds_add_up_and_the_same_one_twice_does_not() -> None:
    half = {"seeds": 50}
    assert state_of([campaign("a", **half), campaign("b", **half)], SIM) == "present"
    assert state_of([campaign("a", **half), campaign("a", **half)], SIM) == "short"


def test_a_promise_broken_in_any_campaign_of_this_build_stands() -> None:
    broken = campaign("a", violations=[{"invariant": "S1", "where": "seed 7"}])
    clean = campaign("b")._replace(time_s=NOW_S)
    again = campaign("a")._replace(time_s=NOW_S)
    for later in (clean, again):
        assert state_of([broken, later], SIM) == "failed"
    assert state_of([broken._replace(build="1+old"), clean], SIM) == "present", "that was another build"
    other = campaign("a", violations=[{"invariant": "S2", "where": "seed 7"}])
    assert state_of([other, clean], SIM) == "present", "it speaks about S2"
    assert state_of([other, clean], SIM._replace(invariants=())) == "failed", "every finding speaks against one that names none"


def test_campaigns_that_did_not_meet_a_fault_prove_nothing_about_it() -> None:
    seldom = campaign("a", faults={"F10": MET_LEAST - 1, "F3": 9})
    assert state_of([seldom], SIM) == "short"
    assert f"F10 {MET_LEAST - 1}" in row_of([seldom], SIM).pieces[0].detail
    assert state_of([seldom, campaign("b", faults={"F10": 1})], SIM) == "present", "together they met it often enough"
    assert state_of([seldom, seldom._replace(time_s=NOW_S)], SIM) == "short", "the same one twice is one"
    assert state_of([campaign("a", faults={"F10": MET_LEAST})], SIM) == "present", "F3 is not what it rests on"
    assert state_of([campaign("a")], SIM._replace(met=("NoFit",))) == "present", "a guard counts like a fault"


def test_a_campaign_that_excused_too_many_seeds_proves_nothing_alone() -> None:
    excusing, ask = campaign("a", void=["F3", EXCUSED]), SIM._replace(met=("F10", EXCUSED))
    assert state_of([excusing], ask) == "short"
    assert state_of([excusing, campaign("b")], ask) == "present"


def test_a_campaign_that_is_not_deterministic_proves_nothing() -> None:
    assert state_of([campaign(mismatches=1)], SIM) == "failed"
    later = campaign("b", seeds=500)._replace(time_s=NOW_S)
    assert state_of([campaign("b", mismatches=1), later], SIM) == "failed", "nor does a larger one of the same seeds after it"


def test_a_smaller_campaign_takes_nothing_from_a_larger_one_before_it_or_after_it() -> None:
    large, small = campaign("mixed 1-100 2.0"), campaign("mixed 1-24 2.0", seeds=24, faults={"F10": 1})
    for other in (small, small._replace(key="mixed 101-124 2.0"), small._replace(key=large.key)):
        assert state_of([large, other._replace(time_s=NOW_S)], SIM) == "present"
        assert state_of([other._replace(time_s=NOW_S - 90), large], SIM) == "present"


def test_a_seed_that_two_campaigns_ran_counts_once() -> None:
    most, some = campaign("mixed 1-60 2.0", seeds=60, faults={"F10": 4}), campaign("mixed 41-80 2.0", seeds=40, faults={"F10": 4})
    assert "seeds is 60" in row_of([most, some], SIM._replace(met=())).pieces[0].detail
    assert "F10 4" in row_of([most, some], SIM).pieces[0].detail
    for apart in ("mixed 61-100 2.0", "swarm 41-80 2.0", "mixed 41-80 1.0"):
        assert state_of([most, some._replace(key=apart)], SIM) == "present", "other seeds, or other runs of them"


def test_what_a_small_campaign_found_is_not_hidden_by_the_large_one_that_has_its_seeds() -> None:
    found = campaign("mixed 7-7 2.0", seeds=1, violations=[{"invariant": "S1", "where": "seed 7"}])
    assert state_of([found, campaign("mixed 1-100 2.0")._replace(time_s=NOW_S)], SIM) == "failed"


def test_of_one_planes_audits_the_one_of_most_revisions_counts() -> None:
    ask = Ask("audit verify", "fairlead audit verify", ("S1",), least=(("revisions", 1_000),))
    whole, young = (record("audit verify", {"revisions": count, "checked": {"S1": 1}}, key="global") for count in (1_500, 30))
    assert state_of([whole, young._replace(time_s=NOW_S)], ask) == "present"
    assert state_of([young, young._replace(key="us-east")], ask) == "short"


# --- what does not add up ----------------------------------------------------------------------------------------------------


def test_a_smaller_run_does_not_replace_one_of_full_size_unless_it_failed() -> None:
    ask = Ask("bench load", "fairlead bench load", least=(("params.nodes", 1_000),), most=(("seconds", 5),))
    full, small = (record("bench load", {"seconds": 3, "params": {"nodes": nodes}}) for nodes in (1_000, 10))
    assert state_of([full, small._replace(time_s=NOW_S)], ask) == "present"
    assert state_of([small], ask) == "short"
    assert state_of([full, small._replace(time_s=NOW_S, passed=False)], ask) == "failed"
    slow = record("bench load", {"seconds": 9, "params": {"nodes": 2_000}}, time_s=NOW_S)
    assert state_of([full, slow], ask) == "short", "how well the last one went counts"


@pytest.mark.parametrize("name", sorted(SETTLED))
def test_what_comes_out_the_same_whenever_it_is_run_stays_failed(name: str) -> None:
    ask = Ask(name, f"fairlead {name}", least=(("planted", 10),))
    broken, well = record(name, {"planted": 10}, passed=False), record(name, {"planted": 40}, time_s=NOW_S)
    assert state_of([broken, well], ask) == "failed"
    assert state_of([well, record(name, {"planted": 1}, time_s=NOW_S)], ask) == "present"
    assert state_of([broken._replace(build="1+other"), well], ask) == "present"


def test_a_row_that_is_green_in_the_end_says_how_often_it_failed() -> None:
    detail = row_of([drilled(passed=False), drilled(time_s=NOW_S)]).pieces[0].detail
    assert detail == "timings_s.serving 17.0 (failed in 1 of 2 runs of this build)"


# --- whatever is kept --------------------------------------------------------------------------------------------------------

AT_ANY_SPEED = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
NUMBERS = st.one_of(st.none(), st.integers(-5, 400), st.text(max_size=3))
RECORDS = st.builds(
    Record,
    name=st.sampled_from(["drill loss", "sim run", "else"]),
    key=st.sampled_from(["a", "b"]),
    command=st.just("fairlead x"),
    time_s=st.sampled_from([NOW_S - 10 * 86_400, NOW_S - 60, NOW_S, NOW_S + 86_400]),
    build=st.sampled_from([BUILD, "1+other"]),
    passed=st.booleans(),
    figures=st.fixed_dictionaries({}, optional={
        "timings_s": st.fixed_dictionaries({"serving": NUMBERS}), "seeds": st.integers(0, 200),
        "checked": st.fixed_dictionaries({"S1": st.integers(0, 3)}), "void": st.sampled_from([[], ["F10"]]),
        "violations": st.sampled_from([[], [{"invariant": "S1", "where": "seed 1"}]]), "mismatches": st.integers(0, 1),
    }),
)  # fmt: skip


@AT_ANY_SPEED
@given(st.lists(RECORDS, max_size=6))
def test_green_is_only_ever_from_this_build_fresh_passed_and_within_bounds(records: list[Record]) -> None:
    both = Claim("C", "it works", (Kind("drill", (DRILL,)), Kind("simulation", (SIM,))))
    (row,) = review([both], records, NOW_S, BUILD)
    usable = [one for one in records if one.build == BUILD and 0 <= NOW_S - one.time_s <= AGE_MAX_S]
    if row.status == GREEN:
        assert any(one.name == "drill loss" and one.passed for one in usable)
        sims = [one for one in usable if one.name == "sim run"]
        assert sims
        assert not any(one.figures.get("violations") for one in sims)
    else:
        assert row.next


@AT_ANY_SPEED
@given(st.lists(RECORDS, max_size=6))
def test_a_review_depends_on_nothing_but_what_is_kept_and_ages_to_red(records: list[Record]) -> None:
    assert review(CLAIMS, records, NOW_S, BUILD) == review(CLAIMS, records, NOW_S, BUILD)
    assert row_of(records, DRILL) == row_of([one for one in records if one.name == DRILL.record], DRILL)
    later = review([Claim("C", "x", (Kind("drill", (DRILL, SIM)),))], records, NOW_S + 30 * 86_400, BUILD)
    assert later[0].status == RED


# --- the tables --------------------------------------------------------------------------------------------------------------


def test_the_eight_claims_and_every_promise_are_asked_for_with_every_kind_of_evidence() -> None:
    kinds = {claim.id: {kind.name for kind in claim.kinds} for claim in EIGHT}
    assert kinds == {
        "C1": {"capacity model", "failover drill", "queue and readiness metrics"},
        "C2": {"authoritative commit path", "invariant test", "replay after timeout"},
        "C3": {"quota model", "preemption policy", "audit of emergency capacity"},
        "C4": {"pending reasons", "scale-up limits", "simulation"},
        "C5": {"revision metadata", "owner references", "finalizers", "repair conditions"},
        "C6": {"scoped overrides", "TTL", "audit", "runbooks", "cleanup checks"},
        "C7": {"generation", "policy revision", "resource version", "reasons", "status"},
        "C8": {"invariant map", "budget model", "conflict and skew analysis"},
    }
    assert [claim.id for claim in SAFETY] == [f"S{number}" for number in range(1, 21)]
    assert [claim.id for claim in LIVENESS] == [f"L{number}" for number in range(1, 13)]
    assert all(kind.asks for claim in CLAIMS for kind in claim.kinds)


ASKS = [ask for claim in CLAIMS for kind in claim.kinds for ask in kind.asks]


def test_every_group_of_tests_is_asked_for() -> None:
    assert {f"test {name}" for name in TESTS} <= {ask.record for ask in ASKS}


def test_what_is_asked_for_can_be_made() -> None:
    """A drill, a benchmark, a group of tests, a fault or a guard that is gone would leave a claim red for ever."""
    known = {f"drill {name}" for name in DRILLS} | {f"test {name}" for name in TESTS} | {f"bench {name}" for name in NAMES}
    known |= {"sim run", "sim mutants", "sim sieve", "audit verify", "replay verify"}
    assert sorted({ask.record for ask in ASKS if ask.record} - known) == []
    met = {*SAFEGUARDS, *ELSEWHERE, *FAULTS, EXCUSED} - set(NOT_INJECTED)
    assert sorted({name for ask in ASKS for name in ask.met} - met) == []
    audited = {name for ask in ASKS if ask.record == "audit verify" for name in ask.invariants}
    assert sorted(audited - set(CHECKED)) == []


def test_a_promise_that_histories_are_asked_for_counts_them_as_a_real_run() -> None:
    """But for those that a run is made for: a cut region for S12, a restore for S16."""
    asking = {claim.id for claim in SAFETY for kind in claim.kinds for ask in kind.asks if ask.record == "audit verify"}
    assert sorted(set(CHECKED) - asking) == ["S12", "S16"]
