"""How decisions are handed over and asked for: the sink a scheduler appends to, the queries `why` and the API put.

Owns the shapes only; fairlead/store/decisions keeps the records. Called by schedulers (DecisionSink) and by whoever explains.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from fairlead.model.decision import Attempt, Decided, DecisionRecord, Result

LIMIT_MAX = 10_000  # attempts a page; a shared record of 100 is about 40 kB decoded
NO_RESULT = Result("")  # the authority's answer was not known when the record was appended

Cursor = tuple[int, int]  # number of a record in its log, number of an attempt in its record


def workload_of(slot: str) -> str:
    """The WORKLOAD of a slot named WORKLOAD-INDEX."""
    return slot.rpartition("-")[0]


class DecisionSink(Protocol):
    def append(self, records: Sequence[DecisionRecord]) -> None:
        """Never waits for a disk and never fails for one. Records are appended once, with their results."""


class DecisionQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Attempts for which everything given holds. Empty means any."""

    tenant: str = ""
    slot: str = ""  # WORKLOAD-INDEX, of that tenant
    workload: str = ""  # of that tenant
    generation: int | None = None  # of that workload or slot
    node: str = ""  # the one chosen; not the candidates
    outcome: str = ""  # what became of it, or the reason it waits
    id: str = ""
    since_ms: int | None = None  # plane time, inclusive
    until_ms: int | None = None  # exclusive
    limit: int = 100
    after: str = ""  # `next` of the page before

    def __post_init__(self) -> None:
        if (self.slot or self.workload) and not self.tenant:
            raise ValueError("a slot or a workload is looked up within a tenant; name the tenant")
        if self.generation is not None and not (self.slot or self.workload):
            raise ValueError("a generation is a workload's; name the workload or the slot")
        if not 1 <= self.limit <= LIMIT_MAX:
            raise ValueError(f"limit {self.limit} is not in 1..{LIMIT_MAX}")
        self.cursor()

    def cursor(self) -> Cursor | None:
        """Only attempts before this one are wanted."""
        if not self.after:
            return None
        record, dot, attempt = self.after.partition(".")
        if not (dot and record.isdecimal() and attempt.isdecimal() and self.after.isascii()):
            raise ValueError(f"{self.after!r} does not continue any list of decisions; take `next` of a page")
        return int(record), int(attempt)


class DecisionHit(msgspec.Struct, frozen=True, gc=False):
    record: DecisionRecord
    number: int  # of the attempt in its record

    @property
    def attempt(self) -> Attempt:
        return self.record.decided.attempts[self.number]

    @property
    def result(self) -> Result:
        results = self.record.results
        return results[self.number] if self.number < len(results) else NO_RESULT


class DecisionPage(msgspec.Struct, frozen=True):
    """Newest first. A page may be short and yet have a `next`: looking through much that does not match ends a page too."""

    items: tuple[DecisionHit, ...]
    next: str  # "" when there is no more
    damaged: tuple[str, ...]  # files that were passed over, and what is wrong with each
    horizon_ms: int | None  # plane time of the oldest decision kept; older ones are forgotten, or never were


class Explained(msgspec.Struct, frozen=True, gc=False):
    """One attempt with what was decided about it, apart from the others of its record: what is sent to whoever explains."""

    id: str
    decided: Decided  # with this attempt alone
    result: Result

    @property
    def attempt(self) -> Attempt:
        return self.decided.attempts[0]


class ExplainedPage(msgspec.Struct, frozen=True):
    items: tuple[Explained, ...] = ()
    next: str = ""
    damaged: tuple[str, ...] = ()
    horizon_ms: int | None = None


def explained(page: DecisionPage) -> ExplainedPage:
    items = (
        Explained(hit.record.id, msgspec.structs.replace(hit.record.decided, attempts=(hit.attempt,)), hit.result)
        for hit in page.items
    )
    return ExplainedPage(tuple(items), page.next, page.damaged, page.horizon_ms)


@runtime_checkable
class DecisionSource(Protocol):
    async def query(self, query: DecisionQuery) -> DecisionPage: ...
