"""A slot that was moved to make room keeps off the node it left for a while: any other is taken, nobody is evicted for it, those
the room was made for are woken as if it were not there, and when its time is over it may go back."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.decide.slots import instant
from fairlead.model.kinds.work import SchedulingRequest
from fairlead.scheduler.wakeups import NodeFreed
from tests.scheduler import queues
from tests.scheduler.fleets import NOW_MS, node, request, snapshot_of
from tests.scheduler.queues import GI, T0, at, names, queue, said
from tests.scheduler.test_cycle import Table, _policies, fill


def moved(name: str, off: str, until_ms: int = NOW_MS + 1, **fields: Any) -> SchedulingRequest:
    return request(name, left_node=off, left_until_time=instant(until_ms), **fields)


def test_it_goes_to_another_node_though_the_one_it_left_is_better() -> None:
    snapshot = snapshot_of(node("n0"), node("n1"), node("n2"))
    fill(snapshot, 1, "w-0", 2000)
    assert Table(snapshot).places(request("a-0")) == {"a-0": "n1"}
    snapshot = snapshot_of(node("n0"), node("n1"), node("n2"))
    fill(snapshot, 1, "w-0", 2000)
    assert Table(snapshot).places(moved("a-0", "n1")) == {"a-0": "n0"}


def test_only_until_its_time_is_over() -> None:
    assert Table(snapshot_of(node("n0"))).places(moved("a-0", "n0", NOW_MS)) == {"a-0": "n0"}
    failure = Table(snapshot_of(node("n0"))).failure(moved("a-0", "n0", NOW_MS + 1))
    assert (failure.reason, failure.gates) == ("WaitingForCapacity", {"capacity": 1})
    assert failure.detail == "it was moved off n0 to make room there, and no other node holds it now"


def test_a_node_that_is_gone_keeps_nobody_off() -> None:
    assert Table(snapshot_of(node("n0"))).places(moved("a-0", "n7")) == {"a-0": "n0"}


def test_others_of_its_shape_go_where_it_does_not() -> None:
    table = Table(snapshot_of(node("n0", cpu=2000)))
    runs = table.decide(moved("a-0", "n0"), request("a-1"), request("a-2"))
    assert {placement.name for run in runs for placement in run.placements} == {"a-1", "a-2"}
    assert [failure.item.name for run in runs for failure in run.failures] == ["a-0"]


def test_it_evicts_nobody_meanwhile() -> None:
    for until_ms, victims in ((NOW_MS + 1, []), (NOW_MS, [("search/w-0",)])):
        snapshot = snapshot_of(node("n0", cpu=1000), node("n1", cpu=1000))
        fill(snapshot, 0, "w-0", 1000, priority=100)
        fill(snapshot, 1, "w-1", 1000, priority=900)
        runs = Table(snapshot).decide(moved("a-0", "n1", until_ms))
        assert [placement.victims for run in runs for placement in run.placements] == victims


def test_a_node_that_is_drawn_at_random_is_not_the_one_it_left() -> None:
    nodes = [node(f"n{number}") for number in range(40)]
    for number in range(5):
        table = Table(snapshot_of(*nodes), _policies(), seed=number)
        assert table.places(moved("a-0", "n0", workload_class="best-effort")) != {"a-0": "n0"}


# --- while it waits ----------------------------------------------------------------------------------------------------------


def waiting(name: str, **fields: Any) -> SchedulingRequest:
    return queues.request(name=name, left_node="n1", left_until_time=at(15_000), **fields)


@pytest.mark.parametrize(("tried_ms", "latest_ms"), [(0, 1_200), (14_900, 15_000), (15_000, 16_200)])
def test_it_is_tried_again_when_its_time_is_over_at_the_latest(tried_ms: int, latest_ms: int) -> None:
    made = queue(waiting("api-0"))
    made.failed(made.take(1, T0)[0], "WaitingForCapacity", {"capacity"}, "", T0 + tried_ms)
    next_ms = said(made, "api-0").next_attempt_ms - T0
    assert tried_ms < next_ms <= latest_ms
    assert (next_ms == 15_000) == (tried_ms == 14_900)


@pytest.mark.parametrize(("node", "woken"), [("n1", ["api-0", "big-0"]), ("n2", ["api-0"])])
def test_room_on_the_node_it_left_is_counted_for_those_it_was_made_for(node: str, woken: list[str]) -> None:
    """It is the most urgent; what is freed is as much as the large one asks for."""
    made = queue(waiting("api-0", priority=900), queues.request(name="big-0", cpu=3000))
    for item in made.take(2, T0):
        made.failed(item, "WaitingForCapacity", {"cpu"}, "", T0)
    made.wake(NodeFreed(node, {"cpu": 3000, "memory": 8 * GI}), T0)
    assert names(made.take(2, T0)) == woken
