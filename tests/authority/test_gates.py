"""Hard gates at commit: whatever a scheduler proposes, the authority refuses what a gate forbids, names the gate, and accepts the
neighbouring case. Residency, zones, pools and isolation are S6; the journal's checker is asked too."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from fairlead.authority.judge import Settings, placing
from fairlead.decide.plugins import BUILT_INS, Registry
from fairlead.decide.tiers import Tier
from fairlead.model.commands import BindGang, Caller, Outcome, Put, ReleaseReservation
from fairlead.model.kinds.capacity import NodePool, NodePoolSpec
from fairlead.model.kinds.intent import (
    AffinityRule,
    LabelExpression,
    Placement,
    Region,
    RegionRule,
    RegionSpec,
    Residency,
    SpreadRule,
)
from fairlead.model.kinds.policy import PolicyChannel, PolicyChannelSpec, ResidencyRule, SchedulerPolicy, SchedulerPolicySpec
from fairlead.model.kinds.slot import SlotRef
from fairlead.model.kinds.work import Ask, Binding, Marks, SchedulingRequest, SchedulingRequestSpec
from fairlead.model.lifecycle import HOLDS_CAPACITY, Role, SlotState
from fairlead.model.meta import Metadata
from fairlead.model.resources import DeviceAsk, Resources
from fairlead.observe.checkers import JournalChecker
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import (
    GI,
    OPERATOR,
    REGION,
    PlaneForTest,
    agent_of,
    bind_of,
    gpu,
    move_of,
    no,
    ok,
    report_of,
    reserve_of,
    running_plane,
    token,
)


def ask_of(
    labels: dict[str, str] | None = None, ports: tuple[int, ...] = (), isolation: Any = "Shared", cpu: int = 100, **place: Any
) -> Ask:
    devices = place.pop("devices", ())
    return Ask(
        requests=Resources(cpu, GI), labels=tuple(sorted((labels or {}).items())), ports=ports, isolation=isolation,
        devices=devices, placement=Placement(**place),
    )  # fmt: skip


def app(name: str) -> tuple[LabelExpression, ...]:
    return (LabelExpression(key="app", values=(name,)),)


API, CACHE = {"app": "api"}, {"app": "cache"}
PLAIN, ALONE = ask_of(), ask_of(isolation="TenantExclusive")
SPREAD = ask_of(spread=(SpreadRule(topology_key="zone"),))
SHUNS_API = ask_of(anti_affinity=(AffinityRule(topology_key="zone", match=app("api")),))
NEAR_CACHE = ask_of(affinity=(AffinityRule(topology_key="zone", match=app("cache")),))
WITH_ITSELF = ask_of(API, affinity=(AffinityRule(topology_key="zone", match=app("api")),))


class Stage:
    """One plane: a1 and a2 in zone a, b1 in zone b; tenants risk and shop. A slot is named TENANT/WORKLOAD-INDEX."""

    def __init__(self, plane: PlaneForTest) -> None:
        self.plane = plane
        self.callers: dict[Role, Caller] = {}
        self.revision = 0

    async def furnish(self) -> None:
        for node, zone in (("a1", "a"), ("a2", "a"), ("b1", "b")):
            await self.plane.add_node(node, zone=zone, pool=f"pool-{node}", labels={"disk": node}, devices=(gpu("g0"), gpu("g1")))
        for tenant in ("risk", "shop"):
            await self.plane.grant(tenant, gpu=9)
        await self.act()

    async def act(self) -> None:
        for role in (Role.ASSIGNMENT, Role.SCHEDULER, Role.DISRUPTION):
            self.callers[role] = await self.plane.as_role(role)

    async def wait(self, slot: str, ask: Ask, **spec: Any) -> None:
        tenant, name = slot.split("/")
        workload, _, index = name.rpartition("-")
        ref = SlotRef(workload=workload, uid=f"u-{tenant}-{workload}", index=int(index))
        request = SchedulingRequest(
            metadata=Metadata(name=name, namespace=tenant), spec=SchedulingRequestSpec(slot=ref, ask=ask, **spec)
        )
        ok(await self.plane.send(self.callers[Role.ASSIGNMENT], Put("SchedulingRequest", request, mode="create")))

    def proposal(self, slot: str, node: str, **fields: Any) -> Any:
        tenant, name = slot.split("/")
        return bind_of(tenant, name, node, policy_revision=self.revision, **fields)

    async def bind(self, slot: str, node: str, **fields: Any) -> Outcome:
        return await self.plane.send(self.callers[Role.SCHEDULER], self.proposal(slot, node, **fields))

    async def reserve(self, slot: str, node: str) -> Outcome:
        tenant, name = slot.split("/")
        body = reserve_of(tenant, name, node, policy_revision=self.revision)
        return await self.plane.send(self.callers[Role.SCHEDULER], body)

    async def place(self, slot: str, node: str, ask: Ask, **spec: Any) -> None:
        await self.wait(slot, ask, **spec)
        ok(await self.bind(slot, node))

    async def policy(self, revision: int, *rules: ResidencyRule, **spec: Any) -> None:
        made = SchedulerPolicySpec(revision=revision, residency=rules, **spec)
        ok(
            await self.plane.send(
                OPERATOR, Put("SchedulerPolicy", SchedulerPolicy(metadata=Metadata(name=f"r{revision}"), spec=made))
            )
        )
        await self.select(revision)

    async def select(self, revision: int) -> None:
        channel = PolicyChannel(metadata=Metadata(name="default"), spec=PolicyChannelSpec(current=revision))
        ok(await self.plane.send(OPERATOR, Put("PolicyChannel", channel)))
        self.revision = revision

    async def region(self, *areas: str) -> None:
        ok(await self.plane.send(OPERATOR, Put("Region", Region(metadata=Metadata(name=REGION), spec=RegionSpec(areas=areas)))))

    def binding(self, slot: str) -> Binding:
        rec = self.plane.authority.view().get("bindings", *slot.split("/"))
        assert rec is not None, slot
        found: Binding = rec.decode()
        return found

    def recounted(self) -> tuple[Any, Any]:
        """Slots by workload and node: as the topology has them, and as the plane's objects say."""
        state, ledger = self.plane.authority._ctx.state, self.plane.authority._ctx.ledger
        wanted: dict[Any, int] = {}
        for rec in state.live("bindings"):
            if rec.hot.state in HOLDS_CAPACITY:
                key = (rec.hot.workload_uid, rec.hot.marks, rec.hot.node)
                wanted[key] = wanted.get(key, 0) + 1
        for rec in state.live("reservations"):
            key = (rec.hot.spec.slot.uid, rec.hot.spec.marks, rec.hot.spec.node)
            wanted[key] = wanted.get(key, 0) + 1
        names = {account.number: name for name, account in ledger.nodes.items()}
        topology = ledger.topology
        groups = (group for uid in topology._groups for group in topology._chain(uid))
        return {(g.uid, g.marks, names[n]): count for g in groups for n, count in g.counts.items()}, wanted


