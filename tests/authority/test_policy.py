"""Policy at the authority: one revision decides for a tenant, decisions under another are refused, and so is a revision that
this plane cannot carry out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec

from fairlead.authority.hot import hot_of
from fairlead.authority.judge import Context, Settings
from fairlead.authority.state import Rec, State
from fairlead.decide.plugins import BUILT_INS
from fairlead.decide.policy import CompiledPolicy, tenant_share
from fairlead.decide.scores import TOTAL_MAX, Tier
from fairlead.model.commands import Delete, Put, Refused
from fairlead.model.kinds.policy import (
    Canary,
    PolicyChannel,
    PolicyChannelSpec,
    SchedulerPolicy,
    SchedulerPolicySpec,
    ScoreWeight,
)
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import OPERATOR, REGION, PlaneForTest, bind_of, no, ok, running_plane

GATE: Any = SimpleNamespace(name="example.power", tier=Tier.INVARIANT, text="enough power", check=len, why=len)


def _policy(revision: int, **spec: Any) -> Put:
    metadata = Metadata(name=f"r{revision}")
    return Put("SchedulerPolicy", SchedulerPolicy(metadata=metadata, spec=SchedulerPolicySpec(revision=revision, **spec)))


def _channel(current: int, canary: Canary | None = None) -> Put:
    spec = PolicyChannelSpec(current=current, canary=canary)
    return Put("PolicyChannel", PolicyChannel(metadata=Metadata(name="default"), spec=spec))


async def _ready(plane: PlaneForTest, *tenants: str) -> Any:
    """A node, and one slot of each tenant waiting for a place."""
    await plane.add_node("n1")
    assignment = await plane.as_role(Role.ASSIGNMENT)
    for tenant in tenants:
        await plane.grant(tenant)
        ok(await plane.request(tenant, "api", 0, assignment))
    return await plane.as_role(Role.SCHEDULER)


async def test_a_decision_counts_only_under_the_one_revision_in_force_for_its_tenant() -> None:
    async with running_plane() as plane:
        scheduler = await _ready(plane, "risk", "shop")
        ok(await plane.send(OPERATOR, _policy(1)))
        ok(await plane.send(OPERATOR, _policy(2)))
        ok(await plane.send(OPERATOR, _channel(1, Canary(revision=2, tenants=("risk",)))))
        for tenant, right, wrong in (("risk", 2, (0, 1, 3)), ("shop", 1, (0, 2, 3))):
            for revision in wrong:
                refused = no(await plane.send(scheduler, bind_of(tenant, "api-0", "n1", policy_revision=revision)), "StalePolicy")
                assert refused.facts == {"policyRevision": right}
            ok(await plane.send(scheduler, bind_of(tenant, "api-0", "n1", policy_revision=right)))


async def test_a_canary_by_share_takes_the_same_tenants_at_the_authority() -> None:
    tenants = [f"t{n}" for n in range(8)]
    shares = sorted(tenant_share(tenant) for tenant in tenants)
    percent = shares[4]
    async with running_plane() as plane:
        scheduler = await _ready(plane, *tenants)
        for revision in (1, 2):
            ok(await plane.send(OPERATOR, _policy(revision)))
        ok(await plane.send(OPERATOR, _channel(1, Canary(revision=2, share_percent=percent))))
        for tenant in tenants:
            right = 2 if tenant_share(tenant) < percent else 1
            no(await plane.send(scheduler, bind_of(tenant, "api-0", "n1", policy_revision=3 - right)), "StalePolicy")
            ok(await plane.send(scheduler, bind_of(tenant, "api-0", "n1", policy_revision=right)))


async def test_promoting_a_revision_makes_earlier_decisions_stale_at_once() -> None:
    async with running_plane() as plane:
        scheduler = await _ready(plane, "risk")
        for revision in (1, 2):
            ok(await plane.send(OPERATOR, _policy(revision)))
        ok(await plane.send(OPERATOR, _channel(1)))
        no(await plane.send(scheduler, bind_of("risk", "api-0", "n1", policy_revision=2)), "StalePolicy")
        ok(await plane.send(OPERATOR, _channel(2)))
        no(await plane.send(scheduler, bind_of("risk", "api-0", "n1", policy_revision=1)), "StalePolicy")
        ok(await plane.send(scheduler, bind_of("risk", "api-0", "n1", policy_revision=2)))


async def test_a_revision_whose_plug_ins_are_missing_is_refused_and_taken_where_they_are_loaded() -> None:
    asks_for_it = _policy(1, gates=("example.power",))
    async with running_plane() as plane:
        refused = no(await plane.send(OPERATOR, asks_for_it), "PluginMissing")
        assert [fault.path for fault in refused.faults] == ["spec.gates[0]"]
        assert "the gate 'example.power' is not loaded here" in refused.detail
        no(await plane.send(OPERATOR, _channel(1)), "NotFound")
    registry, _ = BUILT_INS.with_plugins([("gates", GATE.name, GATE)])
    async with running_plane(settings=Settings(region=REGION, plugins=registry)) as plane:
        ok(await plane.send(OPERATOR, asks_for_it))
        ok(await plane.send(OPERATOR, _channel(1)))


async def test_a_revision_that_outgrows_the_totals_of_a_plug_in_is_invalid() -> None:
    wide: Any = SimpleNamespace(name="example.wide", tier=Tier.HINT, text="wide", scope="node", rate=len, rate_max=TOTAL_MAX)
    registry, _ = BUILT_INS.with_plugins([("scores", wide.name, wide)])
    async with running_plane(settings=Settings(region=REGION, plugins=registry)) as plane:
        refused = no(await plane.send(OPERATOR, _policy(1, scores=(ScoreWeight(name="example.wide"),))), "Invalid")
        assert refused.faults[0].path == "spec.scores"


async def test_a_channel_names_only_revisions_that_are_here_and_those_are_not_deleted() -> None:
    async with running_plane() as plane:
        ok(await plane.send(OPERATOR, _policy(1)))
        no(await plane.send(OPERATOR, _channel(2)), "NotFound")
        no(await plane.send(OPERATOR, _channel(1, Canary(revision=2, tenants=("risk",)))), "NotFound")
        ok(await plane.send(OPERATOR, _policy(2)))
        ok(await plane.send(OPERATOR, _policy(3)))
        ok(await plane.send(OPERATOR, _channel(1, Canary(revision=2, tenants=("risk",)))))
        for name in ("r1", "r2"):
            no(await plane.send(OPERATOR, Delete("SchedulerPolicy", "", name)), "InUse")
        ok(await plane.send(OPERATOR, Delete("SchedulerPolicy", "", "r3")))


async def test_a_revision_that_the_channel_can_go_back_to_is_not_deleted_but_in_a_regions_copy() -> None:
    for settings, refused in ((Settings(plane="global"), True), (Settings(region=REGION), False)):
        async with running_plane(settings=settings) as plane:
            for revision in (1, 2):
                ok(await plane.send(OPERATOR, _policy(revision)))
            channel = PolicyChannel(metadata=Metadata(name="default"), spec=PolicyChannelSpec(current=2, history=(1,)))
            ok(await plane.send(OPERATOR, Put("PolicyChannel", channel)))
            got = await plane.send(OPERATOR, Delete("SchedulerPolicy", "", "r1"))
            assert "spec.history" in no(got, "InUse").detail if refused else ok(got)


async def test_the_revision_in_force_is_known_again_after_a_restart() -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk)) as plane:
        ok(await plane.send(OPERATOR, _policy(1)))
        ok(await plane.send(OPERATOR, _channel(1)))
    async with running_plane(MemoryStore(disk)) as plane:
        scheduler = await _ready(plane, "risk")
        no(await plane.send(scheduler, bind_of("risk", "api-0", "n1", policy_revision=0)), "StalePolicy")
        ok(await plane.send(scheduler, bind_of("risk", "api-0", "n1", policy_revision=1)))


def test_a_channel_that_is_undone_or_deleted_is_forgotten_with_what_was_remembered_of_it() -> None:
    ctx = Context(State(hot_of), Settings(region=REGION))
    found = [ctx.policy_in_force("risk")]
    for put in (_channel(1), _channel(2)):
        ctx.state.apply("policychannels", "", "default", b"x", put.object)
        found.append(ctx.policy_in_force("risk"))
    ctx.state.apply("policychannels", "", "default", None)
    found.append(ctx.policy_in_force("risk"))
    assert found == [(0,), (1,), (2,), (0,)]
    for position in (2, 1, 0):
        ctx.state.undo_to(position)
        assert ctx.policy_in_force("risk") == (position,)


def test_a_plane_that_took_a_revision_it_can_no_longer_carry_out_says_so() -> None:
    """A standby without the plug-in takes over: the revision is in its state, and nothing may be judged under it."""
    ctx = Context(State(hot_of), Settings(region=REGION))
    policy = _policy(1, gates=("example.power",)).object
    assert isinstance(policy, SchedulerPolicy)
    bucket = ctx.state.bucket("schedulerpolicies", "")
    bucket.members["r1"] = Rec("schedulerpolicies", "", "r1", 1, b"x", policy, None, 0)
    found = ctx.policies.compiled(1)
    assert isinstance(found, Refused)
    assert found.reason == "PluginMissing"
    missing = ctx.policies.compiled(9)
    assert isinstance(missing, Refused)
    assert missing.reason == "NotFound"
    built_in = ctx.policies.compiled(0)
    assert isinstance(built_in, CompiledPolicy)
    assert built_in is ctx.policies.compiled(0)
    whole = msgspec.structs.replace(policy, spec=SchedulerPolicySpec(revision=1))
    bucket.members["r1"] = Rec("schedulerpolicies", "", "r1", 2, b"x", whole, None, 0)
    found = ctx.policies.compiled(1)
    assert isinstance(found, CompiledPolicy)
    assert found is ctx.policies.compiled(1)
