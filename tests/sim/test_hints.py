"""Hints that lie may cost. They break nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.authority.local import LocalPlane
from fairlead.controllers.cache import Cache
from fairlead.controllers.demand import Demand, Part
from fairlead.model.resources import NOTHING
from fairlead.sim import campaign
from fairlead.sim import loop as sim
from fairlead.sim.born import LARGEST
from fairlead.sim.hints import KINDS, misled
from fairlead.sim.loop import SimLoop, sleep
from fairlead.sim.world import run_scenario
from tests.sim.hint_costs import compared


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_hints_break_no_promise_and_all_comes_right_when_they_end(kind: str) -> None:
    scenario = replace(campaign.scenario_of(1, "hints", 0.2), regions=1, nodes=3, settle_s=5.0, quiet_s=1.0)
    told = run_scenario(replace(scenario, hints=kind))
    assert not told.findings
    assert told.checked["S1"] > 0, "something was bound by them"
    true = run_scenario(replace(scenario, hints=""))
    assert told.trace != true.trace, "they were believed"


class Hearing:
    """A plane whose only node is heard every second."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def plane_ms(self) -> int:
        return 1000 + int(1000 * self._loop.now)


def test_ancient_words_are_old_ones_and_not_none(monkeypatch: pytest.MonkeyPatch) -> None:
    async def heard(self: Any, since_ms: int) -> Sequence[tuple[str, int]]:
        return [("n0", self.plane_ms())]

    async def main(loop: SimLoop) -> list[Sequence[tuple[str, int]]]:
        plane: Any = Hearing(loop)
        said = []
        with misled(loop, "ancient", 20.0):
            for _ in range(3):
                said.append(await LocalPlane.heard(plane, 0))
                await sleep(10.0)
        return said

    monkeypatch.setattr(LocalPlane, "heard", heard)
    first, later, after = sim.run(main, 1).value
    assert first == later == [("n0", 1000)], "as it was when the run began"
    assert after == [("n0", 21_000)], "lies end with the faults"


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_said_to_wait_for_quota_lies_and_what_is_used_does_not(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    true = Part(2, LARGEST, NOTHING, NOTHING)
    monkeypatch.setattr(Demand, "of", lambda self, tenant: true)

    async def main(loop: SimLoop) -> list[Part]:
        demand = Demand(Cache({}))
        with misled(loop, kind, 60.0):
            said = []
            for _ in range(7):
                said.append(demand.of("risk"))
                await sleep(10.0)
        return said

    *lies, last = sim.run(main, 1).value
    assert last == true
    assert all((one.slots, one.used) == (true.slots, true.used) for one in lies)
    assert any(one.waiting != NOTHING for one in lies) == (kind != "ancient")


def test_the_cost_of_lies_is_counted_against_the_same_seeds_without_them() -> None:
    (row,) = compared([1], 0.2, lambda scenario: replace(scenario, regions=1, nodes=3, settle_s=5.0, quiet_s=1.0))
    assert row["kind"] == KINDS[1]
    for side in ("lies", "truth"):
        assert row[side]["steps"] > 0
        assert row[side]["commits"] > 0
        assert row[side]["served"] > 0
        assert 0 < row[side]["serve_p50_s"] <= row[side]["serve_p99_s"]
    assert row["lies"] != row["truth"]
