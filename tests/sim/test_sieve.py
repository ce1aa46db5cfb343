"""The patterns that break controllers, at a few of their calls: all comes right, and a controller that could not is found."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from fairlead.controllers.runtime import Runtime
from fairlead.sim.probe import Probe
from fairlead.sim.sieve import scenario_at, sifted, spread
from fairlead.sim.world import run_scenario


@pytest.mark.parametrize(("controller", "pattern"), [("workload", "crash"), ("assignment", "missed"), ("rollout", "stale")])
def test_a_controller_that_is_struck_at_one_of_its_calls_comes_right(controller: str, pattern: str, tmp_path: Path) -> None:
    result = sifted([controller], [pattern], 2, tmp_path, lambda text: None)
    (row,) = result["results"]["controllers"]
    assert row["calls"] > 10, "it works in this world"
    assert row["tried"] == 2
    assert row["failed"] == []


def test_a_missed_change_stays_missed_without_a_resync(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(self: Runtime, feed: object) -> None:
        await self._clock.sleep(1e6)

    monkeypatch.setattr(Runtime, "_resync_loop", never)
    monkeypatch.setattr(Probe, "strikes", lambda self, pattern: pattern == "missed")  # every one of them
    found = run_scenario(replace(scenario_at("assignment", "missed", 0), calm_s=20.0)).findings
    assert [finding.invariant for finding in found] == ["L4"], "what it never heard of is not there"


def test_calls_are_spread_from_the_first_to_the_last() -> None:
    assert spread(5, 0) == [0, 1, 2, 3, 4]
    assert spread(100, 3) == [0, 50, 99]
    assert spread(2, 5) == [0, 1]
    assert spread(0, 3) == []
