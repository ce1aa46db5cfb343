"""One cycle: requests in order in, placements and reasons out. Pure, so every case is data."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.model.kinds.capacity import Taint
from fairlead.model.kinds.intent import AffinityRule, LabelExpression, Placement, SpreadRule, Toleration
from fairlead.model.kinds.policy import (
    PolicyChannel,
    PolicyChannelSpec,
    SchedulerPolicy,
    SchedulerPolicySpec,
    ScoreWeight,
    WorkloadClass,
)
from fairlead.model.kinds.work import SchedulingRequest
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import Device, DeviceAsk, Resources
from fairlead.scheduler.cycle import Cycle, Failure, Run
from fairlead.scheduler.policies import Policies
from fairlead.scheduler.preempting import Preempting
from fairlead.scheduler.queue import Queue
from fairlead.scheduler.shapes import ShapeBook
from fairlead.scheduler.snapshot import FIRM, SlotKey, Snapshot, Use
from tests.scheduler.fleets import GI, NOW_MS, grant, node, request, snapshot_of
from tests.scheduler.test_snapshot import Seen


class Table:
    """A scheduler without a plane."""

    def __init__(self, snapshot: Snapshot, policies: Policies | None = None, seed: int = 1) -> None:
        self.snapshot = snapshot
        self.policies = policies or Policies()
        self.queue = Queue(random.Random(seed))
        self.queue.set_capacity(snapshot.capacity)
        self.cycle = Cycle(snapshot, ShapeBook(snapshot, self.policies), self.policies, Preempting(snapshot), random.Random(seed))

    def decide(self, *requests: SchedulingRequest) -> list[Run]:
        for one in requests:
            self.queue.upsert(one, NOW_MS)
        return self.cycle.decide(self.queue.take(10_000, NOW_MS))

    def places(self, *requests: SchedulingRequest) -> dict[str, str]:
        runs = self.decide(*requests)
        return {placement.name: placement.node for run in runs for placement in run.placements}

    def failure(self, *requests: SchedulingRequest) -> Failure:
        (failure,) = [failure for run in self.decide(*requests) for failure in run.failures]
        return failure


def fill(snapshot: Snapshot, row: int, name: str, cpu: int, **fields: Any) -> None:
    use = Use(row, FIRM, Resources(cpu, GI), uid=f"u-{name}", **{"evictable": True, **fields})
    snapshot.set_use(("search", name), use)


def test_best_fit_fills_the_fuller_node_first() -> None:
    snapshot = snapshot_of(node("n0"), node("n1"))
    fill(snapshot, 1, "w-0", 2000)
    table = Table(snapshot)
    assert table.places(request("a-0"), request("a-1"), request("a-2")) == {"a-0": "n1", "a-1": "n1", "a-2": "n0"}


def test_what_is_placed_is_seen_by_the_next_of_any_shape() -> None:
    table = Table(snapshot_of(node("n0", cpu=1500), node("n1", cpu=1500)))
    got = table.places(request("a-0", cpu=1000), request("b-0", cpu=1200), request("c-0", cpu=500))
    assert got == {"b-0": "n0", "a-0": "n1", "c-0": "n1"}


def test_higher_priority_goes_first_when_there_is_room_for_one() -> None:
    table = Table(snapshot_of(node("n0", cpu=1000)))
    runs = table.decide(request("a-0", priority=1), request("b-0", priority=2))
    assert [p.name for run in runs for p in run.placements] == ["b-0"]


def test_says_how_many_nodes_each_gate_ruled_out_and_the_reason_of_the_closest() -> None:
    snapshot = snapshot_of(
        node("n0", zone="b"), node("n1", cordoned=True), node("n2", ready=False), node("n3", cpu=500), node("n4", cpu=500)
    )
    failure = Table(snapshot).failure(request("a-0", placement=Placement(zones=("a",))))
    assert failure.reason == "WaitingForCapacity"
    assert failure.gates == {"zones": 1, "cordon": 1, "health": 1, "cpu": 2}
    assert failure.detail == "of 5 nodes: 1 zones, 1 cordon, 1 health, 2 cpu"


def test_a_slot_larger_than_any_node_is_told_so() -> None:
    failure = Table(snapshot_of(node("n0", cpu=4000))).failure(request("a-0", cpu=5000))
    assert failure.reason == "NoMatchingCapacity"
    snapshot = snapshot_of(node("n0", cpu=4000))
    fill(snapshot, 0, "w-0", 3500, priority=900)
    assert Table(snapshot).failure(request("a-0", cpu=1000)).reason == "WaitingForCapacity"


def test_a_slot_larger_than_any_node_it_may_use_is_told_so_whatever_others_could_hold() -> None:
    snapshot = snapshot_of(node("n0", zone="a", cpu=4000), node("n1", zone="b", cpu=64_000))
    failure = Table(snapshot).failure(request("a-0", cpu=5000, placement=Placement(zones=("a",))))
    assert (failure.reason, failure.gates) == ("NoMatchingCapacity", {"zones": 1, "cpu": 1})


@pytest.mark.parametrize("state", [{"cordoned": True}, {"ready": False}])
def test_a_node_that_may_come_back_is_waited_for(state: dict[str, Any]) -> None:
    snapshot = snapshot_of(node("n0", cpu=64_000, **state), node("n1", cpu=1000))
    assert Table(snapshot).failure(request("a-0", cpu=5000)).reason == "WaitingForCapacity"
    assert Table(snapshot_of(node("n0", **state))).failure(request("a-0")).reason == "WaitingForCapacity"


def test_no_grant_and_a_grant_too_small_are_told_apart() -> None:
    snapshot = snapshot_of(node("n0"))
    snapshot.grants["risk"] = grant("risk", cpu=1500)
    table = Table(snapshot)
    assert table.failure(request("a-0", tenant="nobody")).reason == "WaitingForQuota"
    assert table.failure(request("b-0", cpu=2000)).reason == "ExceedsMaxQuota"
    runs = table.decide(request("c-0", cpu=1000), request("c-1", cpu=1000))
    assert [f.reason for run in runs for f in run.failures] == ["WaitingForQuota"]
    assert [p.name for run in runs for p in run.placements] == ["c-0"]


def test_a_grant_whose_lease_has_ended_gives_what_it_gives_afterwards() -> None:
    snapshot = snapshot_of(node("n0"))
    offered = grant("risk", cpu=2000)
    end = datetime.fromtimestamp((NOW_MS - 1) / 1000, tz=UTC)
    spec = replace(offered.spec, after=Resources(500, 100 * GI), lease_end_time=end)
    snapshot.grants["risk"] = replace(offered, spec=spec)
    assert Table(snapshot).failure(request("a-0", cpu=1000)).reason == "ExceedsMaxQuota"


def test_an_unknown_class_waits_as_misconfigured() -> None:
    failure = Table(snapshot_of(node("n0"))).failure(request("a-0", workload_class="vip"))
    assert failure.reason == "Misconfigured"
    assert "vip" in failure.detail


def test_a_node_that_fell_silent_since_it_was_rated_is_not_chosen() -> None:
    snapshot = snapshot_of(node("n0"), node("n1"))
    table = Table(snapshot)
    assert table.places(request("a-0")) == {"a-0": "n0"}
    snapshot.now_ms += 40_000
    snapshot.heard([("n1", snapshot.now_ms)], 30_000)
    assert table.places(request("a-1")) == {"a-1": "n1"}


def test_spread_keeps_zones_level() -> None:
    snapshot = snapshot_of(*(node(f"n{n}", cpu=64_000, memory=640 * GI, zone="abc"[n % 3]) for n in range(6)))
    table = Table(snapshot)
    spread = Placement(spread=(SpreadRule(topology_key="zone", max_skew=1),))
    got = table.places(*(request(f"a-{n}", placement=spread) for n in range(30)))
    zones = [snapshot.row_of[name] % 3 for name in got.values()]
    assert sorted(zones.count(zone) for zone in range(3)) == [10, 10, 10]


def test_a_zone_that_is_full_blocks_a_required_spread_and_not_a_preferred_one() -> None:
    nodes = [node("n0", zone="a", cpu=1000), node("n1", zone="b", cpu=9000)]
    strict = Placement(spread=(SpreadRule(topology_key="zone", max_skew=1),))
    table = Table(snapshot_of(*nodes))
    runs = table.decide(*(request(f"a-{n}", placement=strict) for n in range(4)))
    assert len([p for run in runs for p in run.placements]) == 3
    (failure,) = [f for run in runs for f in run.failures]
    assert failure.reason == "TopologyBlocked"
    soft = Placement(spread=(SpreadRule(topology_key="zone", when_unsatisfiable="ScheduleAnyway"),))
    assert len(Table(snapshot_of(*nodes)).places(*(request(f"a-{n}", placement=soft) for n in range(4)))) == 4


def _near(key: str, **rule: Any) -> AffinityRule:
    return AffinityRule(topology_key=key, match=(LabelExpression(key="app", values=("a",)),), **rule)


def test_anti_affinity_holds_within_a_workload_and_between_workloads_in_both_directions() -> None:
    labels = (("app", "a"),)
    apart = Placement(anti_affinity=(_near("hostname"),))
    table = Table(snapshot_of(node("n0"), node("n1"), node("n2")))
    got = table.places(request("a-0", labels=labels, placement=apart), request("a-1", labels=labels, placement=apart))
    assert len(set(got.values())) == 2
    (other,) = table.places(request("b-0", labels=labels)).values()
    assert other not in got.values()
    failure = table.failure(request("c-0", labels=labels, placement=apart))
    assert (failure.reason, failure.gates) == ("TopologyBlocked", {"anti-affinity": 3})


def test_affinity_gathers_in_one_zone_and_the_first_may_go_anywhere() -> None:
    labels = (("app", "a"),)
    near = Placement(affinity=(_near("zone"),))
    snapshot = snapshot_of(*(node(f"n{n}", zone="abc"[n % 3], cpu=3000) for n in range(9)))
    got = Table(snapshot).places(*(request(f"a-{n}", labels=labels, placement=near, cpu=1000) for n in range(7)))
    assert len(got) == 7
    assert len({snapshot.row_of[name] % 3 for name in got.values()}) == 1


def test_a_gang_is_placed_whole_or_leaves_no_trace() -> None:
    snapshot = snapshot_of(node("n0", cpu=2000), node("n1", cpu=1000))
    table = Table(snapshot)
    gang = [request(f"g-{n}", gang="g", gang_size=4) for n in range(4)]
    (run,) = table.decide(*gang)
    assert run.gang
    assert run.placements == []
    assert [f.item.name for f in run.failures] == ["g-0", "g-1", "g-2", "g-3"]
    assert snapshot.uses == {}
    table = Table(snapshot_of(node("n0", cpu=2000), node("n1", cpu=1000)))
    (run,) = table.decide(*(request(f"g-{n}", gang="g", gang_size=3) for n in range(3)))
    assert sorted(p.node for p in run.placements) == ["n0", "n0", "n1"]


def test_devices_are_chosen_and_told() -> None:
    snapshot = snapshot_of(node("n0"), node("n1", devices=(Device(id="g0"), Device(id="g1"))))
    snapshot.grants["risk"] = grant("risk", gpu=4)
    table = Table(snapshot)
    share = (DeviceAsk(share_thousandths=400),)
    runs = table.decide(request("a-0", devices=share), request("a-1", devices=share), request("a-2", devices=share))
    held = {p.name: (p.node, p.devices[0].id) for run in runs for p in run.placements}
    assert held == {"a-0": ("n1", "g0"), "a-1": ("n1", "g0"), "a-2": ("n1", "g1")}


def test_preemption_takes_the_fewest_of_lower_priority_and_says_who() -> None:
    snapshot = snapshot_of(node("n0", cpu=2000), node("n1", cpu=2000))
    fill(snapshot, 0, "v-0", 1000)
    fill(snapshot, 0, "v-1", 1000)
    fill(snapshot, 1, "v-2", 2000)
    table = Table(snapshot)
    runs = table.decide(request("a-0", cpu=2000, priority=1000, workload_class="critical"))
    (placement,) = [p for run in runs for p in run.placements]
    assert (placement.node, placement.victims) == ("n1", ("search/v-2",))
    table.cycle.take_back(placement)
    assert snapshot.uses["search", "v-2"].evictable
    assert ("risk", "a-0") not in snapshot.uses


def test_what_was_proposed_and_then_named_a_victim_leaves_the_picture_when_it_is_refused() -> None:
    table = Table(snapshot_of(node("n0", cpu=1000)))
    (low,) = [placement for run in table.decide(request("batch-0", priority=0)) for placement in run.placements]
    (high,) = [placement for run in table.decide(request("api-0", priority=1000)) for placement in run.placements]
    assert high.victims == ("risk/batch-0",)
    table.cycle.take_back(low)
    table.cycle.take_back(high)
    assert (table.snapshot.uses, table.snapshot.free_of("n0")["cpu"]) == ({}, 1000)


def test_what_was_proposed_and_has_been_bound_stays_in_the_picture_whoever_named_it_a_victim() -> None:
    table = Table(snapshot_of(node("n0", cpu=1000)))
    (low,) = [placement for run in table.decide(request("batch-0", priority=0)) for placement in run.placements]
    (high,) = [placement for run in table.decide(request("api-0", priority=1000)) for placement in run.placements]
    key = ("risk", "batch-0")
    echo = SimpleNamespace(node="n0", state=SlotState.BOUND, requests=Resources(1000, GI), devices=(), borrowed=False)
    table.snapshot.set_binding(key, echo)
    table.cycle.take_back(high)
    assert table.snapshot.uses[key].evictable, "its claimer was refused"
    table.cycle.take_back(low)
    assert list(table.snapshot.uses) == [key], "a refusal that comes late does not undo what the watch has shown"


def test_a_victim_that_drains_by_now_is_not_named_again_when_its_claimer_was_refused() -> None:
    snapshot = snapshot_of(node("n0"), node("n1"))
    for row in range(2):
        snapshot.set_binding(("search", f"low-{row}"), Seen(f"n{row}", requests=Resources(4000, GI)))
    table = Table(snapshot)
    (first,) = [placement for run in table.decide(request("hi-0", cpu=4000)) for placement in run.placements]
    assert first.victims == ("search/low-0",)
    snapshot.set_binding(("search", "low-0"), Seen("n0", SlotState.DRAINING, Resources(4000, GI)))
    table.cycle.take_back(first)
    assert not snapshot.uses["search", "low-0"].evictable
    table.queue.give_back(first.item, NOW_MS)
    (second,) = [placement for run in table.decide() for placement in run.placements]
    assert second.victims == ("search/low-1",)
    table.cycle.take_back(second)
    assert snapshot.uses["search", "low-1"].evictable


def test_a_slot_that_has_begun_to_leave_is_no_longer_named_as_a_victim() -> None:
    snapshot = snapshot_of(node("n0", cpu=2000))
    fill(snapshot, 0, "v-0", 1000)
    fill(snapshot, 0, "v-1", 1000)
    preempting, policies = Preempting(snapshot), Policies()
    queue, book = Queue(random.Random(1)), ShapeBook(snapshot, policies)
    queue.upsert(request("a-0", cpu=1000, priority=1000, workload_class="critical"), NOW_MS)
    (item,) = queue.take(1, NOW_MS)
    policy = policies.policy_for("risk")
    assert policy is not None
    shape = book.shape_of(item.request, policy)
    assert shape is not None
    named: list[SlotKey] = []
    for _ in range(2):
        plan = preempting.plan(item, shape)
        assert plan is not None
        named += plan.victims
        snapshot.set_evictable(plan.victims[0], False)
    assert sorted(named) == [("search", "v-0"), ("search", "v-1")]


def test_a_gang_evicts_for_all_of_its_members_or_for_none() -> None:
    snapshot = snapshot_of(node("n0", cpu=1000), node("n1", cpu=1000))
    fill(snapshot, 0, "low-0", 1000)
    fill(snapshot, 1, "high-0", 1000, priority=1000)
    before = dict(snapshot.uses)
    gang = [request(f"g-{n}", cpu=1000, gang="g", gang_size=2) for n in range(2)]
    (run,) = Table(snapshot).decide(*gang)
    assert (run.placements, len(run.failures)) == ([], 2)
    assert snapshot.uses == before, "nobody was to leave for half a gang"
    fill(snapshot, 1, "high-0", 1000)
    (run,) = Table(snapshot).decide(*gang)
    assert [(each.node, each.victims) for each in run.placements] == [("n0", ("search/low-0",)), ("n1", ("search/high-0",))]


def test_equal_priority_evicts_nobody() -> None:
    snapshot = snapshot_of(node("n0", cpu=2000))
    fill(snapshot, 0, "v-0", 2000, priority=500)
    assert Table(snapshot).failure(request("a-0", cpu=1000)).reason == "WaitingForCapacity"


def test_the_same_snapshot_policy_and_seed_give_the_same_decisions() -> None:
    def run(seed: int) -> list[tuple[str, str]]:
        draws = random.Random(7)
        snapshot = snapshot_of(*(node(f"n{n}", cpu=draws.randrange(1, 9) * 1000, zone="abc"[n % 3]) for n in range(40)))
        table = Table(snapshot, seed=seed)
        requests = [
            request(f"w{n}-0", cpu=draws.randrange(1, 4) * 500, workload_class=draws.choice(("standard", "best-effort")))
            for n in range(60)
        ]
        return list(table.places(*requests).items())

    assert run(3) == run(3)
    assert run(3) != run(4), "the strategy probe draws from the seed"


def _policies(**spec: Any) -> Policies:
    made = Policies()
    made.set_revision("r7", SchedulerPolicy(metadata=Metadata(name="r7"), spec=SchedulerPolicySpec(revision=7, **spec)))
    made.set_channel(PolicyChannel(metadata=Metadata(name="default"), spec=PolicyChannelSpec(current=7)))
    return made


def test_the_revision_in_force_decides_and_is_named() -> None:
    table = Table(snapshot_of(node("n0"), node("n1")), _policies(packing="Balance"))
    fill(table.snapshot, 1, "w-0", 2000)
    (run,) = table.decide(request("a-0"))
    assert run.placements[0].node == "n0"
    assert run.shape.policy.revision == 7


def test_a_revision_that_is_not_here_holds_its_tenants_work() -> None:
    policies = Policies()
    policies.set_channel(PolicyChannel(metadata=Metadata(name="default"), spec=PolicyChannelSpec(current=9)))
    assert Table(snapshot_of(node("n0")), policies).failure(request("a-0")).reason == "Misconfigured"


def test_probe_places_wherever_it_fits_when_its_sample_finds_nothing() -> None:
    nodes = [node(f"n{n}", cpu=100) for n in range(50)] + [node("big", cpu=9000)]
    policies = _policies(workload_classes=(WorkloadClass(name="standard", strategy="probe", probe_size=2),))
    assert Table(snapshot_of(*nodes), policies).places(request("a-0")) == {"a-0": "big"}


def test_equal_slots_of_different_tenants_share_one_ranking() -> None:
    table = Table(snapshot_of(*(node(f"n{n}") for n in range(4))))
    runs = table.decide(request("a-0", tenant="risk"), request("b-0", tenant="search"))
    assert len(runs) == 1


def test_a_tenant_that_has_a_node_to_itself_is_told_apart() -> None:
    snapshot = snapshot_of(node("n0", cpu=9000), node("n1", cpu=9000))
    table = Table(snapshot)
    alone = request("a-0", tenant="risk")
    alone = replace(alone, spec=replace(alone.spec, ask=replace(alone.spec.ask, isolation="TenantExclusive")))
    assert table.places(alone) == {"a-0": "n0"}
    assert table.places(request("b-0", tenant="search"), request("b-1", tenant="search")) == {"b-0": "n1", "b-1": "n1"}
    assert table.places(request("c-0", tenant="risk", cpu=7500)) == {"c-0": "n0"}


def test_taints_are_kept_away_from_unless_tolerated() -> None:
    snapshot = snapshot_of(node("n0", taints=(Taint(key="gpu"),)))
    table = Table(snapshot)
    assert table.failure(request("a-0")).gates == {"taints": 1}
    tolerated = Placement(tolerations=(Toleration(key="gpu", operator="Exists"),))
    assert table.places(request("b-0", placement=tolerated)) == {"b-0": "n0"}


@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_ever_assumed_beyond_what_a_node_has(seed: int) -> None:
    draws = random.Random(seed)
    snapshot = snapshot_of(
        *(node(f"n{n}", cpu=draws.randrange(1, 9) * 1000, memory=draws.randrange(2, 9) * GI) for n in range(12))
    )
    table = Table(snapshot, seed=seed)
    for turn in range(10):
        sizes = [(draws.randrange(1, 30) * 100, draws.randrange(1, 3) * GI, draws.choice((0, 500))) for _ in range(20)]
        table.decide(*(request(f"w{turn}-{n}", cpu=c, memory=m, priority=p) for n, (c, m, p) in enumerate(sizes)))
        for key in draws.sample(sorted(snapshot.uses), min(5, len(snapshot.uses))):
            snapshot.set_use(key, None)
    fleet = snapshot.fleet
    for row in range(fleet.rows):
        used = [use.requests.cpu for use in snapshot.uses.values() if use.row == row and use.evictable]
        assert sum(used) <= fleet.cells["cpu_total"][row]


def test_scores_that_learn_are_told_of_each_request_once_and_the_ranking_follows_them() -> None:
    policies = _policies(scores=(ScoreWeight(name="fill", weight=1),))
    snapshot = snapshot_of(*(node(f"n{n}", cpu=8000, memory=16 * GI) for n in range(6)))
    table = Table(snapshot, policies)
    told: list[int] = []
    fill: Any = next(score for score, _ in table.decide(request("a-0"))[0].shape.scores)
    real = type(fill).observe

    def observe(self: Any, need: Any, view: Any, count: int = 1) -> None:
        told.append(count)
        real(self, need, view, count)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(fill), "observe", observe)
        table.places(*(request(f"b-{n}", cpu=3000, memory=GI) for n in range(8)))
        for turn in range(30):
            table.places(request(f"c{turn}-0", cpu=500, memory=6 * GI))
        refused = table.decide(request("d-0", cpu=7999))
        (item,) = [failure.item for run in refused for failure in run.failures]
        table.queue.failed(item, "WaitingForCapacity", {"cpu": 6}, "", NOW_MS)
        table.queue.due(NOW_MS + 60_000)
        table.cycle.decide(table.queue.take(10, NOW_MS + 60_000))
    assert sum(told) == 8 + 30 + 1
