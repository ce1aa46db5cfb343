"""A decision log that remembers everything in a list, and the questions both are asked. Called by test_decisions.py."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.client.decisions import DecisionHit, DecisionPage, DecisionQuery
from fairlead.model.decision import Attempt, Decided, DecisionRecord, Result, decision_id
from fairlead.store.decisions import DecisionLog, Settings

FULL_DISK = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
SMALL = Settings(segment_bytes=1_000, segment_ms=200, frame_bytes=250, cache_bytes=4_000, flush_s=0)

Seen = tuple[str, int, int]  # id, time, number of the attempt


def attempt(slot: str, node: str = "", *, tenant: str = "t", generation: int = 1, reason: str = "") -> Attempt:
    return Attempt(tenant, slot, generation, 1, 5, node, reason=reason)


def record(time_ms: int, attempts: Iterable[Attempt], outcomes: Sequence[str] = ()) -> DecisionRecord:
    decided = Decided("s", time_ms, 1, 1, 0, "cycle", {}, 2, 1, attempts=tuple(attempts))
    return DecisionRecord(decision_id(decided), decided, tuple(map(Result, outcomes)))


def lone(number: int, slot: str = "") -> DecisionRecord:
    """A record of one attempt at a time of its own."""
    return record(1_000 + 10 * number, [attempt(slot or f"w-{number}", f"n{number % 3}")], ["Bound"])


_ATTEMPTS = st.builds(
    attempt,
    st.sampled_from(["w-0", "w-1", "w-1-0", "w-10", "x-0", "x", "é-3"]),
    st.sampled_from(["", "n", "n1", "w"]),
    tenant=st.sampled_from(["t", "u"]),
    generation=st.integers(1, 2),
    reason=st.sampled_from(["", "WaitingForQuota", "Bound"]),
)
RECORDS = st.builds(
    record,
    st.integers(0, 40),  # `Model.place` moves it to where the plane's time is by then
    st.lists(_ATTEMPTS, max_size=4),
    st.lists(st.sampled_from(["Bound", "QuotaExceeded", "WaitingForQuota"]), max_size=4),
)


@st.composite
def queries(draw: st.DrawFn) -> DecisionQuery:
    def some(*values: str) -> str:
        return draw(st.sampled_from(["", *values]))

    slot, workload = some("w-0", "w-1", "w-1-0", "gone-0"), some("w", "w-1", "x", "é")
    named = bool(slot or workload)
    return DecisionQuery(
        tenant=draw(st.sampled_from(["t", "u"])) if named else some("t", "u"),
        slot=slot,
        workload=workload,
        generation=draw(st.none() | st.integers(1, 2)) if named else None,
        node=some("n", "n1"),
        outcome=some("Bound", "QuotaExceeded", "WaitingForQuota"),
        since_ms=draw(st.none() | st.integers(0, 1_000)),
        until_ms=draw(st.none() | st.integers(0, 1_000)),
        limit=draw(st.sampled_from([1, 2, 7, 1_000])),
    )


class Model:
    def __init__(self) -> None:
        self.records: list[DecisionRecord] = []
        self.time_ms = 10

    def place(self, made: DecisionRecord) -> DecisionRecord:
        """The record at the plane's time; now and then a little before it, as other schedulers' clocks are."""
        self.time_ms += made.decided.time_ms
        placed = replace(made.decided, time_ms=self.time_ms - 7 * (made.decided.time_ms % 2))
        self.records.append(DecisionRecord(decision_id(placed), placed, made.results))
        return self.records[-1]

    def ask(self, query: DecisionQuery) -> list[Seen]:
        return [seen(hit) for hit in self._hits() if _wanted(hit, query)]

    def _hits(self) -> Iterable[DecisionHit]:
        for made in reversed(self.records):
            for number in reversed(range(len(made.decided.attempts))):
                yield DecisionHit(made, number)


def _wanted(hit: DecisionHit, query: DecisionQuery) -> bool:
    of, time_ms = hit.attempt, hit.record.decided.time_ms
    if not (query.since_ms or 0) <= time_ms < (1 << 60 if query.until_ms is None else query.until_ms):
        return False
    pairs = [
        (query.tenant, {of.tenant}),
        (query.slot, {of.name}),
        (query.workload, {"-".join(of.name.split("-")[:-1])}),
        (query.node, {of.node}),
        (query.outcome, {of.reason, hit.result.outcome}),
        (query.id, {hit.record.id}),
    ]
    return query.generation in (None, of.generation) and all(asked in found for asked, found in pairs if asked)


def seen(hit: DecisionHit) -> Seen:
    return hit.record.id, hit.record.decided.time_ms, hit.number


def ask(log: DecisionLog, query: DecisionQuery) -> tuple[list[Seen], tuple[str, ...]]:
    """All pages together, and the files that the last one says are damaged."""
    found: list[Seen] = []
    damaged: dict[str, None] = {}
    for _ in range(1_000):
        page: DecisionPage = log.search(query)
        assert len(page.items) <= query.limit
        found += map(seen, page.items)
        damaged |= dict.fromkeys(page.damaged)
        if not page.next:
            return found, tuple(damaged)
        query = replace(query, after=page.next)
    raise AssertionError("the pages never end")


def files(directory: Path, suffix: str) -> list[Path]:
    return sorted(directory.glob(f"*.{suffix}"))


class Disk:
    """os.write with a budget; when it is spent a write takes half and the next fails, as a full disk does."""

    def __init__(self, budget: int) -> None:
        self.budget = budget

    def write(self, descriptor: int, data: memoryview) -> int:
        if self.budget <= 0:
            raise FULL_DISK
        written = os.write(descriptor, data[: self.budget])
        self.budget -= written
        return written
