"""The queue against the order by definition, under any sequence of events: same picks, nothing lost, nothing twice."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fairlead.model.kinds.work import SchedulingRequest
from fairlead.scheduler.units import NEXT_OWNER, Item
from fairlead.scheduler.wakeups import GrantGrew, NodeFreed, NodeOpened, PlacementsChanged, PolicyPromoted
from tests.scheduler.queues import CAPACITY, GI, T0, Naive, queue, request

TENANTS = ("ada", "bob", "cyd")
GATES = ("cpu", "memory", "labels", "grant", "spread", "residency", "a-gate-nobody-knows")
CHANGES = (
    NodeFreed("n1", {"cpu": 2_500, "memory": 8 * GI}),
    NodeFreed("n1", {"cpu": 500, "memory": GI}),
    NodeOpened("n2", {"cpu": 64_000, "memory": 64 * GI}),
    GrantGrew("ada"),
    GrantGrew("bob", {"cpu": 3_000, "memory": 8 * GI}),
    PolicyPromoted(2),
    PlacementsChanged("u-w1"),
)
STALL_AFTER = 3
Which = tuple[str, str]


class QueueMachine(RuleBasedStateMachine):
    """Singles only; gangs, holds and suspension have a machine-readable definition of their own below."""

    @initialize(seed=st.integers(0, 3))
    def begin(self, seed: int) -> None:
        self.queue = queue(seed=seed, stall_after=STALL_AFTER, stall_ms=1_000, races_at_once=1)
        self.naive = Naive()
        self.now = T0
        self.requests: dict[Which, SchedulingRequest] = {}
        self.suspended: set[Which] = set()
        self.hands: list[Item] = []
        self.failures: Counter[str] = Counter()
        self.stalled_until: dict[str, int] = {}
        self.number = 0

    # --- what happens ------------------------------------------------------------------------------------------------

    @rule(
        tenant=st.sampled_from(TENANTS),
        name=st.integers(0, 12),
        priority=st.sampled_from((0, 0, 5)),
        created=st.integers(0, 4),
        deadline=st.sampled_from((None, None, 4_000, 9_000)),
        start=st.sampled_from((0.0, 0.0, 2.0)),
        cpu=st.sampled_from((0, 500, 1_000, 8_000)),
        suspend=st.sampled_from((False, False, False, True)),
    )
    def upsert(self, tenant: str, name: int, suspend: bool, start: float, **fields: Any) -> None:
        made = request(tenant, f"w{name % 3}-{name}", start_target_seconds=start, suspend=suspend, **fields)
        which = (tenant, made.metadata.name)
        before = self.requests.get(which)
        self.queue.upsert(made, self.now)
        self.requests[which] = made
        if before is not None and before.spec == made.spec:
            return  # a change of nothing keeps its place, wherever that is
        self.naive.ready.pop(which, None)
        self.suspended.discard(which)
        if suspend:
            self.suspended.add(which)
        else:
            self.naive.ready[which] = (made, 1)

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        which = data.draw(st.sampled_from(sorted(self.requests)))
        self.queue.remove(*which)
        del self.requests[which]
        self.suspended.discard(which)
        self.naive.ready.pop(which, None)

    @rule(limit=st.integers(1, 6))
    def take(self, limit: int) -> None:
        for tenant, until in list(self.stalled_until.items()):
            if until <= self.now:
                self._stand(tenant)
        got = [(item.tenant, item.name) for item in self._taken(limit)]
        wanted = [which for _ in range(limit) if (which := self.naive.pick()) is not None]
        assert got == wanted

    def _taken(self, limit: int) -> list[Item]:
        items = self.queue.take(limit, self.now)
        self.hands.extend(items)
        return items

    def _report(self, data: st.DataObject) -> tuple[Item, bool]:
        item = self.hands.pop(data.draw(st.integers(0, len(self.hands) - 1)))
        flight = self.naive.flight[item.tenant]
        flight.remove(item.request.spec.ask.requests.amounts())
        current = self.requests.get((item.tenant, item.name))
        return item, item.present and current is not None

    def _stand(self, tenant: str) -> None:
        self.failures[tenant] = 0
        self.naive.stalled.discard(tenant)
        self.stalled_until.pop(tenant, None)

    @precondition(lambda self: self.hands)
    @rule(data=st.data())
    def placed(self, data: st.DataObject) -> None:
        item, present = self._report(data)
        self.queue.placed(item)
        used = self.naive.bound.setdefault(item.tenant, {})
        for name, amount in item.request.spec.ask.requests.amounts().items():
            used[name] = used.get(name, 0) + amount
        self._stand(item.tenant)
        if present:
            del self.requests[item.tenant, item.name]

    @precondition(lambda self: self.hands)
    @rule(data=st.data(), gates=st.frozensets(st.sampled_from(GATES)))
    def failed(self, data: st.DataObject, gates: frozenset[str]) -> None:
        item, present = self._report(data)
        self.queue.failed(item, "WaitingForCapacity", sorted(gates), "no", self.now)
        if present:
            self.failures[item.tenant] += 1
            if self.failures[item.tenant] >= STALL_AFTER and item.tenant not in self.naive.stalled:
                self.naive.stalled.add(item.tenant)
                self.stalled_until[item.tenant] = self.now + 1_000
                self.failures[item.tenant] = 0

    @precondition(lambda self: self.hands)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        item, present = self._report(data)
        self.queue.give_back(item, self.now)
        if present and item.races <= 1:
            self.naive.ready[item.tenant, item.name] = (item.request, 0)

    @rule(change=st.sampled_from(CHANGES))
    def wake(self, change: Any) -> None:
        before = self._waiting()
        woken = self.queue.wake(change, self.now)
        assert len(before - self._waiting()) == woken
        self._now_ready(before - self._waiting())

    @rule(ms=st.integers(0, 40_000))
    def time_passes(self, ms: int) -> None:
        self.now += ms
        before = self._waiting()
        due = {w for w in before if self._pending()[w].next_attempt_ms <= self.now and w not in self.suspended}
        assert self.queue.due(self.now) == len(due)
        self._now_ready(due)

    @rule(tenant=st.sampled_from(TENANTS), weight=st.integers(1, 4), cpu=st.integers(0, 50_000))
    def reweigh(self, tenant: str, weight: int, cpu: int) -> None:
        self.queue.set_weight(tenant, weight)
        self.queue.set_usage(tenant, {"cpu": cpu})
        self.naive.weights[tenant] = weight
        self.naive.bound[tenant] = {"cpu": cpu}

    @rule(cpu=st.sampled_from((0, 10_000, 100_000)))
    def resize(self, cpu: int) -> None:
        self.naive.capacity = {**CAPACITY, "cpu": cpu}
        self.queue.set_capacity(self.naive.capacity)

    # --- what must hold ----------------------------------------------------------------------------------------------

    def _pending(self) -> dict[Which, Any]:
        return {(p.tenant, p.name): p for p in self.queue.pending()}

    def _waiting(self) -> set[Which]:
        items = ((t, i) for t in self.queue._tenants.values() for i in t.items.values())
        return {(t.name, i.name) for t, i in items if i.state == 2}

    def _now_ready(self, which: set[Which]) -> None:
        for each in which:
            item = self.queue._tenants[each[0]].items[each[1]]
            self.naive.ready[each] = (self.requests[each], item.rank)

    @invariant()
    def every_request_is_in_one_place_and_has_all_that_is_said_of_it(self) -> None:
        if not hasattr(self, "requests"):
            return
        pending = self._pending()
        assert pending.keys() == self.requests.keys()
        for which, said in pending.items():
            assert said.next_owner == NEXT_OWNER[said.reason]
            assert said.since_ms <= self.now
            assert said.next_attempt_ms <= self.now + 30_000
            if which in self.suspended:
                assert said.reason == "Suspended"
        counts = self.queue.meters(self.now).pending
        in_hand = {(i.tenant, i.name) for i in self.hands if i.present}
        assert counts["ready"] == len(self.naive.ready)
        assert counts["taken"] == len(self.hands)
        assert counts["held"] == len(self.suspended)
        assert counts["backoff"] == len(self.requests) - len(self.naive.ready) - len(in_hand) - len(self.suspended)
        assert sum(self.queue.meters(self.now).reasons.values()) == len(self.requests)


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
