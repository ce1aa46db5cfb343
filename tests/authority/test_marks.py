"""Marks: what an object is, and of what, is for whoever made it so; others neither add, change nor take off such a one."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.authority.judge import Settings
from fairlead.authority.judge.marks import OWNERS
from fairlead.decide.autoscaling import SCALED_DOWN
from fairlead.decide.overrides import AGE_MS, ends_ms, is_in_force
from fairlead.decide.regional import MERGED, ORDERED_IN, ORDERED_UID
from fairlead.decide.writing_off import WRITE_OFF
from fairlead.model.commands import Caller, Put
from fairlead.model.kinds.access import ServiceAccount
from fairlead.model.kinds.intent import Region, RegionSpec
from fairlead.model.kinds.policy import Override, OverrideScope, OverrideSpec
from fairlead.model.lifecycle import Role
from fairlead.model.meta import MIRRORED_UID, Metadata
from tests.authority.planes import OPERATOR, REGION, FakeClock, PlaneForTest, agent_of, no, ok, running_plane

GLOBAL = Settings(plane="global", region="global")
BREAK_GLASS = Caller("root", Role.BREAK_GLASS)
SPEC = OverrideSpec(kind="hold", reason="flood", ttl_seconds=600, requester="ada", scope=OverrideScope(workloads=("api",)))
RECORD = replace(SPEC, kind="autoscaler-pause", scope=OverrideScope(tenants=("risk",), regions=(REGION,)))


def found(plane: PlaneForTest, plural: str, tenant: str, name: str) -> Any:
    rec = plane.authority.view().get(plural, tenant, name)
    assert rec is not None
    return rec.hot if plural == "nodes" else rec.decode()


def noted(one: Any, name: str, value: str | None) -> Any:
    kept = {key: each for key, each in one.metadata.annotations.items() if key != name}
    return replace(one, metadata=replace(one.metadata, annotations=kept if value is None else {**kept, name: value}))


async def a_copy(plane: PlaneForTest) -> Override:
    """In a region, of an override that was five minutes old when it came."""
    mirror = await plane.as_role(Role.MIRROR)
    meta = Metadata(name="stop", namespace="risk", annotations={MIRRORED_UID: "u-1", AGE_MS: "300000"})
    ok(await plane.send(mirror, Put("Override", Override(meta, SPEC), "create")))
    return found(plane, "overrides", "risk", "stop")  # type: ignore[no-any-return]


async def a_record(plane: PlaneForTest) -> Override:
    """In the global plane, of what was ordered in a region."""
    mirror = await plane.as_role(Role.MIRROR, "mirror", f"mirror-up-{REGION}")
    meta = Metadata(name=f"{REGION}-stop", namespace="risk", annotations={ORDERED_IN: REGION, ORDERED_UID: "u-1", AGE_MS: "5"})
    ok(await plane.send(mirror, Put("Override", Override(meta, RECORD), "create")))
    return found(plane, "overrides", "risk", f"{REGION}-stop")  # type: ignore[no-any-return]


@pytest.mark.parametrize("who", [OPERATOR, BREAK_GLASS], ids=["operator", "break-glass"])
@pytest.mark.parametrize(
    ("mark", "value"), [(AGE_MS, None), (AGE_MS, "0"), (MIRRORED_UID, None), (MERGED, "r/1"), (ORDERED_IN, REGION)]
)
async def test_nobody_makes_a_copy_last_longer_or_something_else_by_its_marks(who: Caller, mark: str, value: str | None) -> None:
    clock = FakeClock()
    async with running_plane(clock=clock) as plane:
        copy = await a_copy(plane)
        end_ms = ends_ms(copy)
        refused = no(await plane.send(who, Put("Override", noted(copy, mark, value))), "NotOwner")
        assert f"annotation {mark} of stop belongs to mirror, not to {who.role.value}" in refused.detail
        clock.offset += 301
        left = found(plane, "overrides", "risk", "stop")
        assert ends_ms(left) == end_ms
        assert not is_in_force(left, plane.authority.plane_ms()), "ten minutes in all, wherever it is (S11)"


@pytest.mark.parametrize("mark", [ORDERED_IN, ORDERED_UID, AGE_MS])
async def test_nobody_takes_off_what_makes_a_record_a_record(mark: str) -> None:
    async with running_plane(settings=GLOBAL) as plane:
        record = await a_record(plane)
        assert "leave it at" in no(await plane.send(OPERATOR, Put("Override", noted(record, mark, None))), "NotOwner").detail
        bare = replace(record, metadata=Metadata(name=record.metadata.name, namespace="risk"))
        no(await plane.send(OPERATOR, Put("Override", bare)), "NotOwner")
        assert found(plane, "overrides", "risk", record.metadata.name) == record


async def test_the_rest_of_what_people_write_on_an_override_is_theirs() -> None:
    async with running_plane() as plane:
        copy = await a_copy(plane)
        ok(await plane.send(OPERATOR, Put("Override", noted(copy, "example.org/ticket", "7"))))


async def test_a_mirror_changes_neither_the_record_of_another_region_nor_what_is_no_record() -> None:
    """A name may begin with the names of two regions, and one of before there was such a region with its."""
    async with running_plane(settings=GLOBAL) as plane:
        west, eu = [await plane.as_role(Role.MIRROR, f"mirror {r}", f"mirror-up-{r}") for r in ("eu-west", "eu")]
        scopes = {r: replace(RECORD, scope=OverrideScope(tenants=("risk",), regions=(r,))) for r in ("eu-west", "eu")}
        marks = {ORDERED_IN: "eu-west", ORDERED_UID: "u-1"}
        record = Override(Metadata(name="eu-west-stop", namespace="risk", annotations=marks), scopes["eu-west"])
        ok(await plane.send(west, Put("Override", record)))
        no(await plane.send(eu, Put("Override", replace(noted(record, ORDERED_IN, "eu"), spec=scopes["eu"]))), "NotOwner")
        plain = Override(Metadata(name="eu-pause", namespace="risk"), scopes["eu"])
        ok(await plane.send(OPERATOR, Put("Override", plain)))
        no(await plane.send(eu, Put("Override", noted(plain, ORDERED_IN, "eu"))), "NotOwner")


async def test_a_mirror_takes_finalizers_off_in_the_global_plane_and_writes_no_annotation_there() -> None:
    """By one a region is written off."""
    async with running_plane(settings=GLOBAL) as plane:
        ok(await plane.send(OPERATOR, Put("Region", Region(Metadata(name="eu"), RegionSpec()))))
        region = found(plane, "regions", "", "eu")
        mirror = await plane.as_role(Role.MIRROR, "mirror", "mirror-up-us")
        no(await plane.send(mirror, Put("Region", noted(region, WRITE_OFF, region.metadata.uid))), "NotOwner")
        ok(await plane.send(OPERATOR, Put("Region", noted(region, WRITE_OFF, region.metadata.uid))))


async def test_a_tenant_does_not_keep_the_copy_of_an_account_that_is_revoked_above() -> None:
    async with running_plane() as plane:
        mirror = await plane.as_role(Role.MIRROR)
        meta = Metadata(name="bot", namespace="risk", annotations={MIRRORED_UID: "u-1"})
        ok(await plane.send(mirror, Put("ServiceAccount", ServiceAccount(meta), "create")))
        copy = found(plane, "serviceaccounts", "risk", "bot")
        eve = Caller("eve", Role.USER, tenant="risk")
        no(await plane.send(eve, Put("ServiceAccount", noted(copy, MIRRORED_UID, None))), "NotOwner")
        forged = ServiceAccount(replace(meta, name="other"))
        assert "leave it out" in no(await plane.send(eve, Put("ServiceAccount", forged)), "NotOwner").detail


async def test_an_agent_does_not_say_that_a_pool_has_closed_its_node_and_operators_may() -> None:
    async with running_plane() as plane:
        await plane.add_node("n1")
        node = found(plane, "nodes", "", "n1")
        no(await plane.send(agent_of("n1"), Put("Node", noted(node, SCALED_DOWN, "true"))), "NotOwner")
        ok(await plane.send(OPERATOR, Put("Node", noted(node, SCALED_DOWN, "true"))))
        no(await plane.send(agent_of("n1"), Put("Node", node)), "NotOwner")
        ok(await plane.send(OPERATOR, Put("Node", noted(node, SCALED_DOWN, None))))


def test_every_mark_is_one_of_ours() -> None:
    assert all(name.startswith("fairlead.dev/") and owners for name, owners in OWNERS.items())
