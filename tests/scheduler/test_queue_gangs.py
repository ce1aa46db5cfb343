"""Gangs: complete or not at all, adjacent, charged, failed and placed as one."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fairlead.model.kinds.work import SchedulingRequest
from fairlead.scheduler.units import Item
from fairlead.scheduler.wakeups import NodeFreed
from tests.scheduler.queues import GI, T0, names, queue, request, said

Which = tuple[str, str]


def member(
    index: int, tenant: str = "risk", gang: str = "g", size: int = 3, workload: str = "fit", **spec: Any
) -> SchedulingRequest:
    return request(tenant, f"{workload}-{index}", gang=gang, gang_size=size, **spec)


def test_a_gang_waits_until_all_its_members_are_there() -> None:
    made = queue(member(0), member(2))
    assert made.take(9, T0) == []
    got = said(made, "fit-2")
    assert (got.reason, got.next_owner) == ("WaitingForGang", "assignment-controller")
    assert got.detail == "gang g has 2 of 3 members; missing: fit-1"
    assert made.meters(T0).reasons == {"WaitingForGang": 2}
    made.upsert(member(1), T0 + 5)
    assert said(made, "fit-2").reason == "PendingEvaluation"
    assert names(made.take(9, T0 + 5)) == ["fit-0", "fit-1", "fit-2"]


def test_after_its_deadline_the_missing_are_named_and_it_goes_on_waiting() -> None:
    made = queue(member(0, gang_timeout_seconds=20.0))
    assert made.next_due_ms() == T0 + 20_000
    made.due(T0 + 20_000)
    assert "after 20 s, of which 20 s were allowed; missing: fit-1, fit-2" in said(made, "fit-0").detail
    made.due(T0 + 55_000)
    got = said(made, "fit-0")
    assert got.reason == "WaitingForGang"
    assert "after 55 s" in got.detail
    assert got.next_attempt_ms == T0 + 85_000
    made.upsert(member(1), T0 + 60_000)
    made.upsert(member(2), T0 + 60_000)
    assert len(made.take(9, T0 + 60_000)) == 3


def test_members_that_cannot_be_named_are_counted() -> None:
    made = queue(member(0), member(0, workload="other"), member(1, gang="h", size=40))
    assert said(made, "fit-0").detail.endswith("missing: 1 that cannot be named")
    assert said(made, "fit-1").detail.endswith("fit-9, fit-10 and 29 more")


def test_too_many_members_are_a_mistake_and_disagreement_is_told() -> None:
    made = queue(*(member(i, size=2) for i in range(3)))
    assert made.take(9, T0) == []
    assert (said(made, "fit-0").reason, said(made, "fit-0").next_owner) == ("Misconfigured", "user")
    made = queue(member(0, size=3), member(1, size=2))
    assert made.take(9, T0) == []
    assert "disagree on its size: 2, 3" in said(made, "fit-0").detail


def test_gangs_of_the_same_name_in_two_tenants_are_two() -> None:
    made = queue(member(0, "a", size=2), member(1, "b", size=2))
    assert made.take(9, T0) == []


def test_a_gang_is_handed_out_whole_and_adjacent_among_others() -> None:
    made = queue(*(member(i, created=i * 2) for i in range(3)), *(request(name=f"solo-{i}", created=i * 2 + 1) for i in range(3)))
    assert names(made.take(9, T0)) == ["fit-0", "fit-1", "fit-2", "solo-0", "solo-1", "solo-2"], "as old as its oldest"


def test_a_gang_that_does_not_fit_the_rest_of_a_take_waits_for_the_next_and_a_larger_one_goes_alone() -> None:
    made = queue(request(name="solo-0"), *(member(i, created=1) for i in range(3)), request(name="solo-1", created=2))
    assert names(made.take(2, T0)) == ["solo-0"]
    assert names(made.take(2, T0)) == ["fit-0", "fit-1", "fit-2"]
    assert names(made.take(2, T0)) == ["solo-1"]


def test_a_gang_is_charged_as_one_and_returned_as_one() -> None:
    made = queue(*(member(i, "a", cpu=5_000) for i in range(3)), *(request("b", f"y-{i:02}", created=1) for i in range(30)))
    gang = made.take(3, T0)
    assert names(gang) == ["fit-0", "fit-1", "fit-2"]
    assert {item.tenant for item in made.take(14, T0)} == {"b"}, "fourteen times 1 cpu are less than 15"
    made.give_back(gang[1], T0)
    assert names(made.take(3, T0)) == ["fit-0", "fit-1", "fit-2"]


def test_a_gang_fails_as_a_whole_whichever_member_is_reported() -> None:
    made = queue(*(member(i) for i in range(3)))
    items = made.take(3, T0)
    made.failed(items[1], "WaitingForCapacity", ("cpu",), "fit-1 fits nowhere", T0)
    made.failed(items[0], "TopologyBlocked", ("spread",), "too late", T0)
    assert {(p.reason, p.detail) for p in made.pending()} == {("WaitingForCapacity", "fit-1 fits nowhere")}
    assert made.meters(T0).pending == {"ready": 0, "taken": 0, "backoff": 3, "held": 0}
    assert made._tenants["risk"].failures == 1
    assert made.wake(NodeFreed("n1", {"cpu": 1_000, "memory": GI}), T0) == 3, "room for one may be what the gang lacked"
    assert len(made.take(3, T0)) == 3


def test_a_gang_is_placed_as_a_whole_and_counted_by_its_slots() -> None:
    made = queue(*(member(i) for i in range(3)))
    items = made.take(3, T0)
    made.failed(items[0], "WaitingForCapacity", ("cpu",), "", T0)
    made.due(T0 + 2_000)
    for item in made.take(3, T0):
        made.placed(item)
    assert list(made.pending()) == []
    assert made.meters(T0).resync_only_progress_total == 3
    assert made._gangs == {}
    assert made._tenants["risk"].used["cpu"] == 3_000


def test_a_member_that_is_withdrawn_makes_the_gang_wait_again() -> None:
    made = queue(*(member(i) for i in range(3)))
    made.remove("risk", "fit-1")
    assert made.take(9, T0) == []
    assert "missing: fit-1" in said(made, "fit-0").detail
    made.upsert(member(1), T0)
    items = made.take(9, T0)
    made.remove("risk", "fit-2")
    made.give_back(items[0], T0)
    assert made.take(9, T0) == [], "it is not whole any more"
    assert "missing: fit-2" in said(made, "fit-0").detail
    assert made._tenants["risk"].used["cpu"] == 0


def test_a_late_report_of_a_member_that_was_replaced_says_nothing_of_the_gang() -> None:
    made = queue(*(member(i) for i in range(3)))
    old = made.take(3, T0)
    made.upsert(member(1, generation=2), T0)
    made.give_back(old[0], T0)
    new = made.take(3, T0)
    assert [item.request.spec.generation for item in new] == [1, 2, 1]
    made.placed(old[1])
    assert made.meters(T0).pending["taken"] == 3
    made.placed(new[1])
    assert list(made.pending()) == []


def test_a_member_that_disagreed_and_left_keeps_nobody_back() -> None:
    made = queue(member(0, size=2), member(1, size=2), member(2, size=3))
    assert made.take(9, T0) == []
    made.remove("risk", "fit-2")
    assert names(made.take(9, T0)) == ["fit-0", "fit-1"]


def test_a_suspended_member_is_not_there() -> None:
    made = queue(member(0), member(1), member(2, suspend=True))
    assert made.take(9, T0) == []
    assert said(made, "fit-2").reason == "Suspended"
    assert "missing: fit-2" in said(made, "fit-0").detail
    made.upsert(member(2, generation=2), T0)
    assert len(made.take(9, T0)) == 3


def test_a_gang_on_hold_is_set_aside_whole() -> None:
    made = queue(*(member(i) for i in range(3)))
    made.hold("risk", "fit", "ada", T0 + 9_000, T0)
    assert made.take(9, T0) == []
    assert {p.reason for p in made.pending()} == {"OnHold"}
    made.due(T0 + 9_000)
    assert len(made.take(9, T0 + 9_000)) == 3


def test_a_gang_is_only_as_urgent_as_its_least_urgent_member() -> None:
    made = queue(member(0, priority=9, size=2), member(1, priority=1, size=2), request(name="solo-0", priority=5))
    assert names(made.take(9, T0)) == ["solo-0", "fit-0", "fit-1"]


class GangMachine(RuleBasedStateMachine):
    """Gangs, singles, suspension and holds under any sequence of events: nothing lost, nothing twice, no gang in parts."""

    @initialize()
    def begin(self) -> None:
        self.queue = queue(races_at_once=1, stall_after=2)
        self.now = T0
        self.requests: dict[Which, SchedulingRequest] = {}
        self.hands: list[list[Item]] = []
        self.held: set[str] = set()

    @rule(
        tenant=st.sampled_from("ab"),
        index=st.integers(0, 2),
        gang=st.sampled_from(("g", "g", "h", "")),
        size=st.sampled_from((2, 2, 3)),
        suspend=st.sampled_from((False, False, False, True)),
        priority=st.integers(0, 1),
    )
    def upsert(self, tenant: str, index: int, gang: str, size: int, suspend: bool, priority: int) -> None:
        name = f"w{gang}-{index}"
        made = request(tenant, name, gang=gang, gang_size=size if gang else 0, suspend=suspend, priority=priority)
        self.queue.upsert(made, self.now)
        self.requests[tenant, name] = made

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        which = data.draw(st.sampled_from(sorted(self.requests)))
        self.queue.remove(*which)
        del self.requests[which]

    @rule(limit=st.integers(1, 5))
    def take(self, limit: int) -> None:
        items = self.queue.take(limit, self.now)
        groups: list[list[Item]] = []
        for item in items:
            if item.gang and groups and (groups[-1][0].tenant, groups[-1][0].gang) == (item.tenant, item.gang):
                groups[-1].append(item)
            else:
                groups.append([item])
        for group in groups:
            if group[0].gang:
                assert {item.request.spec.gang_size for item in group} == {len(group)}, "whole and adjacent"
        assert len(items) <= limit or len(groups) == 1
        assert not any(item.request.spec.suspend or item.tenant in self.held for item in items)
        current = [(item.tenant, item.name) for group in [*self.hands, *groups] for item in group if item.present]
        assert len(current) == len(set(current)), "nothing is in two hands"
        self.hands.extend(groups)

    @precondition(lambda self: self.hands)
    @rule(data=st.data(), how=st.sampled_from(("placed", "failed", "give_back")))
    def report(self, data: st.DataObject, how: str) -> None:
        group = self.hands.pop(data.draw(st.integers(0, len(self.hands) - 1)))
        present = [item for item in group if item.present]
        for item in data.draw(st.permutations(group)):
            if how == "placed":
                self.queue.placed(item)
            elif how == "failed":
                self.queue.failed(item, "WaitingForCapacity", ("cpu",), "", self.now)
            else:
                self.queue.give_back(item, self.now)
        if how == "placed":
            for item in present:
                del self.requests[item.tenant, item.name]

    @rule(ms=st.integers(0, 40_000))
    def time_passes(self, ms: int) -> None:
        self.now += ms
        self.queue.due(self.now)

    @rule()
    def wake(self) -> None:
        self.queue.wake(NodeFreed("n1", {"cpu": 2_000, "memory": 2 * GI}), self.now)

    @rule(tenant=st.sampled_from("ab"), workload=st.sampled_from(("", "wg", "w")), release=st.booleans())
    def hold(self, tenant: str, workload: str, release: bool) -> None:
        if release:
            self.queue.release(tenant, workload, self.now)
        else:
            self.queue.hold(tenant, workload, "ada", 1 << 50, self.now)
        if not workload:
            (self.held.discard if release else self.held.add)(tenant)

    @invariant()
    def nothing_is_lost_and_the_books_agree(self) -> None:
        if not hasattr(self, "requests"):
            return
        assert {(p.tenant, p.name) for p in self.queue.pending()} == self.requests.keys()
        meters = self.queue.meters(self.now)
        assert sum(meters.reasons.values()) == len(self.requests)
        assert all(count >= 0 for count in meters.reasons.values())
        assert meters.pending["taken"] == sum(map(len, self.hands))
        assert all(count >= 0 for count in meters.pending.values())
        for tenant in self.queue._tenants.values():
            flight = sum(
                item.request.spec.ask.requests.cpu for group in self.hands for item in group if item.tenant == tenant.name
            )
            assert tenant.used.get("cpu", 0) - tenant.bound.get("cpu", 0) == flight

    def teardown(self) -> None:
        """Once everything is released and complete, everything can be had."""
        if not hasattr(self, "requests"):
            return
        for group in self.hands:
            for item in group:
                self.queue.give_back(item, self.now)
        for tenant in "ab":
            for workload in ("", "wg", "w"):
                self.queue.release(tenant, workload, self.now)
        complete = {w for w, r in self.requests.items() if not r.spec.suspend and (not r.spec.gang or self._is_complete(w[0], r))}
        got: set[Which] = set()
        for _ in range(4):
            self.now += 40_000
            self.queue.due(self.now)
            while items := self.queue.take(100, self.now):
                got |= {(item.tenant, item.name) for item in items}
        assert got == complete

    def _is_complete(self, tenant: str, one: SchedulingRequest) -> bool:
        gang = one.spec.gang
        members = [r for (t, _), r in self.requests.items() if (t, r.spec.gang) == (tenant, gang) and not r.spec.suspend]
        return all(r.spec.gang_size == len(members) for r in members)


TestGangMachine = GangMachine.TestCase
TestGangMachine.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
