"""Spread after failures: one move at a time, only where it helps and where the slot has somewhere to go."""

from __future__ import annotations

from msgspec.structs import replace

from fairlead.decide.topology import marks_of
from fairlead.model.commands import Caller, Put
from fairlead.model.kinds.intent import Placement, SpreadRule
from fairlead.model.kinds.work import Ask
from fairlead.model.lifecycle import Role
from fairlead.model.resources import Resources
from fairlead.scheduler.levelling import AGAIN_MS, Levelling
from fairlead.scheduler.policies import Policies
from fairlead.scheduler.shapes import ShapeBook
from fairlead.scheduler.snapshot import FIRM, Snapshot, Use
from tests.scheduler.fleets import GI, node, snapshot_of

KEEP = Placement(spread=(SpreadRule(topology_key="zone", max_skew=1, after_failure="Repair"),))


def levelling_over(snapshot: Snapshot) -> Levelling:
    policies = Policies()
    return Levelling(snapshot, ShapeBook(snapshot, policies), policies)


def place(snapshot: Snapshot, index: int, row: int, placement: Placement = KEEP, cpu: int = 1000) -> None:
    ask = Ask(requests=Resources(cpu, GI), placement=placement)
    use = Use(row, FIRM, ask.requests, uid="u-api", marks=marks_of(ask), evictable=True)
    snapshot.set_use(("risk", f"api-{index}"), use)


def uneven(**fields: object) -> tuple[Snapshot, Levelling]:
    snapshot = snapshot_of(node("n0", zone="a", cpu=9000, memory=90 * GI), node("n1", zone="b", cpu=9000, memory=90 * GI))
    levelling = levelling_over(snapshot)
    for index in range(4):
        place(snapshot, index, 0, **fields)  # type: ignore[arg-type]
    return snapshot, levelling


def test_a_slot_of_the_fullest_zone_is_proposed_and_the_reason_says_why() -> None:
    _, levelling = uneven()
    (move,) = levelling.moves()
    assert move.key == ("risk", "api-3")
    assert move.reason == "zone a has 4 slots more than b, at most 1 are wanted"


def test_one_move_of_a_workload_at_a_time() -> None:
    snapshot, levelling = uneven()
    assert len(levelling.moves()) == 1
    assert levelling.moves() == []
    snapshot.now_ms += AGAIN_MS
    snapshot.heard([("n0", snapshot.now_ms), ("n1", snapshot.now_ms)], 30_000)
    assert len(levelling.moves()) == 1


def test_nothing_moves_that_has_nowhere_to_go() -> None:
    snapshot, levelling = uneven()
    snapshot.set_node("n1", node("n1", zone="b", cordoned=True))
    assert levelling.moves() == []


def test_nothing_moves_that_lies_evenly_enough() -> None:
    snapshot, levelling = uneven()
    place(snapshot, 4, 1)
    place(snapshot, 5, 1)
    place(snapshot, 6, 1)
    assert levelling.moves() == []


def test_only_workloads_that_ask_for_it_are_moved() -> None:
    keep = Placement(spread=(replace(KEEP.spread[0], after_failure="Keep"),))
    _, levelling = uneven(placement=keep)
    assert levelling.moves() == []


def test_a_slot_on_its_way_out_is_neither_counted_nor_moved() -> None:
    snapshot, levelling = uneven()
    for index in range(4):
        key = ("risk", f"api-{index}")
        snapshot.set_use(key, replace(snapshot.uses[key], evictable=False))
    assert levelling.moves() == []
    assert list(levelling.watched()) == []


def test_the_proposal_is_an_eviction_request_with_a_deadline() -> None:
    snapshot, levelling = uneven()
    snapshot.uses["risk", "api-3"] = replace(snapshot.uses["risk", "api-3"], epoch=5)
    (command,) = levelling.commands(Caller("scheduler-0", Role.SCHEDULER))
    assert isinstance(command.body, Put)
    spec = command.body.object.spec
    assert (spec.slot.index, spec.slot.uid, spec.epoch, spec.requester) == (3, "u-api", 5, "scheduler-0")
    assert spec.reason.startswith("spread: zone a")
    assert spec.deadline_time.timestamp() * 1000 > snapshot.now_ms
