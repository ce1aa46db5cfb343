"""What is left of a region that is heard, as values: most nodes gone, a zone gone, sight gone; and what does not count."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fairlead.decide.narrating import of_region
from fairlead.decide.partial import BEHIND_S, ZONES_MAX, Part, judge_part, standing, untaken, zones_of
from fairlead.model.kinds.capacity import DrainOrder, Node, NodeSpec, NodeStatus
from fairlead.model.kinds.intent import Region, RegionStatus
from fairlead.model.kinds.ledger import ZoneNodes
from fairlead.model.kinds.quota import GrantTerm, GrantTermSpec, GrantTermStatus
from fairlead.model.meta import Condition, Metadata


def zone(name: str, nodes: int, ready: int, suspect: int = 0) -> ZoneNodes:
    return ZoneNodes(zone=name, nodes=nodes, ready=ready, suspect=suspect)


@pytest.mark.parametrize(
    ("zones", "behind_s", "reason"),
    [
        ([zone("a", 2, 2), zone("b", 2, 2)], 0.0, ""),
        ([zone("a", 4, 2), zone("b", 4, 2)], 0.0, ""),  # half is not most
        ([zone("a", 4, 2), zone("b", 4, 1)], 0.0, "NodesLost"),
        ([zone("a", 4, 4), zone("b", 1, 0)], 0.0, "ZoneLost"),
        ([zone("a", 1, 1), zone("b", 4, 0)], 0.0, "NodesLost"),  # both: the worse is its reason
        ([zone("a", 4, 4)], BEHIND_S, ""),
        ([zone("a", 4, 4)], BEHIND_S + 0.1, "WatchBehind"),
        ([zone("a", 4, 0, 4)], 0.0, "WatchBehind"),  # nobody is heard: that is its sight, and not its nodes
        ([], BEHIND_S + 1.0, "WatchBehind"),
        ([], 0.0, ""),
    ],
)
def test_a_region_that_is_heard_has_lost_nodes_a_zone_or_sight(zones: list[ZoneNodes], behind_s: float, reason: str) -> None:
    assert judge_part(zones, behind_s).reason == reason


def test_everything_that_is_missing_is_said() -> None:
    found = judge_part([zone("a", 1, 1), zone("b", 4, 0)], BEHIND_S + 1.0)
    assert found == Part(
        "NodesLost", "4 of 5 nodes are not heard; no node of b is heard; it has not seen for 46 s what it was answered"
    )


def node(health: str = "Ready", **spec: object) -> Node:
    status = NodeStatus(health=health)  # type: ignore[arg-type]
    return Node(metadata=Metadata(name="n"), spec=NodeSpec(zone="a", **spec), status=status)  # type: ignore[arg-type]


def test_nodes_that_people_closed_or_nobody_ever_heard_do_not_count() -> None:
    assert [standing(node(health)) for health in ("Ready", "Unknown", "Lost", "")] == [
        ("a", "Ready"), ("a", "Away"), ("a", "Away"), None
    ]  # fmt: skip
    assert standing(node("Lost", unschedulable=True)) is None
    assert standing(node("Lost", drain=DrainOrder())) is None
    doubted = node()
    suspect = Condition(type="ObservationSuspect", status="True", reason="ManySilent")
    assert standing(replace(doubted, status=replace(doubted.status, conditions=(suspect,)))) == ("a", "Suspect")


def test_zones_are_counted_one_by_one_and_the_many_together() -> None:
    assert zones_of({("b", "Away"): 1, ("a", "Ready"): 2, ("a", "Suspect"): 1}) == (zone("a", 3, 2, 1), zone("b", 1, 0))
    many = zones_of({(f"z{number:03}", "Ready"): 1 for number in range(ZONES_MAX + 10)})
    assert (len(many), many[0]) == (ZONES_MAX + 1, zone("", 10, 10))


def test_an_answer_that_a_region_has_not_taken_is_one_to_the_question_it_asked_last() -> None:
    def term(answered: int, asked: int, taken: int, asker: int = 1) -> GrantTerm:
        spec = GrantTermSpec(region="b", asker=asker, answered=answered)
        return GrantTerm(Metadata(name="b"), spec, GrantTermStatus(incarnation=1, asked=asked, taken=taken))

    assert untaken(None) == 0
    assert [untaken(term(*each)) for each in ((3, 3, 2), (3, 3, 3), (2, 3, 2), (3, 3, 2, 2))] == [3, 0, 0, 0]


def test_what_is_missing_of_a_region_is_told_once_and_that_it_is_back() -> None:
    def region(status: str, reason: str, message: str = "") -> Region:
        said = Condition(type="Partial", status=status, reason=reason, message=message)  # type: ignore[arg-type]
        return Region(Metadata(name="b"), status=RegionStatus(conditions=(said,)))

    def told(old: Region | None, new: Region) -> list[tuple[str, str, bool]]:
        return [(each.regarding, each.reason, each.warning) for each in of_region(old, new)]

    fresh, lost, whole = Region(Metadata(name="b")), region("True", "NodesLost"), region("False", "Whole")
    assert told(fresh, whole) == [], "it always was"
    assert told(fresh, lost) == told(whole, lost) == [("regions//b", "RegionPartial", True)]
    assert told(lost, region("True", "NodesLost", "another count")) == []
    assert told(lost, region("True", "ZoneLost")) == [("regions//b", "RegionPartial", True)]
    assert told(lost, region("Unknown", "Silent")) == []
    assert told(lost, whole) == [("regions//b", "RegionWhole", False)]
