"""The grant controller's sums: as if added up afresh, and at a cost that does not grow with what has not changed."""

from __future__ import annotations

from collections.abc import Hashable
from random import Random

import pytest
from msgspec.structs import replace

from fairlead.controllers.cache import Cache, Item
from fairlead.controllers.contract import View
from fairlead.controllers.demand import Demand, Part, demand_of, kept
from fairlead.controllers.grant import GrantController
from fairlead.decide.granting import first_version
from fairlead.decide.slots import instant
from fairlead.model import codec
from fairlead.model.commands import PutStatus
from fairlead.model.hot import hot_from
from fairlead.model.kinds.capacity import Grant, GrantSpec, GrantStatus
from fairlead.model.kinds.intent import PendingReason, StageCounts
from fairlead.model.kinds.quota import GrantTerm, GrantTermSpec, GrantTermStatus
from fairlead.model.kinds.work import Ask, Assignment, AssignmentSpec, AssignmentStatus, Revision, RevisionSpec
from fairlead.model.meta import Metadata
from fairlead.model.resources import NOTHING, DeviceAsk, Resources
from tests.controllers.test_repair import Row

ONE = Resources(100, 1 << 20)


class Region:
    """A region's picture, as its controllers have it."""

    def __init__(self, *tenants: str) -> None:
        self.controller = GrantController("r")
        self.view = View(self.controller.indexes, {})
        self._position = 0
        for tenant in tenants:
            spec = GrantSpec(region="r", version=1, during=ONE.times(1 << 20), after=ONE, lease_seconds=600)
            self.put("grants", Grant(Metadata(name="r", namespace=tenant), spec))

    @property
    def cache(self) -> Cache:
        return self.view.cache

    def put(self, plural: str, value: Grant | GrantTerm | Assignment | Revision) -> None:
        self._position += 1
        meta = value.metadata
        row = Row(plural, meta.namespace, meta.name, self._position, codec.encode(value), hot_from(plural, value))
        self.cache.apply(row)

    def drop(self, plural: str, tenant: str, name: str) -> None:
        self._position += 1
        self.cache.apply(Row(plural, tenant, name, self._position, None, None))

    def looks(self, tenant: str, now_ms: int) -> list[GrantStatus]:
        """What it says then."""
        said = self.controller.reconcile((tenant, "r"), self.view, now_ms).bodies
        return [body.status for body in said if isinstance(body, PutStatus) and isinstance(body.status, GrantStatus)]


def assignment(number: int, bound: int = 0, waits: int = 0, tenant: str = "t", generation: int = 1, full: int = 0) -> Assignment:
    counts = {"WaitingForQuota": waits, "OnHold": 7, "WaitingForCapacity": full}
    why = tuple(PendingReason(reason=reason, count=count) for reason, count in counts.items() if count and (waits or full))
    status = AssignmentStatus(replicas=StageCounts(bound=bound), pending=why)
    spec = AssignmentSpec(f"w{number}", f"u{number}", generation, "r", requests=ONE)
    return Assignment(Metadata(name=f"w{number}.r", namespace=tenant), spec, status)


def revision(number: int, tenant: str = "t") -> Revision:
    ask = Ask(requests=ONE, devices=(DeviceAsk(resource="gpu", count=2),))
    meta = Metadata(name=f"w{number}.g1", namespace=tenant)
    return Revision(meta, RevisionSpec(f"w{number}", f"u{number}", 1, ask=ask))


def test_what_waits_and_is_used_is_as_if_added_up_afresh_whatever_came_and_went() -> None:
    draws, region = Random(7), Region("t", "s")
    demand = demand_of(region.cache)
    for _ in range(120):
        number, tenant, what = draws.randrange(9), draws.choice("ts"), draws.random()
        if what < 0.7:
            made = assignment(number, draws.randrange(4), draws.randrange(3), tenant, full=draws.randrange(3))
            region.put("assignments", made)
        elif what < 0.85:
            region.put("revisions", revision(number, tenant))
        else:
            plural = draws.choice(("assignments", "revisions"))
            region.drop(plural, tenant, f"w{number}.{'r' if plural == 'assignments' else 'g1'}")
        for each in "ts":
            assert demand.of(each) == Demand(region.cache).of(each)
    assert demand_of(region.cache) is demand


