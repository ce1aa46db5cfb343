"""A node that is there and not called so is found, and one that is watched because it came and went is not, for as long."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal

import pytest

from fairlead.decide.nodes import NodeRules
from fairlead.model.kinds.capacity import Node, NodeSpec, NodeStatus
from fairlead.model.meta import Metadata
from fairlead.observe.returned import FLAPS_MAX, HEARD_S, STEADY_S, ReturnChecker, watched_s

Health = Literal["", "Ready", "Unknown", "Lost"]
LIFE = {"n": "agent n.1 under 1"}


def objects(health: Health = "Ready", *, schedulable: bool = True, flaps: int = 0, going: bool = False) -> Any:
    made = Metadata(name="n", deletion_time=datetime(2026, 1, 1, tzinfo=UTC) if going else None)
    status = NodeStatus(health=health, schedulable=schedulable, flaps=flaps)
    return {"nodes": {("", "n"): Node(made, NodeSpec(region="us"), status)}}


def said(checker: ReturnChecker, now_s: float, region: Any, there: dict[str, str] = LIFE) -> list[str]:
    return [one.detail for one in checker.look(now_s, "us", region, there)]


@pytest.mark.parametrize(
    ("region", "lacks"),
    [
        (objects(), ""),
        (objects("Unknown"), "Unknown"),
        (objects("Lost", schedulable=False), "Lost"),
        (objects(""), "not Ready"),
        (objects(schedulable=False), "not schedulable"),
        (objects("Lost", flaps=3), "Lost"),
        (objects("Unknown", going=True), ""),
        ({"nodes": {}}, ""),
    ],
)
def test_what_a_node_that_is_there_lacks_is_said(region: Any, lacks: str) -> None:
    assert said(ReturnChecker(), 0.0, region) == ([f"n is there, and in us it is {lacks}"] if lacks else [])


def test_nothing_is_asked_of_a_node_that_is_not_there() -> None:
    assert said(ReturnChecker(), 0.0, objects("Lost"), {}) == []


@pytest.mark.parametrize(("flaps", "bound_s"), [(1, 40.0), (4, 110.0), (6, 350.0), (60, 350.0)])
def test_one_that_came_and_went_is_watched_for_as_long_as_its_flaps_say_and_no_longer(flaps: int, bound_s: float) -> None:
    checker, region = ReturnChecker(), objects("Unknown", flaps=flaps)
    assert said(checker, 100.0, region) == []
    assert said(checker, 100.0 + bound_s - 1, region) == []
    assert said(checker, 100.0 + bound_s, region) == ["n is there, and in us it is Unknown"]


def test_time_counts_anew_for_another_life_of_its_agent_or_under_another_leader_and_when_it_was_away() -> None:
    checker, region = ReturnChecker(), objects("Unknown", flaps=1)
    said(checker, 0.0, region)
    assert said(checker, 50.0, region, {"n": "agent n.2 under 1"}) == []
    said(checker, 60.0, region, {})
    assert said(checker, 95.0, region, {"n": "agent n.2 under 1"}) == []


def test_those_that_came_back_are_counted_once() -> None:
    checker = ReturnChecker()
    for now_s, health in enumerate(("Ready", "Unknown", "Unknown", "Ready", "Ready")):
        said(checker, float(now_s), objects(health, flaps=1))  # type: ignore[arg-type]
    assert checker.checked == 1


def test_it_waits_as_long_as_the_node_controller_may_watch() -> None:
    rules = NodeRules()
    assert (rules.steady_s, rules.flaps_max) == (STEADY_S, FLAPS_MAX)
    longest = objects("Unknown", flaps=rules.flaps_max)["nodes"]["", "n"]
    assert watched_s(longest) == HEARD_S + (int(rules.steady_s) << rules.flaps_max)