def refused_by(outcome: Outcome) -> set[str]:
    return set(no(outcome, "NoFit").facts["reasons"])


@asynccontextmanager
async def staged(settings: Settings | None = None, disk: MemoryDisk | None = None) -> AsyncIterator[Stage]:
    disk = disk or MemoryDisk()
    async with running_plane(MemoryStore(disk), settings=settings) as plane:
        stage = Stage(plane)
        await stage.furnish()
        yield stage
        counted, wanted = stage.recounted()
        assert counted == wanted
    assert violations(disk) == []


def violations(disk: MemoryDisk) -> list[Any]:
    checker = JournalChecker()
    for entry in disk.journal:
        checker.feed(entry.batch)
    assert checker.checked["S6"] >= len(checker._objects["bindings"])
    return checker.violations


class Case(NamedTuple):
    there: tuple[tuple[str, str, Ask], ...]  # slot, node, ask
    slot: str
    ask: Ask
    refused: str  # the node
    gate: str
    accepted: str = ""


CASES = {
    "a port that is taken": Case(
        (("risk/x-0", "a1", ask_of(ports=(80, 81))),), "shop/y-0", ask_of(ports=(80,)), "a1", "ports", "a2"
    ),
    "alone beside another tenant": Case((("shop/x-0", "a1", PLAIN),), "risk/y-0", ALONE, "a1", "isolation", "a2"),
    "beside a tenant that is alone": Case((("risk/x-0", "a1", ALONE),), "shop/y-0", PLAIN, "a1", "isolation", "a2"),
    "a skew too large": Case((("risk/x-0", "a1", SPREAD),), "risk/x-1", SPREAD, "a2", "spread", "b1"),
    "more than one on a node": Case(
        (("risk/x-0", "a1", ask_of(max_per_node=1)),), "risk/x-1", ask_of(max_per_node=1), "a1", "max-per-node", "a2"
    ),
    "near to whom it shuns": Case((("risk/x-0", "a1", ask_of(API)),), "risk/y-0", SHUNS_API, "a2", "anti-affinity", "b1"),
    "near to who shuns it": Case((("risk/x-0", "a1", SHUNS_API),), "risk/y-0", ask_of(API), "a2", "anti-affinity", "b1"),
    "far from whom it needs": Case((("risk/x-0", "b1", ask_of(CACHE)),), "risk/y-0", NEAR_CACHE, "a1", "affinity", "b1"),
    "needs whom nobody has": Case((), "risk/y-0", NEAR_CACHE, "a1", "affinity"),
    "a zone that is not allowed": Case((), "risk/y-0", ask_of(zones=("a",)), "b1", "zones", "a1"),
    "a region that is not allowed": Case((), "risk/y-0", ask_of(regions=RegionRule(allowed=("mars",))), "a1", "regions"),
    "labels that do not match": Case(
        (), "risk/y-0", ask_of(node_labels=(LabelExpression(key="disk", values=("a1",)),)), "b1", "labels", "a1"
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("way", ["bound", "reserved"])
async def test_what_a_gate_forbids_is_refused_by_name_and_the_neighbouring_case_is_taken(case: Case, way: str) -> None:
    async with staged() as stage:
        for slot, node, ask in case.there:
            await stage.wait(slot, ask)
            ok(await (stage.bind(slot, node) if way == "bound" else stage.reserve(slot, node)))
        await stage.wait(case.slot, case.ask)
        assert refused_by(await stage.bind(case.slot, case.refused)) == {case.gate}
        assert refused_by(await stage.reserve(case.slot, case.refused)) == {case.gate}
        if case.accepted:
            ok(await stage.bind(case.slot, case.accepted))


KEPT_OUT = {name: case for name, case in CASES.items() if case.there and case.gate != "affinity"}


@pytest.mark.parametrize("case", KEPT_OUT.values(), ids=KEPT_OUT)
async def test_a_place_is_free_again_when_the_slot_that_kept_it_is_gone_and_only_then(case: Case) -> None:
    async with staged() as stage:
        (slot, node, ask), tenant, name = case.there[0], *case.there[0][0].split("/")
        await stage.place(slot, node, ask)
        await stage.wait(case.slot, case.ask)
        ok(await stage.plane.send(stage.callers[Role.DISRUPTION], move_of(tenant, name, SlotState.DRAINING)))
        assert refused_by(await stage.bind(case.slot, case.refused)) == {case.gate}, "until its process is gone, it is there"
        ok(await stage.plane.send(agent_of(node), report_of(tenant, name, SlotState.RELEASED)))
        ok(await stage.bind(case.slot, case.refused))


@pytest.mark.parametrize("case", [case for case in CASES.values() if case.there], ids=lambda case: case.gate)
async def test_a_plane_that_was_loaded_from_its_store_refuses_the_same(case: Case) -> None:
    disk = MemoryDisk()
    async with staged(disk=disk) as stage:
        for slot, node, ask in case.there:
            await stage.place(slot, node, ask)
        await stage.wait(case.slot, case.ask)
    async with running_plane(MemoryStore(disk)) as plane:
        again = Stage(plane)
        await again.act()
        plane.authority.heartbeat([(node, 1) for node in ("a1", "a2", "b1")])
        assert refused_by(await again.bind(case.slot, case.refused)) == {case.gate}
        ok(await again.bind(case.slot, case.accepted))


async def test_a_released_reservation_keeps_nobody_away() -> None:
    async with staged() as stage:
        await stage.wait("risk/x-0", ask_of(ports=(80,)))
        await stage.wait("risk/y-0", ask_of(ports=(80,)))
        ok(await stage.reserve("risk/x-0", "a1"))
        assert refused_by(await stage.bind("risk/y-0", "a1")) == {"ports"}
        ok(await stage.plane.send(stage.callers[Role.SCHEDULER], ReleaseReservation("risk", "x-0", token())))
        ok(await stage.bind("risk/y-0", "a1"))


async def test_the_first_of_a_group_that_is_near_to_itself_goes_anywhere_and_the_others_follow() -> None:
    async with staged() as stage:
        for index in range(3):
            await stage.wait(f"risk/x-{index}", WITH_ITSELF)
        ok(await stage.bind("risk/x-0", "b1"))
        assert refused_by(await stage.bind("risk/x-1", "a1")) == {"affinity"}
        ok(await stage.bind("risk/x-1", "b1"))


async def test_affinity_and_anti_affinity_end_at_the_tenant() -> None:
    async with staged() as stage:
        await stage.place("shop/x-0", "a1", ask_of(API, anti_affinity=(AffinityRule(topology_key="zone", match=app("api")),)))
        await stage.place("risk/y-0", "a1", ask_of(API))
        await stage.wait("risk/z-0", NEAR_CACHE)
        await stage.place("shop/c-0", "a1", ask_of(CACHE))
        assert refused_by(await stage.bind("risk/z-0", "a1")) == {"affinity"}


async def test_a_rule_that_appears_later_holds_for_workloads_that_were_placed_before() -> None:
    async with staged() as stage:
        await stage.place("risk/y-0", "b1", ask_of(API))
        await stage.place("risk/x-0", "a1", SHUNS_API)
        await stage.wait("risk/y-1", ask_of(API))
        assert refused_by(await stage.bind("risk/y-1", "a2")) == {"anti-affinity"}
        ok(await stage.bind("risk/y-1", "b1"))


async def test_spread_counts_only_zones_where_the_workload_could_go() -> None:
    async with staged() as stage:
        for index in range(3):
            await stage.wait(f"risk/x-{index}", SPREAD)
        ok(await stage.bind("risk/x-0", "a1"))
        assert refused_by(await stage.bind("risk/x-1", "a2")) == {"spread"}
        rec = stage.plane.authority.view().get("nodes", "", "b1")
        assert rec is not None
        node = rec.decode()
        cordoned = type(node.spec)(**{f: getattr(node.spec, f) for f in node.spec.__struct_fields__} | {"unschedulable": True})
        ok(await stage.plane.send(OPERATOR, Put("Node", type(node)(metadata=node.metadata, spec=cordoned))))
        ok(await stage.bind("risk/x-1", "a2"))


async def test_two_workloads_with_equal_asks_are_counted_apart() -> None:
    async with staged() as stage:
        one = ask_of(max_per_node=1)
        await stage.place("risk/x-0", "a1", one)
        await stage.place("risk/y-0", "a1", one)
        await stage.wait("risk/y-1", one)
        assert refused_by(await stage.bind("risk/y-1", "a1")) == {"max-per-node"}


async def test_the_members_of_a_gang_are_neighbours_of_each_other_and_a_refused_gang_leaves_no_trace() -> None:
    async with staged() as stage:
        ask = ask_of(API, anti_affinity=(AffinityRule(match=app("api")),))
        for index in range(2):
            await stage.wait(f"risk/x-{index}", ask, gang="g", gang_size=2)
        together = BindGang(tuple(stage.proposal(f"risk/x-{index}", "a1") for index in range(2)))
        refused = no(await stage.plane.send(stage.callers[Role.SCHEDULER], together), "GangRefused")
        assert set(refused.facts["reasons"]) == {"anti-affinity"}
        counted, wanted = stage.recounted()
        assert counted == wanted == {}
        apart = BindGang((stage.proposal("risk/x-0", "a1"), stage.proposal("risk/x-1", "a2")))
        ok(await stage.plane.send(stage.callers[Role.SCHEDULER], apart))


async def test_a_claim_is_judged_as_if_its_victims_were_gone_and_needs_them_gone() -> None:
    async with staged() as stage:
        await stage.place("shop/x-0", "a1", ask_of(ports=(80,)))
        await stage.place("shop/z-0", "a1", ask_of(ports=(81,)))
        await stage.wait("risk/y-0", ask_of(ports=(80,)), priority=1000)
        assert refused_by(await stage.bind("risk/y-0", "a1", victims=("shop/z-0",))) == {"ports"}
        refused = no(await stage.bind("risk/y-0", "a1", victims=("shop/x-0", "shop/z-0")), "VictimNotAllowed")
        assert refused.facts["victim"] == "shop/z-0", "the port is freed by the other one alone"
        ok(await stage.bind("risk/y-0", "a1", victims=("shop/x-0",)))


async def test_a_claim_for_a_node_of_ones_own_must_name_every_other_tenants_slot() -> None:
    async with staged() as stage:
        await stage.place("shop/x-0", "a1", PLAIN)
        await stage.place("shop/x-1", "a1", PLAIN)
        await stage.wait("risk/y-0", ALONE, priority=1000)
        assert refused_by(await stage.bind("risk/y-0", "a1", victims=("shop/x-0",))) == {"isolation"}
        ok(await stage.bind("risk/y-0", "a1", victims=("shop/x-0", "shop/x-1")))


# --- S6: pools, residency, the policy in force ------------------------------------------------------------------------


async def test_a_pool_admits_only_its_tenants_and_classes() -> None:
    async with staged() as stage:
        pool = NodePool(metadata=Metadata(name="pool-a1"), spec=NodePoolSpec(allowed_tenants=("risk",)))
        ok(await stage.plane.send(OPERATOR, Put("NodePool", pool)))
        await stage.wait("shop/x-0", PLAIN)
        assert refused_by(await stage.bind("shop/x-0", "a1")) == {"tenancy"}
        await stage.place("risk/x-0", "a1", PLAIN)
        ok(await stage.bind("shop/x-0", "a2"))


@pytest.mark.parametrize(
    ("areas", "own", "rules", "fits"),
    [
        (("eu",), ("eu",), (), True),
        (("eu", "de"), ("de",), (), True),
        (("us",), ("eu",), (), False),
        (None, ("eu",), (), False),  # nobody has said where the region lies: it fails closed
        ((), ("eu",), (), False),
        (None, (), (), True),
        (("eu",), (), (ResidencyRule(tenants=("risk",), areas=("eu",)),), True),
        (("us",), (), (ResidencyRule(tenants=("risk",), areas=("eu",)),), False),
        (("us",), (), (ResidencyRule(tenants=("shop",), areas=("eu",)),), True),
        (("us",), (), (ResidencyRule(labels=app("api"), areas=("eu",)),), False),
        (("us",), (), (ResidencyRule(labels=app("cache"), areas=("eu",)),), True),
        (("us",), ("us",), (ResidencyRule(tenants=("risk",), areas=("eu",)),), False),  # a workload may narrow, never widen
        (("eu", "us"), ("us",), (ResidencyRule(tenants=("risk",), areas=("eu", "us")),), True),
        (None, (), (ResidencyRule(tenants=("risk",), areas=("eu",)),), False),
    ],
)
async def test_residency_is_the_workloads_and_the_policys_and_fails_closed(
    areas: tuple[str, ...] | None, own: tuple[str, ...], rules: tuple[ResidencyRule, ...], fits: bool
) -> None:
    async with staged() as stage:
        if areas is not None:
            await stage.region(*areas)
        if rules:
            await stage.policy(1, *rules)
        await stage.wait("risk/x-0", ask_of(API, residency=Residency(areas=own)))
        outcome = await stage.bind("risk/x-0", "a1")
        assert ok(outcome) if fits else refused_by(outcome) == {"residency"}


async def test_a_preferred_residency_refuses_nothing() -> None:
    async with staged() as stage:
        await stage.region("us")
        await stage.place("risk/x-0", "a1", ask_of(residency=Residency(areas=("eu",), enforcement="Preferred")))


async def test_a_region_that_moves_to_other_areas_takes_nothing_more_of_what_is_bound_to_the_old_ones() -> None:
    async with staged() as stage:
        await stage.region("eu")
        eu = ask_of(residency=Residency(areas=("eu",)))
        await stage.place("risk/x-0", "a1", eu)
        await stage.region("us")
        await stage.wait("risk/x-1", eu)
        assert refused_by(await stage.bind("risk/x-1", "a1")) == {"residency"}
        await stage.region("us", "eu")
        ok(await stage.bind("risk/x-1", "a1"))


async def test_a_reserved_place_is_judged_again_by_the_policy_in_force_when_it_is_bound() -> None:
    async with staged() as stage:
        await stage.region("us")
        await stage.wait("risk/x-0", PLAIN)
        ok(await stage.reserve("risk/x-0", "a1"))
        await stage.policy(1, ResidencyRule(tenants=("risk",), areas=("eu",)))
        assert refused_by(await stage.bind("risk/x-0", "a1")) == {"residency"}
        await stage.policy(2, ResidencyRule(tenants=("risk",), areas=("us",)))
        ok(await stage.bind("risk/x-0", "a1"))


async def test_the_same_slot_is_judged_by_whichever_revision_is_in_force() -> None:
    async with staged() as stage:
        await stage.region("us")
        await stage.policy(1, ResidencyRule(tenants=("risk",), areas=("eu",)))
        await stage.policy(2, ResidencyRule(tenants=("risk",), areas=("us",)))
        await stage.place("risk/x-0", "a1", PLAIN)
        await stage.wait("risk/x-1", PLAIN)
        await stage.select(1)
        assert refused_by(await stage.bind("risk/x-1", "a1")) == {"residency"}
        await stage.select(2)
        ok(await stage.bind("risk/x-1", "a1"))


class NoPower:
    """A plug-in's gate: the first node is out of bounds."""

    name = "example.power"
    tier = Tier.INVARIANT
    text = "enough power in the rack"

    @staticmethod
    def check(need: Any, row: Any, view: Any) -> Any:
        return row.number > 0

    @staticmethod
    def why(need: Any, row: Any, view: Any) -> str:
        return "its rack has no power left"


async def test_a_gate_that_only_the_policy_names_is_asked_at_commit() -> None:
    plugins = Registry(gates={"example.power": NoPower()}, scores=BUILT_INS.scores)
    async with staged(Settings(region=REGION, plugins=plugins)) as stage:
        await stage.wait("risk/x-0", PLAIN)
        await stage.policy(1, gates=("example.power",))
        refused = no(await stage.bind("risk/x-0", "a1"), "NoFit")
        assert refused.facts["reasons"] == {"example.power": "its rack has no power left"}
        ok(await stage.bind("risk/x-0", "a2"))


# --- what a binding carries -------------------------------------------------------------------------------------------


async def test_a_binding_bears_the_marks_of_its_ask_and_a_plain_one_none() -> None:
    async with staged() as stage:
        rule = AffinityRule(match=app("api"))
        soft = AffinityRule(match=app("cache"), required=False, weight=5)
        await stage.place("risk/x-0", "a1", ask_of(API, (80,), "TenantExclusive", anti_affinity=(rule, soft)), min_serving=1)
        await stage.place("risk/y-0", "a2", PLAIN)
        marks = Marks(labels=(("app", "api"),), ports=(80,), repels=(rule,), isolation="TenantExclusive")
        assert stage.binding("risk/x-0").spec.marks == marks
        assert stage.binding("risk/x-0").spec.min_serving == 1
        assert stage.binding("risk/y-0").spec.marks is None


async def test_the_devices_a_scheduler_wishes_for_are_taken_if_they_satisfy_the_need_and_others_if_not() -> None:
    async with staged() as stage:
        one = ask_of(devices=(DeviceAsk(count=1),))
        for index, (wished, taken) in enumerate(((("g1",), "g1"), (("g1",), "g0"))):
            await stage.wait(f"risk/x-{index}", one)
            ok(await stage.bind(f"risk/x-{index}", "a1", devices=wished))
            assert [hold.id for hold in stage.binding(f"risk/x-{index}").spec.devices] == [taken]
        await stage.wait("risk/x-2", one)
        ok(await stage.bind("risk/x-2", "a2", devices=("no-such",)))
        assert [hold.id for hold in stage.binding("risk/x-2").spec.devices] == ["g0"]


# --- the checker ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["zones", "residency", "policy", "tenancy", "isolation", "regions"])
async def test_the_checker_finds_what_a_judge_without_the_gate_lets_through(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        stage = Stage(plane)
        await stage.furnish()
        await stage.region("us")
        await stage.policy(1, ResidencyRule(tenants=("shop",), areas=("eu",)))
        pool = NodePool(metadata=Metadata(name="pool-a2"), spec=NodePoolSpec(allowed_classes=("critical",)))
        ok(await plane.send(OPERATOR, Put("NodePool", pool)))
        await stage.place("risk/w-0", "b1", ALONE)
        assert violations(disk) == []
        monkeypatch.setattr(placing, "feasible", lambda *a: True)
        slot, node, ask, words = {
            "zones": ("risk/x-0", "a1", ask_of(zones=("b",)), "zone 'a' is not in"),
            "regions": ("risk/x-0", "a1", ask_of(regions=RegionRule(allowed=("mars",))), "region 'local' is not in"),
            "residency": ("risk/x-0", "a1", ask_of(residency=Residency(areas=("eu",))), "may run in ['eu']"),
            "policy": ("shop/x-0", "a1", PLAIN, "may run in ['eu']"),
            "tenancy": ("risk/x-0", "a2", PLAIN, "is not for class standard"),
            "isolation": ("shop/x-0", "b1", PLAIN, "['risk'] asked to be alone"),
        }[name]
        await stage.place(slot, node, ask)
    found = violations(disk)
    assert {violation.invariant for violation in found} == {"S6"}, found
    assert any(words in violation.detail for violation in found), found
