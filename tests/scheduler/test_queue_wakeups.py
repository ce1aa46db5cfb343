"""What changed, and whom it wakes: the right ones, no more than it could take, without looking at all the others."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.decide.fit import GATES
from fairlead.model.kinds.intent import AffinityRule, LabelExpression, Placement
from fairlead.model.resources import DeviceAsk
from fairlead.scheduler.queue import Queue
from fairlead.scheduler.wakeups import (
    TOPICS,
    TOPICS_OF_GATE,
    GrantGrew,
    NodeFreed,
    NodeOpened,
    PlacementsChanged,
    PlaneReached,
    PolicyPromoted,
    ReservationEnded,
    SlotsCame,
    topics_of,
)
from tests.scheduler.queues import GI, T0, names, queue, request

ROOM = {"cpu": 64_000, "memory": 256 * GI}
FREED, OPENED = NodeFreed("n1", ROOM), NodeOpened("n1", ROOM)
EVERYTHING: dict[str, Any] = {
    "freed": FREED,
    "opened": OPENED,
    "ended": ReservationEnded("n1", ROOM),
    "grant": GrantGrew("risk"),
    "policy": PolicyPromoted(2),
    "placements": PlacementsChanged("u-api"),
    "came": SlotsCame("u-api"),
    "plane": PlaneReached(),
}


def blocked(gates: tuple[str, ...], reason: str = "WaitingForCapacity", **spec: Any) -> Queue:
    made = queue(request(**spec))
    made.failed(made.take(1, T0)[0], reason, gates, "", T0)
    return made


@pytest.mark.parametrize(
    ("gate", "wakes"),
    [
        ("cpu", {"freed", "opened", "ended"}),
        ("memory", {"freed", "opened", "ended"}),
        ("devices", {"freed", "opened", "ended"}),
        ("labels", {"opened"}),
        ("taints", {"opened"}),
        ("cordon", {"opened"}),
        ("health", {"opened"}),
        ("observation", {"opened"}),
        ("tenancy", {"opened", "policy"}),
        ("quota", {"grant"}),
        ("residency", {"policy", "plane"}),
        ("spread", {"placements", "came"}),
        ("affinity", {"placements", "came"}),
        ("anti-affinity", {"placements"}),
        ("max-per-node", {"freed", "opened", "ended", "placements"}),
        ("ports", {"freed", "opened", "ended", "placements"}),
        ("a-plug-in-of-theirs", set(EVERYTHING)),
    ],
)
def test_each_gate_is_woken_by_what_may_open_it_and_by_nothing_else(gate: str, wakes: set[str]) -> None:
    assert {name for name, change in EVERYTHING.items() if blocked((gate,)).wake(change, T0)} == wakes


def test_every_built_in_gate_has_its_topics() -> None:
    unknown = [gate.name for gate in GATES if gate.name not in TOPICS_OF_GATE]
    assert not unknown, "a gate that is not in the table is woken by everything"


@pytest.mark.parametrize(
    ("reason", "wakes"),
    [
        ("WaitingForQuota", {"grant"}),
        ("ExceedsMaxQuota", {"grant"}),
        ("NoMatchingCapacity", {"opened"}),
        ("WaitingForCapacity", {"freed", "opened", "ended"}),
        ("PolicyAuthorityUnreachable", {"plane", "policy"}),
        ("Misconfigured", set()),
    ],
)
def test_a_reason_without_gates_is_woken_by_what_may_end_it(reason: str, wakes: set[str]) -> None:
    assert {name for name, change in EVERYTHING.items() if blocked((), reason).wake(change, T0)} == wakes


def test_any_of_several_gates_may_be_the_one() -> None:
    assert topics_of("WaitingForCapacity", ("labels", "quota", "cpu")) == ("capacity", "nodes", "quota")
    assert topics_of("WaitingForCapacity", ("what-is-this",)) == TOPICS
    made = blocked(("cpu", "quota"))
    assert made.wake(GrantGrew("risk"), T0) == 1
    assert made.wake(FREED, T0) == 0, "it is ready already"
    assert len(made.take(5, T0)) == 1


def test_a_small_freed_amount_does_not_wake_a_large_request() -> None:
    made = blocked(("cpu",), cpu=8_000)
    assert made.wake(NodeFreed("n1", {"cpu": 7_999, "memory": 64 * GI}), T0) == 0
    assert made.wake(NodeFreed("n1", {"cpu": 8_000, "memory": GI - 1}), T0) == 0
    assert made.wake(NodeFreed("n1", {"cpu": 8_000, "memory": GI}), T0) == 1


def test_a_node_without_the_device_wakes_nobody_who_needs_one() -> None:
    made = blocked(("devices",), devices=(DeviceAsk(count=2),))
    assert made.wake(NodeFreed("n1", {**ROOM, "device:gpu": 1_000}), T0) == 0
    assert made.wake(NodeFreed("n1", ROOM), T0) == 0
    assert made.wake(NodeFreed("n1", {**ROOM, "device:gpu": 2_000}), T0) == 1


def many(count: int, gate: str = "cpu", **limits: int) -> Queue:
    made = queue(*(request(name=f"w-{i:03}", created=i) for i in range(count)), **limits)
    for item in made.take(count, T0):
        made.failed(item, "WaitingForCapacity", (gate,), "", T0)
    return made


def test_a_change_readies_what_it_could_take_and_the_others_keep_their_timers() -> None:
    made = many(50)
    assert made.wake(NodeFreed("n1", {"cpu": 3_500, "memory": 64 * GI}), T0) == 3
    assert names(made.take(9, T0)) == ["w-000", "w-001", "w-002"], "the oldest"
    assert made.meters(T0).pending["backoff"] == 47
    assert made.due(T0 + 2_000) == 47


def test_a_node_with_few_slots_left_wakes_few() -> None:
    assert many(9).wake(NodeFreed("n1", {**ROOM, "slots": 2}), T0) == 2
    assert many(9).wake(NodeFreed("n1", {**ROOM, "slots": 0}), T0) == 0


def test_a_change_that_brings_no_capacity_is_bounded_by_number() -> None:
    made = many(50, "residency", wake_max=20)
    assert [made.wake(PolicyPromoted(2), T0) for _ in range(4)] == [20, 20, 10, 0]


def test_a_grant_that_grew_by_a_known_amount_wakes_no_more_than_that() -> None:
    made = many(50, "quota")
    assert made.wake(GrantGrew("other"), T0) == 0
    assert made.wake(GrantGrew("risk", {"cpu": 2_000, "memory": 9 * GI}), T0) == 2
    assert made.wake(GrantGrew("risk"), T0) == 48


def test_the_most_urgent_is_woken_first_and_what_is_left_goes_to_those_that_fit() -> None:
    made = queue(
        request(name="big-0", cpu=6_000, priority=5),
        request(name="huge-0", cpu=7_900, priority=9),
        request(name="small-0", cpu=1_500, created=1),
        request(name="small-1", cpu=1_500, created=2),
        request(name="tiny-0", cpu=400, created=3),
    )
    for item in made.take(9, T0):
        made.failed(item, "WaitingForCapacity", ("cpu",), "", T0)
    assert made.wake(NodeFreed("n1", {"cpu": 7_950, "memory": 64 * GI}), T0) == 1
    assert names(made.take(9, T0)) == ["huge-0"]
    assert made.wake(NodeFreed("n2", {"cpu": 7_800, "memory": 64 * GI}), T0) == 2
    assert names(made.take(9, T0)) == ["big-0", "small-0"]
    assert made.wake(NodeFreed("n2", {"cpu": 1_000, "memory": 64 * GI}), T0) == 1
    assert names(made.take(9, T0)) == ["tiny-0"]


def test_placements_wake_their_own_workload_and_those_whose_rules_name_them() -> None:
    rule = AffinityRule(match=(LabelExpression(key="app", operator="In", values=("db", "cache")),))
    odd = AffinityRule(match=(LabelExpression(key="app", operator="Exists"),))

    def made(placement: Placement | None = None) -> Queue:
        return blocked(("anti-affinity",), placement=placement)

    db = PlacementsChanged("u-db", (("app", "db"), ("tier", "1")))
    assert made().wake(PlacementsChanged("u-api"), T0) == 1
    assert made().wake(db, T0) == 0
    assert made(Placement(anti_affinity=(rule,))).wake(db, T0) == 1
    assert made(Placement(affinity=(rule,))).wake(db, T0) == 1
    assert made(Placement(anti_affinity=(rule,))).wake(PlacementsChanged("u-x", (("app", "web"),)), T0) == 0
    assert made(Placement(anti_affinity=(odd,))).wake(PlacementsChanged("u-x", (("tier", "1"),)), T0) == 1
    assert made().wake(PlacementsChanged("u-x", repels=True), T0) == 1, "what repels it went away"


def test_slots_that_come_wake_those_who_are_to_be_near_them_and_not_those_who_keep_away() -> None:
    rule = AffinityRule(match=(LabelExpression(key="app", operator="In", values=("db", "cache")),))
    odd = AffinityRule(match=(LabelExpression(key="app", operator="Exists"),))

    def made(placement: Placement) -> Queue:
        return blocked(("affinity",), placement=placement)

    db = SlotsCame("u-db", (("app", "db"), ("tier", "1")))
    assert made(Placement(affinity=(rule,))).wake(db, T0) == 1
    assert made(Placement(affinity=(odd,))).wake(db, T0) == 1
    assert made(Placement(affinity=(rule,))).wake(SlotsCame("u-x", (("app", "web"),)), T0) == 0
    assert made(Placement(anti_affinity=(rule,))).wake(db, T0) == 0


def test_slots_that_come_wake_a_few_of_those_who_wait_for_them() -> None:
    made = many(200, "spread")
    assert made.wake(SlotsCame("u-w"), T0) == 64
    assert made.wake(SlotsCame("u-other"), T0) == 0


def test_the_end_of_its_own_reservation_wakes_a_request_by_name() -> None:
    made = blocked((), "WaitingForVictims", cpu=9_000)
    assert made.wake(ReservationEnded("n1", {"cpu": 100}, "risk", "other-0"), T0) == 0
    assert made.wake(ReservationEnded("n1", {"cpu": 100}, "risk", "api-0"), T0) == 1


def test_a_wake_looks_at_few_of_those_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand wait for more than there is, one for what there is: the one is found without a look at the others."""
    from fairlead.scheduler import wakeups

    made = queue(*(request(name=f"w-{i}", cpu=8_000 + i, priority=5) for i in range(2_000)), request(name="fits-0", created=9))
    for item in made.take(3_000, T0):
        made.failed(item, "WaitingForCapacity", ("cpu",), "", T0)
    looks = 0
    real = wakeups._fits

    def counted(*args: Any) -> bool:
        nonlocal looks
        looks += 1
        return real(*args)

    monkeypatch.setattr(wakeups, "_fits", counted)
    assert made.wake(NodeFreed("n1", {"cpu": 4_000, "memory": GI}), T0) == 1
    assert looks <= 2
    assert made.wake(NodeFreed("n1", {"cpu": 8_000, "memory": GI - 1}), T0) == 0


