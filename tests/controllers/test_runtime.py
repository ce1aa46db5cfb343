"""The runtime: leases that fence, keys looked at once, backoff, resync, and how a controller that is stuck shows."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, Literal

import pytest
from msgspec.structs import replace

from fairlead.client.plane import Plane
from fairlead.controllers.assignment import AssignmentController
from fairlead.controllers.cache import Cache, Indexes, Item, Name, Objects
from fairlead.controllers.contract import Result, SweepsOnly, View
from fairlead.controllers.meters import Meters, health_of
from fairlead.controllers.queue import BACKOFF_MAX_MS, KeyQueue
from fairlead.controllers.runtime import Runtime, RuntimeSettings
from fairlead.decide.oscillation import DAMP_FIRST_MS, TIMES
from fairlead.decide.slots import instant
from fairlead.model.commands import Body, Caller, Command, LeaseAcquire, Move, Put, PutStatus
from fairlead.model.controllers import CONTROLLERS
from fairlead.model.kinds.capacity import Node
from fairlead.model.kinds.ledger import Lease
from fairlead.model.kinds.policy import PolicyChannel, PolicyChannelSpec, SchedulerPolicy, SchedulerPolicySpec
from fairlead.model.kinds.work import Assignment
from fairlead.model.lifecycle import LEASED_ROLES, Role
from fairlead.model.meta import Condition, ManagedFields, Metadata, set_condition
from fairlead.model.registry import BY_KIND
from fairlead.ports import Clock
from tests.authority.planes import OPERATOR, REGION, FakeClock, no, ok
from tests.controllers.running import RegionRig, region


class Watcher:
    """Looks at nodes and does nothing, or what a test wants it to do."""

    name = "disruption"
    follows = ("nodes",)
    follows_other: tuple[str, ...] = ()
    indexes: Indexes = {}
    indexes_other: Indexes = {}
    hears = False

    def __init__(self, does: Any = None) -> None:
        self.looks: list[Name] = []
        self.does = does
        self.by_spec: tuple[str, ...] = ()

    def keys(self, view: View, item: Item, other: bool) -> Iterable[Name]:
        return (("", item.name),)

    def resync(self, view: View) -> Iterable[Name]:
        return [("", item.name) for item in view.cache.all("nodes")]

    def reconcile(self, key: Name, view: View, now_ms: int) -> Result:
        self.looks.append(key)
        return self.does(key, view, now_ms) if self.does is not None else Result()


def lease(r: RegionRig, name: str) -> Lease:
    rec = r.plane.authority.view().get("leases", "", name)
    assert rec is not None
    found: Lease = rec.hot
    return found


# --- leases


async def test_of_two_instances_one_acts_and_the_other_takes_over_when_it_stops() -> None:
    async with region() as r:
        r.schedule()
        first = r.control(AssignmentController(REGION), holder="one")
        await first.wait_serving()
        second = r.control(AssignmentController(REGION), holder="two")
        await r.order("api", 2)
        await r.until(lambda: len(r.slots()) == 2)
        assert (lease(r, "assignment").spec.holder, second.meters.commands_total) == ("one", 0)
        first.stop()
        await second.wait_serving()
        await r.order("api", 4)
        await r.until(lambda: len(r.slots()) == 4)
        assert lease(r, "assignment").spec.epoch == 2


async def test_one_whose_lease_was_taken_is_refused_and_starts_over() -> None:
    async with region() as r:
        r.schedule()
        runtime = r.control(AssignmentController(REGION), holder="one", renew_s=60.0)
        await runtime.wait_serving()
        # Somebody with the same name: a process that was thought dead, or two configured alike.
        ok(await r.plane.send(Caller("one", Role.ASSIGNMENT), LeaseAcquire("assignment", Role.ASSIGNMENT, 10.0)))
        await r.order("api", 2)
        await r.until(lambda: runtime.meters.restarts_total == 1)
        await r.until(lambda: len(r.slots()) == 2)
        assert lease(r, "assignment").spec.epoch == 3


async def test_an_older_epoch_commits_nothing() -> None:
    async with region() as r:
        old = await r.plane.as_role(Role.ROLLOUT, "one", "rollout")
        await r.plane.as_role(Role.ROLLOUT, "one", "rollout")
        no(await r.plane.send(old, Move("risk", "api-0", None, None)), "FencedOut")  # type: ignore[arg-type]


# --- looks


async def test_a_burst_of_changes_of_one_object_is_few_looks() -> None:
    async with region(nodes=1) as r:
        watcher = Watcher()
        runtime = r.control(watcher, resync_s=60.0)
        await runtime.wait_serving()
        await r.until(lambda: watcher.looks)
        node = r.get("nodes", "n0", "")
        commands = []
        for number in range(50):
            changed = Put("Node", type(node)(metadata=node.metadata, spec=_with(node.spec, hourly_cost_millis=number + 1)))
            commands.append(Command(Caller("ada", Role.OPERATOR), changed))
        await r.local.submit(commands)
        await r.until(lambda: runtime.view.cache.get("nodes", "", "n0").spec.hourly_cost_millis == 50)
        assert len(watcher.looks) < 20


def _with(spec: Any, **fields: Any) -> Any:
    return replace(spec, **fields)


async def test_whoever_reads_no_status_is_not_woken_by_one() -> None:
    async with region(nodes=2) as r:
        watcher = Watcher()
        watcher.by_spec = ("nodes",)
        runtime = r.control(watcher, resync_s=60.0)
        await runtime.wait_serving()
        await r.until(lambda: len(watcher.looks) == 2)
        watcher.looks.clear()
        await r.set_status("n0", flaps=3)
        await r.set_node("n1", hourly_cost_millis=1)
        await r.until(lambda: watcher.looks)
        assert set(watcher.looks) == {("", "n1")}
        assert runtime.view.cache.get("nodes", "", "n0").status.flaps == 3


async def test_a_key_that_cannot_be_reconciled_keeps_no_other_waiting_and_shows_in_the_lease() -> None:
    def does(key: Name, view: View, now_ms: int) -> Result:
        if key[1] == "n1":
            raise ValueError("poison")
        return Result()

    async with region(nodes=3) as r:
        watcher = Watcher(does)
        runtime = r.control(watcher, resync_s=60.0)
        await r.until(lambda: watcher.looks.count(("", "n1")) > 8)
        assert {("", "n0"), ("", "n2")} <= set(watcher.looks)
        await r.until(
            lambda: lease(r, "disruption").status.conditions and lease(r, "disruption").status.conditions[0].status == "False"
        )
        status = lease(r, "disruption").status
        assert (status.conditions[0].reason, "poison" in status.last_error) == ("KeysFail", True)
        assert runtime.health().stalled == "KeysFail"


async def test_what_is_not_declared_is_not_sent() -> None:
    def does(key: Name, view: View, now_ms: int) -> Result:
        return Result([Put("Node", view.cache.get("nodes", *key))])

    async with region(nodes=1) as r:
        runtime = r.control(Watcher(does))
        await r.until(lambda: "did not declare" in runtime.meters.last_error)


async def test_a_wake_up_asked_for_comes_without_any_change() -> None:
    async with region(nodes=1) as r:
        watcher = Watcher(lambda key, view, now_ms: Result((), now_ms + 20))
        r.control(watcher, resync_s=60.0)
        await r.until(lambda: len(watcher.looks) > 5)


# --- the queue


def test_a_key_is_looked_at_once_at_its_earliest_time() -> None:
    queue = KeyQueue(random.Random(1))
    key = ("t", "a")
    queue.add([key], 100)
    queue.add([key], 50)
    queue.add([key], 80)
    assert (queue.take(49, 10), queue.next_due_ms()) == ([], 50)
    assert [taken.key for taken in queue.take(200, 10)] == [key]
    assert queue.take(200, 10) == []


def test_failures_come_back_later_each_time_within_bounds_and_a_success_forgives() -> None:
    queue = KeyQueue(random.Random(1))
    key, waits = ("t", "a"), []
    for _ in range(14):
        queue.failed(key, 0)
        waits.append(queue.next_due_ms() or 0)
        queue.take(1 << 40, 1)
    assert all(25 << n <= waits[n] <= 50 << n for n in range(8))
    assert max(waits) <= BACKOFF_MAX_MS
    queue.succeeded(key)
    queue.failed(key, 0)
    assert (queue.next_due_ms() or 0) <= 50


@pytest.mark.parametrize(("order", "by_resync"), [((True,), True), ((True, False), False), ((False, True), False)])
def test_only_what_nothing_else_asked_for_counts_as_resync(order: tuple[bool, ...], by_resync: bool) -> None:
    queue = KeyQueue(random.Random(1))
    for each in order:
        queue.add([("t", "a")], 10, by_resync=each)
    assert queue.take(10, 1)[0].by_resync is by_resync


def test_a_queue_that_is_behind_shows() -> None:
    queue = KeyQueue(random.Random(1))
    queue.add([("t", "a")], 0)
    assert health_of(Meters(), queue, 30_000, 30.0).stalled == ""
    assert health_of(Meters(), queue, 30_001, 30.0).stalled == "Behind"


# --- the cache


class Row:
    plural, tenant = "nodes", ""

    def __init__(self, name: str, position: int, hot: Any) -> None:
        self.name, self.position, self.hot = name, position, hot
        self.raw = b"x" if hot is not None else None


def test_an_older_version_changes_nothing_and_revives_nobody() -> None:
    cache = Cache({"nodes": {"zone": lambda item: item.hot}})
    cache.apply(Row("a", 5, "z1"))
    cache.apply(Row("a", 4, "z2"))
    assert [item.name for item in cache.by("nodes", "zone", "z1")] == ["a"]
    cache.apply(Row("a", 6, None))
    cache.apply(Row("a", 5, "z1"))
    assert (cache.count("nodes"), cache.by("nodes", "zone", "z1")) == (0, [])
    cache.apply(Row("a", 7, "z2"))
    assert cache.values("nodes", "zone") == ["z2"]


def test_a_list_finds_the_deletion_that_was_missed_and_spares_what_came_after_it() -> None:
    objects = Objects()
    for row in (Row("a", 1, "x"), Row("b", 2, "x"), Row("c", 9, "x")):
        objects.apply(row)
    found = objects.unlisted("nodes", [Row("b", 2, "x")], 5)
    assert [(each.name, each.raw) for each in found] == [("a", None)]


# --- declarations


@pytest.mark.parametrize("info", CONTROLLERS.values(), ids=lambda info: info.name)
def test_each_declaration_is_whole_and_names_what_its_role_may_write(info: Any) -> None:
    assert info.role in LEASED_ROLES
    assert all(len(text) > 10 for text in (info.does, info.evidence, info.in_between, info.decides, info.stops))
    for part in info.writes:
        name, _, what = part.partition(".")
        kind = BY_KIND.get(name)
        if kind is None:
            assert name in ("ReleaseReservation", "LeaseAcquire", "LeaseRelease"), "a command of its own"
        elif what == "status":
            assert info.role in kind.status_owners, part
        elif what == "spec" and not kind.finalizers:
            assert info.role in kind.spec_owners, part


class Insisting:
    """Wants the channel at its first revision, whatever others want."""

    name = "policy"
    follows = ("policychannels",)
    follows_other: tuple[str, ...] = ()
    indexes: Indexes = {}
    indexes_other: Indexes = {}
    hears = False

    def keys(self, view: View, item: Item, other: bool) -> Iterable[Name]:
        return (item.key,)

    def resync(self, view: View) -> Iterable[Name]:
        return [item.key for item in view.cache.all("policychannels")]

    def reconcile(self, key: Name, view: View, now_ms: int) -> Result:
        found: PolicyChannel | None = view.cache.get("policychannels", *key)
        if found is None or found.spec.current == 1:
            return Result()
        return Result([Put("PolicyChannel", replace(found, spec=replace(found.spec, current=1)))])


async def test_two_writers_who_undo_each_other_are_noticed_and_one_of_them_lets_go_for_a_while() -> None:
    async with region() as r:
        for number in (1, 2):
            policy = SchedulerPolicy(metadata=Metadata(name=f"r{number}"), spec=SchedulerPolicySpec(revision=number))
            ok(await r.plane.send(OPERATOR, Put("SchedulerPolicy", policy)))
        runtime = r.control(Insisting(), resync_s=60.0)
        await runtime.wait_serving()

        def current() -> int:
            rec = r.plane.authority.view().get("policychannels", "", "default")
            return rec.hot.spec.current if rec is not None else 0

        async def contradict() -> None:
            channel = PolicyChannel(metadata=Metadata(name="default"), spec=PolicyChannelSpec(current=2))
            ok(await r.plane.send(OPERATOR, Put("PolicyChannel", channel)))

        for _ in range(TIMES):
            await contradict()
            await r.until(lambda: current() == 1)
        await r.until(lambda: runtime.meters.oscillations_total == 1)
        assert "back and forth" in runtime.meters.last_error
        before = runtime.meters.commands_total
        await contradict()
        await r.until(lambda: current() == 1 and runtime.meters.commands_total > before)  # it is counted when it is answered
        assert runtime.meters.commands_total == before + 1, "it held back, and then went on"


class Sweeps(SweepsOnly):
    """Wants these nodes closed, whatever others want."""

    name = "node-autoscaler"
    follows = ("nodepools",)
    sweep_s = 0.005

    def __init__(self, *names: str) -> None:
        self.names = names
        self.rounds = 0

    async def sweep(self, plane: Plane, clock: Clock) -> list[Body]:
        self.rounds += 1
        found = [row.hot for row in await plane.list("nodes") if row.name in self.names]
        return [Put("Node", replace(node, spec=replace(node.spec, unschedulable=True))) for node in found if is_open(node)]


def is_open(node: Node) -> bool:
    return not node.spec.unschedulable


async def test_a_sweep_holds_back_the_one_object_that_is_fought_over_and_names_who_else_writes_it() -> None:
    clock = FakeClock()
    async with region(nodes=2, clock=clock) as r:
        sweeps = Sweeps("n0", "n1")
        runtime = r.control(sweeps, resync_s=60.0)

        async def opened(name: str) -> None:
            node = r.get("nodes", name, "")
            meta = replace(node.metadata, managed_fields=(ManagedFields("ci"), ManagedFields("node-autoscaler")))
            mine = replace(node, metadata=meta, spec=replace(node.spec, unschedulable=False))
            ok(await r.plane.send(OPERATOR, Put("Node", mine)))

        for _ in range(TIMES):
            await r.until(lambda: not is_open(r.get("nodes", "n0", "")))
            await opened("n0")
        await r.until(lambda: runtime.meters.oscillations_total == 1)
        assert "node-autoscaler and ci write Node n0 back and forth" in runtime.meters.last_error
        await opened("n1")
        await r.until(lambda: not is_open(r.get("nodes", "n1", "")), "the round goes on without it")
        rounds = sweeps.rounds
        await r.until(lambda: sweeps.rounds > rounds + 5)
        assert is_open(r.get("nodes", "n0", "")), "it holds back"
        clock.offset += DAMP_FIRST_MS / 1000
        await r.until(lambda: not is_open(r.get("nodes", "n0", "")), "and then goes on")


class Saying:
    """Wants an assignment's status to say so, and so does another one that says otherwise."""

    follows = ("assignments",)
    follows_other: tuple[str, ...] = ()
    indexes: Indexes = {}
    indexes_other: Indexes = {}
    hears = False

    def __init__(self, name: str, says: Literal["True", "False"]) -> None:
        self.name, self.says = name, says

    def keys(self, view: View, item: Item, other: bool) -> Iterable[Name]:
        return (item.key,)

    def resync(self, view: View) -> Iterable[Name]:
        return [item.key for item in view.cache.all("assignments")]

    def reconcile(self, key: Name, view: View, now_ms: int) -> Result:
        found: Assignment | None = view.cache.get("assignments", *key)
        said = [each.status for each in found.status.conditions] if found is not None else [self.says]
        if found is None or said == [self.says]:
            return Result()
        told = Condition("Well", self.says, last_transition_time=instant(now_ms))
        status = replace(found.status, conditions=set_condition(found.status.conditions, told))
        return Result([PutStatus("Assignment", *key, status)])


async def test_two_controllers_who_write_one_status_back_and_forth_are_noticed_and_named() -> None:
    async with region() as r:
        both = [r.control(Saying("assignment", "True"), resync_s=60.0), r.control(Saying("job", "False"), resync_s=60.0)]
        for runtime in both:
            await runtime.wait_serving()
        await r.order(count=0)
        await r.until(lambda: any(each.meters.oscillations_total for each in both))
        words = [each.meters.last_error for each in both if each.meters.oscillations_total]
        assert "Assignment risk/api.local back and forth" in words[0]
        assert {"assignment", "job"} <= set(words[0].replace("(", " ").split()), "both are named"


def test_a_runtime_needs_a_declaration() -> None:
    watcher = Watcher()
    watcher.name = "nobody"
    with pytest.raises(KeyError):
        Runtime(watcher, None, FakeClock(), random.Random(1), RuntimeSettings())  # type: ignore[arg-type]
