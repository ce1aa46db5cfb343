"""Evidence on disk: what is kept comes back, the number and size of records is bounded, what cannot be read is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.observe.evidence import BYTES_MAX, CHANGED, KEPT_MAX, PLACE, Evidence, Record, default_folder, keep, kept

RECORD = Record(
    "drill region-loss", "", "fairlead drill region-loss", 1_800_000_000.0, "1+abc", True, {"timings_s": {"serving": 9.5}}
)


def test_what_is_kept_comes_back(tmp_path: Path) -> None:
    keep(tmp_path / "made", RECORD)
    assert kept(tmp_path / "made") == [RECORD]
    assert kept(tmp_path / "nothing") == []


def test_records_of_one_second_do_not_replace_each_other(tmp_path: Path) -> None:
    for plane in ("global", "us-east", "us-west"):
        keep(tmp_path, RECORD._replace(name="audit verify", key=plane))
    assert [record.key for record in kept(tmp_path)] == ["global", "us-east", "us-west"]
    assert not list(tmp_path.glob("*.new"))


def test_only_the_newest_of_each_name_are_kept(tmp_path: Path) -> None:
    keep(tmp_path, RECORD._replace(name="drill region"))
    for number in range(KEPT_MAX + 5):
        keep(tmp_path, RECORD._replace(time_s=RECORD.time_s + number))
    times = [record.time_s for record in kept(tmp_path) if record.name == RECORD.name]
    assert times == [RECORD.time_s + number for number in range(5, KEPT_MAX + 5)]
    assert len(kept(tmp_path)) == KEPT_MAX + 1, "another name has a bound of its own"


def test_what_failed_is_not_forgotten_over_what_passed_since(tmp_path: Path) -> None:
    for number in range(KEPT_MAX + 5):
        keep(tmp_path, RECORD._replace(passed=number > 2, time_s=RECORD.time_s + number))
    for number in range(KEPT_MAX):
        keep(tmp_path, RECORD._replace(time_s=RECORD.time_s + 100 + number))
    assert [record.time_s - RECORD.time_s for record in kept(tmp_path) if not record.passed] == [0, 1, 2]
    assert len(kept(tmp_path)) == KEPT_MAX + 3
    for number in range(KEPT_MAX):
        keep(tmp_path, RECORD._replace(passed=False, time_s=RECORD.time_s + 200 + number))
    assert len(kept(tmp_path)) == 2 * KEPT_MAX


def test_figures_that_are_too_large_are_left_out(tmp_path: Path) -> None:
    path = keep(tmp_path, RECORD._replace(figures={"text": "x" * BYTES_MAX}))
    assert path.stat().st_size < BYTES_MAX
    assert kept(tmp_path)[0].figures == {}


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"name": "x"}', '{"name":"x","key":"","command":"c","build":"b","time":"never","passed":true,"figures":{}}'],
)
def test_what_cannot_be_read_is_not_there(tmp_path: Path, text: str) -> None:
    (tmp_path / "drill-x.20270115T080000.000.json").write_text(text)
    assert kept(tmp_path) == []


def test_a_run_whose_source_was_edited_meanwhile_is_of_no_build(tmp_path: Path) -> None:
    builds = iter(["1+abc", "1+abc", "1+abc", "1+def"])
    evidence = Evidence(tmp_path, "fairlead x", lambda: 1_800_000_000.0, lambda: next(builds))
    for _ in range(2):
        evidence.keep(evidence.begin(), "drill x", True, {})
    assert [record.build for record in kept(tmp_path)] == ["1+abc", CHANGED]


def test_a_campaign_of_which_a_part_was_run_before_is_of_no_build(tmp_path: Path) -> None:
    evidence = Evidence(tmp_path, "fairlead x", lambda: 1_800_000_000.0, lambda: "1+abc")
    for resumed in (0, 3):
        evidence.keep(evidence.begin(), "sim run", True, {"seeds": 5, "resumed": resumed}, key=str(resumed))
    assert [record.build for record in kept(tmp_path)] == ["1+abc", CHANGED]


def test_where_it_lies_can_be_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PLACE, str(tmp_path / "mine"))
    assert default_folder() == tmp_path / "mine"
    monkeypatch.delenv(PLACE)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "fairlead" / "evidence"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_folder() == tmp_path / ".local" / "state" / "fairlead" / "evidence"
