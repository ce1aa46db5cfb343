"""The parts of drills that need no platform: counting, witnessing, keeping, and what each drill says of itself."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fairlead.drills import census as census_module
from fairlead.drills.asking import sum_of
from fairlead.drills.catalogue import DRILLS
from fairlead.drills.census import Answer, Census, Look
from fairlead.drills.cuts import overlapping
from fairlead.drills.evidence import KEPT_MAX, keep, kept
from fairlead.drills.scene import Scene
from fairlead.observe.build import build
from fairlead.ports import SystemClock, system_random
from fairlead.serving.dns_client import Found, Unresolved
from fairlead.serving.http_get import Got

RISK = ("risk", "risk-api")


def answer(slot: int, region: str = "us-east", token: str = "1.1.1", port: int = 80) -> Answer:
    return Answer(region, slot, f"{region}-a", token, "127.0.0.1", port)


def test_a_look_counts_slots_by_region_once_each() -> None:
    named = (answer(0), answer(0, port=81), answer(1), answer(7, "us-west"))
    look = Look(1.0, named, named, 0)
    assert look.serving() == 3
    assert look.by_region() == {"us-east": 2, "us-west": 1}


def test_two_copies_of_a_slot_under_different_tokens_are_seen_and_one_copy_at_two_addresses_is_not() -> None:
    twice = Look(1.0, (), (answer(3), answer(3, "us-west", "1.1.2")), 0).twice()
    assert [(one.region, other.region) for one, other in twice] == [("us-east", "us-west")]
    assert Look(1.0, (), (answer(3), answer(3, port=81), answer(4)), 0).twice() == []
    same = Look(1.0, (), (answer(3), answer(3, "us-west")), 0).twice()
    assert len(same) == 1, "each region counts its tokens for itself: two of them may read the same"


def found(slot: int, port: int) -> Found:
    return Found("us-east", slot, "127.0.0.1", port, 1)


class World:
    """Who is named, and who answers at which port."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.named: list[Found] | None = []
        self.there: dict[int, str] = {}
        monkeypatch.setattr(census_module, "find", self._find)
        monkeypatch.setattr(census_module, "get", self._get)

    async def _find(self, *_: Any) -> list[Found]:
        if self.named is None:
            raise Unresolved("nobody there")
        return self.named

    async def _get(self, address: str, port: int, path: str, timeout_s: float) -> Got:
        body = self.there.get(port)
        return Got(200, body.encode()) if body is not None else Got(error="Refused")

    def look(self, counted: Census) -> Look:
        return asyncio.run(counted.look(RISK))


def who(slot: int, workload: str = "risk-api") -> str:
    return f"workload={workload}\ntenant=risk\nslot={slot}\nregion=us-east\nnode=n\ntoken=1.1.1\n"


def counted() -> Census:
    return Census([RISK], ("127.0.0.1", 1), SystemClock(), system_random())


def test_only_what_is_named_and_answers_as_itself_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    world, census = World(monkeypatch), counted()
    world.named = [found(0, 80), found(1, 81), found(2, 82)]
    world.there = {80: who(0), 81: who(1, "another"), 83: who(3)}
    look = world.look(census)
    assert look.serving() == 1
    assert look.unanswered == 2


def test_what_is_named_no_longer_is_asked_on_and_does_not_count_as_serving(monkeypatch: pytest.MonkeyPatch) -> None:
    world, census = World(monkeypatch), counted()
    world.named, world.there = [found(0, 80)], {80: who(0)}
    assert world.look(census).serving() == 1
    nobody: list[list[Found] | None] = [[], None]
    for named in nobody:
        world.named = named
        look = world.look(census)
        assert look.serving() == 0
        assert [one.slot for one in look.answers] == [0]


def test_the_lowest_count_is_that_since_the_fault() -> None:
    census = counted()
    assert census.lowest(RISK, 0.0) is None, "nothing seen is not nothing served"
    for at_s, slots in ((1.0, 0), (5.0, 4), (6.0, 3), (7.0, 6)):
        census.looks[RISK].append(Look(at_s, tuple(answer(n) for n in range(slots)), (), 0))
    assert census.lowest(RISK, 2.0) == 3


