"""Two writers that undo each other are named and damped; who writes different things, or seldom, is left alone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from fairlead.decide.oscillation import (
    DAMP_FIRST_MS,
    OBJECTS_MAX,
    TIMES,
    WINDOW_MS,
    Fight,
    Oscillation,
    other_writer,
    same_but_for_times,
)
from fairlead.model.ids import Uid
from fairlead.model.kinds.capacity import NodePoolStatus
from fairlead.model.kinds.work import AssignmentStatus
from fairlead.model.meta import Condition, ManagedFields, Metadata

KEY = ("risk", "api")
OBJECT = ("Workload", "risk", "api")


def fights(found: Oscillation, *, value: int = 1, start_ms: int = 0, step_ms: int = 1000, times: int = TIMES) -> list[Fight]:
    out = [found.wrote(KEY, OBJECT, value, None, start_ms + step_ms * n) for n in range(times)]
    return [fight for fight in out if fight is not None]


def test_the_same_value_written_again_and_again_is_a_fight_that_names_both() -> None:
    meta = Metadata(name="api", managed_fields=(ManagedFields(manager="ci"), ManagedFields(manager="autoscaler")))
    found = Oscillation("autoscaler")
    told = [found.wrote(KEY, OBJECT, 7, meta, 1000 * n) for n in range(TIMES)]
    assert told[:-1] == [None] * (TIMES - 1)
    fight = told[-1]
    assert fight is not None
    assert fight.words == "autoscaler and ci write Workload risk/api back and forth"
    assert found.total == 1


def test_it_holds_back_and_longer_each_time_and_then_goes_on() -> None:
    found = Oscillation("a")
    (first,) = fights(found)
    now_ms = 1000 * (TIMES - 1)
    assert first.until_ms == now_ms + DAMP_FIRST_MS
    assert found.damped_until_ms(KEY, now_ms) == first.until_ms
    assert found.damped_until_ms(("risk", "web"), now_ms) == 0
    assert found.damped_until_ms(KEY, first.until_ms) == 0
    (second,) = fights(found, start_ms=first.until_ms, times=TIMES - 1)
    assert second.until_ms - (first.until_ms + 1000 * (TIMES - 2)) == 2 * DAMP_FIRST_MS


def test_who_goes_on_after_every_pause_is_held_back_for_five_minutes_in_the_end() -> None:
    """Also when a pause has become longer than the window in which writes are counted."""
    found, now_ms, held_s = Oscillation("a"), 0, []
    for _ in range(8):
        for number in range(TIMES):
            fight = found.wrote(KEY, OBJECT, 1, None, now_ms + 1000 * number)
            if fight is not None:
                held_s.append((fight.until_ms - now_ms - 1000 * number) // 1000)
                now_ms = fight.until_ms
                break
    assert held_s == [5, 10, 20, 40, 80, 160, 300, 300]


def test_different_values_and_slow_repetitions_are_no_fight() -> None:
    found = Oscillation("a")
    assert [found.wrote(KEY, OBJECT, value, None, value) for value in range(50)] == [None] * 50
    assert fights(found, value=99, step_ms=WINDOW_MS, times=20) == []


def test_what_follows_a_world_that_goes_back_and_forth_is_no_fight() -> None:
    found = Oscillation("recovery")
    assert [found.wrote(KEY, OBJECT, number % 2, None, 1000 * number) for number in range(50)] == [None] * 50
    spans = [1, 1, 2, 1, 2, 2, 1]
    assert [found.wrote(KEY, OBJECT, value, None, 60_000 + 1000 * n) for n, value in enumerate(spans)] == [None] * len(spans)


def test_who_is_contradicted_is_noticed_though_it_changes_its_own_mind_meanwhile() -> None:
    found = Oscillation("autoscaler")
    told = [found.wrote(KEY, OBJECT, value, None, 1000 * n) for n, value in enumerate((7, 7, 8, 7, 7, 7))]
    assert [each is not None for each in told] == [False] * 5 + [True]


def test_a_status_said_again_does_not_change_what_the_spec_was() -> None:
    found = Oscillation("a")
    for number in range(TIMES - 1):
        assert found.wrote(KEY, OBJECT, 7, None, 2000 * number) is None
        assert found.wrote(KEY, OBJECT, 0, None, 2000 * number + 1000, "status") is None
    assert found.wrote(KEY, OBJECT, 7, None, 2000 * TIMES) is not None


def test_what_is_deleted_and_made_again_under_one_name_is_no_fight() -> None:
    found = Oscillation("a")
    lives = [Metadata(name="api", uid=Uid(f"u-{number}")) for number in range(3 * TIMES)]
    assert [found.wrote(KEY, OBJECT, 7, life, 1000 * number) for number, life in enumerate(lives)] == [None] * len(lives)
    again = [found.wrote(KEY, OBJECT, 7, lives[0], 20_000 + 1000 * number) for number in range(TIMES)]
    assert any(again), "one of them that is contradicted is one"


def test_memory_is_bounded() -> None:
    found = Oscillation("a")
    for number in range(OBJECTS_MAX + 100):
        found.wrote(KEY, ("Workload", "risk", str(number)), 1, None, number)
    assert len(found._seen) == OBJECTS_MAX


def test_who_else_writes_is_somebody_where_the_object_does_not_tell() -> None:
    assert other_writer(None, "a") == "somebody else"
    assert other_writer(Metadata(name="x"), "a") == "somebody else"


def test_a_status_that_goes_back_and_forth_with_the_world_is_no_fight_one_that_is_said_again_is() -> None:
    found = Oscillation("assignment")
    up, down = AssignmentStatus(failures=1), AssignmentStatus(failures=2)
    assert [found.repeats(OBJECT, each) for each in (up, down, up, down, down, up)] == [False, False, False, False, True, False]
    for number in range(OBJECTS_MAX + 100):
        found.repeats(("Workload", "risk", str(number)), up)
    assert len(found._said) == OBJECTS_MAX


def test_times_do_not_make_another_status() -> None:
    def status(second: int, **more: Any) -> NodePoolStatus:
        time = datetime(2030, 1, 1, 0, 0, second, tzinfo=UTC)
        return NodePoolStatus(last_up_time=time, conditions=(Condition("Scaling", "True", 1, time, "Steady"),), **more)

    assert same_but_for_times(status(1), status(2))
    assert same_but_for_times(status(1), replace(status(1), last_up_time=None))
    assert not same_but_for_times(status(1), status(1, nodes=3))
    assert not same_but_for_times(status(1), replace(status(1), conditions=()))


def test_who_else_may_write_it_is_named_where_the_object_has_no_managers() -> None:
    assert other_writer(None, "job", "Assignment.status") == "somebody else (assignment may)"
    assert other_writer(None, "region", "Region.status") == "somebody else"
