"""Gates on places at commit: what one forbids is refused by its name and the neighbouring case taken; gangs and claims too."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from fairlead.model.commands import BindGang, Put, ReleaseReservation
from fairlead.model.kinds.capacity import Taint
from fairlead.model.kinds.intent import AffinityRule, LabelExpression, RegionRule
from fairlead.model.kinds.work import Ask
from fairlead.model.lifecycle import Role, SlotState
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.gates_stage import (
    ALONE,
    API,
    CACHE,
    NEAR_CACHE,
    PLAIN,
    SHUNS_API,
    SPREAD,
    WITH_ITSELF,
    Stage,
    app,
    ask_of,
    refused_by,
    staged,
)
from tests.authority.planes import OPERATOR, agent_of, move_of, no, ok, report_of, running_plane, token


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


@pytest.mark.parametrize(
    ("changed", "by"),
    [
        ({"unschedulable": True}, "cordon"),
        ({"taints": (Taint("batch", "yes"),)}, "taints"),
        ({"labels": {"disk": "none"}}, "labels"),
    ],
)
async def test_what_is_reserved_is_not_bound_to_a_node_that_an_operator_has_closed_to_it_since(
    changed: dict[str, Any], by: str
) -> None:
    on_a2 = ask_of(node_labels=(LabelExpression(key="disk", values=("a2",)),))
    async with staged() as stage:
        await stage.wait("risk/x-0", on_a2)
        ok(await stage.reserve("risk/x-0", "a2"))
        await stage.alter("a2", **changed)
        assert refused_by(await stage.bind("risk/x-0", "a2")) == {by}
        await stage.alter("a2", {"disk": "a2"}, unschedulable=False, taints=())
        ok(await stage.bind("risk/x-0", "a2"))
