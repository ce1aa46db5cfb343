"""Pools, residency and the policy in force at commit (S6), the marks a binding carries, and what the journal's checker finds."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.authority.judge import Settings, placing
from fairlead.decide.plugins import BUILT_INS, Registry
from fairlead.decide.tiers import Tier
from fairlead.model.commands import Put
from fairlead.model.kinds.capacity import NodePool, NodePoolSpec
from fairlead.model.kinds.intent import AffinityRule, RegionRule, Residency
from fairlead.model.kinds.policy import ResidencyRule
from fairlead.model.kinds.work import Marks
from fairlead.model.meta import Metadata
from fairlead.model.resources import DeviceAsk
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.gates_stage import ALONE, API, PLAIN, Stage, app, ask_of, refused_by, staged, violations
from tests.authority.planes import OPERATOR, REGION, no, ok, running_plane

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
