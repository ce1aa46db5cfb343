"""Writes that name the version, or the object, that they change (S7)."""

from __future__ import annotations

import pytest

from fairlead.model.commands import Body, Caller, Delete, Put, PutStatus
from fairlead.model.ids import revision
from fairlead.model.lifecycle import Role
from tests.observe.forging import BASE, Forged, gone, node

KEY, N1 = node("n1")
AT = next(place + 1 for place, (key, _) in enumerate(BASE) if key == KEY)  # where it was written
OPERATOR = Caller("mia", Role.OPERATOR)


def status(expected: int = 0, uid: str = "") -> Body:
    return PutStatus("Node", "", "n1", N1.status, revision(1, expected) if expected else 0, uid)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (status(AT), []),
        (status(AT + 1), ["S7"]),
        (status(), []),  # names nothing: whatever is there
        (status(uid="n1"), []),
        (status(uid="another"), ["S7"]),
        (Put("Node", N1, expected_revision=revision(1, AT)), []),
        (Put("Node", N1, expected_revision=revision(2, AT)), ["S7"]),  # of another incarnation
        (Delete("Node", "", "n1", expected_revision=revision(1, AT + 1)), ["S7"]),
    ],
)
def test_a_write_changes_the_version_that_it_names(body: Body, found: list[str]) -> None:
    effect = gone(node("n1")) if isinstance(body, Delete) else node("n1")
    assert Forged(*BASE).entry(OPERATOR, body, effect).found == found


def test_what_others_wrote_meanwhile_is_not_undone() -> None:
    journal = Forged(*BASE)
    written = journal.next
    journal.entry(OPERATOR, status(AT), node("n1", 900))
    assert journal.entry(OPERATOR, status(written), node("n1", 800)).found == []
    assert journal.entry(OPERATOR, status(written), node("n1", 700)).details == [
        f"{KEY} was written as of revision {revision(1, written)}, and had changed since"
    ]


def test_one_that_was_deleted_and_made_again_is_another() -> None:
    journal = (
        Forged(*BASE).entry(OPERATOR, Delete("Node", "", "n1"), gone(node("n1"))).entry(OPERATOR, Put("Node", N1), node("n1"))
    )
    assert journal.entry(OPERATOR, status(AT), node("n1")).found == ["S7"]


def test_what_goes_with_it_is_not_what_was_named() -> None:
    body = Delete("Node", "", "n1", expected_revision=revision(1, AT))
    assert Forged(*BASE).entry(OPERATOR, body, gone(node("n1")), gone(node("n2"))).found == []
