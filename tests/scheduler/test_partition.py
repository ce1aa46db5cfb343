"""How work is divided among schedulers: parts, gangs in one of them, and head starts that end when a part is left lying."""

from __future__ import annotations

import random
from typing import Any

import pytest

from fairlead.model.kinds.intent import Locality, Placement, Preference
from fairlead.model.kinds.work import SchedulingRequestStatus
from fairlead.scheduler.cycle import Cycle
from fairlead.scheduler.homes import Homes
from fairlead.scheduler.partition import MOMENT_MS, NEVER, HeadStart, Partition, Parts
from fairlead.scheduler.policies import Policies
from fairlead.scheduler.preempting import Preempting
from fairlead.scheduler.queue import Queue
from fairlead.scheduler.shapes import ShapeBook
from fairlead.scheduler.units import Item
from fairlead.scheduler.wakeups import NodeFreed
from tests.scheduler.fleets import node, snapshot_of
from tests.scheduler.fleets import request as fleet_request
from tests.scheduler.queues import GI, T0, names, queue, request, said

UIDS = [f"u-{n}" for n in range(1000)]
WAIT_MS = 500


# --- parts


@pytest.mark.parametrize("of", [1, 2, 4, 8])
def test_every_workload_is_in_exactly_one_part_and_parts_are_about_equal(of: int) -> None:
    parts = [Partition(index, of) for index in range(of)]
    owners = [[part.index for part in parts if part.has("risk", uid)] for uid in UIDS]
    assert all(len(found) == 1 for found in owners)
    sizes = [owners.count([index]) for index in range(of)]
    assert min(sizes) > 0.7 * len(UIDS) / of


def test_a_gang_of_several_workloads_is_in_one_part() -> None:
    part = Partition(0, 4)
    assert len({part.part_of("risk", uid, "train") for uid in UIDS}) == 1
    assert len({part.part_of("risk", UIDS[0], f"train{n}") for n in range(50)}) == 4
    assert len({part.part_of(f"t{n}", UIDS[0], "train") for n in range(50)}) == 4, "gangs of one name in two tenants are two"


def test_alone_everything_is_its_own_and_strict_parts_leave_the_rest_for_good() -> None:
    alone = Parts(Partition())
    strict = Parts(Partition(1, 3))
    assert all(alone.head_start("risk", uid) is None for uid in UIDS)
    for uid in UIDS:
        own = Partition(1, 3).has("risk", uid)
        assert strict.head_start("risk", uid) is (None if own else NEVER)


def test_the_next_in_the_ring_comes_first_and_each_one_after_waits_longer() -> None:
    waits: dict[int, list[int]] = {}
    for index in range(4):
        parts = Parts(Partition(index, 4, steal_after_ms=WAIT_MS))
        for uid in UIDS[:200]:
            start = parts.head_start("risk", uid)
            waits.setdefault(Partition(0, 4).part_of("risk", uid), [0] * 4)[index] = start.wait_ms if start is not None else 0
    assert waits == {
        0: [0, 500, 1000, 1500],
        1: [1500, 0, 500, 1000],
        2: [1000, 1500, 0, 500],
        3: [500, 1000, 1500, 0],
    }


# --- homes


def places_with(partition: Partition, ask: Any, count: int, *nodes: Any) -> list[str]:
    """Where `count` slots go, one after the other."""
    snapshot, policies = snapshot_of(*nodes), Policies()
    homes = Homes(partition, snapshot.names) if partition.of > 1 else None
    cycle = Cycle(snapshot, ShapeBook(snapshot, policies, homes), policies, Preempting(snapshot), random.Random(1))
    made = queue(*(ask(f"api-{index}") for index in range(count)))
    return [placement.node for run in cycle.decide(made.take(99, T0)) for placement in run.placements]


def test_every_node_is_home_to_exactly_one() -> None:
    parts = [Partition(index, 3) for index in range(3)]
    homes = [[part.index for part in parts if part.is_home(f"n{n}")] for n in range(300)]
    assert all(len(found) == 1 for found in homes)
    assert min(homes.count([index]) for index in range(3)) > 60