def scene(census: Census) -> Scene:
    parts: Any = None
    return Scene(parts, parts, parts, parts, census, SystemClock(), lambda text: None, "")


def test_fewer_than_promised_at_any_moment_fails_the_check() -> None:
    for slots, passed in ((3, False), (4, True)):
        stage = scene(counted())
        stage.begin("now")
        at_s = stage.clock.monotonic()
        stage.census.looks[RISK].append(Look(at_s, tuple(answer(n) for n in range(slots)), (), 0))
        stage.check_lowest(RISK, 4)
        assert stage.checks[-1].passed is passed, stage.checks


def test_nothing_counted_at_all_fails_the_check() -> None:
    stage = scene(counted())
    stage.begin("now")
    stage.check_lowest(RISK, 0)
    assert not stage.checks[-1].passed


def test_an_error_too_many_fails_the_check() -> None:
    stage = scene(counted())
    measure = stage.census.probers[RISK].measures.all
    measure.success(1.0, 0.01)
    stage.check_errors(RISK, 0, "none is allowed")
    measure.failure(2.0, "Refused")
    stage.check_errors(RISK, 0, "none is allowed")
    assert [check.passed for check in stage.checks] == [True, False]
    assert "Refused x1" in stage.checks[-1].detail


def test_where_no_request_was_sent_none_that_failed_shows_nothing() -> None:
    stage = scene(counted())
    stage.check_errors(RISK, 0, "none is allowed")
    assert not stage.checks[-1].passed


def test_what_does_not_come_about_in_time_is_a_failed_check() -> None:
    stage = scene(counted())

    async def never() -> bool:
        raise TimeoutError

    assert not asyncio.run(stage.expect("the end of time", never, 0.01))
    assert not stage.checks[-1].passed


def test_two_runs_of_an_exclusive_slot_that_overlap_are_found() -> None:
    apart = "1.1.1 a 1.0\n1.1.1 a 2.0\n1.1.2 b 2.5\n1.1.2 b 9.0\n"
    assert overlapping(apart) == []
    assert len(overlapping(apart + "1.1.1 a 3.0\n")) == 1
    assert overlapping("torn line\n") == []


def test_a_metric_is_summed_over_the_series_that_match() -> None:
    text = '# TYPE fairlead_x counter\nfairlead_x{a="1",b="2"} 3\nfairlead_x{a="2",b="2"} 4\nfairlead_xy 9\nfairlead_y 5.5\n'
    assert sum_of(text, "fairlead_x", {}) == 7
    assert sum_of(text, "fairlead_x", {"a": "2"}) == 4
    assert sum_of(text, "fairlead_y", {}) == 5.5
    assert sum_of(text, "fairlead_z", {}) == 0


def test_results_are_kept_the_newest_last_and_not_for_ever(tmp_path: Path) -> None:
    for number in range(KEPT_MAX + 3):
        keep(tmp_path / "state", "zone-loss", 1_800_000_000 + number, {"results": {"passed": True, "number": number}})
    keep(tmp_path / "state", "zone-loss-other", 1_800_000_000, {"results": {"passed": False}})
    (tmp_path / "state" / "drills" / "zone-loss.29990101T000000.json").write_bytes(b"{")
    runs = kept(tmp_path / "state", "zone-loss")
    assert [run["results"]["number"] for run in runs][-1] == KEPT_MAX + 2
    assert len(runs) == KEPT_MAX
    assert runs[0]["time"].startswith("2027-01-15T")


def test_a_build_is_told_by_its_source() -> None:
    assert build() == build()
    assert "+" in build()


def test_every_drill_says_what_it_does_and_expects() -> None:
    for name, drill in DRILLS.items():
        assert name == drill.name
        assert drill.does
        assert drill.expects, name
        assert drill.watched, f"{name}: somebody must count from outside"
