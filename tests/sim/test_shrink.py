"""A seed that fails becomes a smaller one that fails in the same way, and a page that people can read."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

from msgspec.structs import replace

from fairlead.sim import campaign
from fairlead.sim.scenario import Faults, Scenario, Work
from fairlead.sim.shrink import Shrinking
from fairlead.sim.timeline import lines, marks_of, page
from fairlead.sim.world import Finding, Verdict, run_scenario


def verdict(found: str, strikes: list[str], steps: int = 100_000, at_s: float = 90.0) -> Verdict:
    findings = [Finding(found, "global", at_s, "two of one")] if found else []
    return Verdict(1, "swarm", findings, [], steps, 120.0, "t", 9, {}, {}, {}, None, [], strikes)


def guilty(scenario: Scenario, needed: set[str]) -> bool:
    """Fails while these strikes are carried out."""
    kinds = {strike.partition(":")[0] for strike in needed}
    return all(getattr(scenario.faults, kind) for kind in kinds) and not needed & set(scenario.skips)


def shrunk(run: Callable[[Scenario], Verdict], budget: int = 200) -> Shrinking:
    scenario = Scenario(1, rough_s=120.0, faults=Faults(crash=1.0, cut=1.0, pause=1.0), work=Work(operators=2.0), remains="node")
    work = Shrinking(scenario, "S1", budget, run)
    assert work.shrink()
    return work


STRIKES = [f"{kind}:{number}" for kind in ("crash", "cut", "pause") for number in range(1, 9)]


def left_of(scenario: Scenario) -> list[str]:
    return [s for s in STRIKES if s not in scenario.skips and getattr(scenario.faults, s.partition(":")[0])]


def test_faults_are_dropped_by_kind_and_then_one_by_one_until_only_what_is_needed_is_left() -> None:
    needed = {"crash:3", "cut:7"}
    work = shrunk(lambda s: verdict("S1" if guilty(s, needed) else "", left_of(s)))
    assert work.scenario.faults == Faults(crash=1.0, cut=1.0)
    assert set(left_of(work.scenario)) == needed
    assert work.scenario.work.operators == 0.0
    assert work.scenario.remains == ""
    assert work.scenario.rough_s == 91.0, "nothing after the finding matters"
    assert work.scenario.seeded == (0, 0), "who runs next did not matter either"


def test_another_invariant_is_another_failure() -> None:
    work = shrunk(lambda s: verdict("S1" if s.faults.pause else "S2", left_of(s)))
    assert work.scenario.faults == Faults(pause=1.0)


def test_picks_move_towards_first_come_first_served_as_far_as_the_failure_stays() -> None:
    def run(scenario: Scenario) -> Verdict:
        begin, end = scenario.seeded or (0, 100_000)
        return verdict("S1" if begin <= 60_000 and end > 61_000 else "", left_of(scenario))

    seeded = shrunk(run).scenario.seeded
    assert seeded is not None
    assert seeded[0] <= 60_000 < 61_000 < seeded[1]
    assert seeded[1] - seeded[0] < 100_000


def test_the_budget_bounds_the_runs_and_what_was_gained_is_kept() -> None:
    work = shrunk(lambda s: verdict("S1", left_of(s)), budget=4)
    assert work.runs == 4
    assert work.scenario.rough_s == 91.0


def test_what_does_not_fail_any_more_is_not_shrunk() -> None:
    scenario = Scenario(1)
    work = Shrinking(scenario, "S1", 10, lambda s: verdict("", []))
    assert not work.shrink()
    assert work.scenario is scenario


# --- with a whole platform ---------------------------------------------------------------------------------------------------


def test_a_strike_that_is_left_out_moves_none_of_the_others() -> None:
    scenario = replace(campaign.scenario_of(1, "first", 0.2), settle_s=5.0, quiet_s=1.0, calm_s=1.0, faults=Faults(crash=60.0))
    whole = run_scenario(scenario)
    assert len(whole.strikes) > 2
    less = run_scenario(replace(scenario, skips=(whole.strikes[1],)))
    assert less.strikes == [strike for strike in whole.strikes if strike != whole.strikes[1]]


def test_a_real_failure_shrinks_to_a_file_that_replays_and_a_page_that_needs_nothing_else(tmp_path: Path) -> None:
    scenario = replace(campaign.scenario_of(1, "first", 0.2, "watch-drops"), calm_s=20.0, settle_s=5.0, quiet_s=1.0)
    failed = run_scenario(scenario)
    assert failed.findings
    path = campaign.keep(scenario, failed, tmp_path)
    small = campaign.shrunk(path, 3, lambda text: None)["results"]
    assert small["invariant"] == failed.findings[0].invariant
    assert small["reproduce"] == f"fairlead sim --replay {small['file']}"
    again = campaign.replayed(Path(small["file"]))
    assert again["results"]["same"]
    assert again["results"]["violations"]
    assert any("commits" in line for line in again["timeline"]), "commits are in the timeline"
    assert failed.findings[0].invariant in again["page"]
    assert small["file"] in again["page"], "the command that reproduces it"


# --- the page ----------------------------------------------------------------------------------------------------------------


class Balanced(HTMLParser):
    """Fails on a tag that is not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag


def told() -> Verdict:
    timeline = [
        (1.0, "chaos", "us-east-0 is killed, for 3.5 s"),
        (2.0, "plane us-east", "commits 7: scheduler Bind bindings/risk/<api>"),
        (2.5, "people", "cordons us-east-n0"),
        (3.0, "chaos", "store global is faulty, for 2.0 s"),
        (4.0, "chaos", "us-east/us-east-n1 loses power, for 20.0 s"),
        (5.0, "agent us-east-n0.2", "ended by itself: OSError"),
        (6.0, "checker", "S1 in us-east: slot & slot"),
        (7.0, "chaos", "everything is healed"),
    ]
    return Verdict(9, "swarm", [], [], 10, 30.0, "t", 2, {}, {}, {}, None, timeline)


def test_every_machine_has_a_lane_and_what_broke_lasts_as_long_as_it_did() -> None:
    lanes = {mark.lane: mark for mark in marks_of(told())}
    assert {"us-east-0", "store global", "us-east/us-east-n1", "plane us-east", "people", "agent us-east-n0"} <= set(lanes)
    assert lanes["us-east-0"].lasts_s == 3.5
    assert lanes["us-east/us-east-n1"].lasts_s == 20.0


def test_the_page_is_whole_and_asks_nobody_for_anything() -> None:
    text = page(told(), "fairlead sim --replay x.json")
    parser = Balanced()
    parser.feed(text)
    assert parser.open == []
    assert not re.search(r"https?://|<script|<link|url\(|src=", text)
    assert "&lt;api&gt;" in text
    assert "fairlead sim --replay x.json" in text


def test_lines_say_when_who_and_what() -> None:
    assert next(lines(told())).split(None, 2) == ["1.000", "chaos", "us-east-0 is killed, for 3.5 s"]
