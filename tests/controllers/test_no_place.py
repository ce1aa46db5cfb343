"""A region that is heard and has no place for a service: since when, and what becomes of what was ordered there."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from fairlead.controllers.recovery import UNSEEN_MS
from fairlead.decide.assigning import spare_in
from fairlead.decide.slot_lease import honoured_ms, lease_of
from fairlead.decide.succession import with_successors
from fairlead.model.commands import LeaseAcquire, LeaseRelease
from fairlead.model.ids import Uid
from fairlead.model.kinds.capacity import Grant, GrantSpec, HeldShape, Holding, HoldingSpec, HoldingStatus
from fairlead.model.kinds.intent import PendingReason, RecoveryRule, ResourceSpec, StageCounts, Workload, WorkloadSpec
from fairlead.model.kinds.ledger import Lease, LeaseSpec
from fairlead.model.kinds.work import Assignment, AssignmentSpec, AssignmentStatus, SlotRange
from fairlead.model.lifecycle import Role
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

    def holds(self, region: str, rooms: int, claimed: int = 0) -> None:
        spec = HoldingSpec(budget="critical", budget_uid="u", region=region)
        status = HoldingStatus(shapes=(HeldShape(requests=SHAPE, held=rooms, claimed=claimed, waiting=max(0, 4 - rooms)),))
        name = f"critical.{region}"
        self.put("holdings", "risk", name, Holding(Metadata(name=name, namespace="risk"), spec, status))

    def made(self, uid: str) -> None:
        rule = RecoveryRule(budget_name="critical", min_serving=4)
        meta = Metadata(name="api", namespace="risk", uid=Uid(uid))
        self.put("workloads", "risk", "api", Workload(meta, WorkloadSpec(resources=ResourceSpec(SHAPE), recovery=rule)))
        self.assigned("b", uid, own=OWN, serving=4)

    def assigned(
        self, region: str, uid: str = "one", *, own: SlotRange | None = None, stands_in: SlotRange | None = None,
        generation: int = 1, **counts: int,
    ) -> None:  # fmt: skip
        """`counts`: what the region says of them."""
        slots = tuple(each for each in (own, stands_in) if each is not None)
        spec = AssignmentSpec("api", uid, generation, region, slots=slots, recovery=stands_in)
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


def test_who_did_not_look_for_long_takes_nothing_for_lasting_that_was_so_before() -> None:
    """Another process decided meanwhile; after a restore plane time may even have gone back."""
    rig = OneService()
    rig.assigned("b", own=OWN, pending=4)
    assert rig.looks(3) is None
    rig.now_ms += UNSEEN_MS
    assert rig.looks(RULES.failing_s - 1) is None, "it may have been well until now"
    assert rig.looks(2).lost == ("b",)
    rig.put("recoveryorders", "risk", "api", None)
    rig.assigned("b", own=OWN, serving=4)
    rig.now_ms -= 3_600_000
    rig.health("b", "Lost")
    rig.controller._urgent = False
    assert rig.looks(1).lost == ("b",), "and is not waited for until it is where it was"


def stutters(rig: OneService, region: str, seconds: int) -> Any:
    """Heard for nine seconds and silent for five, again and again."""
    found = None
    for _ in range(seconds // 14):
        rig.health(region, "Healthy")
        found = rig.looks(9)
        rig.health(region, "Unknown")
        found = rig.looks(5) or found
    rig.health(region, "Healthy")
    return found


def test_one_without_a_place_in_a_region_that_is_silent_now_and_then_is_stood_in_for_after_a_minute_in_which_that_is_heard() -> (
    None
):
    rig = OneService()
    rig.assigned("b", own=OWN, pending=4)
    assert stutters(rig, "b", 84) is None, "54 s of these"
    assert rig.looks(8).lost == ("b",)
    well = OneService()
    well.assigned("b", own=OWN, pending=4)
    assert stutters(well, "b", 84) is None
    well.assigned("b", own=OWN, serving=4)
    well.look()
    well.assigned("b", own=OWN, pending=4)
    assert well.looks(RULES.failing_s - 1) is None, "it begins anew once it had its places"


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


def test_what_has_a_place_and_has_not_served_for_a_minute_is_stood_in_for_with_a_lost_regions_slots() -> None:
    """Two of its four are in a, which is lost; all four of b's are bound, and none of them comes up there."""
    rig = OneService()
    rig.assigned("a", own=SlotRange(first=100, last=101), serving=2)
    rig.assigned("b", own=OWN, bound=4)
    rig.health("a", "Lost")
    assert rig.looks(RULES.failing_s) is None, "it has four in b, which may just be starting"
    order = rig.looks(2)
    assert (order.lost, order.regions) == (("a",), {"c": 4})
    rig.assigned("b", own=OWN, serving=4)
    assert rig.looks(2).regions == {"c": 4}, "what was ordered stays until the lost region is well"


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