def test_devices_are_counted_from_when_the_revision_is_known() -> None:
    region = Region("t")
    region.put("assignments", assignment(1, bound=1, waits=3))
    assert demand_of(region.cache).of("t") == Part(1, ONE, ONE.times(3))
    region.put("revisions", revision(1))
    assert demand_of(region.cache).of("t").waiting == ONE.times(3) + Resources(0, 0, [("gpu", 6)])


def test_what_waits_for_room_keeps_the_quota_it_was_given_and_asks_for_no_more() -> None:
    three = ONE.times(3)
    assert kept(three, ONE.times(9), ONE.times(2)) == three
    assert kept(three, ONE.times(4), ONE.times(2)) == ONE.times(2), "no more than is there to be kept"
    assert kept(three, ONE.times(2), ONE.times(2)) == kept(three, ONE, ONE.times(2)) == NOTHING
    gpu = Resources(0, 0, [("gpu", 4)])
    assert kept(gpu, Resources(100, 0, [("gpu", 3)]), Resources(0, 0, [("gpu", 1)])) == Resources(0, 0, [("gpu", 2)])


def test_a_region_asks_to_keep_what_it_has_for_slots_that_find_no_node() -> None:
    region = Region("t")
    region.put("assignments", assignment(1, bound=1, waits=2, full=3))
    (body,) = region.controller.reconcile(("t", "r"), region.view, 60_000).bodies
    assert isinstance(body, PutStatus)
    assert body.status.waiting == ONE.times(5)


def test_a_change_costs_the_same_however_many_workloads_a_tenant_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in assignments that are read; each of N workloads changes once, so N times as much for N times as many."""
    read = 0
    right = Demand._part

    def counted(self: Demand, one: Assignment) -> object:
        nonlocal read
        read += 1
        return right(self, one)

    def handed(self: Cache, plural: str, index: str, value: Hashable) -> list[Item]:
        nonlocal read
        found = list(self._indexes[plural, index].get(value, {}).values())
        read += len(found)
        return found

    monkeypatch.setattr(Demand, "_part", counted)
    monkeypatch.setattr(Cache, "by", handed)

    def reads(workloads: int) -> int:
        nonlocal read
        region = Region("t")
        for number in range(workloads):
            region.put("assignments", assignment(number))
        region.looks("t", 0)
        read = 0
        for number in range(workloads):
            region.put("assignments", assignment(number, bound=1, waits=1))
            region.looks("t", number)
        assert demand_of(region.cache).of("t").slots == workloads
        return read

    assert (reads(50), reads(100), reads(200)) == (50, 100, 200)


def test_a_change_of_use_is_said_even_if_nothing_waits() -> None:
    region = Region("t")
    region.put("assignments", assignment(1, bound=1))
    first = region.controller.reconcile(("t", "r"), region.view, 10_000)
    assert len(first.bodies) == 1
    status = first.bodies[0].status  # type: ignore[union-attr]
    grant: Grant = region.cache.get("grants", "t", "r")
    region.put("grants", replace(grant, status=status))
    assert not region.controller.reconcile(("t", "r"), region.view, 20_000).bodies, "nothing is new"
    region.put("assignments", assignment(1, bound=2))
    assert len(region.controller.reconcile(("t", "r"), region.view, 30_000).bodies) == 1


def test_an_offer_whose_taking_was_refused_is_tried_again_half_a_minute_later() -> None:
    """By a store that could not write, perhaps; then nothing changes here that would have it tried."""
    region = Region("t")
    status = GrantTermStatus(incarnation=1, asked=1, taken=1, end_time=instant(900_000), knows=1)
    term = GrantTerm(Metadata(name="r"), GrantTermSpec("r", incarnation=1, asker=1, answered=1, lease_seconds=600), status)
    version = first_version(1) + 1
    spec = GrantSpec(region="r", version=version, during=ONE.times(9), after=ONE.times(9), lease_seconds=600)
    grant = Grant(Metadata(name="r", namespace="t"), spec, GrantStatus(heard=1, incarnation=1, observed_generation=1))
    region.put("grantterms", term)
    region.put("grants", grant)
    looks = [region.looks("t", now_ms) for now_ms in (1_000, 3_000, 5_000)]
    assert [[one.accepted_version for one in said] for said in looks] == [[version], [0], [0]], "the same is refused again"
    assert [one.accepted_version for one in region.looks("t", 31_000)] == [version]