def test_schedulers_that_rate_nodes_alike_start_on_different_ones_and_leave_home_when_it_is_full() -> None:
    nodes = [node(f"n{n}", cpu=2000) for n in range(6)]
    took = [places_with(Partition(index, 2), fleet_request, 12, *nodes) for index in range(2)]
    for index, places in enumerate(took):
        own = {one.metadata.name for one in nodes if Partition(index, 2).is_home(one.metadata.name)}
        assert 0 < len(own) < 6
        assert set(places[: 2 * len(own)]) == own
        assert len(places) == 12, "others' nodes are open to it"
    alone = places_with(Partition(), fleet_request, 12, *nodes)
    assert alone[0] == alone[1], "without homes the fullest node comes first, for everybody"


def test_home_does_not_outweigh_what_a_workload_wishes() -> None:
    names = [f"n{n}" for n in range(6)]
    away = next(name for name in names if not Partition(0, 2).is_home(name))
    nodes = [node(name, zone="b" if name == away else "a") for name in names]
    assert places_with(Partition(0, 2), fleet_request, 1, *nodes) != [away]
    tight = [*nodes, node(away, cpu=1000, memory=GI, zone="b")]  # where a slot would fit best
    assert places_with(Partition(), fleet_request, 1, *tight) == [away]
    assert places_with(Partition(0, 2), fleet_request, 1, *tight) != [away]
    wish = Placement(preferences=(Preference(weight=20, locality=Locality(zones=("b",))),))
    assert places_with(Partition(0, 2), lambda name: fleet_request(name, placement=wish), 1, *nodes) == [away]


# --- head starts in the queue


def shared(*names: str, **fields: Any) -> tuple[Queue, HeadStart]:
    made, start = queue(), HeadStart(WAIT_MS)
    for name in names:
        made.upsert(request(name=name, **fields), T0, start)
    return made, start


def taken(made: Queue, now_ms: int) -> list[str]:
    made.due(now_ms)
    return names(made.take(99, now_ms))


def test_anothers_work_is_tried_when_its_head_start_is_over_and_not_before() -> None:
    made, _ = shared("api-0", "api-1")
    made.upsert(request(name="own-0"), T0)
    assert taken(made, T0) == ["own-0"]
    assert made.next_due_ms() == T0 + WAIT_MS
    assert said(made, "api-0").next_attempt_ms == T0 + WAIT_MS
    assert taken(made, T0 + WAIT_MS - 1) == []
    assert taken(made, T0 + WAIT_MS) == ["api-0", "api-1"]


def test_as_long_as_somebody_settles_work_of_a_part_the_rest_of_it_is_left_to_him() -> None:
    made, start = shared("api-0", "api-1", "api-2")
    made.remove("risk", "api-0", T0 + 400)
    assert start.alive_ms == T0 + 400
    assert taken(made, T0 + WAIT_MS) == []
    assert made.next_due_ms() == T0 + 400 + WAIT_MS
    made.remove("risk", "api-1", T0 + 800)
    assert taken(made, T0 + 900) == []
    assert taken(made, T0 + 800 + WAIT_MS) == ["api-2"]


def test_a_part_left_lying_is_taken_over_a_few_at_first_and_then_faster() -> None:
    made, start = shared(*(f"api-{n}" for n in range(500)))
    now, took = T0 + WAIT_MS, list[int]()
    while sum(took) < 500:
        made.due(now)
        items = made.take(999, now)
        for item in items:
            made.placed(item)
        took.append(len(items))
        now += MOMENT_MS
    assert took == [32, 64, 128, 256, 20]
    assert start.alive_ms == 0


def test_one_who_was_only_slow_loses_a_few_races_and_not_his_part() -> None:
    made, _ = shared(*(f"api-{n}" for n in range(500)))
    now = T0 + WAIT_MS
    made.due(now)
    items = made.take(999, now)
    for item in items:
        made.gone(item, now + 20)  # he had them all bound
    assert len(items) == 32
    assert taken(made, now + 20 + WAIT_MS - 1) == []
    assert len(taken(made, now + 20 + WAIT_MS)) == 32, "few again"


def test_what_this_scheduler_settled_itself_is_no_sign_of_another() -> None:
    made, start = shared("api-0", "api-1")
    made.due(T0 + WAIT_MS)
    first, second = made.take(9, T0 + WAIT_MS)
    made.placed(first)
    made.remove("risk", "api-0", T0 + WAIT_MS + 5)  # the watch says so too
    made.remove("risk", "api-1", T0 + WAIT_MS + 5)  # and is ahead of the answer here
    made.placed(second)
    assert start.alive_ms == 0
    made.upsert(request(name="api-2"), T0 + 1000, start)
    assert taken(made, T0 + 1000 + WAIT_MS) == ["api-2"]


