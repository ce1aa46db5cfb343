"""The patterns that break controllers, at a few of their calls: all comes right, and a controller that could not is found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.controllers.runtime import Runtime
from fairlead.sim import loop as sim
from fairlead.sim.loop import SimLoop
from fairlead.sim.machines import Machines, Running, for_ever
from fairlead.sim.probe import DOWN_S, HOLD_S, Probe, SievedPlane
from fairlead.sim.scenario import Sieve
from fairlead.sim.sieve import IN_WIDE, MISSED_S, SMALL, WIDE, faults_of, scenario_at, sifted, spread
from fairlead.sim.world import Verdict, run_scenario


def nobody(text: str) -> None:
    pass


@pytest.mark.parametrize(
    ("controller", "pattern"),
    [("workload", "crash"), ("assignment", "missed"), ("rollout", "stale"), ("narrator", "crash"), ("narrator-global", "stale")],
)
def test_a_controller_that_is_struck_at_one_of_its_calls_comes_right(controller: str, pattern: str, tmp_path: Path) -> None:
    result = sifted([controller], [pattern], 1, tmp_path, nobody)
    (row,) = result["results"]["controllers"]
    assert row["calls"] > 10, "it works in this world"
    assert row["works"] > 5
    assert row["tried"] == 1
    assert row["failed"] == []


def test_several_jobs_try_the_same_points_with_the_same_outcome(tmp_path: Path) -> None:
    (alone,), (beside,) = (sifted(["grant"], ["crash"], 3, tmp_path, nobody, jobs)["results"]["controllers"] for jobs in (1, 2))
    assert alone["tried"] == 3
    assert alone == beside


def test_those_that_wait_for_a_loss_an_exception_or_a_load_have_work_in_the_wide_world(tmp_path: Path) -> None:
    assert "recovery" in IN_WIDE
    (row,) = sifted(["recovery"], ["crash"], 1, tmp_path, nobody)["results"]["controllers"]
    assert row["world"] == WIDE.profile
    assert row["works"] > 3, "not only its lease"
    assert row["failed"] == []


def test_a_controller_that_made_no_call_is_not_said_to_have_come_right(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small = replace(SMALL, rough_s=1.0, settle_s=1.0, quiet_s=1.0)
    monkeypatch.setattr("fairlead.sim.sieve.SMALL", small)
    (row,) = sifted(["nobody"], ["crash"], 2, tmp_path, nobody)["results"]["controllers"]
    assert (row["calls"], row["tried"]) == (0, 0)
    assert row["failed"], "green would say that it was tried"


def test_a_missed_change_stays_missed_without_a_resync(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(self: Runtime, feed: object) -> None:
        await self._clock.sleep(1e6)

    monkeypatch.setattr(Runtime, "_resync_loop", never)
    monkeypatch.setattr(Probe, "strikes", lambda self, pattern: pattern == "missed")  # every one of them
    found = run_scenario(replace(scenario_at("assignment", "missed", 0), calm_s=20.0)).findings
    assert [finding.invariant for finding in found] == ["L4"], "what it never heard of is not there"


@pytest.mark.parametrize(
    ("struck_s", "good_s", "late"), [(5.0, 30.0, False), (5.0, 45.0, True), (5.0, None, True), (60.0, None, False)]
)
def test_a_missed_change_is_late_by_when_it_was_missed(struck_s: float, good_s: float | None, late: bool) -> None:
    """Not by when everything was healed, which was at 25 s."""
    counts = {"sieve_struck_ms": round(struck_s * 1000)} | ({"sieve_made_good_ms": round(good_s * 1000)} if good_s else {})
    verdict = Verdict(1, "sieve", [], [], 0, 75.0, "", 0, counts, {}, {}, agreed_s=3.0)
    found = faults_of(verdict, scenario_at("assignment", "missed", 9))
    assert [one[:2] for one in found] == (["L3"] if late else [])
    assert faults_of(verdict, scenario_at("narrator", "missed", 9)) == [], "what it misses is not told, and nothing follows"
    assert faults_of(verdict, scenario_at("assignment", "crash", 9)) == []


def test_when_a_change_was_missed_and_when_it_was_told_after_all_is_in_the_verdict() -> None:
    verdict = run_scenario(scenario_at("assignment", "missed", 9))
    struck_ms, good_ms = verdict.counts["sieve_struck_ms"], verdict.counts["sieve_made_good_ms"]
    assert 0 < struck_ms < good_ms <= struck_ms + MISSED_S * 1000


class FakePlane:
    async def list(self, plural: str) -> Sequence[Any]:
        return [plural]

    async def get(self, plural: str, tenant: str, name: str, revision: int = 0) -> Any:
        return plural

    async def heard(self, since_ms: int) -> Sequence[tuple[str, int]]:
        return [("n0", since_ms)]


def test_a_list_may_be_as_old_as_a_feed() -> None:
    async def main(loop: SimLoop) -> tuple[list[float], int]:
        plane = SievedPlane(FakePlane(), Probe(loop, Sieve("x", "stale", 1)))  # type: ignore[arg-type]
        took = []
        for _ in range(3):
            began = loop.now
            await plane.list("nodes")
            took.append(loop.now - began)
        return took, plane._probe.calls

    took, calls = sim.run(main, 1).value
    assert took == [0.0, HOLD_S, 0.0]
    assert calls == 3


def test_what_is_read_alone_and_who_was_heard_may_be_as_old() -> None:
    async def main(loop: SimLoop) -> list[float]:
        took = []
        for at in (0, 1):
            plane = SievedPlane(FakePlane(), Probe(loop, Sieve("x", "stale", at)))  # type: ignore[arg-type]
            began = loop.now
            assert await plane.get("nodes", "", "n0")
            took.append(loop.now - began)
            assert await plane.heard(7) == [("n0", 7)]
            took.append(loop.now - began)
            assert plane._probe.calls == 2
        return took

    assert sim.run(main, 1).value == [HOLD_S, HOLD_S, 0.0, HOLD_S]


def test_a_server_that_was_struck_stays_down_while_its_machine_has_no_power() -> None:
    async def main(loop: SimLoop) -> tuple[int, int]:
        machines = Machines(loop)
        machine = machines.machine("us-east/server-0")

        async def reads(running: Running) -> None:
            await SievedPlane(FakePlane(), probe).get("nodes", "", "n0")  # type: ignore[arg-type]
            await for_ever()

        probe = Probe(loop, Sieve("x", "crash", 0))
        program = machines.program("us-east-0", machine, reads)
        program.start()
        await sim.sleep(DOWN_S / 2)
        machine.up = False
        await sim.sleep(DOWN_S)
        dark = program.lives
        machine.up = True
        probe._start(program)
        return dark, program.lives

    assert sim.run(main, 1).value == (1, 2)


def test_nothing_strikes_when_all_should_be_at_rest() -> None:
    async def main(loop: SimLoop) -> tuple[list[bool], int]:
        probe = Probe(loop, Sieve("x", "crash", 1), 10.0)
        struck = []
        for _ in range(4):
            struck.append(probe.strikes("crash"))
            await sim.sleep(6.0)
        return struck, probe.calls

    assert sim.run(main, 1).value == ([False, True, False, False], 2)


def test_calls_are_spread_from_the_first_to_the_last() -> None:
    assert spread(5, 0) == [0, 1, 2, 3, 4]
    assert spread(100, 3) == [0, 50, 99]
    assert spread(2, 5) == [0, 1]
    assert spread(0, 3) == []
