"""What makes a campaign void: a fault or a refusal that was met too seldom, and too many excuses."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fairlead.client.plane import Expired
from fairlead.decide.fit import GATES, S6_GATES
from fairlead.model.commands import Accepted, Bind, BindMany, Put, Refused, Report
from fairlead.model.kinds.slot import Token
from fairlead.model.lifecycle import SlotState
from fairlead.model.refusals import REFUSALS
from fairlead.ports import SystemClock
from fairlead.sim import campaign, kept
from fairlead.sim.coverage import (
    ACTED,
    APART,
    ASKED_IN,
    CALL_FLOOR,
    CALLS_ENOUGH,
    CHECK_FLOOR,
    CHECKED,
    ELSEWHERE,
    FAULTS,
    FLOORS,
    KINDS,
    NOT_COUNTED,
    NOT_INJECTED,
    NOT_MET,
    OWN,
    SAFEGUARDS,
    STRUCK,
    STRUCK_IN,
    floor_of,
    unmet_calls,
    void_reasons,
)
from fairlead.sim.machines import Machines
from fairlead.sim.platform import ENDS, NO_FEED, kinds_of
from fairlead.sim.profiles import PROFILES
from fairlead.sim.scenario import Scenario
from fairlead.sim.spells import CALLS
from fairlead.sim.tally import Tally, guard_of
from fairlead.sim.world import Verdict, run_scenario

ENOUGH_FAULTS = dict.fromkeys((*FAULTS, *KINDS), 1_000)
AT_AGENTS = {"AgentFence", "AgentLeader", "AgentToken"}  # what no authority says
ENOUGH_REFUSALS = dict.fromkeys(SAFEGUARDS, 100)


def names(reasons: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(reason["kind"], reason["name"]) for reason in reasons]


def test_a_campaign_that_met_everything_often_enough_is_not_void() -> None:
    assert not void_reasons(ENOUGH_FAULTS, ENOUGH_REFUSALS, 2_000, 40)


def test_one_fault_or_refusal_below_its_floor_makes_it_void() -> None:
    assert names(void_reasons({**ENOUGH_FAULTS, "F5": 999}, ENOUGH_REFUSALS, 2_000, 0)) == [("fault", "F5")]
    assert names(void_reasons(ENOUGH_FAULTS, {**ENOUGH_REFUSALS, "NoFit": 99}, 2_000, 0)) == [("refusal", "NoFit")]


def test_more_than_two_in_a_hundred_excused_seeds_make_it_void() -> None:
    assert names(void_reasons(ENOUGH_FAULTS, ENOUGH_REFUSALS, 2_000, 41)) == [("excused", "seeds")]


def test_floors_follow_the_number_of_seeds_and_are_never_nothing() -> None:
    assert [floor_of(1_000, seeds) for seeds in (2_000, 1_000, 3, 1)] == [1_000, 500, 2, 1]
    assert floor_of(100, 1) == 1
    assert ("fault", "F1") in names(void_reasons({}, ENOUGH_REFUSALS, 1, 0)), "not one is too few of anything"


def test_what_is_not_injected_is_not_asked_for_and_says_why() -> None:
    assert all(name in FAULTS and why for name, why in NOT_INJECTED.items())
    assert not void_reasons(dict.fromkeys(STRUCK, 1_000), ENOUGH_REFUSALS, 2_000, 0)


def test_one_way_to_strike_does_not_stand_for_the_others() -> None:
    assert names(void_reasons({**ENOUGH_FAULTS, "F11/gap": 999}, ENOUGH_REFUSALS, 2_000, 0)) == [("fault", "F11/gap")]
    assert names(void_reasons({**ENOUGH_FAULTS, "unavailable": 0}, ENOUGH_REFUSALS, 2_000, 0)) == [("fault", "unavailable")]
    assert {name for _, name in ENDS} == {name for name in KINDS if name.startswith("F11/")}


def test_every_refusal_that_is_asked_for_is_one_that_can_be_counted() -> None:
    others = {*AT_AGENTS, "HeartbeatFenced", "Repeated", "StoreContended", "StoreFenced"}
    assert {name.partition("/")[0] for name in SAFEGUARDS} - others <= set(REFUSALS)
    gates = {
        name.partition("/")[2] for name in {*SAFEGUARDS, *(name for own in OWN.values() for name in own)} if "NoFit/" in name
    }
    assert {gate.name for gate in S6_GATES} <= gates <= {gate.name for gate in GATES}
    assert not set(NOT_MET) & set(SAFEGUARDS), "what no campaign can meet is not asked of one"


def test_every_reason_for_a_refusal_is_asked_for_once_or_says_why_not() -> None:
    for reason in REFUSALS:
        places = [place for place in (SAFEGUARDS, NOT_MET, ELSEWHERE) if reason in place]
        assert len(places) == 1, f"{reason} is in {len(places)} of the lists of fairlead/sim/coverage.py"
        assert places[0][reason]
    assert {name.partition("/")[0] for name in (*NOT_MET, *ELSEWHERE)} - AT_AGENTS <= set(REFUSALS)


def test_what_only_a_directed_profile_meets_names_a_profile_there_is() -> None:
    for guard, why in ELSEWHERE.items():
        named = why[why.rindex("(") + 1 : -1].removeprefix("profiles ").removeprefix("profile ").split(", ")
        assert set(named) <= set(PROFILES), why
        assert all(guard in OWN[profile] for profile in named), f"a campaign of {named} is not asked for {guard}"


def test_a_campaign_in_which_a_promise_was_hardly_asked_is_void() -> None:
    enough = dict.fromkeys((*CHECKED, *ACTED), 1_000)
    assert not void_reasons(ENOUGH_FAULTS, ENOUGH_REFUSALS, 2_000, 0, checked=enough)
    thin = void_reasons(ENOUGH_FAULTS, ENOUGH_REFUSALS, 2_000, 0, checked={**enough, "S20": 999})
    assert names(thin) == [("promise", "S20")]
    without = {name: count for name, count in enough.items() if name not in NOT_COUNTED}
    assert not void_reasons(ENOUGH_FAULTS, ENOUGH_REFUSALS, 2_000, 0, checked=without)
    assert ("promise", "S20") in names(campaign.summed([verdict_of(1, "swarm")])["void"])


def test_what_is_asked_each_second_of_several_planes_does_not_stand_for_what_is_asked_at_commits() -> None:
    enough = dict.fromkeys((*CHECKED, *ACTED), 1_000)
    for name in ("S5", "S6", *APART):
        thin = void_reasons(ENOUGH_FAULTS, ENOUGH_REFUSALS, 2_000, 0, checked={**enough, name: FLOORS.get(name, CHECK_FLOOR) - 1})
        assert names(thin) == [("promise", name)]
    calm = run_scenario(campaign.scenario_of(1, "calm", 0.3)).checked
    assert calm["S5/planes"] > 100, "each second"
    assert calm.get("S5", 0) < 100, "each offer"


def test_a_campaign_says_at_which_calls_to_a_store_servers_were_killed() -> None:
    verdict = verdict_of(1, "swarm")
    verdict.counts |= {"killed_after_store_call": 2, "killed_after_store_call/3": 2}
    found = campaign.summed([verdict])
    assert list(found["store_calls"]["after"]) == [str(call) for call in range(1, CALLS)]
    assert {call: count for call, count in found["store_calls"]["after"].items() if count} == {"3": 2}
    assert not any(found["store_calls"]["before"].values())
    assert found["faults"]["killed_after_store_call"] == 2
    thin = void_reasons({**ENOUGH_FAULTS, "killed_before_store_call": CALL_FLOOR - 1}, ENOUGH_REFUSALS, 2_000, 0)
    assert names(thin) == [("fault", "killed_before_store_call")]


def test_a_call_at_which_no_server_was_killed_makes_a_campaign_void_where_that_is_no_chance() -> None:
    each = {str(call): 20 for call in range(1, CALLS)}
    assert unmet_calls({"before": each, "after": each}) == []
    assert names(unmet_calls({"before": {**each, "7": 0}, "after": each})) == [("fault", "killed_before_store_call/7")]
    assert unmet_calls({"before": dict.fromkeys(each, 0), "after": {"1": CALLS_ENOUGH - 1, "2": 0}}) == []


@pytest.mark.parametrize("profile", STRUCK_IN)
def test_a_campaign_of_a_profile_in_which_its_own_fault_did_not_strike_is_void(profile: str) -> None:
    found = campaign.summed([Verdict(1, profile, [], [], 1, 1.0, "t", 1, {}, {}, {}, 1.0, recovered_s=[1.0])], directed=profile)
    assert {("fault", name) for name in STRUCK_IN[profile]} <= set(names(found["void"]))
    assert set(STRUCK_IN[profile]) <= set(found["faults"])


def test_one_seed_in_seventeen_is_run_again_and_must_come_out_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runs: Counter[int] = Counter()
    other = 2 * campaign.REPEAT_EVERY

    def run(scenario: Scenario, **_: object) -> Verdict:
        runs[scenario.seed] += 1
        steps = runs[scenario.seed] if scenario.seed == other else 1
        return Verdict(scenario.seed, "calm", [], [], steps, 1.0, "t", 1, {}, {}, {}, 1.0)

    monkeypatch.setattr(campaign, "run_scenario", run)
    results = campaign.run(list(range(1, 46)), "calm", 1.0, 1, tmp_path, SystemClock(), lambda text: None)["results"]
    assert (results["repeated"], results["mismatches"]) == (45 // 17, [other])
    few = campaign.run([other - 2, other - 1, other], "calm", 1.0, 1, tmp_path, SystemClock(), lambda text: None)["results"]
    assert (few["repeated"], few["mismatches"]) == (1, [other]), "of fewer than seventeen the last is"


def test_a_directed_campaign_is_not_asked_what_it_is_not_directed_at_but_for_its_excuses() -> None:
    assert void_reasons({}, {}, 100, 2, directed="grants") == []
    assert names(void_reasons({}, {}, 100, 3, directed="grants")) == [("excused", "seeds")]


def test_a_directed_campaign_that_did_not_meet_what_it_is_directed_at_is_void() -> None:
    met = {"GangIncomplete": 100, "GangRefused": 99}
    assert void_reasons({}, met, 2_000, 0, directed="gangs") == [
        {"kind": "refusal", "name": "GangRefused", "counted": 99, "floor": 100}
    ]
    assert void_reasons({}, met, 1_000, 0, directed="gangs") == []


@pytest.mark.parametrize("profile", ASKED_IN)
def test_a_campaign_of_lost_history_in_which_nothing_of_it_was_asked_is_void(profile: str) -> None:
    met = dict.fromkeys((*OWN.get(profile, ()), *STRUCK_IN.get(profile, ())), 2_000)
    assert names(void_reasons(met, met, 2_000, 0, directed=profile, checked={"S16": 999})) == [("promise", "S16")]
    assert void_reasons(met, met, 2_000, 0, directed=profile, checked={"S16": 1_000}) == []


def test_what_a_profile_is_directed_at_is_a_guard_that_is_counted_and_told_of() -> None:
    assert set(OWN) <= set(PROFILES)
    assert {name for own in OWN.values() for name in own} <= {*SAFEGUARDS, *ELSEWHERE}


def test_where_one_reason_has_several_guards_the_answer_says_which() -> None:
    alone = Refused("NoFit", "", {"node": "n", "reasons": {"zones": "its zone is not allowed"}})
    both = Refused("NoFit", "", {"node": "n", "reasons": {"zones": "", "cpu": ""}})
    bind, override = Bind("risk", "api-0", 1, 1, "n", 1, 1), Put("Override", None)
    assert guard_of(bind, alone) == ("NoFit/zones",)
    assert guard_of(bind, both) == (), "nobody knows which of them was needed"
    assert guard_of(bind, Refused("Expired", "")) == ("Expired/reservation",)
    assert guard_of(override, Refused("Expired", "")) == ("Expired/override",)
    tally = Tally(cast(Machines, SimpleNamespace(on_death=[])))
    tally.answered(BindMany((bind, bind)), Accepted(1, refused=((0, alone), (1, both))))
    tally.answered(bind, alone)
    assert tally.total() == Counter({"NoFit/zones": 2})


def test_a_report_of_a_session_that_is_over_is_not_lost_among_the_leases() -> None:
    report = Report("risk", "api-0", Token(1, 1, 1), SlotState.STARTING)
    assert guard_of(report, Refused("FencedOut", "", {"session": 3})) == ("FencedOut/session",)
    assert guard_of(report, Refused("FencedOut", "", {"epoch": 3, "holder": "x"})) == ()


def test_every_profile_is_in_the_mix_but_those_without_faults_of_their_own() -> None:
    assert set(PROFILES) - set(campaign.MIX) == {"calm", "first", "full"}
    assert set(campaign.MIX) <= set(PROFILES)
    timed = sum(profile in campaign.RECOVERS for profile in campaign.MIX)
    assert len(campaign.MIX) % 2, "each of two jobs gets some of every profile"
    assert 0.25 < timed / len(campaign.MIX) < 0.4


def test_how_a_feed_ended_is_told_by_what_production_says_of_it() -> None:
    for said in (
        ("F11/connection", "the connection broke; list again"),
        ("F11/server", "this server stopped leading; list again from another"),
        ("F11/server", "this watch fell too far behind; list again"),
        ("F11/gap", "position 4 is older than the oldest in memory, 9"),
        ("F11/gap", "revision 4 is no longer in memory"),
    ):
        assert kinds_of(Expired(said[1], 0)) == ["F11", said[0]]
    assert kinds_of(Expired("something else", 0)) == ["F11"]
    assert kinds_of(Expired("Invalid: follow: there is no kind 'bindings' for this caller", 0)) == [], "it was no feed"
    root = Path(kept.__file__).parent.parent
    sources = "".join(path.read_text() for part in ("authority", "client", "compose") for path in (root / part).glob("*.py"))
    for words in (NO_FEED, *(words for words, _ in ENDS)):
        assert words in sources, f"nobody says {words!r} any more"


def test_each_rule_of_where_a_slot_may_be_is_asked_at_commit_in_the_profile_for_it() -> None:
    verdict = run_scenario(campaign.scenario_of(1, "areas", 1.0))
    assert not verdict.findings
    assert {name for name in OWN["areas"] if name.startswith("NoFit/")} <= set(verdict.refusals)


def verdict_of(seed: int, profile: str, *recovered_s: float) -> Verdict:
    return Verdict(seed, profile, [], [], 1, 1.0, "t", 1, {"F_region": 1}, {}, {}, 1.0, recovered_s=list(recovered_s))


def test_a_campaign_about_recovery_says_how_long_it_took_and_is_void_where_nothing_was_recovered() -> None:
    found = campaign.summed([verdict_of(n, "regions", float(n), 20.0) for n in range(1, 101)], directed="regions")
    assert (found["recovered"], found["regions_lost"]) == (200, 100)
    assert (found["recovered_p50_s"], found["recovered_p99_s"], found["recovered_max_s"]) == (20.0, 99.0, 100.0)
    assert found["void"] == []
    assert names(campaign.summed([verdict_of(1, "regions")], directed="regions")["void"]) == [("recovery", "services")]
    assert campaign.summed([verdict_of(1, "grants")], directed="grants")["void"] == []


def test_a_campaign_that_was_interrupted_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ran: list[int] = []

    def run(scenario: Scenario, **_: object) -> Verdict:
        if len(ran) == 3:
            raise KeyboardInterrupt
        ran.append(scenario.seed)
        return verdict_of(scenario.seed, scenario.profile, 10.0 * scenario.seed)

    def go(seeds: int, minutes: float = 1.0) -> dict[str, Any]:
        moved: list[int] = []
        told = campaign.run(
            list(range(1, seeds + 1)), "regions", minutes, 1, tmp_path, SystemClock(), lambda text: None,
            lambda done, failed: moved.append(done), tmp_path / "kept",
        )  # fmt: skip
        results: dict[str, Any] = told["results"]
        return results | {"moved": moved}

    monkeypatch.setattr(campaign, "run_scenario", run)
    monkeypatch.setattr(campaign, "_repeated", lambda *_: {})
    with pytest.raises(KeyboardInterrupt):
        go(5)
    with (tmp_path / "kept").open("ab") as file:
        file.write(b'\n{"scenario": {"seed": 4')  # it was writing when it ended
    ran.clear()
    results = go(5)
    assert ran == [4, 5]
    assert (results["seeds"], results["resumed"], results["recovered_max_s"], results["moved"]) == (5, 3, 50.0, [4, 5])
    ran.clear()
    assert (go(5)["resumed"], ran) == (5, [])
    assert go(2, minutes=2.0)["resumed"] == 0, "another length is another campaign"
    ran.clear()
    monkeypatch.setattr(kept, "source", lambda without: "other")
    assert go(2)["resumed"] == 0, "nor does what other code came to say anything of this"


def test_what_counts_as_not_simulated_is_not_loaded_by_a_worker() -> None:
    words = (
        "import sys; from fairlead.sim.campaign import scenario_of; from fairlead.sim.world import run_scenario;"
        "run_scenario(scenario_of(3, 'regions', 0.2)); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True, timeout=120)
    names = [name.removeprefix("fairlead.").replace(".", "/") for name in done.stdout.split() if name.startswith("fairlead.")]
    loaded = [file for name in names for file in (f"{name}.py", f"{name}/__init__.py")]
    assert "controllers/node.py" in loaded
    assert [file for file in loaded if file.startswith(kept.NOT_SIMULATED)] == []
    root = Path(kept.__file__).parent.parent
    assert all(list(root.glob(f"{start}*")) for start in kept.NOT_SIMULATED), "a name that nothing begins with leaves nothing out"


def test_refusals_of_a_life_that_ended_still_count() -> None:
    machines = SimpleNamespace(on_death=[])
    tally = Tally(cast(Machines, machines))
    first, second = cast(Any, object()), cast(Any, object())
    tally.watch(first, lambda: {"NoFit": 2})
    tally.watch(second, lambda: {"NoFit": 1})
    tally.add("StoreFenced")
    (died,) = machines.on_death
    died(first, False)
    died(first, False)
    assert tally.total() == Counter({"NoFit": 3, "StoreFenced": 1})
