"""A region that is cut off: overrides of the global plane hold until they end; what people order there holds back, lifts nothing,
and is told upward after healing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.authority.judge import Settings
from fairlead.controllers.contract import View
from fairlead.controllers.mirror import MirrorDown, MirrorUp
from fairlead.controllers.override import OverrideController
from fairlead.decide.overrides import AGE_MS, is_in_force
from fairlead.decide.regional import KEPT_MS, MERGED, ORDERED_IN, ORDERED_UID, is_owed, lasts_s, mark_of, record_name
from fairlead.decide.slots import instant
from fairlead.model.commands import Delete, Put
from fairlead.model.ids import Uid
from fairlead.model.kinds.policy import Override, OverrideScope, OverrideSpec
from fairlead.model.kinds.quota import GrantTerm, GrantTermSpec
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from fairlead.observe.ordered import ordered
from fairlead.store.memory import MemoryDisk, MemoryStore
from tests.authority.planes import OPERATOR, REGION, FakeClock, no, ok, running_plane
from tests.controllers.test_overrides import fill
from tests.controllers.test_planes import World
from tests.controllers.test_quota import grant_of, quota_world, reason_of, term_of, until

TTL_S = 120


def override(kind: Any, name: str, **scope: Any) -> Override:
    spec = OverrideSpec(kind=kind, reason="flood", ttl_seconds=TTL_S, requester="ada", scope=OverrideScope(**scope))
    if kind == "emergency-quota":
        spec = replace(spec, parameters={"cpu": "1"})
    return Override(Metadata(name=name, namespace="risk"), spec)


def cut(w: World) -> None:
    for runtime in (*w.top.runtimes, *w.low.runtimes):
        if runtime.controller.name.startswith("mirror"):
            runtime.stop()


@asynccontextmanager
async def apart(**of_region: Any) -> AsyncIterator[World]:
    """Two planes with a grant that is taken, and the override controllers of both."""
    async with quota_world(cpu=8000, **of_region) as w:
        w.top.control(OverrideController("override-global"))
        w.low.control(OverrideController())
        await until(w.low, lambda: (g := grant_of(w.low)) is not None and g.status.accepted_version > 0)
        await until(w.low, lambda: (t := term_of(w.low)) is not None and t.status.end_time is not None and t.status.residency)
        yield w


async def test_a_region_that_is_cut_off_honours_an_override_until_it_ends_and_no_longer() -> None:
    clock = FakeClock()
    async with apart(clock=clock) as w:
        ok(await w.top.plane.send(OPERATOR, Put("Override", override("hold", "stop", workloads=("api",)))))
        await until(w.low, lambda: w.low.get("overrides", "stop") is not None)
        cut(w)
        await w.low.order("api", count=1)
        await until(w.low, lambda: reason_of(w.low, "api") == "OnHold")
        clock.offset += TTL_S  # by the region's own clock; nobody is there to say so
        await until(w.low, lambda: len(w.low.slots("api")) == 1)
        copy: Override = w.low.get("overrides", "stop")
        assert not is_in_force(copy, w.low.local.plane_ms())


async def test_what_is_ordered_in_a_region_on_its_own_holds_there_and_is_merged_and_audited_after_healing() -> None:
    async with apart() as w:
        low, top = w.low, w.top
        cut(w)
        ok(await low.plane.send(OPERATOR, Put("Override", override("hold", f"{REGION}-stop", workloads=("api",)))))
        ok(await low.plane.send(OPERATOR, Put("Override", override("freeze", f"{REGION}-still", workloads=("web",)))))
        await low.order("api", count=1)
        await low.order("web", count=1)
        await until(low, lambda: reason_of(low, "api") == "OnHold" and len(low.slots("web")) == 1)
        ok(await low.plane.send(OPERATOR, Delete("Override", "risk", f"{REGION}-still")))
        await until(low, lambda: (found := low.get("overrides", f"{REGION}-still")) is not None and found.status.conditions)
        revoked: Override = low.get("overrides", f"{REGION}-still")
        assert revoked.metadata.deletion_time is not None, "it is kept until the global plane has heard of it"
        assert not is_in_force(revoked, low.local.plane_ms())

        w.mirrors()
        await until(low, lambda: all(top.get("overrides", f"{REGION}-{name}") is not None for name in ("stop", "still")))
        await until(low, lambda: low.get("overrides", f"{REGION}-still") is None)
        await until(low, lambda: MERGED in low.get("overrides", f"{REGION}-stop").metadata.annotations)
        record: Override = top.get("overrides", f"{REGION}-stop")
        original: Override = low.get("overrides", f"{REGION}-stop")
        assert record.metadata.annotations[ORDERED_IN] == REGION
        assert record.metadata.annotations[ORDERED_UID] == original.metadata.uid
        assert record.spec.scope.regions == (REGION,)
        assert (record.spec.requester, record.spec.reason) == ("ada", "flood")
        assert AGE_MS not in original.metadata.annotations, "what was ordered here is not taken for a copy"
        assert top.get("overrides", f"{REGION}-still").spec.ttl_seconds < TTL_S, "it lasted as long as it did"
        no(
            await top.plane.send(OPERATOR, Put("Override", replace(record, spec=replace(record.spec, ttl_seconds=60)))),
            "NotOwner",
        )
        ok(await low.plane.send(OPERATOR, Delete("Override", "risk", f"{REGION}-stop")))
        await until(low, lambda: len(low.slots("api")) == 1)
        await until(low, lambda: low.get("overrides", f"{REGION}-stop") is None)
        ended: Override = top.get("overrides", f"{REGION}-stop")
        assert ended.spec.ttl_seconds < TTL_S, "the record of one that was taken back after it was merged ends with it"


async def test_what_is_ordered_under_a_name_that_was_used_before_has_a_record_of_its_own() -> None:
    async with apart() as w:
        low, top, name = w.low, w.top, f"{REGION}-stop"
        w.mirrors()
        uids = []
        for kind, workload in (("hold", "api"), ("freeze", "web"), ("hold", "job")):
            ok(await low.plane.send(OPERATOR, Put("Override", override(kind, name, workloads=(workload,)))))
            uids.append(low.get("overrides", name).metadata.uid)
            await until(low, lambda: MERGED in low.get("overrides", name).metadata.annotations)
            ok(await low.plane.send(OPERATOR, Delete("Override", "risk", name)))
            await until(low, lambda: low.get("overrides", name) is None)
        records: list[Override] = [item.hot for item in await top.local.list("overrides")]
        found = {each.metadata.annotations[ORDERED_UID]: each for each in records}
        assert [(found[uid].spec.kind, *found[uid].spec.scope.workloads) for uid in uids] == [
            ("hold", "api"), ("freeze", "web"), ("hold", "job"),
        ]  # fmt: skip
        assert found[uids[0]].metadata.name == name, "people find the first by its own name"
        assert all(found[uid].metadata.name.startswith(f"{name}.") for uid in uids[1:])
        assert all(each.spec.ttl_seconds < TTL_S for each in records), "each lasted as long as it did"


def test_the_name_of_a_second_record_is_one_that_may_be_given_however_long_the_original_is() -> None:
    made = override("hold", f"{REGION}-{'a' * (198 - len(REGION))}-{'b' * 40}", regions=(REGION,))
    original = replace(made, metadata=replace(made.metadata, uid=Uid(f"{REGION}.7.{'f' * 11}")))
    assert record_name(original, is_taken=False) == original.metadata.name
    name = record_name(original, is_taken=True)
    assert len(name) <= 253
    assert name.endswith(f"a.7.{'f' * 11}")


def ordered_here(**meta: Any) -> Override:
    made = override("hold", f"{REGION}-stop", workloads=("api",))
    return replace(made, metadata=replace(made.metadata, creation_time=instant(1_000_000), uid=Uid("u-1"), **meta))


def test_what_was_taken_back_is_kept_until_the_global_plane_knows_how_long_it_lasted() -> None:
    now_ms, known = 1_100_000, {MERGED: mark_of("r-1", TTL_S)}
    assert is_owed(ordered_here(), now_ms)
    assert not is_owed(ordered_here(annotations=known), now_ms)
    revoked = ordered_here(annotations=known, deletion_time=instant(1_002_500))
    assert lasts_s(revoked) == 3
    assert is_owed(revoked, now_ms), "its record still says that it holds"
    assert not is_owed(ordered_here(annotations={MERGED: mark_of("r-1", 3)}, deletion_time=instant(1_002_500)), now_ms)
    assert not is_owed(revoked, 1_000_000 + TTL_S * 1000 + KEPT_MS), "a global plane that never comes back is not waited for"


def test_a_record_that_somebody_cleared_away_keeps_nothing_in_its_region() -> None:
    revoked = ordered_here(annotations={MERGED: mark_of("r-1", TTL_S)}, deletion_time=instant(1_002_500))
    mirror = MirrorDown(REGION)
    view = fill(View(mirror.indexes, mirror.indexes_other), ("overrides", revoked))
    (put,) = mirror.reconcile(("overrides/risk", f"{REGION}-stop"), view, 1_100_000).bodies
    assert isinstance(put, Put)
    assert not is_owed(put.object, 1_100_000)
    never_merged = fill(View(mirror.indexes, mirror.indexes_other), ("overrides", ordered_here()))
    assert not mirror.reconcile(("overrides/risk", f"{REGION}-stop"), never_merged, 1_100_000).bodies


def test_a_record_of_another_name_wakes_whoever_looks_after_its_original() -> None:
    """Nobody waits for the next look at everything."""
    record = override("hold", f"{REGION}-stop.1.2f", regions=(REGION,))
    record = replace(record, metadata=replace(record.metadata, annotations={ORDERED_IN: REGION, ORDERED_UID: "u-1"}))
    key = ("overrides/risk", f"{REGION}-stop")
    down, up = MirrorDown(REGION), MirrorUp(REGION)
    below = fill(View(down.indexes, down.indexes_other), ("overrides", ordered_here()))
    fill(below, ("overrides", record), other=True)
    assert key in down.keys(below, next(iter(below.other.all("overrides"))), True)
    above = fill(View(up.indexes, up.indexes_other), ("overrides", record))
    fill(above, ("overrides", ordered_here()), other=True)
    assert key in up.keys(above, next(iter(above.cache.all("overrides"))), False)


async def test_the_audit_of_the_global_plane_tells_of_what_was_merged() -> None:
    disk = MemoryDisk()
    async with running_plane(MemoryStore(disk), settings=Settings(plane="global", region="global")) as plane:
        mirror = await plane.as_role(Role.MIRROR, "mirror", f"mirror-up-{REGION}")
        made = override("hold", f"{REGION}-stop", regions=(REGION,))
        record = replace(made, metadata=replace(made.metadata, annotations={ORDERED_IN: REGION, ORDERED_UID: "u"}))
        ok(await plane.send(mirror, Put("Override", record)))
        for forged in (
            made,
            replace(record, spec=replace(record.spec, scope=OverrideScope(tenants=("risk",)))),
            replace(record, spec=replace(record.spec, kind="recovery")),
            replace(record, metadata=replace(record.metadata, name="elsewhere-stop", annotations={ORDERED_IN: "elsewhere"})),
        ):
            no(await plane.send(mirror, Put("Override", replace(forged, metadata=replace(forged.metadata, uid="")))), "NotOwner")
    (row,) = ordered(entry.batch for entry in disk.journal)
    assert (row.what, row.who, row.name, row.kind, row.reason) == ("merged", "ada", f"{REGION}-stop", "hold", "flood")


@pytest.mark.parametrize(
    ("kind", "name", "scope", "path"),
    [
        ("emergency-quota", f"{REGION}-more", {"tenants": ("risk",)}, "spec.kind"),
        ("recovery", f"{REGION}-away", {"tenants": ("risk",), "regions": (REGION,)}, "spec.kind"),
        ("hold", f"{REGION}-far", {"regions": ("elsewhere",)}, "spec.scope.regions"),
        ("hold", "stop", {"workloads": ("api",)}, "metadata.name"),
    ],
)
async def test_nothing_is_lifted_and_nothing_else_is_touched_by_what_is_ordered_in_a_region(
    kind: str, name: str, scope: dict[str, tuple[str, ...]], path: str
) -> None:
    async with running_plane() as plane:
        mirror = await plane.as_role(Role.MIRROR)
        ok(await plane.send(mirror, Put("GrantTerm", GrantTerm(Metadata(name=REGION), GrantTermSpec(REGION)))))
        refused = no(await plane.send(OPERATOR, Put("Override", override(kind, name, **scope))), "Invalid")
        assert [fault.path for fault in refused.faults] == [path]
        ok(await plane.send(mirror, Put("Override", override(kind, name, **scope))))  # the global plane's own comes as a copy
