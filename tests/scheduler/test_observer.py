"""From the watch to the pictures: what is told on."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from fairlead.model.kinds.capacity import Node, NodePool, NodePoolSpec, Reservation, ReservationSpec
from fairlead.model.kinds.intent import AffinityRule, LabelExpression, SpreadRule
from fairlead.model.kinds.intent import Placement as Rules
from fairlead.model.kinds.slot import SlotRef
from fairlead.model.kinds.work import Marks, SchedulingRequest
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from fairlead.scheduler.cycle import Placement
from fairlead.scheduler.observer import Observer
from fairlead.scheduler.partition import Partition, Parts
from fairlead.scheduler.policies import Policies
from fairlead.scheduler.queue import Queue
from fairlead.scheduler.snapshot import Use
from tests.scheduler.fleets import GI, NOW_MS, REGION, grant, node, request, snapshot_of
from tests.scheduler.test_cycle import Table
from tests.scheduler.test_snapshot import Seen


class Told(msgspec.Struct):
    plural: str
    tenant: str
    name: str
    position: int
    raw: bytes | None
    hot: Any


def test_a_slot_that_ends_is_told_once_and_one_that_drains_or_moves_is_not() -> None:
    snapshot, ended = snapshot_of(node("n0"), node("n1")), list[Use]()
    parts = Parts(Partition())
    observer = Observer(snapshot, Queue(random.Random(1)), Policies(), REGION, parts, ended=ended.append)

    def see(hot: Seen | None) -> int:
        observer.observe([Told("bindings", "risk", "w-0", 1, b"" if hot is not None else None, hot)])
        return len(ended)

    steps = (Seen("n0"), Seen("n1"), Seen("n1", SlotState.DRAINING), Seen("n1", SlotState.RELEASED), None)
    assert [see(hot) for hot in steps] == [0, 0, 0, 1, 1]
    assert snapshot.names[ended[0].row] == "n1"


class Watched(Table):
    """A scheduler without a plane that hears of changes."""

    def __init__(self, *nodes: Node) -> None:
        super().__init__(snapshot_of(*nodes))
        self.observer = Observer(self.snapshot, self.queue, self.policies, REGION, Parts(Partition()))

    def see(self, plural: str, name: str, hot: Any, tenant: str = "risk") -> int:
        """How many slots are ready then."""
        self.observer.observe([Told(plural, tenant, name, 1, b"" if hot is not None else None, hot)])
        return self.queue.ready_slots

    def settle(self, *requests: SchedulingRequest) -> list[Placement]:
        """Decides these and what is ready; the queue hears of it, the watch does not yet."""
        runs = self.decide(*requests)
        for failure in (failure for run in runs for failure in run.failures):
            self.queue.failed(failure.item, failure.reason, failure.gates, failure.detail, NOW_MS)
        placed = [placement for run in runs for placement in run.placements]
        for placement in placed:
            self.queue.placed(placement.item)
        return placed

    def echo(self, placement: Placement) -> int:
        use = placement.use
        return self.see(
            "bindings", placement.name, Seen(placement.node, requests=use.requests, workload_uid=use.uid, marks=use.marks)
        )


NEAR_DATA = Rules(affinity=(AffinityRule(topology_key="zone", match=(LabelExpression(key="app", values=("data",)),)),))
DATA = (("app", "data"),)


@pytest.mark.parametrize("own", [True, False])
def test_a_slot_that_comes_wakes_those_who_wait_to_be_near_it(own: bool) -> None:
    watched = Watched(node("n0"), node("n1"))
    assert not watched.settle(request("web-0", placement=NEAR_DATA))
    if own:
        (placed,) = watched.settle(request("data-0", labels=DATA))
        assert watched.echo(placed) == 1
        assert len(watched.settle()) == 1
        assert watched.echo(placed) == 0, "it is known by now"
    else:
        assert watched.see("bindings", "data-0", Seen("n1", marks=Marks(labels=(("app", "web"),)))) == 0
        assert watched.see("bindings", "data-1", Seen("n1", marks=Marks(labels=DATA))) == 1


def test_a_reserved_place_wakes_those_who_wait_to_be_near_it() -> None:
    watched = Watched(node("n0"))
    watched.settle(request("web-0", placement=NEAR_DATA))
    slot = SlotRef(workload="data", uid="u-data", index=0)
    spec = ReservationSpec(node="n0", requests=Resources(1000, GI), slot=slot, marks=Marks(labels=DATA))
    assert watched.see("reservations", "data-0", Reservation(metadata=Metadata(name="data-0", namespace="risk"), spec=spec)) == 1


def test_a_slot_that_levels_its_workloads_spread_wakes_the_next() -> None:
    watched = Watched(node("a0", zone="a", cpu=4000), node("b0", zone="b", cpu=1000))
    watched.see("bindings", "x-0", Seen("b0", priority=500), "search")
    level = Rules(spread=(SpreadRule(topology_key="zone"),))
    assert [placed.node for placed in watched.settle(*(request(f"s-{n}", placement=level) for n in range(3)))] == ["a0"]
    assert watched.see("bindings", "x-0", None, "search") == 1
    (placed,) = watched.settle()
    assert watched.echo(placed) == 1
    assert [placed.node for placed in watched.settle()] == ["a0"]


def test_where_no_rule_asks_for_neighbours_binds_are_not_noted() -> None:
    watched = Watched(node("n0"))
    watched.settle(request("large-0", cpu=5000))
    assert not watched.queue.awaits_arrivals
    watched.settle(request("web-0", placement=NEAR_DATA))
    assert watched.queue.awaits_arrivals


def test_a_pool_that_is_opened_wakes_who_waits_for_its_nodes() -> None:
    watched = Watched(node("n0", pool="gold"))

    def pool(*tenants: str) -> NodePool:
        return NodePool(metadata=Metadata(name="gold"), spec=NodePoolSpec(allowed_tenants=tenants))

    watched.see("nodepools", "gold", pool("search"), "")
    assert not watched.settle(request("a-0"))
    assert watched.see("nodepools", "gold", pool("search"), "") == 0, "nothing is other than before"
    assert watched.see("nodepools", "gold", pool("search", "risk"), "") == 1


def test_a_slot_that_ends_wakes_as_much_of_its_tenant_as_its_grant_has_room_for() -> None:
    watched = Watched(node("n0", cpu=64_000), node("n1"))
    watched.snapshot.grants["risk"] = grant("risk", cpu=2000)
    for index in range(2):
        watched.see("bindings", f"old-{index}", Seen("n0"))
    assert not watched.settle(*(request(f"new-{n}") for n in range(5)))
    assert watched.see("bindings", "x-0", Seen("n1"), "search") == 0
    assert watched.see("bindings", "x-0", None, "search") == 0
    assert watched.see("bindings", "old-0", None) == 1
    assert len(watched.settle()) == 1
    spec = ReservationSpec(node="n0", requests=Resources(1000, GI))
    watched.see("reservations", "held", Reservation(metadata=Metadata(name="held", namespace="risk"), spec=spec))
    assert watched.see("bindings", "old-1", None) == 0, "what is reserved meanwhile leaves no room"
    assert watched.see("reservations", "held", None) == 1


def test_another_scheduler_is_seen_at_work_where_its_requests_are_bound_and_not_where_they_are_withdrawn() -> None:
    snapshot, queue = snapshot_of(node("n0")), Queue(random.Random(1))
    asked = [request(f"api-{n}") for n in range(3)]
    uid = asked[0].spec.slot.uid
    theirs = Partition(0, 2).part_of("risk", uid)
    parts = Parts(Partition(1 - theirs, 2, steal_after_ms=2000))
    observer, start = Observer(snapshot, queue, Policies(), REGION, parts), parts.head_start("risk", uid)
    assert start is not None

    def told(plural: str, name: str, hot: Any) -> Told:
        return Told(plural, "risk", name, 1, b"" if hot is not None else None, hot)

    observer.observe([told("schedulingrequests", each.metadata.name, each) for each in asked])
    observer.observe([told("schedulingrequests", "api-0", None)])
    assert start.alive_ms == 0
    observer.observe([told("schedulingrequests", "api-1", None), told("bindings", "api-1", Seen("n0"))])  # as a bind is told
    assert start.alive_ms == snapshot.now_ms > 0
