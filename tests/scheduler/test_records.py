"""What is kept of a decision: figures that agree with each other."""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.model.decision import DecisionRecord
from fairlead.model.kinds.intent import Placement, SpreadRule
from fairlead.scheduler.records import Recorder
from tests.scheduler.fleets import NOW_MS, node, request, snapshot_of
from tests.scheduler.test_cycle import Table, fill


class Kept:
    def append(self, records: Sequence[DecisionRecord]) -> None:
        raise AssertionError("nothing was settled")


def test_the_total_of_a_candidate_is_what_its_scores_add_up_to() -> None:
    table = Table(snapshot_of(*(node(f"n{number}") for number in range(3))))
    recorder = Recorder("s", table.snapshot, Kept())
    spread = Placement(spread=(SpreadRule(topology_key="zone", max_skew=9),))
    runs = table.decide(*(request(f"a-{number}", placement=spread) for number in range(3)))
    fill(table.snapshot, 0, "b-0", 700)  # another run of the cycle, which this shape's ranking has not looked at
    recorder.decided(runs, NOW_MS)
    kept = [one for _, decided in recorder._open.values() for one in decided.candidates]
    assert kept
    for one in kept:
        assert one.total == sum(weight * rate for _, weight, rate in one.rates)
