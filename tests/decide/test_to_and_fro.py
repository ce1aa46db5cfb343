"""Slots that overflow and recovery send to and fro between regions are noticed, with both named; one of them alone is not."""

from __future__ import annotations

from fairlead.decide import to_and_fro
from fairlead.decide.oscillation import Oscillation
from fairlead.decide.slots import instant
from fairlead.decide.to_and_fro import HOLD_FIRST_MS, HOLD_MAX_MS, TURNS, WINDOW_MS, Held, ToAndFro
from fairlead.model.kinds.work import Assignment, AssignmentSpec, Overflow, SlotRange
from fairlead.model.meta import Metadata

MINUTE_MS = 60_000


def given(region: str, own: int, stand_in: int = 0, moved_ms: int = 0, uid: str = "u") -> AssignmentSpec:
    """`moved_ms`: when overflow took or gave last."""
    first = {"a": 0, "b": 20_000}[region]
    stands_in = SlotRange(first=first + 15_000, last=first + 15_000 + stand_in - 1) if stand_in else None
    own_slots = (SlotRange(first=first, last=first + own - 1),) if own else ()
    overflow = Overflow(gave_time=instant(moved_ms)) if moved_ms else Overflow()
    slots = (*own_slots, stands_in) if stands_in is not None else own_slots
    return AssignmentSpec("api", uid, 1, region, slots=slots, recovery=stands_in, overflow=overflow)


def cycle(seen: ToAndFro, at_ms: int) -> list[tuple[Held, int]]:
    """Within four minutes: recovery brings two to b and takes them away, overflow takes two of a and brings them back. What is
    said of it, and when."""
    steps = [given("a", 4, moved_ms=at_ms), given("b", 0)] if not at_ms else []
    steps += [given("b", 0, 2), given("a", 2, moved_ms=at_ms + 2), given("b", 0), given("a", 4, moved_ms=at_ms + 4)]
    said = []
    for number, step in enumerate(steps):
        now_ms = at_ms + number * MINUTE_MS
        if (held := seen.assigned(step, now_ms)) is not None:
            said.append((held, now_ms))
    return said


def test_what_both_move_to_and_fro_is_held_after_four_turns_and_both_are_named() -> None:
    seen = ToAndFro()
    assert cycle(seen, 0) == [], "a loss and its end, and slots that came back once"
    ((held, now_ms),) = cycle(seen, 10 * MINUTE_MS)
    assert held == Held(("overflow", "recovery"), now_ms + HOLD_FIRST_MS)


def test_it_is_held_longer_each_time_and_at_most_for_an_hour() -> None:
    seen = ToAndFro()
    said = [one for number in range(12) for one in cycle(seen, number * 10 * MINUTE_MS)]
    holds = [held.until_ms - now_ms for held, now_ms in said]
    assert holds[:4] == [HOLD_FIRST_MS, 2 * HOLD_FIRST_MS, 4 * HOLD_FIRST_MS, HOLD_MAX_MS]
    assert max(holds) == HOLD_MAX_MS


def test_after_an_hour_of_peace_it_begins_anew() -> None:
    seen = ToAndFro()
    cycle(seen, 0)
    begun_ms = WINDOW_MS + 10 * MINUTE_MS
    assert cycle(seen, begun_ms) == [], "the turns of the first are forgotten"
    ((held, _),) = cycle(seen, begun_ms + 10 * MINUTE_MS)
    later_ms = held.until_ms + WINDOW_MS + MINUTE_MS
    cycle(seen, later_ms)
    ((again, now_ms),) = cycle(seen, later_ms + 10 * MINUTE_MS)
    assert again.until_ms == now_ms + HOLD_FIRST_MS, "and so is that it was held"


def test_who_alone_goes_back_and_forth_and_people_who_scale_are_left_alone() -> None:
    recovery, overflow, people = ToAndFro(), ToAndFro(), ToAndFro()
    for number in range(4 * TURNS):
        at_ms, odd = number * MINUTE_MS, number % 2
        assert recovery.assigned(given("b", 4, 2 * odd), at_ms) is None, "a region may be lost as often as it likes"
        assert overflow.assigned(given("a", 4 - odd, moved_ms=at_ms + 1), at_ms) is None, "it has a cool-down of its own"
        assert people.assigned(given("a", 4 - odd), at_ms) is None
        assert people.assigned(given("b", 4, 2 * odd), at_ms) is None


def test_workloads_are_told_apart_and_those_that_were_not_seen_for_long_are_forgotten() -> None:
    seen = ToAndFro()
    for number in range(TURNS + 1):
        assert seen.assigned(given("b", 4, 2 * (number % 2), uid="one"), number) is None
        assert seen.assigned(given("b", 4 - number % 2, moved_ms=number + 1, uid="two"), number) is None
    for number in range(to_and_fro.WORKLOADS_MAX + 5):
        seen.assigned(given("a", 1, uid=f"u{number}"), 0)
    assert len(seen._of) == to_and_fro.WORKLOADS_MAX


def test_only_who_sees_all_regions_tells() -> None:
    for writer, told in (("workload", 1), ("mirror-down", 0)):
        fights, at_ms = Oscillation(writer), 0
        words = []
        for _ in range(3):
            for own, stand_in in ((4, 0), (4, 2), (2, 2), (2, 0), (4, 0)):
                at_ms += MINUTE_MS
                made = Assignment(Metadata(name="api.b", namespace="risk"), given("b", own, stand_in, at_ms))
                if (fight := fights.moved(made, at_ms)) is not None:
                    words.append(fight.words)
        assert bool(words) == bool(told)
        assert fights.total == len(words)
        assert set(words) <= {f"{one} move slots of Workload risk/api to and fro between regions" for one in (
            "overflow and recovery", "recovery and overflow",
        )}  # fmt: skip
