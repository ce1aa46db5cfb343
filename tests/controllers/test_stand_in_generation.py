"""Which generation stands in for a lost region while a rollout is under way: what a region begins with, and which is asked."""

from __future__ import annotations

from msgspec.structs import replace

from fairlead.decide.assigning import slots_in, spare_in
from fairlead.model.commands import Put
from fairlead.model.ids import Uid
from fairlead.model.kinds.intent import Region, RegionSpec, RegionStatus, ResourceSpec, StageCounts, Workload, WorkloadSpec
from fairlead.model.kinds.recovery import RecoveryOrder, RecoveryOrderSpec
from fairlead.model.kinds.work import Assignment, AssignmentSpec, AssignmentStatus, SlotRange
from fairlead.model.meta import Metadata
from tests.controllers.test_given import ONE, World
from tests.controllers.test_no_place import OneService

OLD, NEW = 1, 2
OWN_TWO = SlotRange(first=0, last=1)


class Recovering(World):
    """Region c is lost with two slots of the old generation, a is being given the new one, and b stands in with four."""

    def __init__(self) -> None:
        super().__init__()
        self.put("regions", Region(Metadata(name="c", uid=Uid("u-c")), RegionSpec(), RegionStatus(health="Lost")))
        self.grant("c", 10)
        meta = Metadata(name="api", namespace="t", uid=Uid("u-api"), generation=NEW)
        self.put("workloads", Workload(meta, WorkloadSpec(replicas=4, resources=ResourceSpec(requests=ONE))))
        order = RecoveryOrderSpec(workload="api", workload_uid="u-api", regions={"b": 4}, lost=("c",))
        self.put("recoveryorders", RecoveryOrder(Metadata(name="api", namespace="t", uid=Uid("u-order")), order))
        self.has("c", 1, OLD, (OLD,), serving=2)

    def has(self, region: str, block: int, generation: int, generations: tuple[int, ...], serving: int) -> None:
        spec = AssignmentSpec(
            "api", "u-api", generation, region, slots=slots_in(block, 2), spare=spare_in(block, 1), requests=ONE
        )  # fmt: skip
        said = AssignmentStatus(
            observed_generation=1, generation=generation, generations=generations, replicas=StageCounts(bound=2, serving=serving)
        )
        self.put("assignments", Assignment(Metadata(name=f"api.{region}", namespace="t", generation=1), spec, said))

    def look(self, *names: str) -> None:
        """What it writes is there from then on, with what the regions said."""
        for body in self.controller.reconcile(("t", "api"), self.view, 1000).bodies:
            if isinstance(body, Put) and isinstance(body.object, Assignment):
                known: Assignment | None = self.view.cache.get("assignments", "t", body.object.metadata.name)
                self.put("assignments", replace(body.object, status=known.status) if known is not None else body.object)

    def generation_in(self, region: str) -> int:
        found: Assignment = self.view.cache.get("assignments", "t", f"api.{region}")
        return found.spec.generation


def test_stand_ins_in_a_region_that_has_nothing_else_run_what_served_while_the_new_generation_does_not_come_up() -> None:
    world = Recovering()
    world.has("a", 0, NEW, (OLD, NEW), serving=1)
    world.look()
    assert {region: world.generation_in(region) for region in "abc"} == {"a": NEW, "b": OLD, "c": OLD}
    world.look()
    assert world.generation_in("b") == OLD, "and keep it until they serve"


def test_stand_ins_run_the_new_generation_where_a_region_serves_it() -> None:
    world = Recovering()
    world.has("a", 0, NEW, (NEW,), serving=2)
    world.look()
    assert world.generation_in("b") == NEW


def test_stand_ins_go_where_no_rollout_is_under_way_if_that_needs_no_more_of_them() -> None:
    rig = OneService()
    for region in "ac":
        rig.assigned(region, own=OWN_TWO, serving=2)
    mixed = rig.view.cache.get("assignments", "risk", "api.a")
    rig.put("assignments", "risk", "api.a", replace(mixed, status=replace(mixed.status, generations=(OLD, NEW))))
    rig.health("b", "Lost")
    assert rig.looks(2).regions == {"c": 2}
