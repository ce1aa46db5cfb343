"""A tenant with a Quota, a global plane and one region, with the controllers that run: from the quota to slots that serve."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fairlead.authority.judge import Settings
from fairlead.controllers.grant import GrantController
from fairlead.controllers.quota import QuotaController
from fairlead.controllers.workload import WorkloadController
from fairlead.decide.cut_off import is_cut_off
from fairlead.decide.granting import stop_ms
from fairlead.decide.slots import millis
from fairlead.model.commands import Put
from fairlead.model.kinds.capacity import Grant
from fairlead.model.kinds.intent import Quota, QuotaSpec
from fairlead.model.kinds.policy import Override, OverrideScope, OverrideSpec
from fairlead.model.kinds.quota import GrantTerm
from fairlead.model.kinds.work import Ask
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from fairlead.ports import Tasks
from tests.authority.planes import GI, OPERATOR, REGION, ok, running_plane
from tests.controllers.running import RegionRig, region
from tests.controllers.test_planes import World, add_region

LEASE_S = 600


async def limit_to(w: World, cpu: int, name: str = "default") -> None:
    spec = QuotaSpec(limits=Resources(cpu, 100 * GI))
    ok(await w.top.plane.send(OPERATOR, Put("Quota", Quota(Metadata(name=name, namespace="risk"), spec))))


@asynccontextmanager
async def quota_world(lease_s: int = LEASE_S, cpu: int = 4000, **of_region: Any) -> AsyncIterator[World]:
    async with (
        running_plane(settings=Settings(plane="global", region="global")) as above,
        Tasks() as tasks,
        region(grants=False, **of_region) as low,
    ):
        top = RegionRig(above, tasks)
        await add_region(above, REGION, "eu")
        made = World(top, low)
        await limit_to(made, cpu)
        low.schedule()
        low.control_all()
        low.control(GrantController(REGION))
        top.control(WorkloadController())
        top.control(QuotaController(lease_s))
        made.mirrors()
        try:
            yield made
        finally:
            for runtime in top.runtimes + low.runtimes:
                runtime.stop()


def grant_of(rig: RegionRig) -> Grant | None:
    found: Grant | None = rig.get("grants", REGION)
    return found


def term_of(rig: RegionRig) -> GrantTerm | None:
    found: GrantTerm | None = rig.get("grantterms", REGION, "")
    return found


async def test_a_quota_becomes_a_leased_grant_and_work_runs_within_it() -> None:
    async with quota_world() as w:
        await w.apply(replicas=3)
        await w.until(lambda: w.serves(3))
        here, above = grant_of(w.low), grant_of(w.top)
        assert here is not None
        assert above is not None
        assert here.status.accepted_version > 0
        assert here.spec.lease_seconds == LEASE_S
        await w.until(lambda: above_says(w, cpu=3000))
        term = term_of(w.low)
        assert term is not None
        counted_ms = millis(term.status.end_time) - millis(term.status.asked_time)
        assert counted_ms <= LEASE_S * 990, "a lease is counted from the question, on a clock that may be slow"

        await w.apply(replicas=6)  # two more than the quota has room for
        await w.until(lambda: waits(w, 2))
        assert sum(1 for _ in w.low.states()) >= 4
        await limit_to(w, 8000)
        await w.until(lambda: w.serves(6))


def above_says(w: World, **used: int) -> bool:
    found = grant_of(w.top)
    return found is not None and all(getattr(found.status.used, name) == amount for name, amount in used.items())


def waits(w: World, count: int) -> bool:
    found = w.workload()
    return found is not None and sum(why.count for why in found.status.pending if why.reason == "WaitingForQuota") == count


async def test_no_global_call_is_made_for_a_bind_inside_a_grant() -> None:
    """The region places with the global plane gone: everything that runs between the two is stopped first."""
    async with quota_world(cpu=20_000) as w:
        await w.apply(replicas=1)
        await w.until(lambda: w.serves(1))
        await w.until(lambda: (g := grant_of(w.low)) is not None and g.status.during.cpu >= 10_000)
        between = [each for each in (*w.top.runtimes, *w.low.runtimes) if each.controller.name in ("mirror-up", "mirror-down")]
        for runtime in between:
            runtime.stop()
        await w.low.order("local", count=5)
        await w.low.until(lambda: len(w.low.serving("local")) == 5)


async def test_a_region_that_is_cut_off_places_what_its_class_allows_and_gives_back_in_time() -> None:
    for lease_s in (6, 30, 90):  # a machine that is too slow to place anything before a lease ends is given a longer one
        async with quota_world(lease_s, cpu=8000) as w:
            if await cut_off(w):
                return
    raise AssertionError("nothing was placed within a minute and a half")


async def cut_off(w: World) -> bool:
    """False where the lease ended before everything was placed."""
    low = w.low
    await w.apply(replicas=1)
    await w.until(lambda: w.serves(1))
    for runtime in (*w.top.runtimes, *low.runtimes):
        if runtime.controller.name.startswith("mirror"):
            runtime.stop()
    await until(low, lambda: is_cut_off(term_of(low), 1, low.local.plane_ms()))
    meta, scope = Metadata(name=f"{REGION}-quiet", namespace="risk"), OverrideScope(workloads=("nobody", "free"))
    ordered = OverrideSpec(kind="autoscaler-pause", reason="nobody answers", ttl_seconds=600, requester="ada", scope=scope)
    ok(await low.plane.send(OPERATOR, Put("Override", Override(meta, ordered))))
    await low.order("free", count=5, uid="u-free", ask=Ask(requests=Resources(1000, GI), workload_class="critical"))
    await low.order("held", count=1, uid="u-held", ask=Ask(requests=Resources(1000, GI), workload_class="standard"))
    await until(low, lambda: len(low.slots("free")) == 5 or has_ended(low))
    apart = [low.get("bindings", f"free-{index}") for index in range(5)]
    if has_ended(low) or None in apart:
        return False
    assert any(each.spec.provisional_until_time is not None for each in apart), "above what stays when the lease ends"
    await until(low, lambda: reason_of(low, "held") == "PolicyAuthorityUnreachable")

    # The lease ends. What is above `after` goes by itself; nobody of the global plane is there to say so.
    grant = grant_of(low)
    assert grant is not None
    left = grant.status.after.cpu
    await until(low, lambda: has_ended(low))
    await until(low, lambda: 1000 * (len(low.slots("free")) + len(low.slots("api"))) <= max(left, 1000))

    w.mirrors()
    await until(low, lambda: (t := term_of(low)) is not None and t.status.merge is not None)
    report = term_of(low).status.merge  # type: ignore[union-attr]
    assert report is not None
    assert report.over == ()
    assert [(each.kind, each.name, each.requester) for each in report.overrides] == [
        ("autoscaler-pause", f"{REGION}-quiet", "ada")
    ]
    assert all(each.used.cpu <= each.offered.cpu for each in report.proof)
    assert report.cut_time < report.healed_time  # type: ignore[operator]
    provisional = sum(each.spec.provisional_until_time is not None for each in apart)
    assert report.placed >= 5, "also what was stopped when the lease ended, of which nothing is left"
    assert report.released >= provisional > 0
    assert report.placed == report.confirmed + report.lasting + report.released
    await until(low, lambda: len(low.slots("held")) == 1)
    return True


async def until(rig: RegionRig, condition: Callable[[], object], wait_s: float = 120.0) -> None:
    """As the rig's, and longer: leases take their time."""
    clock = rig.plane.clock
    end = clock.monotonic() + wait_s
    while not condition():
        assert clock.monotonic() < end, f"this never came: {rig.told()}"
        await clock.sleep(0.01)


def has_ended(rig: RegionRig) -> bool:
    term, grant = term_of(rig), grant_of(rig)
    assert grant is not None
    assert term is not None
    return rig.local.plane_ms() >= millis(term.status.end_time) - stop_ms(grant.spec)


def reason_of(rig: RegionRig, workload: str) -> str:
    found = rig.get("schedulingrequests", f"{workload}-0")
    return found.status.reason if found is not None else ""
