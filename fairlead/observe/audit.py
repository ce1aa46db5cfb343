"""A plane's whole history asked for every promise that its journal can show: what `fairlead audit verify` prints.

The same checkers as in property tests and in the simulator, fed from wherever batches are kept. Owns the sums; reads nothing
itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, Protocol

from fairlead.observe.checkers import JournalChecker
from fairlead.store.contract import Batch

CHECKED: Final = ("S1", "S2", "S3", "S4", "S6", "S7", "S8", "S9", "S10", "S11", "S18", "S19", "S20")


class History(Protocol):
    """A plane's history where it is kept, from its beginning."""

    @property
    def reaches(self) -> str:
        """The newest revision in it; empty where there is none."""

    def __iter__(self) -> Iterator[Batch]:
        """Raises StoreError at what is damaged."""

    def readable(self) -> Iterator[Batch]:
        """The same up to what is damaged."""

    def unread(self) -> list[str]:
        """What says that there is more than was read. Empty: that was all."""


def audit_of(history: History) -> dict[str, Any]:
    """`audit` of all that can be read, with how far that is, and what there is beyond."""
    results = audit(history.readable())
    return {**results, "reaches": history.reaches, "unread": history.unread()}


def audit(batches: Iterable[Batch]) -> dict[str, Any]:
    """What was looked at and found, promise by promise. Batches come in order, from the beginning of a plane's history."""
    checker = JournalChecker()
    last = 0
    for batch in batches:
        checker.feed(batch)
        last = batch.last
    invariants = {
        name: {
            "checked": checker.checked.get(name, 0),
            "violations": [
                {"position": violation.position, "detail": violation.detail}
                for violation in checker.violations
                if violation.invariant == name
            ],
        }
        for name in CHECKED
    }
    return {"revisions": last, "invariants": invariants}