def test_what_is_too_large_and_more_urgent_does_not_hide_what_fits() -> None:
    """In each size class that the freed amount lies in the middle of, the most urgent ones are too large."""
    made = queue(
        *(request(name=f"large-{i}", cpu=4_050 + i, memory=(i % 12 + 1) * GI, priority=9) for i in range(200)),
        *(request(name=f"fits-{i}", cpu=1_000, created=i) for i in range(9)),
    )
    for item in made.take(300, T0):
        made.failed(item, "WaitingForCapacity", ("cpu",), "", T0)
    assert made.wake(NodeFreed("n1", {"cpu": 4_049, "memory": 16 * GI}), T0) == 4


def test_entries_of_those_that_left_do_not_pile_up() -> None:
    made = queue(request())
    now = T0
    for _ in range(2_000):
        made.failed(made.take(1, now)[0], "WaitingForCapacity", ("cpu", "labels", "spread", "quota"), "", now)
        assert made.wake(FREED, now) == 1
    assert sum(len(heap.heap) for heap in (*made._wakeups._lists.values(), *made._wakeups._buckets.values())) < 2_000
    assert len(made._timers.heap) < 1_000
    for index in range(3_000):
        made.upsert(request(name="other-0", generation=index + 1, deadline=50_000), now)
    assert max(len(made._ages.heap), len(made._deadlines.heap)) < 1_000
    line = made._tenants["risk"].lines[0]
    assert len(line.heap) + len(line.run) < 200


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(0, 6_000), st.integers(0, 8), st.integers(0, 2)), min_size=1, max_size=25),
    cpu=st.integers(0, 9_000),
    memory=st.integers(0, 12),
)
def test_what_is_woken_always_fits_together_in_what_was_freed(sizes: list[tuple[int, int, int]], cpu: int, memory: int) -> None:
    made = queue(*(request(name=f"w-{i}", cpu=c, memory=m * GI, priority=p) for i, (c, m, p) in enumerate(sizes)))
    for item in made.take(100, T0):
        made.failed(item, "WaitingForCapacity", ("cpu", "labels"), "", T0)
    woken = made.wake(NodeOpened("n1", {"cpu": cpu, "memory": memory * GI}), T0)
    items = made.take(100, T0)
    assert len(items) == woken
    total = [sum(getattr(item.request.spec.ask.requests, name) for item in items) for name in ("cpu", "memory")]
    assert total[0] <= cpu
    assert total[1] <= memory * GI
    waits = [item for item in made._tenants["risk"].items.values() if item.state == 2]
    if not items and len(sizes) <= 2:
        ask = [item.request.spec.ask.requests for item in waits]
        assert not any(each.cpu <= cpu and each.memory <= memory * GI for each in ask), "something would have fitted"
