"""The whole way: a workload in the global plane, mirrors, and regions that carry it out; then everything back again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.authority.judge import Settings
from fairlead.authority.judge import regions as judge
from fairlead.controllers.garbage import GarbageGlobalController
from fairlead.controllers.grant import GrantController
from fairlead.controllers.mirror import MirrorDown, MirrorUp
from fairlead.controllers.quota import QuotaController
from fairlead.controllers.workload import WorkloadController
from fairlead.model.commands import Caller, Delete, Put, PutStatus
from fairlead.model.kinds.capacity import Grant, GrantSpec
from fairlead.model.kinds.intent import (
    JobRule,
    Placement,
    Region,
    RegionRule,
    RegionSpec,
    RegionStatus,
    Residency,
    ResourceSpec,
    Template,
    Workload,
    WorkloadSpec,
)
from fairlead.model.kinds.policy import PolicyChannel, PolicyChannelSpec, SchedulerPolicy, SchedulerPolicySpec
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Condition, Metadata
from fairlead.model.resources import Resources
from fairlead.ports import Tasks
from tests.authority.planes import GI, OPERATOR, REGION, PlaneForTest, no, ok, running_plane
from tests.controllers.running import RegionRig, region

USER = Caller("ada", Role.USER, tenant="risk")


class World:
    """A global plane and one region (`local`), with mirrors between them."""

    def __init__(self, top: RegionRig, low: RegionRig) -> None:
        self.top = top
        self.low = low

    async def apply(self, name: str = "api", **spec: Any) -> Workload:
        resources = ResourceSpec(requests=Resources(1000, GI))
        made = WorkloadSpec(**{"replicas": 2, "resources": resources, "template": Template(command=("serve",)), **spec})
        ok(await self.top.plane.send(USER, Put("Workload", Workload(metadata=Metadata(name=name, namespace="risk"), spec=made))))
        found: Workload = self.top.get("workloads", name)
        return found

    def workload(self, name: str = "api") -> Workload | None:
        found: Workload | None = self.top.get("workloads", name)
        return found

    def condition(self, kind: str, name: str = "api") -> Condition | None:
        found = self.workload(name)
        return next((c for c in found.status.conditions if c.type == kind), None) if found is not None else None

    def serves(self, count: int, name: str = "api") -> bool:
        found = self.workload(name)
        assert found is not None
        return found.status.replicas.serving == count and found.status.observed_generation == found.metadata.generation

    async def until(self, condition: Any) -> None:
        await self.low.until(condition, self.top.told())

    def mirrors(self) -> None:
        self.low.control(MirrorDown(REGION), other=self.top.local)
        self.top.control(MirrorUp(REGION), other=self.low.local)


async def grant_at(top: PlaneForTest, tenant: str = "risk", *, cpu: int = 100_000, name: str = REGION) -> None:
    limit = Resources(cpu, 1000 * GI)
    spec = GrantSpec(region=name, version=1, during=limit, after=limit)
    ok(await top.send(OPERATOR, Put("Grant", Grant(metadata=Metadata(name=name, namespace=tenant), spec=spec))))


async def add_region(top: PlaneForTest, name: str, *areas: str) -> None:
    ok(await top.send(OPERATOR, Put("Region", Region(metadata=Metadata(name=name), spec=RegionSpec(areas=areas)))))


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    async with running_plane(settings=Settings(plane="global", region="global")) as above, Tasks() as tasks, region() as low:
        top = RegionRig(above, tasks)
        await add_region(above, REGION, "eu")
        await grant_at(above)
        made = World(top, low)
        low.schedule()
        low.control_all()
        top.control(WorkloadController())
        top.control(GarbageGlobalController())
        top.control(QuotaController())  # it leases policy to the region, though nobody has a Quota
        low.control(GrantController(REGION))
        made.mirrors()
        try:
            yield made
        finally:
            for runtime in top.runtimes + low.runtimes:
                runtime.stop()


async def test_a_workload_comes_to_serve_is_rolled_out_undone_and_deleted() -> None:
    async with world() as w:
        await w.apply()
        await w.until(lambda: w.serves(2))
        found = w.workload()
        assert found is not None
        assert (found.status.revision, found.status.regions[0].region) == ("api.g1", REGION)
        assert (found.status.replicas.desired, found.status.replicas.bound) == (2, 2)
        await w.until(lambda: (c := w.condition("Progressing")) is not None and c.reason == "Complete")

        await w.apply(template=Template(command=("serve", "--new")))
        await w.until(lambda: w.low.serving(generation=2) == [0, 1] and w.serves(2))

        w.low.agent.broken.add(3)
        await w.apply(template=Template(command=("serve", "--broken")))
        await w.until(lambda: any(generation == 3 for _, generation in w.low.agent.starts))
        w.low.agent.starts.clear()
        await w.apply(template=Template(command=("serve", "--new")))
        await w.until(lambda: w.serves(2) and sorted(w.low.states()) == [0, 1])
        assert w.low.agent.starts == [], "an undo goes back to the revision whose slots still run"
        assert w.workload().status.revision == "api.g2"  # type: ignore[union-attr]
        await w.low.quiet()

        ok(await w.top.plane.send(USER, Delete("Workload", "risk", "api")))
        await w.until(lambda: w.workload() is None)
        assert w.low.states() == {}
        await w.until(lambda: w.low.get("assignments", f"api.{REGION}") is None and w.low.get("endpoints", "api") is None)
        await w.until(lambda: not [g for g in range(1, 5) if w.top.get("revisions", f"api.g{g}") is not None])
        await w.until(lambda: not [g for g in range(1, 5) if w.low.get("revisions", f"api.g{g}") is not None])


async def test_a_deleted_and_recreated_workload_is_another_and_waits_for_the_first_to_be_gone() -> None:
    async with world() as w:
        first = await w.apply()
        await w.until(lambda: w.serves(2))
        ok(await w.top.plane.send(USER, Delete("Workload", "risk", "api")))
        await w.until(lambda: w.workload() is None)
        second = await w.apply()
        await w.until(lambda: w.serves(2))
        assert first.metadata.uid != second.metadata.uid
        assert {hot.workload_uid for hot in w.low.slots().values()} == {second.metadata.uid}


async def test_scaling_changes_the_assignment_and_makes_no_revision() -> None:
    async with world() as w:
        await w.apply()
        await w.until(lambda: w.serves(2))
        await w.apply(replicas=4)
        await w.until(lambda: w.serves(4))
        assert w.top.get("revisions", "api.g2") is None
        assert {hot.generation for hot in w.low.slots().values()} == {1}


async def test_a_workload_says_under_which_policy_it_was_looked_at() -> None:
    async with world() as w:
        await w.apply()
        await w.until(lambda: w.serves(2))
        found = w.workload("api")
        assert found is not None
        assert found.status.policy_revision == 0, "the built-in one"
        await promote(w.top.plane, 1)
        await w.until(lambda: (now := w.workload("api")) is not None and now.status.policy_revision == 1)
        assert w.top.get("revisions", "api.g2") is None, "and nothing is started again for it"


async def test_an_assignment_says_by_which_policy_it_was_decided_and_is_not_written_for_another_that_decides_the_same() -> None:
    async with world() as w:
        await promote(w.top.plane, 1)
        await w.apply()
        await w.until(lambda: w.serves(2))
        first = w.top.get("assignments", f"api.{REGION}")
        assert first.spec.policy_revision == 1
        await promote(w.top.plane, 2)
        await w.until(lambda: (now := w.workload("api")) is not None and now.status.policy_revision == 2)
        await w.low.quiet()
        assert w.top.get("assignments", f"api.{REGION}").metadata.generation == first.metadata.generation
        await w.apply(replicas=3)
        await w.until(lambda: w.serves(3))
        assert w.top.get("assignments", f"api.{REGION}").spec.policy_revision == 2


async def promote(top: PlaneForTest, revision: int) -> None:
    policy = SchedulerPolicy(Metadata(name=f"r{revision}"), SchedulerPolicySpec(revision=revision))
    ok(await top.send(OPERATOR, Put("SchedulerPolicy", policy)))
    channel = PolicyChannel(Metadata(name="default"), PolicyChannelSpec(current=revision))
    ok(await top.send(OPERATOR, Put("PolicyChannel", channel)))


async def test_a_job_reports_its_completion_to_the_top() -> None:
    async with world() as w:
        w.low.agent.finishing = True
        await w.apply("fraud", replicas=1, job=JobRule(completions=3, parallelism=2), workload_class="batch")
        await w.until(lambda: (c := w.condition("Complete", "fraud")) is not None and c.status == "True")
        found = w.workload("fraud")
        assert found is not None
        assert found.status.replicas.succeeded == 3


async def test_a_workload_that_no_region_may_carry_says_why() -> None:
    async with world() as w:
        await w.apply("a", placement=Placement(residency=Residency(areas=("us",))))
        await w.apply("b", placement=Placement(regions=RegionRule(allowed=("mars",))))
        await w.apply("c", workload_class="unheard-of")
        await w.until(lambda: all(w.workload(n).status.pending for n in "abc"))  # type: ignore[union-attr]
        reasons = {n: w.workload(n).status.pending[0].reason for n in "abc"}  # type: ignore[union-attr]
        assert reasons == {"a": "ResidencyBlocked", "b": "Misconfigured", "c": "Misconfigured"}
        ok(await w.top.plane.send(OPERATOR, Delete("Grant", "risk", REGION)))
        await w.apply("d")
        await w.until(lambda: w.workload("d").status.pending)  # type: ignore[union-attr]
        assert w.workload("d").status.pending[0].reason == "WaitingForQuota"  # type: ignore[union-attr]


async def test_a_mirror_follows_changes_and_deletions_and_leaves_alone_what_it_did_not_bring() -> None:
    async with world() as w:
        await add_region(w.top.plane, "elsewhere", "us")
        await w.until(lambda: w.low.get("regions", "elsewhere", "") is not None)
        ok(await w.top.plane.send(OPERATOR, Delete("Region", "", "elsewhere")))
        await w.until(lambda: w.low.get("regions", "elsewhere", "") is None)
        await add_region(w.low.plane, "own", "eu")
        await add_region(w.top.plane, "another", "us")
        await w.until(lambda: w.low.get("regions", "another", "") is not None)
        assert w.low.get("regions", "own", "") is not None
        assert w.low.get("grants", REGION) is not None


async def test_a_global_plane_that_does_not_know_the_region_deletes_nothing_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "may_be_written_off_ms", lambda silence, since_ms: 0)  # its leases have ended
    async with world() as w:
        await w.apply()
        await w.until(lambda: w.serves(2))
        await add_region(w.top.plane, "another", "us")
        await w.until(lambda: w.low.get("regions", "another", "") is not None)
        health = await w.top.plane.as_role(Role.REGION_HEALTH)
        ok(await w.top.plane.send(health, PutStatus("Region", "", REGION, RegionStatus(health="Lost"))))
        ok(await w.top.plane.send(OPERATOR, Delete("Region", "", REGION)))
        ok(await w.top.plane.send(OPERATOR, Delete("Region", "", "another")))
        await w.low.quiet()
        assert w.low.get("regions", "another", "") is not None
        assert len(w.low.serving()) == 2
        await add_region(w.top.plane, REGION, "eu")
        await w.until(lambda: w.low.get("regions", "another", "") is None)


async def test_a_mirror_may_not_change_what_the_global_plane_wants() -> None:
    async with world() as w:
        await w.apply()
        await w.until(lambda: w.serves(2))
        caller = await w.top.plane.as_role(Role.MIRROR, "stray", "stray-mirror")
        found = w.top.get("assignments", f"api.{REGION}")
        more = replace(found, spec=replace(found.spec, min_serving=1))
        no(await w.top.plane.send(caller, Put("Assignment", more)), "NotOwner")
        no(await w.top.plane.send(caller, Delete("Assignment", "risk", f"api.{REGION}")), "NotOwner")
