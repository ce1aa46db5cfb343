"""`fairlead review`, and what other commands leave for it: printed in every form, with the exit code that scripts test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairlead import main
from fairlead.cli.frame import CHECK_FAILED, OK, World
from fairlead.cli.review import counted
from fairlead.observe import readiness
from fairlead.observe.evidence import Evidence, Record, keep, kept
from fairlead.observe.readiness import CLAIMS, RISKS, Ask, Claim, Kind
from tests.cli.runs import Ran, fairlead, world
from tests.cli.test_sim import VIOLATION, Fake
from tests.replays.keep import HERE

NOW_S = 1_800_000_000.0
BUILD = "1+abc"
ONE = Claim("C1", "it <works>", (Kind("drill", (Ask("drill region-loss", "fairlead drill region-loss"),)),))


def within(folder: Path, **more: Any) -> World:
    return world()._replace(evidence=lambda: Evidence(folder, "fairlead as typed", lambda: NOW_S, lambda: BUILD), **more)


def review(folder: Path, *arguments: object) -> Ran:
    return fairlead("review", *arguments, within=within(folder))


@pytest.fixture
def one_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.cli.review.CLAIMS", (ONE,))


def drilled(folder: Path, **changes: Any) -> None:
    record = Record("drill region-loss", "", "fairlead drill region-loss", NOW_S - 60, BUILD, True, {})
    keep(folder, record._replace(**changes))


def test_without_evidence_every_claim_is_red_and_says_what_to_run(tmp_path: Path) -> None:
    ran = review(tmp_path, "--json")
    assert ran.code == CHECK_FAILED
    results = ran.json["results"]
    assert (ran.json["name"], results["build"], results["green"], results["red"]) == ("review", BUILD, 0, len(CLAIMS))
    assert [claim["id"] for claim in results["claims"]] == [claim.id for claim in CLAIMS]
    assert [risk["id"] for risk in results["risks"]] == [risk.id for risk in RISKS]
    assert all(claim["next"] for claim in results["claims"])
    assert review(tmp_path, "--next").out.splitlines() == results["next"]


@pytest.mark.usefixtures("one_claim")
def test_with_its_evidence_a_claim_is_green_and_the_exit_code_says_so(tmp_path: Path) -> None:
    drilled(tmp_path)
    ran = review(tmp_path, "--json")
    assert ran.code == OK
    (claim,) = ran.json["results"]["claims"]
    assert claim["status"] == "green"
    (piece,) = claim["evidence"]
    assert (piece["command"], piece["time"], piece["figure"]) == ("fairlead drill region-loss", "2027-01-15T07:59:00Z", "passed")


@pytest.mark.usefixtures("one_claim")
def test_for_people_it_is_a_table_or_a_page_with_nothing_of_others_in_it(tmp_path: Path) -> None:
    drilled(tmp_path, build="1+other")
    ran = review(tmp_path)
    assert ran.code == CHECK_FAILED
    assert "other build: it is of 1+other" in ran.out
    assert "0 green, 1 red: C1" in ran.err
    shown = review(tmp_path, "--html")
    assert shown.code == CHECK_FAILED
    assert shown.out.startswith("<!doctype html>")
    assert "it &lt;works&gt;" in shown.out
    assert "http" not in shown.out


@pytest.mark.usefixtures("one_claim")
def test_evidence_of_another_place_is_looked_at_where_it_is_said(tmp_path: Path) -> None:
    drilled(tmp_path / "there")
    assert review(tmp_path / "here").code == CHECK_FAILED
    assert review(tmp_path / "here", "--evidence", tmp_path / "there").code == OK


# --- what commands leave -----------------------------------------------------------------------------------------------------


class Drills:
    def __init__(self, passed: bool, unread: list[str] | None = None) -> None:
        self.passed = passed
        self.unread = unread or []

    async def run(self, name: str, state: str, say: Any) -> dict[str, Any]:
        checks = [{"name": "four serve", "passed": self.passed, "detail": ""}]
        broken: dict[str, Any] = {} if self.passed else {"S1": [{}]}
        planes = {
            "global": {"revisions": 3, "checked": {"S1": 2}, "violations": {}},
            "us-east": {"revisions": 4, "checked": {"S1": 5}, "violations": broken, "unread": self.unread},
        }
        results = {
            "drill": name,
            "passed": self.passed,
            "timings_s": {"serving": 9.0},
            "serving": {},
            "checks": checks,
            "audit": planes,
        }
        return {"name": "drill", "results": results}


@pytest.mark.parametrize("passed", [True, False])
def test_a_drill_leaves_its_timings_and_the_audit_it_ended_with(tmp_path: Path, passed: bool) -> None:
    programs: Any = type("Programs", (), {"drills": lambda self: Drills(passed)})()
    ran = fairlead("drill", "region-loss", "--json", within=within(tmp_path, programs=programs, run=main.run))
    assert ran.code == (OK if passed else CHECK_FAILED)
    audited, drill = kept(tmp_path)
    assert (drill.name, drill.command, drill.build, drill.passed) == ("drill region-loss", "fairlead as typed", BUILD, passed)
    assert drill.figures["timings_s"] == {"serving": 9.0}
    assert (audited.name, audited.passed, audited.figures["checked"]) == ("audit verify", passed, {"S1": 7})
    assert [found["invariant"] for found in audited.figures["violations"]] == ([] if passed else ["S1"])


def test_a_drill_whose_history_was_not_read_to_its_end_proves_nothing_by_it(tmp_path: Path) -> None:
    programs: Any = type("Programs", (), {"drills": lambda self: Drills(False, ["9 bytes are damaged"])})()
    fairlead("drill", "region-loss", "--json", within=within(tmp_path, programs=programs, run=main.run))
    audited = kept(tmp_path)[0]
    assert (audited.name, audited.passed, audited.figures["revisions"], audited.figures["checked"]) == (
        "audit verify",
        False,
        0,
        {},
    )
    assert [found["invariant"] for found in audited.figures["violations"]] == ["S1"], "what was found stands"


def test_a_campaign_leaves_what_it_checked_found_and_did_not_meet(tmp_path: Path) -> None:
    void = [
        {"kind": "fault", "name": "F5", "counted": 0, "floor": 2},
        {"kind": "excused", "name": "seeds", "counted": 9, "floor": 1},
    ]
    fairlead(
        "sim", "run", "--seeds", 2, "--thin", within=within(tmp_path, simulator=Fake([VIOLATION, {**VIOLATION, "seed": 8}], void))
    )
    (record,) = kept(tmp_path)
    assert (record.name, record.passed) == ("sim run", False)
    assert record.figures["violations"] == [{"invariant": "S1", "where": "seed 7"}]
    assert record.figures["void"] == ["F5", "excused"]
    assert record.figures["checked"] == {"S1": 4}


def test_a_history_that_was_verified_leaves_how_much_was_judged_again(tmp_path: Path) -> None:
    for words in ((), ("--verify",)):
        ran = fairlead("replay", HERE / "example.fairlead", *words, within=within(tmp_path, decided_again=main.decided_again))
        assert ran.code == OK
    (record,) = kept(tmp_path)
    assert (record.name, record.passed, record.figures["different"]) == ("replay verify", True, 0)
    assert record.figures["judged"] > 0


def test_evidence_that_cannot_be_written_fails_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ran = fairlead("sim", "run", "--seeds", 2, within=within(tmp_path / "file", simulator=Fake([], [])))
    assert ran.code == OK
    assert "no evidence was kept" in ran.err


# --- tests as evidence -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "passed", "failed", "skipped"),
    [
        ("...\n3 passed in 1.2s\n", 3, 0, 0),
        ("1 failed, 3 passed, 2 skipped, 1 error in 9s\n", 3, 2, 2),
        ("nothing ran\n", 0, 0, 0),
    ],
)
def test_the_last_line_of_a_run_of_tests_is_understood(text: str, passed: int, failed: int, skipped: int) -> None:
    assert counted(text) == {"passed": passed, "failed": failed, "skipped": skipped}


def test_a_run_of_tests_is_kept_as_it_came_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "test_two.py"
    file.write_text("def test_one() -> None: ...\n\ndef test_other() -> None:\n    assert not 1\n")
    monkeypatch.setitem(readiness.TESTS, "clean-up", (str(file),))
    ran = fairlead("review", "test", "clean-up", "--json", within=within(tmp_path / "evidence"))
    assert ran.code == CHECK_FAILED
    (record,) = kept(tmp_path / "evidence")
    assert (record.name, record.passed) == ("test clean-up", False)
    assert record.figures == {"passed": 1, "failed": 1, "skipped": 0}


def test_every_test_that_is_evidence_exists() -> None:
    root = Path(__file__).resolve().parents[2]
    paths = [path for group in readiness.TESTS.values() for path in group]
    assert [path for path in paths if not (root / path.partition("::")[0]).exists()] == []