def test_a_race_lost_to_its_owner_is_a_sign_of_him() -> None:
    made, start = shared("api-0", "api-1")
    made.due(T0 + WAIT_MS)
    first, second = made.take(9, T0 + WAIT_MS)
    made.give_back(first, T0 + 600)
    assert start.alive_ms == T0 + 600
    assert taken(made, T0 + 600) == [], "not at once, as one's own would go"
    made.gone(second, T0 + 700)
    assert taken(made, T0 + 1100) == []
    assert taken(made, T0 + 700 + WAIT_MS) == ["api-0"]


def test_what_wakes_it_leaves_its_owner_the_first_try_again() -> None:
    made, _ = shared("api-0")
    now = T0 + WAIT_MS
    made.due(now)
    made.failed(made.take(1, now)[0], "WaitingForCapacity", ("cpu",), "", now)
    assert made.wake(NodeFreed("n1", {"cpu": 1000, "memory": GI}), now + 10) == 1
    assert taken(made, now + 10) == []
    assert taken(made, now + 10 + WAIT_MS) == ["api-0"]


def test_work_taken_over_is_not_counted_as_progress_of_the_resync() -> None:
    made, _ = shared("api-0")
    made.due(T0 + WAIT_MS)
    made.placed(made.take(1, T0 + WAIT_MS)[0])
    assert made.meters(T0 + WAIT_MS).resync_only_progress_total == 0


def test_a_gang_of_another_part_goes_whole_after_its_head_start() -> None:
    made, _ = shared("fit-0", "fit-1", gang="fit", gang_size=2)
    assert taken(made, T0) == []
    assert taken(made, T0 + WAIT_MS) == ["fit-0", "fit-1"]


def test_a_hold_that_ends_leaves_its_owner_the_first_try() -> None:
    made, _ = shared("api-0")
    made.hold("risk", "api", "ada", T0 + 2000, T0)
    assert taken(made, T0 + WAIT_MS) == []
    made.release("risk", "api", T0 + 1000)
    assert taken(made, T0 + 1000) == []
    assert taken(made, T0 + 1000 + WAIT_MS) == ["api-0"]


def test_while_a_tenant_is_on_hold_no_head_start_runs_out() -> None:
    made, _ = shared("api-0")
    made.hold("risk", "", "ada", T0 + 60_000, T0)
    assert taken(made, T0 + 10 * WAIT_MS) == []
    made.release("risk", "", T0 + 10 * WAIT_MS + 1)
    assert taken(made, T0 + 10 * WAIT_MS + 1) == []
    assert taken(made, T0 + 11 * WAIT_MS) == ["api-0"]


def test_what_is_gone_by_the_authoritys_word_is_queued_no_more_and_comes_back_with_its_next_life() -> None:
    made = queue(request(name="api-0"), request(name="api-1"))
    first, second = made.take(2, T0)
    made.gone(first, T0)
    made.remove("risk", "api-0", T0)
    made.upsert(request(name="api-1", epoch=2), T0)
    made.gone(second, T0)
    assert made.meters(T0).pending == {"ready": 1, "taken": 0, "backoff": 0, "held": 0}
    (again,) = made.take(9, T0)
    assert again.request.spec.epoch == 2
    assert made._tenants["risk"].used["cpu"] == 1000, "what has gone is charged to nobody"


def test_a_member_that_joins_a_waiting_gang_is_said_to_wait_too() -> None:
    made = queue(request(name="fit-0", gang="fit", gang_size=3))
    assert [item.name for item, _ in made.said(9)] == ["fit-0"]
    made.upsert(request(name="fit-1", gang="fit", gang_size=3), T0)
    assert [(item.name, item.reason) for item, _ in made.said(9)] == [("fit-1", "WaitingForGang")]
    told = SchedulingRequestStatus(reason="WaitingForGang", detail="")
    made.upsert(request(name="fit-2", gang="fit", gang_size=4, status=told), T0)
    assert isinstance(made._tenants["risk"].items["fit-2"], Item)
