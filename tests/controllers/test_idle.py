"""What stands in, has a place and does not come up: where it is ordered once more, when the first leaves, and how often."""

from __future__ import annotations

from fairlead.decide.slot_lease import lease_of
from fairlead.model.kinds.ledger import Lease, LeaseSpec
from fairlead.model.kinds.work import SlotRange
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata
from tests.controllers.test_breaker import RULES
from tests.controllers.test_no_place import STANDS_IN, OneService, Sole, stutters

MINUTE = RULES.failing_s


def taken_by_a() -> OneService:
    """b is lost, and its four are ordered in a, where they have a place and do not come up."""
    rig = OneService()
    rig.health("b", "Lost")
    rig.look()
    rig.holds("a", 0)
    rig.assigned("a", stands_in=STANDS_IN, bound=4, started=4)
    return rig


def test_what_stands_in_and_does_not_come_up_is_ordered_in_a_third_region_after_a_minute() -> None:
    rig = taken_by_a()
    assert rig.looks(MINUTE - 1).regions == {"a": 4}, "it may just be starting"
    assert rig.looks(2).regions == {"a": 4, "c": 4}
    rig.assigned("c", stands_in=STANDS_IN, serving=3, bound=4)
    assert rig.looks(1).regions == {"a": 4, "c": 4}, "nothing leaves before the minimum serves elsewhere"
    rig.assigned("c", stands_in=STANDS_IN, serving=4)
    assert rig.looks(1).regions == {"c": 4}
    rig.assigned("a")
    rig.holds("a", 4)
    assert rig.looks(3 * MINUTE).regions == {"c": 4}


def test_what_ends_again_and_again_has_no_place_now_and_then_and_is_idle_all_the_same() -> None:
    rig = taken_by_a()
    for number in range(12):
        waits = 2 * (number % 2)
        rig.assigned("a", stands_in=STANDS_IN, bound=4 - waits, pending=waits)
        rig.looks(MINUTE / 10)
    assert rig.looks(1).regions == {"a": 4, "c": 4}


def test_what_serves_for_a_moment_each_time_it_is_started_is_idle_all_the_same() -> None:
    """Without a probe a program that cannot live is taken to serve until it dies."""
    rig = taken_by_a()
    for _ in range(12):
        rig.assigned("a", stands_in=STANDS_IN, serving=4)
        rig.looks(2)
        rig.assigned("a", stands_in=STANDS_IN, bound=4)
        rig.looks(5)
    both = {"a": 4, "c": 4}
    assert rig.looks(1).regions == both
    rig.assigned("a", stands_in=STANDS_IN, serving=4)
    assert rig.looks(1).regions == both, "nor is that a reason to let it go"
    assert rig.looks(15).regions == both, "and what serves again stays, with what was ordered meanwhile"


def test_in_a_region_that_is_silent_now_and_then_it_is_idle_after_a_minute_in_which_that_is_heard_and_tried_once() -> None:
    rig = taken_by_a()
    assert stutters(rig, "a", 84).regions == {"a": 4}, "54 s of these"
    assert rig.looks(10).regions == {"a": 4, "c": 4}
    stutters(rig, "a", 84)
    assert [each.times for each in rig.controller._no_place._tried.values()] == [1]


def test_what_stands_in_and_serves_is_proven_though_its_region_is_silent_now_and_then() -> None:
    rig = taken_by_a()
    rig.assigned("a", stands_in=STANDS_IN, serving=4)
    assert stutters(rig, "a", 420).regions == {"a": 4}


def test_what_stands_in_beside_slots_that_serve_is_not_counted_on_either() -> None:
    rig = OneService()
    own = SlotRange(first=0, last=1)
    rig.assigned("a", own=own, serving=2)
    rig.health("b", "Lost")
    assert rig.looks(1).regions == {"a": 2}
    rig.holds("a", 0)
    rig.assigned("a", own=own, stands_in=SlotRange(first=15_000, last=15_001), serving=2, bound=4)
    assert rig.looks(MINUTE + 2).regions == {"a": 2, "c": 4}


def test_one_of_several_that_does_not_come_up_gets_another_room_of_its_region_and_then_another_region() -> None:
    rig = taken_by_a()
    rig.holds("a", 1, claimed=4)
    rig.assigned("a", stands_in=STANDS_IN, serving=3, bound=4)
    rig.looks(MINUTE)
    assert rig.looks(1).regions == {"a": 5}, "three serve there"
    five = SlotRange(first=15_000, last=15_004)
    rig.assigned("a", stands_in=five, serving=3, bound=5)
    rig.holds("a", 9, claimed=5)
    assert rig.looks(MINUTE - 2).regions == {"a": 5}, "the fifth has its minute"
    assert rig.looks(4).regions == {"a": 5, "c": 4}, "once more is enough"
    rig.assigned("a", stands_in=five, serving=4, bound=5)
    rig.looks(15)
    rig.assigned("c", stands_in=STANDS_IN, serving=4)
    assert rig.looks(15).regions == {"a": 5, "c": 4}, "its minimum serves there again: what serves is not let go"


