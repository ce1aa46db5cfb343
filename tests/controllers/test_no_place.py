"""A region that is heard and has no place for a service: since when, and what becomes of what was ordered there."""

from __future__ import annotations

from typing import Any

from fairlead.model.ids import Uid
from fairlead.model.kinds.capacity import Grant, GrantSpec, HeldShape, Holding, HoldingSpec, HoldingStatus
from fairlead.model.kinds.intent import RecoveryRule, ResourceSpec, StageCounts, Workload, WorkloadSpec
from fairlead.model.kinds.work import Assignment, AssignmentSpec, AssignmentStatus, SlotRange
from fairlead.model.meta import Metadata
from fairlead.model.resources import Resources
from tests.controllers.test_breaker import RULES, SHAPE, Rig

OWN, STANDS_IN = SlotRange(first=0, last=3), SlotRange(first=15_000, last=15_003)


class OneService(Rig):
    """One service with four slots of its own in b; a and c hold four rooms each for it."""

    def __init__(self) -> None:
        super().__init__(0)
        for region in "abc":
            made = Grant(Metadata(name=region, namespace="risk"), GrantSpec(region, 1, Resources(1, 1)))
            self.put("grants", "risk", region, made)
        for region in "ac":
            self.holds(region, 4)
        self.made("one")

    def holds(self, region: str, rooms: int) -> None:
        spec = HoldingSpec(budget="critical", budget_uid="u", region=region)
        status = HoldingStatus(shapes=(HeldShape(requests=SHAPE, held=rooms, waiting=4 - rooms),))
        name = f"critical.{region}"
        self.put("holdings", "risk", name, Holding(Metadata(name=name, namespace="risk"), spec, status))

    def made(self, uid: str) -> None:
        rule = RecoveryRule(budget_name="critical", min_serving=4)
        meta = Metadata(name="api", namespace="risk", uid=Uid(uid))
        self.put("workloads", "risk", "api", Workload(meta, WorkloadSpec(resources=ResourceSpec(SHAPE), recovery=rule)))
        self.assigned("b", uid, own=OWN, serving=4)

    def assigned(
        self, region: str, uid: str = "one", *, own: SlotRange | None = None, stands_in: SlotRange | None = None, **counts: int
    ) -> None:
        """`counts`: what the region says of them."""
        slots = tuple(each for each in (own, stands_in) if each is not None)
        spec = AssignmentSpec("api", uid, 1, region, slots=slots, recovery=stands_in)
        said = {"bound": counts.get("serving", 0), **counts}
        stood_in = counts.get("serving", 0) if own is None else 0
        status = AssignmentStatus(replicas=StageCounts(**said), stood_in=stood_in)
        name = f"api.{region}"
        self.put("assignments", "risk", name, Assignment(Metadata(name=name, namespace="risk"), spec, status))

    def looks(self, seconds: float) -> Any:
        """What is ordered after so long; None: nothing."""
        for _ in range(int(seconds)):
            self.look()
        found = self.orders()
        return found[0].spec if found else None


def test_one_that_was_made_anew_under_the_same_name_waits_from_when_it_was_made() -> None:
    rig = OneService()
    rig.assigned("b", own=OWN, pending=4)
    assert rig.looks(3) is None
    rig.put("assignments", "risk", "api.b", None)
    rig.put("workloads", "risk", "api", None)
    rig.made("two")
    rig.assigned("b", "two", own=OWN, pending=4)
    rig.look(RULES.failing_s - 2)
    assert rig.looks(1) is None, "its own slots have waited for a second"
    assert rig.looks(RULES.failing_s).lost == ("b",)


def test_one_that_was_not_looked_at_for_a_while_waits_from_when_it_is_again() -> None:
    rig = OneService()
    rig.assigned("b", own=OWN, pending=4)
    assert rig.looks(3) is None
    workload = rig.view.cache.get("workloads", "risk", "api")
    rig.put("workloads", "risk", "api", None)
    rig.looks(RULES.failing_s)
    rig.put("workloads", "risk", "api", workload)
    assert rig.looks(1) is None
