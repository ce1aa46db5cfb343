"""B5: a region that doubts its own hearing gives up the nodes of a zone one at a time."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from fairlead.model.commands import Delete
from fairlead.model.kinds.capacity import Node, NodeSpec, NodeStatus
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Condition
from fairlead.model.resources import Resources
from tests.observe.forging import T0, Effect, Forged, by, lease, named

WROTE = Delete("Workload", "risk", "x")  # what was sent is not looked at here
NODE = by(Role.NODE)


def node(number: int, health: Literal["Ready", "Unknown", "Lost"], since_s: float = 0, *, suspect: bool = False) -> Effect:
    ready = Condition(type="Ready", status="Unknown", reason=health, last_transition_time=T0 + timedelta(seconds=since_s))
    doubt = Condition(type="ObservationSuspect", status="True" if suspect else "False", reason="ManySilent")
    spec = NodeSpec(region="r", zone="z", allocatable=Resources(1000, 1 << 30))
    status = NodeStatus(health=health, conditions=(ready, doubt))
    return f"nodes//n{number}", Node(named(f"n{number}"), spec, status)


def zone(silent: int, well: int = 0) -> Forged:
    """So many nodes of a zone fell silent together, and others did not."""
    nodes = [node(number, "Ready") for number in range(silent + well)]
    forged = Forged(lease(Role.NODE), lease(Role.ROLLOUT), *nodes, bounds=True)
    return forged.entry(NODE, WROTE, *(node(number, "Unknown", 16, suspect=True) for number in range(silent)), at_s=16)


def test_nodes_that_are_given_up_one_after_the_other_in_doubt_are_in_order() -> None:
    forged = zone(4).entry(NODE, WROTE, node(0, "Lost", 26), at_s=26).entry(NODE, WROTE, node(1, "Lost", 36), at_s=36)
    assert forged.passes(40, 60).found == [], forged.details
    assert (forged.checker.checked["B5"], forged.checker.checked["B5/lost"]) == (4, 2)


def test_two_that_are_given_up_together_in_doubt_are_found() -> None:
    together = zone(4).entry(NODE, WROTE, node(0, "Lost", 26), at_s=26).entry(NODE, WROTE, node(1, "Lost", 27), at_s=27)
    assert together.passes(28, 40).found == ["B5"], "three were silent still"
    at_once = zone(5).entry(NODE, WROTE, node(0, "Lost", 26), node(1, "Lost", 26), at_s=26)
    assert at_once.passes(28, 40).found == ["B5"]


def test_few_silent_nodes_are_no_reason_for_doubt() -> None:
    left = zone(3).entry(NODE, WROTE, node(0, "Lost", 26), at_s=26).entry(NODE, WROTE, node(1, "Lost", 27), at_s=27)
    assert left.passes(28, 40).found == [], "two were silent still"
    large = zone(4, 8).entry(NODE, WROTE, node(0, "Lost", 26), at_s=26).entry(NODE, WROTE, node(1, "Lost", 27), at_s=27)
    assert large.passes(28, 40).found == [], "three of eleven"


def test_who_was_heard_again_in_the_same_look_was_none_of_the_silent() -> None:
    forged = zone(4).entry(NODE, WROTE, node(0, "Lost", 26), at_s=26)
    forged.entry(NODE, WROTE, node(1, "Lost", 27), at_s=27).entry(NODE, WROTE, node(2, "Ready", 27), at_s=27)
    assert forged.passes(28, 40).found == []


def test_one_that_came_back_from_being_lost_keeps_nobody_waiting() -> None:
    forged = zone(4).entry(NODE, WROTE, node(0, "Lost", 26), at_s=26).entry(NODE, WROTE, node(0, "Unknown", 28), at_s=28)
    assert forged.entry(NODE, WROTE, node(1, "Lost", 30), at_s=30).passes(32, 45).found == []
