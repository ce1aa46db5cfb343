"""An emergency quota that has ended raises no commit any more, and what it had allowed is gone by its deadline (P13, S4, S5)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.authority import ending
from fairlead.decide import granting, leftovers
from fairlead.decide.granting import stop_ms
from fairlead.model.commands import Accepted, Body, Caller, Command, Delete, Put
from fairlead.model.kinds.policy import Override, OverrideScope, OverrideSpec
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.model.registry import GLOBAL
from fairlead.observe import escrow
from fairlead.sim.loop import sleep
from tests.sim.races.stage import REGION, TENANT, Stage, played

TTL_S = 40
DRAINED_S = 40.0  # five minutes otherwise
QUOTA_CPU = 1_800  # of the tenant, on nodes that have room for twice as much


@pytest.fixture(autouse=True)
def a_short_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(granting, "EMERGENCY_DRAIN_MS", int(DRAINED_S * 1000))
    monkeypatch.setattr(leftovers, "OVER_S", DRAINED_S)
    monkeypatch.setattr(escrow, "DRAINED_MS", int(DRAINED_S * 1000))


async def said_by(stage: Stage, who: str, body: Body) -> None:
    (server,) = stage.platform.planes[GLOBAL].leaders()
    (outcome,) = await server.authority.submit([Command(Caller(who, Role.OPERATOR), body)])
    assert isinstance(outcome, Accepted), outcome


async def emergency(stage: Stage, cpu: str, ttl_s: int = TTL_S) -> None:
    """One person asks for it, another one agrees."""
    spec = OverrideSpec("emergency-quota", "flood", ttl_s, "ada", "", OverrideScope(tenants=(TENANT,)), {"cpu": cpu})
    await said_by(stage, "ada", Put("Override", Override(Metadata(name="flood", namespace=TENANT), spec)))
    made = stage.objects(GLOBAL, "overrides")[TENANT, "flood"]
    await said_by(stage, "bob", Put("Override", replace(made, spec=replace(made.spec, approver="bob"))))


def used_cpu(stage: Stage) -> int:
    return escrow.in_use(stage.world.watches[REGION].objects, TENANT).cpu


def over_quota(stage: Stage) -> str:
    (quota,) = (each for (tenant, _), each in stage.objects(GLOBAL, "quotas").items() if tenant == TENANT)
    return next((c.status for c in quota.status.conditions if c.type == "OverQuota"), "")


def repairs(stage: Stage) -> list[Any]:
    return [each for each in stage.objects(GLOBAL, "repairs").values() if each.spec.problem == "OverQuota"]


def mended(repair: Any) -> str:
    return next((c.status for c in repair.status.conditions if c.type == "Mended"), "")


async def flood(stage: Stage) -> None:
    await stage.create("api", 6)
    await stage.until(lambda: stage.serving("api") == 4)
    await emergency(stage, "1")
    ends_s = stage.loop.now + TTL_S
    await stage.until(lambda: stage.serving("api") == 6)
    assert used_cpu(stage) > QUOTA_CPU, "more than the quota has, while it lasts"
    await stage.until(lambda: stage.loop.now > ends_s + 1.0)
    await stage.create("late", 1, cpu="100m", memory="64Mi")
    await stage.until(lambda: over_quota(stage) == "True")
    await stage.until(lambda: repairs(stage) and mended(repairs(stage)[0]) == "False", 40.0)
    (repair,) = repairs(stage)
    assert repair.spec.owner == Role.QUOTA.value
    assert repair.spec.deadline_time is not None
    assert not stage.bindings("late"), "what is above the limits raises nothing"
    assert used_cpu(stage) > QUOTA_CPU, "people have until the deadline to make room themselves"
    await stage.until(lambda: used_cpu(stage) <= QUOTA_CPU, ends_s + DRAINED_S + 15.0 - stage.loop.now)
    assert stage.loop.now > ends_s + DRAINED_S * 0.9, "and no less"
    await stage.until(lambda: over_quota(stage) == "False" and mended(repairs(stage)[0]) == "True")
    assert stage.serving("api") == 4


def test_what_an_emergency_quota_had_allowed_is_said_to_be_over_the_quota_and_is_gone_by_its_deadline() -> None:
    played(flood, tight=True)


async def taken_back(stage: Stage) -> None:
    await stage.create("api", 6)
    await stage.until(lambda: stage.serving("api") == 4)
    await emergency(stage, "1", 3600)
    await stage.until(lambda: stage.serving("api") == 6)
    await said_by(stage, "ada", Delete("Override", TENANT, "flood"))
    await stage.until(lambda: over_quota(stage) == "True")
    await sleep(3.0)  # the region has heard of it
    await stage.create("late", 1, cpu="100m", memory="64Mi")
    await sleep(3.0)
    assert used_cpu(stage) > QUOTA_CPU
    assert not stage.bindings("late"), "nobody places on what was taken back"
    least = 6
    for _ in range(2 * int(stage.platform.scenario.grant_lease_s)):
        await sleep(1.0)
        least = min(least, stage.serving("api"))
    assert (least, stage.serving("api")) == (4, 4), "what is within the quota serves on, though a lease has ended"
    assert used_cpu(stage) <= QUOTA_CPU
    assert over_quota(stage) == "False"


def test_an_emergency_quota_that_is_taken_back_while_it_is_used_leaves_what_is_within_the_quota() -> None:
    played(taken_back, tight=True)


async def frozen(stage: Stage) -> None:
    await stage.create("api", 6)
    await stage.until(lambda: stage.serving("api") == 4)
    await emergency(stage, "1")
    ends_s = stage.loop.now + TTL_S
    await stage.until(lambda: stage.serving("api") == 6)
    spec = OverrideSpec("freeze", "an audit", 3600, "ada", "", OverrideScope(tenants=(TENANT,)))
    await said_by(stage, "ada", Put("Override", Override(Metadata(name="still", namespace=TENANT), spec)))
    await stage.until(lambda: (TENANT, "still") in stage.objects(REGION, "overrides"))
    await stage.until(lambda: used_cpu(stage) <= QUOTA_CPU, ends_s + DRAINED_S + 15.0 - stage.loop.now)
    assert stage.serving("api") == 4


def test_a_freeze_does_not_keep_what_an_emergency_quota_had_allowed() -> None:
    played(frozen, tight=True)


async def on_and_on(stage: Stage) -> None:
    """Without a word on what should be: whether the checkers see it."""
    await stage.create("api", 6)
    await stage.until(lambda: stage.serving("api") == 4)
    await emergency(stage, "1")
    await stage.until(lambda: stage.serving("api") == 6)
    await sleep(TTL_S + 1.0)
    await stage.create("late", 1, cpu="100m", memory="64Mi")
    await sleep(DRAINED_S + 25.0)


def test_checkers_find_what_is_never_drained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "must_end_ms", lambda grant, allowed: allowed.end_ms - stop_ms(grant.spec))
    with pytest.raises(AssertionError, match=r"S5.*uses or could use 2400 cpu of 1800"):
        played(on_and_on, tight=True)


def test_checkers_find_what_is_placed_on_an_emergency_quota_that_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(granting, "_less", lambda one, other: one)
    with pytest.raises(AssertionError, match=r"S4.*uses 2500 cpu of 1800"):
        played(on_and_on, tight=True)
