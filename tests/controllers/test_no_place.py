"""A region that is heard and has no place for a service: since when, and what becomes of what was ordered there."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from fairlead.model.ids import Uid
from fairlead.model.kinds.capacity import Grant, GrantSpec, HeldShape, Holding, HoldingSpec, HoldingStatus
from fairlead.model.kinds.intent import PendingReason, RecoveryRule, ResourceSpec, StageCounts, Workload, WorkloadSpec
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


def all_wait_in_a(rig: OneService) -> None:
    """All its nodes are gone, the rooms with them; it is heard."""
    rig.holds("a", 0)
    rig.assigned("a", stands_in=STANDS_IN, pending=4)


def test_what_stands_in_where_there_is_no_place_goes_to_a_third_region_after_a_minute() -> None:
    rig = OneService()
    rig.health("b", "Lost")
    assert rig.looks(1).regions == {"a": 4}
    all_wait_in_a(rig)
    assert rig.looks(RULES.failing_s - 1).regions == {"a": 4}
    assert rig.looks(2).regions == {"a": 4, "c": 4}
    rig.assigned("c", stands_in=STANDS_IN, serving=3, bound=4)
    assert rig.looks(1).regions == {"a": 4, "c": 4}, "nothing leaves before the minimum serves elsewhere"
    rig.assigned("c", stands_in=STANDS_IN, serving=4)
    assert rig.looks(1).regions == {"c": 4}
    rig.assigned("a")
    rig.holds("a", 4)
    for _ in range(3):
        assert rig.looks(RULES.failing_s).regions == {"c": 4}, "and back and forth it does not go"


def test_what_stands_in_beside_slots_that_serve_goes_on_as_well() -> None:
    rig = OneService()
    two = SlotRange(first=0, last=1)
    rig.assigned("a", own=two, serving=2)
    rig.health("b", "Lost")
    assert rig.looks(1).regions == {"a": 2}
    rig.holds("a", 0)
    rig.assigned("a", own=two, stands_in=SlotRange(first=15_000, last=15_001), serving=2, pending=2)
    found = rig.looks(RULES.failing_s + 2)
    assert (found.regions, found.lost) == ({"a": 2, "c": 4}, ("b",)), "its own slots have a place in a"


def test_an_order_that_a_region_does_not_take_for_a_minute_goes_to_another() -> None:
    rig = OneService()
    rig.health("b", "Lost")
    rig.look()
    rig.assigned("a", stands_in=STANDS_IN)
    made = rig.view.cache.get("assignments", "risk", "api.a")
    rig.put("assignments", "risk", "api.a", replace(made, metadata=replace(made.metadata, generation=2)))
    assert rig.looks(RULES.failing_s + 2).regions == {"a": 4, "c": 4}


def test_what_was_tried_and_found_no_place_is_missing_from_the_first_look() -> None:
    rig = OneService()
    rig.health("b", "Lost")
    rig.look()
    all_wait_in_a(rig)
    assert rig.looks(1).missing == 0, "the scheduler there has not had its turn"
    made = rig.view.cache.get("assignments", "risk", "api.a")
    tried = (PendingReason(reason="WaitingForCapacity", count=3),)
    rig.put("assignments", "risk", "api.a", replace(made, status=replace(made.status, pending=tried)))
    found = rig.looks(1)
    assert (found.missing, found.why) == (3, "3 of those in a find no place")


def test_what_waits_for_a_node_that_is_there_and_does_not_come_up_stays() -> None:
    """It would not come up elsewhere either."""
    rig = OneService()
    rig.health("b", "Lost")
    rig.look()
    rig.assigned("a", stands_in=STANDS_IN, bound=4, started=4)
    assert rig.looks(RULES.failing_s + 5).regions == {"a": 4}


def test_what_stands_in_and_waits_is_not_held_against_the_regions_own_slots() -> None:
    """One of these has a place and does not come up: nothing has to stand in for it."""
    rig = OneService()
    two = SlotRange(first=0, last=1)
    rig.assigned("a", own=two, serving=2)
    rig.health("b", "Lost")
    rig.look()
    rig.assigned("a", own=two, stands_in=SlotRange(first=15_000, last=15_001), serving=1, bound=2, pending=2)
    assert rig.looks(RULES.failing_s + 2).lost == ("b",)
