"""What a plane says over a channel, in the shapes that are expected of it. Fields that a newer server adds at the end are passed
over; whatever else differs is refused, so that nothing half understood goes further. Used by line.py and remote.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from fairlead.client.channel import ReadRow, Row
from fairlead.client.outcomes import decode_outcomes
from fairlead.model import codec
from fairlead.model.commands import Outcome
from fairlead.observe.timeline import Step

T = TypeVar("T")


class Hello(msgspec.Struct, frozen=True):
    leading: bool
    leader: str = ""
    version: int = 1
    revision: int = 0
    plane_ms: int = 0


class Refusal(msgspec.Struct, frozen=True, array_like=True):
    reason: str
    detail: str = ""


class Told(msgspec.Struct, frozen=True, array_like=True):
    """Of a feed; revision 0: more of the same follows."""

    revision: int
    rows: list[Row]


class Ended(msgspec.Struct, frozen=True, array_like=True):
    detail: str
    oldest: int = 0


class Question(msgspec.Struct, frozen=True, array_like=True):
    """Put to whoever attends."""

    number: int
    operation: str
    arguments: list[Any]


class Now(msgspec.Struct, frozen=True, array_like=True):
    revision: int
    plane_ms: int
    unwritable_ms: int | None = None  # see resources.py; a server of an earlier version says nothing of it


class Rows(msgspec.Struct, frozen=True, array_like=True):
    revision: int
    rows: list[Row]
    next_tenant: str = ""
    next_name: str = ""  # empty: there are no more


class Output(msgspec.Struct, frozen=True, array_like=True):
    """Of a slot."""

    offset: int
    text: bytes
    next: int


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """Of a plane's history."""

    token: str
    size: int
    data: bytes


def as_a(wanted: type[T]) -> Callable[[Any], T]:
    return partial(codec.convert, wanted=wanted)


def as_it_is(answer: Any) -> Any:
    """What is in it is read by whoever asked: one record that is not understood says nothing against the connection."""
    return answer


def nothing(answer: Any) -> None:
    """It was heard; whatever else is said of it does not matter."""


def row_or_none(answer: Any) -> ReadRow | None:
    return None if answer is None else codec.convert(answer, ReadRow)


def outcomes_of(count: int) -> Callable[[Any], list[Outcome]]:
    """As many as there were commands."""

    def read(answer: Any) -> list[Outcome]:
        found = decode_outcomes(answer)
        if len(found) != count:
            raise ValueError(f"{len(found)} outcomes of {count} commands")
        return found

    return read


def outcome_or_none(answer: Any) -> Outcome | None:
    return None if answer is None else decode_outcomes([answer])[0]


def steps_of(answer: Any) -> Sequence[Step]:
    return [Step(*row[: len(Step._fields)]) for row in answer]
