"""A store's objects against its journal."""

from __future__ import annotations

from fairlead.model.journal import NO_COMMAND, Blob, Entry, Header
from fairlead.observe.materialised import MaterialisedChecker


def checker(*effects: tuple[str, bytes | None]) -> MaterialisedChecker:
    """One batch an effect, from position 1 on."""
    made = MaterialisedChecker()
    for position, effect in enumerate(effects, 1):
        made.committed(Blob(Header(1, 1, 1, "a", position, 0), (Entry(NO_COMMAND, (effect,)),)), position)
    return made


def test_objects_that_are_what_the_journal_says_are_fine_and_what_changed_since_is_not_asked_for() -> None:
    made = checker(("a", b"1"), ("b", b"1"), ("b", None), ("a", b"2"))
    assert made.differences({"a": (1, b"1")}, 3) == []
    assert made.differences({"a": (4, b"2")}, 4) == []
    assert made.differences({}, 0) == []


def test_a_change_that_is_missing_an_object_that_is_missing_and_one_that_was_deleted_are_told() -> None:
    made = checker(("a", b"1"), ("a", b"2"), ("b", b"1"), ("c", b"1"), ("c", None))
    assert made.differences({"a": (1, b"1"), "c": (4, b"1")}, 5) == [
        "a is as it was at 1, and was changed at 2 of 5",
        "b is not there, and was changed at 3 of 5",
        "c is as it was at 4, and was deleted at 5 of 5",
    ]
