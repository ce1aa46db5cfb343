"""When a region is asked to give slots up, which it gives, and what keeps them from going back and forth: as values."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from msgspec.structs import replace

from fairlead.decide.assigning import BLOCK, SPARE_FIRST, RegionFacts, choose, slots_kept
from fairlead.decide.overflow import (
    AGAIN_MS,
    AT_ONCE,
    CALM_MS,
    COOL_DOWN_MS,
    CURABLE,
    SOON_MS,
    UNHEARD_MS,
    Seen,
    Shares,
    Waits,
    cool_down_ms,
    given_up,
    giving,
    is_full,
    noted,
    own_waiting,
    plan,
    takes,
)
from fairlead.decide.slots import Slot, instant
from fairlead.decide.spans import indices, spans_of
from fairlead.decide.wanting import wanted
from fairlead.model.kinds.intent import PendingReason, StageCounts, WorkloadSpec
from fairlead.model.kinds.slot import SlotRef
from fairlead.model.kinds.work import (
    Assignment,
    AssignmentSpec,
    AssignmentStatus,
    Overflow,
    SchedulingRequest,
    SchedulingRequestSpec,
    SchedulingRequestStatus,
    SlotRange,
)
from fairlead.model.lifecycle import SlotState
from fairlead.model.meta import Metadata

AFTER = 60_000
NOW = 10 * CALM_MS
_S = SlotState


def short(name: str = "a", **fields: Any) -> Seen:
    """One whose slots have waited for longer than they should."""
    return Seen(name, **{"own": 4, "waiting": 2, "pending": 2, "since_ms": NOW - AFTER, **fields})


def well(name: str = "b", **fields: Any) -> Seen:
    return Seen(name, **{"own": 2, "room": 10, **fields})


def asks(*regions: Seen, now: int = NOW) -> dict[str, int]:
    return plan(regions, AFTER, now).asks


# --- when, whom, how many


def test_a_region_is_asked_for_what_has_waited_long_enough_and_looked_at_again_then() -> None:
    assert asks(short(), well()) == {"a": 2}
    early = plan([short(since_ms=NOW - AFTER + 1), well()], AFTER, NOW)
    assert (early.asks, early.wake_ms) == ({}, NOW + 1)


def test_nobody_is_asked_where_no_other_region_could_take_it() -> None:
    assert asks(short()) == {}
    for why in ({"room": 0}, {"heard": False}, {"may": False}, {"crowded": True}, {"pending": 1}, {"current": False}):
        assert asks(short(), well(**why)) == {}, why
        assert not takes(well(**why), NOW), why
    gave = Overflow(gave_time=instant(NOW - 1))
    assert asks(short(), well(past=gave)) == {}, "it has just given some away itself"


def test_a_region_is_asked_for_no_more_than_may_go_and_than_there_is_room_for() -> None:
    assert asks(short(own=100, waiting=90), well(room=1000)) == {"a": AT_ONCE}
    assert asks(short(), well(room=1)) == {"a": 1}
    assert asks(short(own=4, floor=3, waiting=4), well()) == {"a": 1}, "its minimum stays"
    assert asks(short(own=3, floor=3), well()) == {}


def test_one_region_is_asked_at_a_time_the_one_that_has_waited_longest() -> None:
    late, later = short("a", since_ms=NOW - AFTER - 5), short("b", since_ms=NOW - AFTER - 9)
    assert asks(late, later, well("c")) == {"b": 2}
    assert asks(late, later._replace(asked=2, past=Overflow(asked_time=instant(NOW))), well("c")) == {"b": 2}


def test_nobody_asks_whom_nobody_hears_nor_on_old_words_nor_where_others_stand_in() -> None:
    for why in ({"heard": False}, {"current": False}, {"mixed": True}, {"waiting": 0}):
        assert asks(short(**why), well()) == {}, why


def test_an_ask_stands_until_it_is_heard_and_ends_when_it_has_no_point() -> None:
    asked = short(asked=2, past=Overflow(asked_time=instant(NOW)))
    assert asks(asked, well()) == {"a": 2}
    assert asks(asked._replace(current=False), well(room=0), now=NOW + 10 * UNHEARD_MS) == {"a": 2}, "it has not heard of it"
    for why in ({"waiting": 0}, {"heard": False}):
        assert asks(asked._replace(**why), well()) == {}, why
    assert asks(asked, well(room=0)) == {}
    assert asks(asked, well(), now=NOW + UNHEARD_MS) == {}, "it has heard, and gives nothing"
    in_vain = asked._replace(asked=0)
    assert asks(in_vain, well(), now=NOW + AGAIN_MS - 1) == {}, "not at once again"
    assert asks(in_vain, well(), now=NOW + AGAIN_MS) == {"a": 2}


# --- no way back and forth


def test_who_gave_takes_nothing_until_the_cool_down_is_over() -> None:
    gave = Overflow(gave_time=instant(NOW))
    end = NOW + COOL_DOWN_MS
    assert not takes(well(past=gave), end - 1)
    assert takes(well(past=gave), end)
    assert is_full(well(past=gave), AFTER, end - 1)
    assert asks(short(past=gave), well()) == {"a": 2}, "who gave some may give more"


def test_what_came_and_finds_no_place_goes_on_to_a_third_region_and_not_back() -> None:
    came = short(past=Overflow(took_time=instant(NOW)), since_ms=NOW)
    gave = well("b", past=Overflow(gave_time=instant(NOW)))
    assert asks(came, gave, well("c"), now=NOW + AFTER - 1) == {}, "it waits as long as anything else"
    assert asks(came, gave, well("c"), now=NOW + AFTER) == {"a": 2}
    assert asks(came, gave, now=NOW + COOL_DOWN_MS - 1) == {}
    assert asks(came, gave, now=NOW + COOL_DOWN_MS) == {"a": 2}


def test_an_ask_that_was_taken_back_for_want_of_room_is_repeated_soon_after_there_is_some() -> None:
    asked = short(asked=2, past=Overflow(asked_time=instant(NOW)))
    gone = plan([asked, well(room=0)], AFTER, NOW + 5)
    assert (gone.asks, gone.taken_back) == ({}, frozenset({"a"}))
    past = noted(asked.past, NOW + 5, taken_back=True)
    waits = short(past=past)
    assert asks(waits, well(), now=NOW + 4 + SOON_MS) == {}
    assert asks(waits, well(), now=NOW + 5 + SOON_MS) == {"a": 2}
    again = waits._replace(past=noted(past, NOW + 5 + SOON_MS, asked=True))
    assert asks(again, well(), now=NOW + 5 + SOON_MS + AGAIN_MS - 1) == {}, "the next was in vain, and not taken back"
    for why in (well(), well(room=0)):
        assert plan([asked, why], AFTER, NOW + UNHEARD_MS).taken_back == frozenset(), "it has heard, and gives nothing"
    assert plan([asked._replace(waiting=0), well()], AFTER, NOW + 5).taken_back == frozenset(), "nothing waits any more"


def test_the_cool_down_doubles_with_the_first_turn_and_is_forgotten_after_a_calm_day() -> None:
    past = noted(Overflow(), NOW, gave=True)
    assert (past.turns, cool_down_ms(past, NOW)) == (0, COOL_DOWN_MS)
    assert noted(past, NOW + 1, gave=True).turns == 0, "more of the same is no turn"
    back = noted(past, NOW + 1, took=True)
    assert (back.turns, cool_down_ms(back, NOW + 1)) == (1, 2 * COOL_DOWN_MS)
    again = noted(back, NOW + 2, gave=True)
    assert (again.turns, cool_down_ms(again, NOW + 2)) == (2, 2 * COOL_DOWN_MS)
    assert cool_down_ms(again, NOW + 2 + CALM_MS) == COOL_DOWN_MS
    assert noted(again, NOW + 2 + CALM_MS, took=True).turns == 1
    assert cool_down_ms(replace(again, turns=40), NOW + 2) == 2 * COOL_DOWN_MS == 1_200_000, "minutes, not hours"


def test_where_no_region_has_room_each_gives_at_most_once_in_a_cool_down() -> None:
    """Three slots of three regions none of which has a place for them: a day, minute by minute."""
    names = ("a", "b", "c")
    past = dict.fromkeys(names, Overflow())
    here, since, moves = "a", NOW, []
    for now in range(NOW, NOW + CALM_MS, 60_000):
        seen = [
            short(name, past=past[name], since_ms=since) if name == here else well(name, past=past[name], own=0) for name in names
        ]
        if not asks(*seen, now=now):
            continue
        to = next(each.name for each in seen if each.name != here and takes(each, now))
        past[here] = noted(noted(past[here], now, asked=True), now, gave=True)
        past[to] = noted(past[to], now, took=True)
        moves.append((now, here))
        here, since = to, now
    for name in names:
        gave = [now for now, who in moves if who == name]
        assert min(b - a for a, b in pairwise(gave)) >= COOL_DOWN_MS
    assert len(moves) < 3 * CALM_MS // COOL_DOWN_MS // 2 + 6, len(moves)


def test_a_wait_begins_anew_when_the_oldest_was_placed_and_not_when_its_reason_changes() -> None:
    waits, key = Waits(), ("risk", "api")

    def since(count: int, oldest_ms: int, now_ms: int, reason: str = "WaitingForCapacity") -> int:
        why = (PendingReason(reason=reason, count=count, since_time=instant(oldest_ms)),) if count else ()
        return waits.since_ms(key, "a", AssignmentStatus(pending=why), now_ms)

    assert since(3, 100, 1000) == 1000
    assert since(3, 900, 2000, "TopologyBlocked") == 1000
    assert since(4, 900, 3000) == 1000
    assert since(3, 950, 4000) == 4000, "one was placed, and it was the oldest"
    assert since(2, 950, 5000) == 4000
    assert since(0, 0, 6000) == 6000
    assert since(1, 10, 7000) == 7000
    waits.forget(key)
    assert since(1, 10, 8000) == 8000


def test_only_what_another_region_may_cure_counts() -> None:
    held = {"OnHold", "Suspended", "Gated", "ResidencyBlocked", "PolicyAuthorityUnreachable", "WaitingForGang", "Misconfigured",
            "WaitingForVictims", "BackingOff", "PendingEvaluation", "Deactivated"}  # fmt: skip
    assert CURABLE.isdisjoint(held)


def test_what_waits_as_the_surge_of_a_rollout_is_nothing_a_region_could_give_up() -> None:
    def says(bound: int, waits: int) -> AssignmentStatus:
        why = (PendingReason("WaitingForCapacity", waits),) if waits else ()
        return AssignmentStatus(replicas=StageCounts(bound=bound, pending=waits), pending=why)

    assert own_waiting(says(bound=4, waits=1), own=4) == 0
    assert own_waiting(says(bound=3, waits=2), own=4) == 1
    assert own_waiting(says(bound=0, waits=2), own=4) == 2
    assert own_waiting(says(bound=5, waits=1), own=4) == 0


# --- in the region


def request(index: int, reason: str = "WaitingForCapacity", since_ms: int = 0) -> Slot:
    spec = SchedulingRequestSpec(slot=SlotRef(workload="api", uid="u", index=index), epoch=7)
    status = SchedulingRequestStatus(reason=reason, since_time=instant(since_ms))
    made = SchedulingRequest(metadata=Metadata(name=f"api-{index}", namespace="risk"), spec=spec, status=status)
    return Slot(index, _S.PENDING, 1, 7, request=made)


def order(count: int = 4, give_up: int = 0, **fields: Any) -> AssignmentSpec:
    slots = (SlotRange(first=0, last=count - 1),)
    return AssignmentSpec("api", "u", 1, "a", **{"slots": slots, "give_up": give_up, **fields})


def assignment(spec: AssignmentSpec, *given: int, seen: int = 1) -> Assignment:
    status = AssignmentStatus(observed_generation=seen, given_up=spans_of(given))
    return Assignment(metadata=Metadata(name="api.a", namespace="risk", generation=1), spec=spec, status=status)


def test_a_region_gives_what_waits_longest_and_never_what_is_bound_or_reserved() -> None:
    held = replace(request(2), state=_S.RESERVED)
    slots = {0: Slot(0, _S.SERVING, 1, 7), 1: request(1, since_ms=5), 2: held, 3: request(3, since_ms=9)}
    assert giving(order(give_up=1), AssignmentStatus(), slots).going == {1}
    assert giving(order(give_up=4), AssignmentStatus(), slots).going == {1, 3}
    assert giving(order(give_up=4), AssignmentStatus(), slots).gone == frozenset()
    assert giving(order(), AssignmentStatus(), slots).going == frozenset()


def test_a_region_gives_nothing_that_waits_for_what_no_other_region_has() -> None:
    slots = {i: request(i, "OnHold") for i in range(4)}
    assert giving(order(give_up=4), AssignmentStatus(), slots).going == frozenset()


def test_what_is_not_there_at_all_goes_first_and_what_was_said_stays_said() -> None:
    slots = {0: request(0), 3: request(3)}
    first = giving(order(give_up=1), AssignmentStatus(), slots)
    assert (first.gone, first.going) == (frozenset({2}), frozenset())
    said = AssignmentStatus(given_up=spans_of([1]))
    assert giving(order(give_up=1), said, slots).gone == {1}
    assert giving(order(give_up=3), said, slots) == (frozenset({1, 2}), frozenset({3}))


def test_what_is_given_up_is_not_wanted_any_more_and_what_got_a_place_is() -> None:
    slots = {0: Slot(0, _S.SERVING, 1, 7), 1: request(1), 2: request(2)}
    asked = assignment(order(give_up=2))
    assert set(wanted(asked, slots, 0)) == {0, 1}, "3 is not there, and 2 goes"
    slots[2] = Slot(2, _S.BOUND, 1, 7)
    assert set(wanted(asked, slots, 0)) == {0, 2}
    assert set(wanted(assignment(order()), slots, 0)) == {0, 1, 2, 3}


def test_slots_that_stand_in_for_a_lost_region_are_not_given_up() -> None:
    stands_in = SlotRange(first=2, last=3)
    found = giving(order(give_up=4, recovery=stands_in), AssignmentStatus(), {i: request(i) for i in range(4)})
    assert found.going == {0, 1}


# --- what the global plane takes


def test_only_an_answer_to_the_order_that_stands_counts() -> None:
    assert list(indices(given_up(assignment(order(give_up=2), 1, 3)))) == [1, 3]
    assert given_up(assignment(order(give_up=2), 1, 3, seen=0)) == ()
    assert given_up(assignment(order(give_up=0), 1, 3)) == ()
    assert list(indices(given_up(assignment(order(give_up=2), 3, 9)))) == [3], "9 was never its own"


def test_a_region_keeps_the_numbers_of_what_it_holds() -> None:
    had = spans_of([BLOCK, BLOCK + 1, BLOCK + 2, BLOCK + 3, BLOCK + SPARE_FIRST])
    gone = spans_of([BLOCK + 1, BLOCK + 2])
    left = slots_kept(1, had, gone, 2)
    assert list(indices(left)) == [BLOCK, BLOCK + 3]
    assert list(indices(slots_kept(1, left, (), 1))) == [BLOCK]
    assert list(indices(slots_kept(1, left, (), 4))) == [BLOCK, BLOCK + 1, BLOCK + 2, BLOCK + 3]
    assert list(indices(slots_kept(1, (), (), 3))) == [BLOCK, BLOCK + 1, BLOCK + 2]


def test_new_slots_go_where_there_is_room_and_to_a_full_region_only_if_no_other_is_left() -> None:
    spec, us = WorkloadSpec(), frozenset({"us"})
    regions = {"a": RegionFacts("a", us, True, 9, full=True), "b": RegionFacts("b", us, True, 9)}
    assert choose(spec, 6, None, regions, {"a": 2, "b": 2}).counts == {"a": 2, "b": 4}
    all_full = {name: each._replace(full=True) for name, each in regions.items()}
    assert choose(spec, 6, None, all_full, {"a": 2, "b": 2}).counts == {"a": 3, "b": 3}


def test_shares_are_of_a_class_and_follow_every_change() -> None:
    shares = Shares()
    shares.told(("risk", "api"), "critical", 4, ["a", "b"], {"a": 1, "b": 3})
    shares.told(("risk", "web"), "standard", 4, ["a"], {"a": 4})
    assert shares.shares() == {("critical", "a"): (0.5, 0.25), ("critical", "b"): (0.5, 0.75), ("standard", "a"): (1.0, 1.0)}
    shares.told(("risk", "api"), "critical", 4, ["a", "b"], {"a": 2, "b": 2})
    assert shares.shares()["critical", "a"] == (0.5, 0.5)
    shares.forget(("risk", "api"))
    assert set(shares.shares()) == {("standard", "a")}