def test_where_nothing_fits_elsewhere_it_gets_other_rooms_of_its_region_once_and_what_is_missing_is_said() -> None:
    rig = taken_by_a()
    rig.holds("c", 0)
    rig.holds("a", 9, claimed=4)
    rig.looks(MINUTE)
    assert rig.looks(1).regions == {"a": 8}
    rig.assigned("a", stands_in=SlotRange(first=15_000, last=15_007), bound=8)
    found = rig.looks(MINUTE + 2)
    assert (found.regions, found.missing) == ({"a": 8}, 4)
    assert found.why == "8 of those in a have not come up for a while; budget 'risk/critical' holds no more in c"


def test_a_generation_that_comes_up_nowhere_is_tried_in_each_region_and_then_left_where_it_is() -> None:
    rig = taken_by_a()
    rig.holds("a", 9)
    rig.looks(MINUTE + 1)
    rig.assigned("c", stands_in=STANDS_IN, bound=4)
    rig.looks(MINUTE + 2)
    for _ in range(5):
        found = rig.looks(MINUTE)
        assert (found.regions, found.missing) == ({"a": 4, "c": 4}, 4), "and no room more"
        assert "4 of those in a, 4 of those in c have not come up" in found.why


def test_what_goes_down_after_it_has_served_does_not_go_back_at_once_to_where_it_did_not_come_up() -> None:
    rig = taken_by_a()
    rig.looks(MINUTE + 1)
    rig.assigned("c", stands_in=STANDS_IN, serving=4)
    rig.looks(1)
    rig.assigned("a")
    rig.holds("a", 4)
    rig.holds("c", 0)
    rig.assigned("c", stands_in=STANDS_IN, bound=4)
    found = rig.looks(MINUTE + 2)
    assert (found.regions, found.missing) == ({"c": 4}, 4), "a was tried a minute ago"
    assert rig.looks(4 * MINUTE).regions == {"c": 4, "a": 4}, "five minutes after it was left it may be tried again"


def test_another_generation_is_tried_at_once() -> None:
    rig = taken_by_a()
    rig.looks(MINUTE + 1)
    rig.assigned("c", stands_in=STANDS_IN, serving=4)
    rig.looks(1)
    rig.holds("a", 4)
    rig.holds("c", 0)
    rig.assigned("a", generation=2)
    rig.assigned("c", stands_in=STANDS_IN, bound=4)
    assert rig.looks(MINUTE + 2).regions == {"c": 4, "a": 4}


def test_what_is_remembered_ends_with_the_order() -> None:
    rig = taken_by_a()
    rig.looks(MINUTE + 1)
    rig.assigned("c", stands_in=STANDS_IN, serving=4)
    rig.looks(1)
    for region in "ac":
        rig.assigned(region)
        rig.holds(region, 4)
    rig.health("b", "Healthy")
    assert rig.looks(RULES.failback_s + 2) is None
    rig.health("b", "Lost")
    assert rig.looks(1).regions == {"a": 4}


def test_what_runs_once_in_the_world_and_does_not_come_up_leaves_first_and_is_tried_once_in_each_region() -> None:
    rig = Sole()
    in_a, leaving = ([("a", slot, leaves) for slot in range(4)] for leaves in (False, True))
    assert rig.stand_ins() == in_a
    rig.holds("a", 0)
    rig.follow("b", 0)
    rig.follow("a", 1, bound=4)
    assert rig.stand_ins(MINUTE - 1) == in_a
    assert rig.stand_ins(2) == leaving, "c has room for all, and none of them serves"
    found = rig.looks(1)
    assert (found.missing, found.why) == (4, "4 have to leave a before they are ordered elsewhere")
    rig.follow("b", 0)
    rig.follow("a", 1)
    in_c = [("c", slot, False) for slot in range(4)]
    assert rig.stand_ins() == in_c
    rig.holds("a", 4)
    rig.holds("c", 0)
    rig.follow("b", 0)
    rig.follow("c", 2, bound=4)
    assert rig.stand_ins(2 * MINUTE) == in_c, "a was tried"
    assert "have not come up" in rig.looks(1).why


def test_what_runs_once_in_the_world_stays_where_one_of_them_serves_or_nobody_else_has_room() -> None:
    for serving, held_by_a, held_by_c in ((1, 0, 4), (0, 0, 3), (0, 4, 3)):
        rig = Sole()
        in_a = rig.stand_ins()
        rig.holds("a", held_by_a, claimed=4)
        rig.holds("c", held_by_c)
        rig.follow("b", 0)
        rig.follow("a", 1, bound=4, serving=serving)
        assert rig.stand_ins(2 * MINUTE) == in_a
        assert "have not come up" in rig.looks(1).why


def test_what_leaves_because_its_home_is_back_is_not_missing() -> None:
    rig = Sole()
    rig.stand_ins()
    rig.follow("b", 0)
    rig.follow("a", 1, serving=4)
    rig.health("b", "Healthy")
    held = LeaseSpec(role=Role.MIRROR.value, holder="b-0", epoch=8, incarnation=rig.view.incarnation)
    rig.put("leases", "", lease_of("b"), Lease(Metadata(name=lease_of("b")), held))
    assert rig.stand_ins(RULES.failback_s + 1) == [("a", slot, True) for slot in range(4)]
    assert rig.looks(1).missing == 0
