"""`fairlead sim`: what is printed and how it ends, for each way a campaign can come out. The simulator itself is tests/sim's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairlead.cli.frame import CHECK_FAILED, ERROR, OK, World
from tests.cli.runs import Ran, fairlead, world

VIOLATION = {"invariant": "S1", "seed": 7, "detail": "two of one"}
THIN = {"kind": "fault", "name": "F5", "counted": 0, "floor": 2}


class Fake:
    def __init__(self, violations: list[Any], void: list[Any]) -> None:
        self.results = {
            "seeds": 2, "simulated_s": 10.0, "wall_s": 1.0, "steps": 100, "commits": 9, "faults": {"F1": 3}, "checked": {"S1": 4},
            "refusals": {"NoFit": 1}, "violations": violations, "void": void,
        }  # fmt: skip
        self.asked: list[Any] = []
        self.rows: list[dict[str, Any]] = []

    def names(self, of: str) -> list[str]:
        return {"profile": ["mixed", "regions"], "mutant": ["no-fence"], "controller": ["rollout"]}[of]

    def run(
        self, seeds: list[int], profile: str, minutes: float, jobs: int, out: Path, say: Any, advanced: Any, kept: Path | None
    ) -> dict[str, Any]:
        self.asked.append((seeds, profile, kept))
        advanced(1, 0)
        say("seed 7: S1\nreproduce: fairlead sim --replay sim-swarm-7.json")
        advanced(2, 1)
        return {"name": "sim run", "params": {}, "environment": {}, "results": self.results}

    def replay(self, path: Path) -> dict[str, Any]:
        results = self.results | {"same": True}
        return {"name": "sim replay", "results": results, "timeline": ["1.0 chaos it breaks"], "page": "<!doctype html>page"}

    def shrink(self, path: Path, budget: int, say: Any) -> dict[str, Any]:
        if path.read_text() != "failed":
            raise ValueError("nothing was found in this run")
        return {"name": "sim shrink", "results": {"runs": budget, "file": "x-small.json"}}

    def sieve(self, names: Any, patterns: Any, points: int, jobs: int, out: Path, say: Any) -> dict[str, Any]:
        row = {"controller": names[0], "pattern": patterns[0], "calls": 9, "tried": points, "agreed_max_s": 1.0}
        failed = [{"at": 1, "found": ["L4: no"]}] if self.results["violations"] else []
        return {"name": "sim sieve", "results": {"controllers": [row | {"failed": failed}]}}

    def mutants(self, names: Any, seeds: int, quick: bool, jobs: int, density: int, say: Any) -> dict[str, Any]:
        self.asked.append((names, seeds, density))
        return {"name": "sim mutants", "params": {}, "environment": {}, "results": {"mutants": self.rows}}

    def determinism(self, seeds: list[int], profile: str, minutes: float, say: Any) -> dict[str, Any]:
        results = {"seeds": len(seeds), "mismatches": self.results["violations"]}
        return {"name": "sim determinism", "params": {}, "environment": {}, "results": results}


def sim(*arguments: object, violations: list[Any] | None = None, void: list[Any] | None = None) -> Ran:
    within: World = world()._replace(simulator=Fake(violations or [], void or []))
    return fairlead("sim", *arguments, within=within)


def test_a_campaign_that_found_nothing_and_met_everything_is_green() -> None:
    ran = sim("run", "--seeds", 2, "--json")
    assert ran.code == OK
    assert ran.json["results"]["seeds"] == 2


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_violation_fails_and_the_one_command_that_reproduces_it_is_printed(form: tuple[str, ...]) -> None:
    ran = sim("run", "--seeds", 2, *form, violations=[VIOLATION])
    assert ran.code == CHECK_FAILED
    assert "fairlead sim --replay sim-swarm-7.json" in ran.err
    assert "2 of 2 seeds, 1 failed" in ran.err, "off a terminal the bar is lines"


def test_a_campaign_that_is_too_thin_fails_and_says_in_what() -> None:
    ran = sim("run", "--seeds", 2, void=[THIN])
    assert ran.code == CHECK_FAILED
    assert "fault F5 0 of 2" in ran.err
    assert sim("run", "--seeds", 2, "--thin", void=[THIN]).code == OK


def test_a_replay_writes_a_page_where_one_is_asked_for(tmp_path: Path) -> None:
    kept, page = tmp_path / "kept.json", tmp_path / "page.html"
    kept.write_text("failed")
    ran = sim("replay", kept, "--html", page, violations=[VIOLATION])
    assert ran.code == CHECK_FAILED
    assert "it breaks" in ran.out
    assert page.read_text() == "<!doctype html>page"
    assert "page" not in sim("replay", kept, "--json").json


def test_shrinking_says_what_is_left_and_refuses_what_did_not_fail(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    kept.write_text("failed")
    assert "x-small.json" in sim("shrink", kept, "--budget", 5).out
    kept.write_text("passed")
    ran = sim("shrink", kept)
    assert ran.code == ERROR
    assert "nothing was found" in ran.err


def test_a_sieve_fails_where_a_point_did_not_come_right() -> None:
    assert sim("sieve", "--controller", "rollout", "--points", 2).code == OK
    ran = sim("sieve", "--controller", "rollout", "--pattern", "stale", violations=[VIOLATION])
    assert ran.code == CHECK_FAILED
    assert "stale" in ran.out


def test_seeds_that_come_out_otherwise_when_they_are_run_again_fail_a_campaign() -> None:
    fake = Fake([], [])
    fake.results["mismatches"] = [7]
    for form in ((), ("--json",)):
        ran = fairlead("sim", "run", "--seeds", 2, *form, within=world()._replace(simulator=fake))
        assert ran.code == CHECK_FAILED
        assert "not deterministic" in ran.err
        assert "[7]" in ran.err


FOUND = {
    "name": "no-fence", "profile": "strays", "guard": "a fence", "found": True, "found_by": "S9", "seeds_needed": 2, "within": 5,
    "late": False, "hunted": 2, "showed": 1, "density": 0.5, "control": [],
}  # fmt: skip


@pytest.mark.parametrize("form", [(), ("--json",)])
@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({}, OK),
        ({"found": False, "found_by": "", "seeds_needed": 0, "showed": 0, "density": 0.0}, CHECK_FAILED),
        ({"seeds_needed": 6, "late": True}, CHECK_FAILED),
        ({"control": ["L4"]}, CHECK_FAILED),
    ],
)
def test_a_planted_bug_must_be_found_by_the_seed_that_is_stated_in_worlds_that_are_well_without_it(
    changed: dict[str, Any], code: int, form: tuple[str, ...]
) -> None:
    fake = Fake([], [])
    fake.rows = [FOUND, FOUND | changed]
    ran = fairlead("sim", "mutants", "no-fence", "--density", 3, *form, within=world()._replace(simulator=fake))
    assert ran.code == code
    assert fake.asked == [(("no-fence",), 0, 3)], "without --seeds, as many as are stated for each"
    if form:
        assert ran.json["results"]["mutants"] == fake.rows
    else:
        assert f"{fake.rows[1]['showed']}/2" in ran.out


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_traces_that_differ_between_interpreters_fail(form: tuple[str, ...]) -> None:
    assert sim("determinism", "--seeds", 2, *form).code == OK
    ran = sim("determinism", "--seeds", 2, *form, violations=[{"seed": 7, "why": "its process ended"}])
    assert ran.code == CHECK_FAILED
    assert "its process ended" in ran.out


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("run", "--profile", "regoins"), "there is no profile 'regoins'"),
        (("determinism", "--profile", "regoins"), "there is no profile 'regoins'"),
        (("mutants", "no-fances"), "there is no mutant 'no-fances'"),
        (("sieve", "--controller", "rolout"), "there is no controller 'rolout'"),
    ],
)
def test_a_name_that_nothing_has_is_refused_before_anything_runs(asked: tuple[str, ...], said: str) -> None:
    ran = sim(*asked)
    assert ran.code == ERROR
    assert said in ran.err
    assert "did you mean" in ran.err


def test_a_fault_of_the_simulator_is_not_taken_for_a_wrong_name() -> None:
    class Faulty(Fake):
        def run(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
            raise KeyError("something inside")

    ran = fairlead("sim", "run", within=world()._replace(simulator=Faulty([], [])))
    assert ran.code == ERROR
    assert "there is no" not in ran.err
    assert "something inside" in ran.err
