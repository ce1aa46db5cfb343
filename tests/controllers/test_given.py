"""What a tenant was given in a region, and who is looked at when there is more of it."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.controllers.contract import View
from fairlead.controllers.workload import WorkloadController
from fairlead.decide.spans import size
from fairlead.model import codec
from fairlead.model.commands import Put
from fairlead.model.hot import hot_from
from fairlead.model.ids import Uid
from fairlead.model.kinds.capacity import Grant, GrantSpec
from fairlead.model.kinds.intent import (
    JobRule,
    PendingReason,
    Region,
    RegionSpec,
    RegionStatus,
    ResourceSpec,
    Workload,
    WorkloadSpec,
)
from fairlead.model.kinds.work import Assignment, AssignmentSpec, AssignmentStatus, SlotRange
from fairlead.model.meta import Condition, Metadata
from fairlead.model.resources import Resources
from tests.controllers.test_repair import Row

GI = 1 << 30
ONE = Resources(1000, GI)
JOB = JobRule(completions=10, parallelism=10)


def ended(kind: str, status: str = "True") -> AssignmentStatus:
    return AssignmentStatus(observed_generation=1, conditions=(Condition(type=kind, status=status, reason=kind),))  # type: ignore[arg-type]


WAITS = AssignmentStatus(observed_generation=1, pending=(PendingReason(reason="WaitingForCapacity", count=1),))


class World:
    """Two regions in each of which a tenant may have ten slots, and what a controller is told of it."""

    def __init__(self) -> None:
        self.controller = WorkloadController()
        self.view = View(self.controller.indexes, {})
        self._positions = count(1)
        for name in ("a", "b"):
            self.put("regions", Region(Metadata(name=name, uid=Uid(f"u-{name}")), RegionSpec(), RegionStatus(health="Healthy")))
            self.grant(name, 10)

    def put(self, plural: str, made: Any) -> list[Any]:
        """Whom it concerns."""
        meta = made.metadata
        row = Row(plural, meta.namespace, meta.name, next(self._positions), codec.encode(made), hot_from(plural, made))
        old, new = self.view.cache.apply(row)
        return [key for item in (old, new) if item is not None for key in self.controller.keys(self.view, item, False)]

    def grant(self, region: str, slots: int) -> list[Any]:
        spec = GrantSpec(region, 1, ONE.times(slots), ONE.times(slots), lease_seconds=60)
        return self.put("grants", Grant(Metadata(name=region, namespace="t", uid=Uid(f"g-{region}")), spec))

    def order(self, name: str, status: AssignmentStatus, job: JobRule | None = None, slots: int = 10, **spec: Any) -> list[Any]:
        order = AssignmentSpec(
            workload=name, workload_uid=f"u-{name}", generation=1, region="b", slots=(SlotRange(first=0, last=slots - 1),),
            job=job, requests=ONE, **spec,
        )  # fmt: skip
        return self.put("assignments", Assignment(Metadata(name=f"{name}.b", namespace="t", generation=1), order, status))

    def workload(self, name: str) -> Workload:
        meta = Metadata(name=name, namespace="t", uid=Uid(f"u-{name}"), generation=1)
        made = Workload(meta, WorkloadSpec(replicas=4, resources=ResourceSpec(requests=ONE)))
        self.put("workloads", made)
        return made

    def room(self) -> int:
        """In region b, for a workload that has nothing yet."""
        return self.controller._facts(self.view.cache, self.workload("new"))["b"].room

    def look(self, *names: str) -> None:
        for name in names:
            self.controller.reconcile(("t", name), self.view, 1000)


@pytest.mark.parametrize(
    ("status", "fields", "room"),
    [
        (AssignmentStatus(), {}, 0),
        (AssignmentStatus(), {"suspend": True}, 10),
        (AssignmentStatus(), {"job": JOB}, 0),
        (ended("Complete"), {"job": JOB}, 10),
        (ended("Failed"), {"job": JOB}, 10),
        (ended("Complete", "False"), {"job": JOB}, 0),
        (ended("Failed"), {}, 0),  # a service: it does not end
    ],
)
def test_what_is_suspended_or_has_ended_takes_no_room(status: AssignmentStatus, fields: dict[str, Any], room: int) -> None:
    world = World()
    world.order("other", status, **fields)
    assert world.room() == room


def test_room_follows_a_job_that_ends_and_begins_again() -> None:
    world = World()
    world.order("other", AssignmentStatus(), JOB)
    assert world.room() == 0
    for status, room in ((ended("Complete"), 10), (AssignmentStatus(), 0), (ended("Failed"), 10), (ended("Complete"), 10)):
        world.order("other", status, JOB)
        assert world.room() == room


def test_a_grant_that_grows_wakes_those_that_wait_and_one_that_comes_or_goes_everybody() -> None:
    world = World()
    for name in ("w1", "w2", "w3"):
        world.workload(name)
    world.order("w2", WAITS)
    world.look("w1", "w2", "w3")
    assert set(world.grant("b", 12)) == {("t", "w2")}
    assert set(world.grant("b", 0)) == {("t", "w1"), ("t", "w2"), ("t", "w3")}, "no quota is for this region any more"
    assert set(world.grant("b", 1)) == {("t", "w1"), ("t", "w2"), ("t", "w3")}
    world.order("w2", AssignmentStatus())
    world.look("w2")
    assert world.grant("b", 2) == []


def test_what_another_gives_back_wakes_those_that_wait() -> None:
    world = World()
    for name in ("w1", "w2"):
        world.workload(name)
    world.order("w2", WAITS)
    world.order("other", AssignmentStatus())
    world.look("w1", "w2")
    other, waits = ("t", "other"), ("t", "w2")
    assert set(world.order("other", AssignmentStatus(observed_generation=1))) == {other}, "nothing came free"
    assert set(world.order("other", AssignmentStatus(), slots=12)) == {other}
    assert set(world.order("other", AssignmentStatus(), slots=2)) == {other, waits}
    assert set(world.order("other", AssignmentStatus(), slots=2, suspend=True)) == {other, waits}
    assert set(world.order("other", WAITS, slots=2)) == {other}
    assert set(world.order("other", AssignmentStatus(), slots=2)) == {other, waits}, "it does not stand in the way any more"


def test_what_is_used_of_a_grant_is_nobody_s_business_here() -> None:
    assert "grants" in WorkloadController.by_spec


def test_what_another_region_was_given_of_a_job_that_is_complete_is_not_wanted_any_more() -> None:
    """The global plane had lost that it was complete, and gave it to another region; then the first one said it again."""
    world = World()
    meta = Metadata(name="job", namespace="t", uid=Uid("u-job"), generation=1)
    world.put("workloads", Workload(meta, WorkloadSpec(job=JOB, resources=ResourceSpec(requests=ONE))))
    order = AssignmentSpec("job", "u-job", 1, "a", slots=(SlotRange(first=0, last=9),), job=JOB, requests=ONE)
    world.put("assignments", Assignment(Metadata(name="job.a", namespace="t", generation=1), order, ended("Complete", "False")))
    spec = replace(order, region="b", slots=())
    for status, left in ((ended("Complete", "False"), 10), (ended("Complete"), 0)):
        world.put("assignments", Assignment(Metadata(name="job.b", namespace="t", generation=1), spec, status))
        bodies = world.controller.reconcile(("t", "job"), world.view, 1000).bodies
        puts = {
            body.object.metadata.name: body.object.spec for body in bodies if isinstance(body, Put) and body.kind == "Assignment"
        }
        assert size(puts["job.a"].slots if "job.a" in puts else order.slots) == left