def test_what_stands_in_and_waits_is_not_held_against_the_regions_own_slots() -> None:
    """One of these has a place and does not come up: nothing has to stand in for it."""
    rig = OneService()
    two = SlotRange(first=0, last=1)
    rig.assigned("a", own=two, serving=2)
    rig.health("b", "Lost")
    rig.look()
    rig.assigned("a", own=two, stands_in=SlotRange(first=15_000, last=15_001), serving=1, bound=2, pending=2)
    assert rig.looks(RULES.failing_s + 2).lost == ("b",)


class Sole(OneService):
    """The same service, each of whose slots runs once in the world; b is lost, and recovery has taken its slot lease."""

    def __init__(self) -> None:
        super().__init__()
        workload: Workload = self.view.cache.get("workloads", "risk", "api")
        spec = replace(workload.spec, execution="Exclusive", exclusive="global")
        self.put("workloads", "risk", "api", replace(workload, spec=spec))
        lease = LeaseSpec(role=Role.RECOVERY.value, holder="recovery", epoch=7, incarnation=self.view.incarnation)
        self.put("leases", "", lease_of("b"), Lease(Metadata(name=lease_of("b")), lease))
        self.follow("b", 0)
        self.health("b", "Lost")

    def follow(self, region: str, block: int, *, unwanted: int = 0, **counts: int) -> None:
        """The workload controller carries out what is ordered, and the region says this of it."""
        own = (OWN,) if region == "b" else ()
        spec = AssignmentSpec("api", "one", 1, region, slots=own, spare=spare_in(block, 1))
        spec = with_successors(spec, self.view.cache.get("recoveryorders", "risk", "api"), "critical")
        said = StageCounts(**{"bound": counts.get("serving", 0), **counts})
        meta = Metadata(name=f"api.{region}", namespace="risk")
        status = AssignmentStatus(meta.generation, replicas=said, stood_in=counts.get("serving", 0), unwanted=unwanted)
        self.put("assignments", "risk", meta.name, Assignment(meta, spec, status))

    def stand_ins(self, seconds: float = 1) -> list[tuple[str, int, bool]]:
        return [(one.region, one.slot, one.leaving) for one in self.looks(seconds).stand_ins]


def test_what_stands_in_once_in_the_world_goes_to_a_third_region_when_it_is_gone_from_where_it_has_no_place() -> None:
    rig = Sole()
    in_a = [("a", slot, False) for slot in range(4)]
    assert rig.stand_ins() == in_a
    rig.holds("a", 0)
    rig.follow("b", 0)
    rig.follow("a", 1, pending=4)
    assert rig.stand_ins(RULES.failing_s - 1) == in_a
    leaving = [("a", slot, True) for slot in range(4)]
    assert rig.stand_ins(2) == leaving, "c has room for all"
    assert rig.stand_ins(30) == leaving, "a was not told yet"
    rig.follow("b", 0)
    rig.follow("a", 1, unwanted=1)
    assert rig.stand_ins(30) == leaving, "one is there still"
    rig.follow("a", 1)
    assert rig.stand_ins() == [("c", slot, False) for slot in range(4)]
    assert [one.supersedes for one in rig.looks(1).stand_ins] == [(f"b/api-{slot}@7",) for slot in range(4)]
    rig.follow("b", 0)
    rig.follow("c", 2, serving=4)
    rig.holds("a", 4)
    assert rig.stand_ins(3 * RULES.failing_s) == [("c", slot, False) for slot in range(4)], "and back it does not go"


def test_what_stands_in_once_in_the_world_stays_where_one_of_them_serves_or_nobody_else_has_room() -> None:
    for serving, held_by_c in ((1, 4), (0, 3)):
        rig = Sole()
        in_a = rig.stand_ins()
        rig.holds("a", 0)
        rig.holds("c", held_by_c)
        rig.follow("b", 0)
        rig.follow("a", 1, pending=4 - serving, serving=serving)
        assert rig.stand_ins(2 * RULES.failing_s) == in_a
        assert "find no place" in rig.looks(1).why


def test_a_slot_lease_that_was_taken_in_another_history_is_taken_anew_and_given_back() -> None:
    """The global plane was restored while recovery had the lease of b, which is well again: b would never get it."""
    rig = OneService()
    rig.view.incarnation, rig.view.since_ms = 2, rig.now_ms

    def taken(incarnation: int) -> list[Any]:
        spec = LeaseSpec(Role.RECOVERY.value, "global-0", epoch=4, ttl_seconds=60.0, incarnation=incarnation)
        rig.put("leases", "", lease_of("b"), Lease(Metadata(name=lease_of("b")), spec))
        rig.controller._urgent = True
        bodies = rig.controller.reconcile(("", "all"), rig.view, rig.now_ms).bodies
        return [body for body in bodies if isinstance(body, LeaseAcquire | LeaseRelease)]

    assert taken(1) == [], "others may count on what they had in that history"
    rig.now_ms += honoured_ms(60.0)
    assert taken(1) == [LeaseAcquire(lease_of("b"), Role.RECOVERY, 60.0)]
    assert taken(2) == [LeaseRelease(lease_of("b"), 4)]
