"""Moves proposed from a picture: off by default, one plan at a time, what stays and what it costs."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.controllers.contract import Result, View
from fairlead.controllers.defragmenter import LOOK_AGAIN_MS, LOOK_MS, SETTLE_MS, DefragmenterController
from fairlead.controllers.garbage import EVICTION_KEPT_MS, GarbageController
from fairlead.decide.defragmenting import DEADLINE_MS, HOUR_MS, REQUESTER
from fairlead.decide.slots import instant
from fairlead.model import codec
from fairlead.model.commands import Delete, Put
from fairlead.model.hot import hot_from
from fairlead.model.kinds.capacity import Node, NodePool, NodePoolSpec, NodeSpec, NodeStatus, Reservation, ReservationSpec
from fairlead.model.kinds.intent import JobRule, Placement
from fairlead.model.kinds.policy import Defragmentation, PolicyChannel, PolicyChannelSpec, SchedulerPolicy, SchedulerPolicySpec
from fairlead.model.kinds.slot import SlotRef, Token
from fairlead.model.kinds.work import (
    Ask,
    Assignment,
    AssignmentSpec,
    Binding,
    BindingSpec,
    BindingStatus,
    EvictionRequest,
    EvictionRequestSpec,
    EvictionRequestStatus,
    Revision,
    RevisionSpec,
    SchedulingRequest,
    SchedulingRequestSpec,
    SchedulingRequestStatus,
)
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Condition, Metadata
from fairlead.model.resources import Resources
from tests.controllers.test_repair import Row

NOW = 10_000_000
RULES = Defragmentation()
T = "risk"
_S = SlotState


class Region:
    """Two nodes of four cores: three slots of one core on a, two on b. What waits asks for two cores and finds one on each of
    them."""

    def __init__(self, rules: Defragmentation | None = RULES) -> None:
        self.controller = DefragmenterController("east")
        self.view = View(self.controller.indexes, {})
        self._position = 0
        policy = SchedulerPolicySpec(revision=3, defragmentation=rules)
        self.put("schedulerpolicies", SchedulerPolicy(metadata=Metadata(name="r3"), spec=policy))
        self.put("policychannels", PolicyChannel(metadata=Metadata(name="default"), spec=PolicyChannelSpec(current=3)))
        self.node("a", 4000)
        self.node("b", 3000)
        self.work()
        for index, node in enumerate("aaabb"):
            self.slot(index, node)
        self.waits(2000)

    def put(self, plural: str, value: Any) -> None:
        self._position += 1
        meta = value.metadata
        row = Row(plural, meta.namespace, meta.name, self._position, codec.encode(value), hot_from(plural, value))
        self.view.cache.apply(row)

    def node(self, name: str, cpu: int, **spec: Any) -> None:
        made = NodeSpec(region="east", pool="general", allocatable=Resources(cpu, 1 << 30), **spec)
        status = NodeStatus(health="Ready", schedulable=True)
        self.put("nodes", Node(metadata=Metadata(name=name), spec=made, status=status))

    def work(self, ask: Ask | None = None, execution: Any = "Replicated", **order: Any) -> None:
        spec = AssignmentSpec(workload="api", workload_uid="u", generation=1, region="east", **order)
        self.put("assignments", Assignment(metadata=Metadata(name="api.east", namespace=T), spec=spec))
        made = RevisionSpec(
            workload="api", workload_uid="u", generation=1, ask=ask or Ask(requests=Resources(1000, 0)), execution=execution
        )
        self.put("revisions", Revision(metadata=Metadata(name="api.g1", namespace=T), spec=made))

    def slot(self, index: int, node: str, state: SlotState = _S.SERVING, epoch: int = 1) -> None:
        ref = SlotRef(workload="api", uid="u", index=index)
        spec = BindingSpec(slot=ref, node=node, token=Token(1, epoch, 1), generation=1, requests=Resources(1000, 0))
        meta = Metadata(name=f"api-{index}", namespace=T)
        self.put("bindings", Binding(metadata=meta, spec=spec, status=BindingStatus(state=state)))

    def waits(self, cpu: int, reason: str = "WaitingForCapacity", ask: Ask | None = None, workload: str = "big") -> None:
        ref = SlotRef(workload=workload, uid="v", index=0)
        spec = SchedulingRequestSpec(slot=ref, ask=ask or Ask(requests=Resources(cpu, 0)))
        status = SchedulingRequestStatus(reason=reason)
        self.put("schedulingrequests", SchedulingRequest(Metadata(name=f"{workload}-0", namespace=T), spec, status))

    def look(self, at_ms: int = NOW) -> Result:
        return self.controller.reconcile(("", "moves"), self.view, at_ms)

    def asked(self, at_ms: int = NOW) -> list[str]:
        bodies: list[Any] = list(self.look(at_ms).bodies)
        return [body.object.metadata.name for body in bodies]


def test_it_does_nothing_unless_the_policy_in_force_says_so() -> None:
    assert Region(None).look() == Result()
    other = Region()
    other.put("policychannels", PolicyChannel(metadata=Metadata(name="default"), spec=PolicyChannelSpec(current=2)))
    assert other.look() == Result()


def test_a_slot_is_asked_to_leave_for_one_that_waits_with_a_deadline_and_about_this_life_only() -> None:
    region = Region()
    result = region.look()
    assert result.wake_ms == NOW + LOOK_AGAIN_MS
    (body,) = result.bodies
    request: EvictionRequest = body.object  # type: ignore[union-attr]
    assert request.spec.requester == REQUESTER
    assert request.spec.deadline_time is not None
    assert (request.spec.epoch, request.spec.slot.uid) == (1, "u")
    assert request.spec.policy_revision == 3, "whose rules ask for it"
    assert "defragmentation" in request.spec.reason


def test_one_plan_at_a_time_and_a_new_holder_waits_first() -> None:
    region = Region()
    region.view.since_ms = NOW - SETTLE_MS + 1
    assert region.asked() == []
    assert len(region.asked(NOW + 1)) == 1
    spec = EvictionRequestSpec(slot=SlotRef(workload="api", uid="u", index=0), reason="x", requester=REQUESTER)
    region.put("evictionrequests", EvictionRequest(metadata=Metadata(name="api-0", namespace=T), spec=spec))
    assert region.asked(NOW + 2) == []


def test_no_more_are_asked_in_an_hour_than_the_policy_allows() -> None:
    region = Region(Defragmentation(per_hour=1))
    assert len(region.asked()) == 1
    assert region.asked(NOW + HOUR_MS - 1) == []
    assert len(region.asked(NOW + HOUR_MS)) == 1


def kept(region: Region, index: int, at_ms: int, requester: str = REQUESTER, reason: str = "Evicted") -> None:
    """A request of that time that has ended, as the garbage controller keeps it."""
    slot = SlotRef(workload="api", uid="u", index=index)
    spec = EvictionRequestSpec(slot=slot, reason="x", requester=requester, deadline_time=instant(at_ms + DEADLINE_MS), epoch=7)
    done = Condition("Done", "True", 1, instant(at_ms + 1000), reason)
    status = EvictionRequestStatus(observed_generation=1, conditions=(done,))
    region.put("evictionrequests", EvictionRequest(Metadata(name=f"api-{index}", namespace=T, generation=1), spec, status))


def test_another_holder_counts_what_the_one_before_asked_for_in_the_hour() -> None:
    region = Region(Defragmentation(per_hour=2))
    kept(region, 8, NOW - HOUR_MS + 1)
    kept(region, 9, NOW - HOUR_MS)
    assert len(region.asked()) == 1, "one was asked for within the hour"
    again = Region(Defragmentation(per_hour=2))
    for index, at_ms in ((8, NOW - HOUR_MS + 1), (9, NOW - 1000)):
        kept(again, index, at_ms)
    assert again.asked() == []
    assert len(again.asked(NOW + 1)) == 1, "an hour after the first"
    other = Region(Defragmentation(per_hour=1))
    kept(other, 8, NOW - 1000, requester="ada")
    assert len(other.asked()) == 1, "somebody else's move"


def test_what_this_holder_has_asked_for_is_counted_once() -> None:
    region = Region(Defragmentation(per_hour=2))
    (name,) = region.asked()
    kept(region, int(name[-1]), NOW)
    assert len(region.asked(NOW + 1000)) == 1


def test_a_slot_that_was_moved_stays_for_an_hour_and_one_that_was_only_asked_may_be_asked_again() -> None:
    region = Region()
    for index in range(5):
        kept(region, index, NOW - 1000)
    assert region.asked() == []
    assert region.asked(NOW + HOUR_MS - 1001) == []
    assert len(region.asked(NOW + HOUR_MS - 1000)) == 1
    expired = Region()
    for index in range(5):
        kept(expired, index, NOW - 1000, reason="Expired")
    assert len(expired.asked()) == 1


def test_a_slot_that_was_moved_stays_for_an_hour_though_a_rollout_has_asked_it_to_leave_since() -> None:
    region = Region()
    (name,) = region.asked()
    for index in range(5):
        if f"api-{index}" != name:
            kept(region, index, NOW)
    kept(region, int(name[-1]), NOW, requester="rollout-controller")
    assert region.asked(NOW + HOUR_MS - 1) == []
    assert len(region.asked(NOW + HOUR_MS)) == 1


def test_no_other_plan_is_made_before_what_moves_has_left_and_has_a_place() -> None:
    """A request ends when its slot drains, which may take minutes."""
    region = Region(Defragmentation(per_hour=9))
    kept(region, 0, NOW)
    region.slot(0, "a", _S.DRAINING, epoch=7)
    assert region.asked() == []
    region.slot(0, "a", _S.RELEASED, epoch=7)
    region.waits(1000, "PendingEvaluation", workload="api")
    assert region.asked() == [], "it is in the queue"
    region.view.cache.apply(Row("schedulingrequests", T, "api-0", 999, None, None))
    region.slot(0, "a", epoch=8)
    assert len(region.asked()) == 1


def filed(region: Region, *conditions: Condition) -> None:
    """What it asks for is in the plane, and is not done."""
    for body in region.look().bodies:
        assert isinstance(body, Put)
        asked: EvictionRequest = body.object
        status = EvictionRequestStatus(observed_generation=1, conditions=conditions)
        region.put("evictionrequests", replace(asked, metadata=replace(asked.metadata, generation=1), status=status))


def taken_back(region: Region) -> list[str]:
    result = region.look(NOW + 1000)
    assert all(isinstance(body, Delete) and body.expected_revision for body in result.bodies)
    assert result.wake_ms is not None
    return [body.name for body in result.bodies if isinstance(body, Delete)]


def test_a_move_that_a_budget_holds_up_is_looked_at_every_second_and_stands_while_nothing_changes() -> None:
    region = Region()
    filed(region, Condition("Approved", "False", 1, instant(NOW), "TooFewServe"))
    assert region.look(NOW + 1000) == Result((), NOW + 1000 + LOOK_AGAIN_MS)


def test_a_move_that_is_held_up_is_taken_back_when_there_is_no_place_for_it_or_no_room_made_any_more() -> None:
    full = Region()
    filed(full)
    full.slot(5, "b")
    assert taken_back(full) == ["api-0"], "something was bound where it was to go"
    closed = Region()
    filed(closed)
    closed.node("b", 3000, unschedulable=True)
    assert taken_back(closed) == ["api-0"]
    taken = Region()
    filed(taken)
    taken.slot(5, "a")
    assert taken_back(taken) == ["api-0"], "something was bound where room was to be made"
    placed = Region()
    filed(placed)
    placed.view.cache.apply(Row("schedulingrequests", T, "big-0", 999, None, None))
    assert taken_back(placed) == ["api-0"], "nothing waits any more"


def test_a_move_that_is_approved_goes_on_and_one_that_was_taken_back_may_be_asked_again() -> None:
    region = Region()
    filed(region, Condition("Approved", "True", 1, instant(NOW), "WithinBudget"))
    region.slot(5, "b")
    assert region.look(NOW + 1000) == Result((), NOW + 1000 + LOOK_MS)
    again = Region()
    filed(again)
    again.slot(5, "b")
    assert taken_back(again) == ["api-0"]
    again.view.cache.apply(Row("evictionrequests", T, "api-0", 999, None, None))
    again.view.cache.apply(Row("bindings", T, "api-5", 999, None, None))
    assert again.asked(NOW + LOOK_MS) == ["api-0"], "it has not moved"


def test_its_requests_are_kept_for_the_hour_and_others_a_minute() -> None:
    region, garbage = Region(), GarbageController()
    region.view = view = View(garbage.indexes, {})
    region.work()

    def look(at_ms: int) -> tuple[list[str], int | None]:
        found = garbage.reconcile((T, "api"), view, at_ms)
        gone = [body.name for body in found.bodies if isinstance(body, Delete)]
        for name in gone:
            view.cache.apply(Row("evictionrequests", T, name, 99, None, None))
        return gone, found.wake_ms

    def wakes(index: int) -> bool:
        item = view.cache.item("evictionrequests", T, f"api-{index}")
        assert item is not None
        return bool(garbage.keys(view, item, False))

    kept(region, 0, NOW)
    assert wakes(0)
    assert look(NOW + 1000) == ([], NOW + 1000 + HOUR_MS)
    kept(region, 1, NOW, requester="ada")
    assert wakes(1), "it goes before the one for which a look is due"
    minute_ms = NOW + 1000 + EVICTION_KEPT_MS
    assert look(NOW + 2000) == ([], minute_ms)
    kept(region, 2, NOW, requester="ada")
    assert not wakes(2), "a look is due then already"
    assert look(minute_ms) == (["api-1", "api-2"], NOW + 1000 + HOUR_MS)
    assert look(NOW + 1000 + HOUR_MS) == (["api-0"], None)


@pytest.mark.parametrize(
    "changed",
    [
        {"job": JobRule()}, {"gang": True}, {"suspend": True}, {"execution": "Exclusive"},
        {"ask": Ask(requests=Resources(1000, 0), placement=Placement(zones=("z",)))},
        {"ask": Ask(requests=Resources(1000, 0), workload_class="unheard-of")},
    ],
)  # fmt: skip
def test_what_would_lose_its_work_has_a_place_of_its_own_or_is_too_dear_stays(changed: dict[str, Any]) -> None:
    region = Region(Defragmentation(max_cost=7))
    region.work(**changed)
    assert region.asked() == []


def test_slots_that_do_not_serve_and_held_rooms_are_left_where_they_are() -> None:
    region = Region()
    for index, node in enumerate("aaabb"):
        region.slot(index, node, _S.STARTING)
    assert region.asked() == []
    held = Region()
    for name in "ab":
        spec = ReservationSpec(node=name, requests=Resources(1000, 0), budget="critical")
        held.put("reservations", Reservation(metadata=Metadata(name=f"room-{name}", namespace=T), spec=spec))
    assert held.asked() == [], "what is held is not free"


@pytest.mark.parametrize(
    ("reason", "ask"),
    [
        ("WaitingForQuota", Ask(requests=Resources(2000, 0))),
        ("WaitingForCapacity", Ask(requests=Resources(2000, 0), ports=(80,))),
    ],
)
def test_nothing_moves_for_what_moves_do_not_cure(reason: str, ask: Ask) -> None:
    region = Region()
    region.waits(0, reason, ask)
    assert region.asked() == []


def test_nothing_moves_for_work_that_the_pool_does_not_let_in_and_a_closed_node_takes_no_part() -> None:
    region = Region()
    pool = NodePoolSpec(allowed_tenants=("billing",))
    region.put("nodepools", NodePool(metadata=Metadata(name="general"), spec=pool))
    assert region.asked() == []
    closed = Region()
    closed.node("b", 3000, unschedulable=True)
    assert closed.asked() == []


def test_a_node_of_a_pool_that_could_do_with_less_is_emptied() -> None:
    region = Region(Defragmentation(max_moves=2))
    region.waits(1)
    region.node("c", 4000)
    region.slot(4, "c")
    pool = NodePoolSpec(provider="local", min_nodes=2, max_nodes=5)
    region.put("nodepools", NodePool(metadata=Metadata(name="general"), spec=pool))
    assert region.asked() == ["api-3"], "of two that are as cheap, the first by name"
    region = Region(Defragmentation(max_moves=2))
    region.waits(1)
    region.put("nodepools", NodePool(metadata=Metadata(name="general"), spec=replace(pool, min_nodes=2)))
    assert region.asked() == [], "there are no more than must be"
