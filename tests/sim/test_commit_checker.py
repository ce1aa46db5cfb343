"""The checker of the commit model, over histories written by hand: it sees each fault, and passes a clean run."""

from __future__ import annotations

from fairlead.sim.commit_model.checker import check, tally
from fairlead.sim.commit_model.history import GaveUp, History, Sent, Told
from fairlead.sim.commit_model.records import (
    GENESIS,
    Accepted,
    Batch,
    Command,
    Effect,
    ReadResult,
    Refused,
    make_batch,
)
from fairlead.sim.commit_model.store import Applied

CLAIM = Command("c1", "claim", "a")
AGAIN = Command("c2", "claim", "a")
READ = Command("r1", "read", "a")
TAKEN = Effect("c1", "a", "c1", 1)


def start(epoch: int = 1, position: int = 0, previous: str = GENESIS) -> Batch:
    return make_batch(epoch, position, previous, (Effect(None),))


def after(batch: Batch, *effects: Effect, epoch: int = 1) -> Batch:
    return make_batch(epoch, batch.last, batch.hash, effects)


def history(events: list[Sent | Told | GaveUp | Applied], *journal: Batch) -> History:
    return History(events, list(journal))


def invariants(subject: History) -> set[str]:
    return {violation.invariant for violation in check(subject)}


def test_a_clean_history_breaks_nothing() -> None:
    first = start()
    second = after(first, TAKEN)
    events: list[Sent | Told | GaveUp | Applied] = [
        Applied(first, 1),
        Sent(CLAIM),
        Applied(second, 1),
        Told(CLAIM, Accepted(2, 1)),
        Sent(AGAIN),
        Told(AGAIN, Refused("Held", 2, "c1")),
        Sent(READ),
        Told(READ, ReadResult(2, "c1")),
    ]
    assert check(history(events, first, second)) == []


def test_an_acknowledged_command_that_is_absent_is_seen() -> None:
    assert "S13" in invariants(history([Sent(CLAIM), Told(CLAIM, Accepted(2, 1))], start()))


def test_an_acknowledged_command_with_another_result_is_seen() -> None:
    first = start()
    second = after(first, TAKEN)
    events: list[Sent | Told | GaveUp | Applied] = [Sent(CLAIM), Applied(second, 1), Told(CLAIM, Accepted(2, 7))]
    assert "S13" in invariants(history(events, first, second))


def test_a_command_that_took_effect_twice_is_seen() -> None:
    first = start()
    second = after(first, TAKEN)
    third = after(second, TAKEN)
    assert "S13" in invariants(history([Sent(CLAIM)], first, second, third))


def test_a_command_that_had_to_be_refused_is_seen() -> None:
    first = start()
    second = after(first, TAKEN)
    third = after(second, Effect("c2", "a", "c2", 2))
    assert "S13" in invariants(history([Sent(CLAIM), Sent(AGAIN)], first, second, third))


def test_a_refused_command_that_is_present_is_seen() -> None:
    first = start()
    second = after(first, TAKEN)
    events: list[Sent | Told | GaveUp | Applied] = [Sent(CLAIM), Told(CLAIM, Refused("Unavailable", 1))]
    assert "S13" in invariants(history(events, first, second))


def test_a_refusal_by_an_effect_that_never_became_durable_is_seen() -> None:
    events: list[Sent | Told | GaveUp | Applied] = [Sent(AGAIN), Told(AGAIN, Refused("Held", 2, "c1"))]
    assert "unjustified" in invariants(history(events, start()))


def test_a_refusal_given_before_its_reason_was_durable_is_seen() -> None:
    first = start()
    second = after(first, TAKEN)
    events: list[Sent | Told | GaveUp | Applied] = [
        Applied(first, 1),
        Sent(CLAIM),
        Sent(AGAIN),
        Told(AGAIN, Refused("Held", 2, "c1")),
        Applied(second, 1),
    ]
    assert invariants(history(events, first, second)) == {"unjustified"}


def test_a_stale_read_is_seen() -> None:
    first = start()
    second = after(first, TAKEN)
    events: list[Sent | Told | GaveUp | Applied] = [
        Applied(first, 1),
        Sent(CLAIM),
        Applied(second, 1),
        Told(CLAIM, Accepted(2, 1)),
        Sent(READ),
        Told(READ, ReadResult(1, None)),
    ]
    assert invariants(history(events, first, second)) == {"S14"}


def test_a_write_of_an_old_epoch_is_seen() -> None:
    first = start()
    assert invariants(history([Applied(first, 2)], first)) == {"S9"}


def test_a_batch_that_does_not_follow_the_one_before_is_seen() -> None:
    first = start()
    assert "fork" in invariants(history([], first, start(epoch=2)))


def test_a_world_that_never_recovers_is_seen() -> None:
    assert invariants(History([], [start()], healed=False)) == {"stuck"}


def test_unknown_commands_are_told_apart_by_the_journal() -> None:
    first = start()
    second = after(first, TAKEN)
    counts = tally(history([Sent(CLAIM), GaveUp(CLAIM), Sent(AGAIN), GaveUp(AGAIN)], first, second))
    assert counts == {"unknown_committed": 1, "unknown_absent": 1}
