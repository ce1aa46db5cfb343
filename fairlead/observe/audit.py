"""A plane's whole history asked for every promise that its journal can show: what `fairlead audit verify` prints.

The same checkers as in property tests and in the simulator, fed from wherever batches are kept. Owns the sums; reads nothing
itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, Protocol

from fairlead.model.journal import decode_blob
from fairlead.observe.checkers import JournalChecker, Violation
from fairlead.observe.intervals import Interval
from fairlead.observe.runs import at_once
from fairlead.store.contract import Batch, ObjectRow

CHECKED: Final = (
    "S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S9", "S10", "S11", "S12", "S16", "S18", "S19", "S20",
)  # fmt: skip

# What a history cannot show, and who does: a journal has what was committed, not who was told what, nor what they read.
ELSEWHERE: Final = {
    "S13": "what was acknowledged and what was refused: `fairlead review test kills`, the simulator",
    "S14": "what was acknowledged before what was sent: `fairlead review test kills`, the simulator",
    "S15": "what watchers were told: `fairlead drill watch-loss`, `fairlead review test watches`, the simulator",
    "S17": "what callers were shown: `fairlead review test walls`, the simulator",
}


class History(Protocol):
    """A plane's history where it is kept, as far back as it is."""

    @property
    def begins(self) -> str:
        """The revision after which it begins; empty: with the plane itself."""

    @property
    def reaches(self) -> str:
        """The newest revision in it; empty where there is none."""

    def rows(self) -> list[ObjectRow]:
        """What was there at its beginning. Raises StoreError where that is damaged."""

    def __iter__(self) -> Iterator[Batch]:
        """Raises StoreError at what is damaged."""

    def readable_rows(self) -> list[ObjectRow]:
        """The same as `rows`; nothing, and no batches either, where that is damaged."""

    def readable(self) -> Iterator[Batch]:
        """The same up to what is damaged."""

    def unread(self) -> list[str]:
        """What says that there is more than was read. Empty: that was all."""


def audit_of(history: History, runs: list[Interval] | None = None) -> dict[str, Any]:
    """`audit` of all that can be read, with how far that is, and what there is beyond."""
    results = audit(history.readable(), history.readable_rows(), runs)
    return {**results, "begins": history.begins, "reaches": history.reaches, "unread": history.unread()}


def between(runs: list[Interval]) -> dict[str, Any]:
    """What only the histories of all planes show together, of the runs that `audit_of` found in each."""
    return {"S12": {"checked": len(runs), "violations": [{"position": 0, "detail": detail} for detail in at_once(runs)]}}


def audit(
    batches: Iterable[Batch], rows: Iterable[ObjectRow] = (), runs: list[Interval] | None = None
) -> dict[str, Any]:  # fmt: skip
    """What was looked at and found, promise by promise. Batches come in order, from the beginning of a plane's history, or from
    where `rows` are what was there. `runs`: filled with those of exclusive slots, for `between`."""
    checker = JournalChecker()
    known, revisions = tuple(rows), 0
    for batch in batches:
        blob = decode_blob(batch.blob)
        if known and not revisions:
            checker.begin(known, blob.header.time_ms)
        checker.feed(batch, blob)
        revisions += batch.last - batch.first + 1
    checker.violations += [Violation("S12", 0, detail) for detail in at_once(checker.runs.intervals)]
    if runs is not None:
        runs += checker.runs.intervals
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
    return {"revisions": revisions, "invariants": invariants}
