"""Extension points: what each may do, when it is asked, and that what it reserved is given back on every way but one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from fairlead.decide.extensions import ALLOW, Allow, Deny, Extensions, Proposal, Stop, Wait
from fairlead.decide.policy import CompiledPolicy, built_in_policy
from fairlead.model.commands import Accepted, Bind, Refused
from fairlead.scheduler.cycle import Placement, Run
from fairlead.scheduler.points import Points
from fairlead.scheduler.policies import Policies
from tests.scheduler.fleets import NOW_MS, node, request, snapshot_of
from tests.scheduler.test_cycle import Table, fill


class Fixed(Policies):
    def __init__(self, **points: Any) -> None:
        super().__init__()
        self._fixed = msgspec.structs.replace(built_in_policy(), extensions=Extensions(**points))

    def policy_for(self, tenant: str) -> CompiledPolicy:
        return self._fixed


class Ledger:
    """Reserves, permits and listens; counts what it has been told."""

    def __init__(self, stops: tuple[str, ...] = (), verdict: Allow | Wait | Deny = ALLOW) -> None:
        self.stops = stops
        self.verdict: Allow | Wait | Deny = verdict
        self.held: list[str] = []
        self.told: list[tuple[str, str]] = []

    def reserve(self, placements: Sequence[Placement]) -> list[Stop | None]:
        self.held += [p.name for p in placements if p.name not in self.stops]
        return [Stop("Gated", "no licence left") if p.name in self.stops else None for p in placements]

    def unreserve(self, placements: Sequence[Placement]) -> None:
        self.held = [name for name in self.held if name not in {p.name for p in placements}]

    def permit(self, placements: Sequence[Placement], view: Any) -> list[Allow | Wait | Deny]:
        return [self.verdict for _ in placements]

    def post_bind(self, placements: Sequence[Placement], outcomes: Sequence[Any]) -> None:
        self.told += [(p.name, type(o).__name__) for p, o in zip(placements, outcomes, strict=True)]


def table_of(ledger: Any, **points: Any) -> tuple[Table, Points]:
    fixed = Fixed(**(points or {"reserves": (ledger,), "permits": (ledger,), "post_binds": (ledger,)}))
    table = Table(snapshot_of(node("n0"), node("n1")), fixed)
    return table, Points(table.cycle)


def failed(runs: list[Run]) -> dict[str, str]:
    return {f.item.name: f.reason for run in runs for f in run.failures}


def test_a_reservation_that_is_refused_takes_its_placement_back_and_leaves_the_others() -> None:
    ledger = Ledger(stops=("a-1",))
    table, points = table_of(ledger)
    runs = points.admit(table.decide(request("a-0"), request("a-1"), request("a-2")), table.snapshot)
    assert [p.name for run in runs for p in run.placements] == ["a-0", "a-2"]
    assert failed(runs) == {"a-1": "Gated"}
    assert ledger.held == ["a-0", "a-2"]
    assert ("risk", "a-1") not in table.snapshot.uses


def test_a_member_of_a_gang_that_is_refused_takes_the_whole_gang_back() -> None:
    ledger = Ledger(stops=("g-1",))
    table, points = table_of(ledger)
    gang = [request(f"g-{n}", gang="g", gang_size=3) for n in range(3)]
    runs = points.admit(table.decide(*gang), table.snapshot)
    assert failed(runs) == {"g-0": "Gated", "g-1": "Gated", "g-2": "Gated"}
    assert ledger.held == []
    assert table.snapshot.uses == {}


def test_a_permit_may_wait_and_goes_when_it_is_given() -> None:
    ledger = Ledger(verdict=Wait(NOW_MS + 5000, "Gated"))
    table, points = table_of(ledger)
    assert points.admit(table.decide(request("a-0")), table.snapshot) == []
    assert points.waits_until_ms == NOW_MS + 5000
    assert ("risk", "a-0") in table.snapshot.uses
    assert points.permitted_now(table.snapshot) == []
    ledger.verdict = ALLOW
    (run,) = points.permitted_now(table.snapshot)
    assert [p.name for p in run.placements] == ["a-0"]
    assert points.waits_until_ms is None


def test_a_permit_that_does_not_come_by_its_deadline_is_a_refusal_that_gives_everything_back() -> None:
    ledger = Ledger(verdict=Wait(NOW_MS + 5000, "Gated"))
    table, points = table_of(ledger)
    points.admit(table.decide(request("a-0")), table.snapshot)
    table.snapshot.now_ms = NOW_MS + 5000
    (run,) = points.permitted_now(table.snapshot)
    assert run.placements == []
    assert failed([run]) == {"a-0": "Gated"}
    assert ledger.held == []
    assert table.snapshot.uses == {}


def test_a_denied_permit_gives_everything_back() -> None:
    ledger = Ledger(verdict=Deny("Gated", "not today"))
    table, points = table_of(ledger)
    (run,) = points.admit(table.decide(request("a-0")), table.snapshot)
    assert (failed([run]), ledger.held, table.snapshot.uses) == ({"a-0": "Gated"}, [], {})


def test_post_bind_hears_every_outcome_and_what_was_lost_is_unreserved() -> None:
    ledger = Ledger()
    table, points = table_of(ledger)
    (run,) = points.admit(table.decide(request("a-0"), request("a-1")), table.snapshot)
    first, second = run.placements
    points.settled(run, {id(first): Accepted(7), id(second): Refused("NoFit", "")}, [second])
    assert ledger.told == [("a-0", "Accepted"), ("a-1", "Refused")]
    assert ledger.held == ["a-0"]


def test_a_pre_filter_stops_a_shape_with_its_reason() -> None:
    class Closed:
        def pre_filter(self, need: Any, columns: Any, view: Any) -> Stop | None:
            return Stop("Gated", "the window opens at night")

    table, points = table_of(None, pre_filters=(Closed(),))
    assert failed(points.admit(table.decide(request("a-0"), request("a-1")), table.snapshot)) == {"a-0": "Gated", "a-1": "Gated"}


class Odd:
    """Stops everything wherever it is asked, for a reason that is in no list."""

    name = "example.rack-power"
    reason = "RackPower"

    def check(self, need: Any, row: Any, view: Any) -> Any:
        return row.number < 0

    def why(self, need: Any, row: Any, view: Any) -> str:
        return "its rack has no power left"

    def pre_filter(self, need: Any, columns: Any, view: Any) -> Stop:
        return Stop("RackPower", "its rack has no power left")

    def post_filter(self, need: Any, ruled_out: Any, columns: Any, view: Any) -> Stop:
        return Stop("RackPower")

    def reserve(self, placements: Sequence[Placement]) -> list[Stop]:
        return [Stop("RackPower") for _ in placements]

    def unreserve(self, placements: Sequence[Placement]) -> None: ...

    def permit(self, placements: Sequence[Placement], view: Any) -> list[Deny]:
        return [Deny("RackPower", "not today") for _ in placements]


@pytest.mark.parametrize(
    ("point", "cpu", "detail"),
    [
        ("filters", 1000, "RackPower: of 2 nodes: 2 example.rack-power"),
        ("pre_filters", 1000, "RackPower: its rack has no power left"),
        ("post_filters", 5000, "RackPower"),
        ("reserves", 1000, "RackPower"),
        ("permits", 1000, "RackPower: not today"),
    ],
)
def test_a_reason_of_a_plug_ins_own_is_told_as_waiting_for_capacity_in_its_words(point: str, cpu: int, detail: str) -> None:
    table, points = table_of(None, **{point: (Odd(),)})
    (run,) = points.admit(table.decide(request("a-0", cpu=cpu)), table.snapshot)
    (failure,) = run.failures
    table.queue.failed(failure.item, failure.reason, failure.gates, failure.detail, NOW_MS)
    (said,) = table.queue.pending()
    assert (said.reason, said.detail, said.next_owner) == ("WaitingForCapacity", detail, "scheduler")


def test_a_filter_and_a_score_decide_among_nodes() -> None:
    class NotTheFirst:
        name = "example.not-first"

        def check(self, need: Any, row: Any, view: Any) -> Any:
            return row.number > 0

        def why(self, need: Any, row: Any, view: Any) -> str:
            return "it is the first"

    class LikesTheSecond:
        name = "example.second"

        def rate(self, need: Any, row: Any, view: Any) -> Any:
            return 1000 * (row.number == 1)

    table, _ = table_of(None, filters=(NotTheFirst(),))
    assert table.places(request("a-0")) == {"a-0": "n1"}
    table, _ = table_of(None, scores=((LikesTheSecond(), 100),))
    assert table.places(request("a-0")) == {"a-0": "n1"}


def test_a_post_filter_proposes_victims_before_the_built_in_one_does() -> None:
    class Ask:
        def post_filter(self, need: Any, ruled_out: Any, columns: Any, view: Any) -> Proposal:
            assert ruled_out == {"cpu": 2}
            return Proposal("n1", ("search/v-1",))

    table, _ = table_of(None, post_filters=(Ask(),))
    fill(table.snapshot, 0, "v-0", 4000)
    fill(table.snapshot, 1, "v-1", 4000)
    runs = table.decide(request("a-0"))
    (placement,) = [p for run in runs for p in run.placements]
    assert (placement.node, placement.victims) == ("n1", ("search/v-1",))


def test_a_bind_extension_says_which_commands_are_sent() -> None:
    class Slowly:
        def bind(self, placements: Sequence[Placement]) -> list[Bind]:
            return [Bind(p.tenant, p.name, 1, 1, p.node, 0, 1, decision="slowly") for p in placements]

    table, points = table_of(None, binds=(Slowly(),))
    (run,) = points.admit(table.decide(request("a-0")), table.snapshot)
    made = points.commands_for(run)
    assert made is not None
    (bind,) = made
    assert isinstance(bind, Bind)
    assert bind.decision == "slowly"
    plain = Table(snapshot_of(node("n0")))
    (run,) = plain.decide(request("a-0"))
    assert Points(plain.cycle).commands_for(run) is None
