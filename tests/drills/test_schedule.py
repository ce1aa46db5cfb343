"""Drills by schedule: which are due, that each is run and told, and that the timer's files ask for what there is."""

from __future__ import annotations

import configparser
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.cli.frame import CHECK_FAILED, ERROR, OK
from fairlead.drills import evidence
from fairlead.drills.catalogue import DRILLS
from fairlead.drills.program import Drills
from fairlead.drills.schedule import DAY_S, EARLY_S, Last, due, read
from fairlead.main import LocalPrograms, archived_batches
from fairlead.observe.review import AGE_MAX_S
from fairlead.ports import SystemClock, SystemIds
from tests.cli.runs import Ran, fairlead, world

NOW_S = 1_800_000_000.0
SHIPPED = Path(__file__).resolve().parents[2] / "deploy" / "drills"
EVERY = {"region-loss": 3.0, "zone-loss": 6.0}


def ago(days: float, passed: bool = True) -> Last:
    return Last(NOW_S - days * DAY_S, passed)


def test_what_was_never_run_or_failed_or_is_old_is_due_the_longest_overdue_first() -> None:
    assert due(EVERY, {}, NOW_S) == ["region-loss", "zone-loss"]
    assert due(EVERY, {"region-loss": ago(1), "zone-loss": ago(1)}, NOW_S) == []
    assert due(EVERY, {"region-loss": ago(1, passed=False), "zone-loss": ago(1)}, NOW_S) == ["region-loss"]
    assert due(EVERY, {"region-loss": ago(4), "zone-loss": ago(9)}, NOW_S) == ["zone-loss", "region-loss"]


def test_a_timer_that_comes_a_little_early_skips_no_night() -> None:
    early = (3 * DAY_S - EARLY_S) / DAY_S
    assert due({"region-loss": 3.0}, {"region-loss": ago(early)}, NOW_S) == ["region-loss"]
    assert due({"region-loss": 3.0}, {"region-loss": ago(early - 0.01)}, NOW_S) == []


def test_a_run_dated_in_the_future_is_no_reason_to_skip() -> None:
    assert due(EVERY, {"region-loss": ago(-9), "zone-loss": ago(1)}, NOW_S) == ["region-loss"]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"everyDays": {}}', '{"everyDays": {"no-such": 1}}', '{"everyDays": {"zone-loss": 0}}',
     '{"everyDays": {"zone-loss": true}}', '{"everyDays": {"zone-loss": "7"}}', '{"everyDays": {"zone-loss": 7}, "more": 1}'],
)  # fmt: skip
def test_what_is_no_schedule_is_refused_in_words(tmp_path: Path, text: str) -> None:
    path = tmp_path / "schedule.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="schedule"):
        read(path)
    assert fairlead("drill", "--due", path, within=world()._replace(programs=LocalPrograms())).code == ERROR
    with pytest.raises(ValueError, match="No such file"):
        read(tmp_path / "nothing.json")


def test_kept_results_say_when_each_was_last(tmp_path: Path) -> None:
    schedule = tmp_path / "schedule.json"
    schedule.write_bytes(msgspec.json.encode({"everyDays": EVERY}))
    drills = Drills(SystemClock(), SystemIds(), archived_batches)
    assert drills.due(str(schedule), str(tmp_path)) == ["region-loss", "zone-loss"]
    for name, passed in (("region-loss", True), ("zone-loss", False)):
        evidence.keep(tmp_path, name, SystemClock().wall(), {"results": {"passed": passed}})
    assert drills.due(str(schedule), str(tmp_path)) == ["zone-loss"]


class Fake:
    def __init__(self, names: list[str]) -> None:
        self.names = names

    def due(self, schedule: str, state: str) -> list[str]:
        return self.names

    async def run(self, name: str, state: str, say: Any) -> dict[str, Any]:
        if name == "unwell":
            raise ValueError("the platform is not well")
        checks = [{"name": "four serve", "passed": name == "good", "detail": ""}]
        return {"results": {"drill": name, "passed": name == "good", "timings_s": {}, "serving": {}, "checks": checks}}


def run(*names: str, more: tuple[str, ...] = ()) -> Ran:
    programs: Any = type("Programs", (), {"drills": lambda self: Fake(list(names))})()
    return fairlead("drill", "--due", "schedule.json", *more, within=world()._replace(programs=programs))


def test_all_that_are_due_are_run_whatever_becomes_of_one() -> None:
    assert run("good").code == OK
    assert "nothing is due" in run().err
    ran = run("unwell", "bad", "good", more=("--json",))
    assert ran.code == CHECK_FAILED
    told = [(one["drill"], one["passed"], one["detail"]) for one in ran.json["results"]["drills"]]
    assert told == [("unwell", False, "the platform is not well"), ("bad", False, "four serve"), ("good", True, "")]


def test_a_drill_or_a_schedule_is_named_not_both_not_neither() -> None:
    within = world()._replace(programs=LocalPrograms())
    assert fairlead("drill", within=within).code == ERROR
    assert fairlead("drill", "zone-loss", "--due", "x", within=within).code == ERROR


# --- what is shipped ---------------------------------------------------------------------------------------------------------


def test_the_shipped_schedule_practises_everything_before_its_evidence_is_old() -> None:
    every = read(SHIPPED / "schedule.json")
    assert set(every) == set(DRILLS)
    assert max(every.values()) * DAY_S + DAY_S <= AGE_MAX_S, "a night may fail"


def test_the_timer_starts_a_unit_that_runs_what_is_due() -> None:
    service = configparser.ConfigParser(interpolation=None, strict=False)
    service.read_string((SHIPPED / "fairlead-drills.service").read_text())
    words = shlex.split(service["Service"]["ExecStart"])
    assert words[1:4] == ["drill", "--due", "/etc/fairlead/schedule.json"]
    timer = configparser.ConfigParser(interpolation=None)
    timer.read_string((SHIPPED / "fairlead-drills.timer").read_text())
    assert timer["Timer"]["Persistent"] == "true"
    assert service["Service"]["Type"] == "oneshot"
