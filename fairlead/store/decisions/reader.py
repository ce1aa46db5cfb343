"""Answers queries over parts of the log, newest first. Owns no file and keeps nothing; called by log.py on a reader's thread.

An index only says where to look. Each record is checked itself: first for the bytes it must contain, which costs a tenth of
decoding it, then attempt by attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from fairlead.client.decisions import Cursor, DecisionHit, DecisionPage, DecisionQuery, workload_of
from fairlead.model.decision import DecisionRecord
from fairlead.store.archive import ArchiveCorrupt, BeyondHorizon
from fairlead.store.decisions.keys import asked_hashes, decode_record
from fairlead.store.decisions.records import Row
from fairlead.store.decisions.segment import Wanted

A = TypeVar("A")
T = TypeVar("T")

_TIME_MAX = 1 << 62
_START: Cursor = (1 << 62, 0)


class Part(Protocol):
    """A run of records whose numbers are all below those of the next part."""

    @property
    def first(self) -> int: ...

    @property
    def time_min(self) -> int: ...

    @property
    def time_max(self) -> int: ...

    def candidates(self, wanted: Wanted) -> list[int]: ...

    def rows(self, number: int) -> list[Row]: ...


class Unwritten:
    """What is appended and not in any segment yet. `first` is where the numbers after it begin when it is empty."""

    def __init__(self, rows: list[Row], first: int) -> None:
        self._rows = rows
        self.first = rows[0].number if rows else first
        self.time_min = min((row.time_ms for row in rows), default=0)
        self.time_max = max((row.time_ms for row in rows), default=0)

    def candidates(self, wanted: Wanted) -> list[int]:
        return [0] if self._rows else []

    def rows(self, number: int) -> list[Row]:
        return self._rows


class Search:
    def __init__(self, query: DecisionQuery, frames_max: int) -> None:
        self._query = query
        self._hashes = asked_hashes(query)
        self._needles = _needles(query)
        self._since_ms = -_TIME_MAX if query.since_ms is None else query.since_ms
        self._until_ms = _TIME_MAX if query.until_ms is None else query.until_ms
        self._frames_left = frames_max
        self._before = query.cursor() or _START  # falls as the search goes on; what was seen once is never seen again
        self._items: list[DecisionHit] = []
        self._damaged: dict[str, None] = {}

    def run(self, parts: Sequence[Part], damaged: Sequence[str], horizon_ms: int | None) -> DecisionPage:
        """`parts`: newest first."""
        self._damaged = dict.fromkeys(damaged)
        more = any(not self._search_part(part) for part in parts)
        following = f"{self._before[0]}.{self._before[1]}" if more else ""
        return DecisionPage(tuple(self._items), following, tuple(self._damaged), horizon_ms)

    def _search_part(self, part: Part) -> bool:
        """False when the page ends here."""
        if (part.first, 0) >= self._before:
            return True
        if part.time_max >= self._since_ms and part.time_min < self._until_ms:
            # A frame seen whole must not be a candidate again, or a page of one frame would never get past it.
            below = self._before[0] + (self._before[1] > 0)
            wanted = Wanted(self._hashes, self._since_ms, self._until_ms, below)
            for number in self._guarded(part.candidates, wanted):
                if self._frames_left == 0:
                    return False
                self._frames_left -= 1
                rows = self._guarded(part.rows, number)
                if not self._search_rows(rows):
                    return False
                if rows:
                    self._before = min(self._before, (rows[0].number, 0))
        self._before = min(self._before, (part.first, 0))
        return True

    def _guarded(self, read: Callable[[A], list[T]], argument: A) -> list[T]:
        """Nothing where a file is damaged, which the page then says, or was trimmed meanwhile."""
        try:
            return read(argument)
        except ArchiveCorrupt as error:
            self._damaged[f"{error.where}: {error.detail}"] = None
        except BeyondHorizon:
            pass
        except OSError as error:
            self._damaged[f"{error.filename}: cannot be read: {error.strerror}"] = None
        return []

    def _search_rows(self, rows: Sequence[Row]) -> bool:
        for row in reversed(rows):
            if (row.number, 0) >= self._before or not self._since_ms <= row.time_ms < self._until_ms:
                continue
            if not all(needle in row.body for needle in self._needles):
                continue
            record = decode_record(row.body)
            if record is None:
                self._damaged["records that cannot be read by this version are passed over"] = None
                continue
            for number in _matches(record, self._query):
                if (row.number, number) >= self._before:
                    continue
                self._items.append(DecisionHit(record, number))
                if len(self._items) == self._query.limit:
                    self._before = (row.number, number)
                    return False
        return True


def _needles(query: DecisionQuery) -> list[bytes]:
    """What a record's bytes must contain somewhere, since msgpack keeps strings as they are."""
    prefix = f"{query.workload}-" if query.workload else ""
    return [text.encode() for text in (query.id, query.slot, prefix, query.node, query.outcome, query.tenant) if text]


def _matches(record: DecisionRecord, query: DecisionQuery) -> Iterator[int]:
    """Numbers of the attempts that the query wants, last first."""
    if query.id and record.id != query.id:
        return
    results = record.results
    for number in reversed(range(len(record.decided.attempts))):
        attempt = record.decided.attempts[number]
        outcome = results[number].outcome if number < len(results) else ""
        if (
            (not query.slot or attempt.name == query.slot)
            and (not query.tenant or attempt.tenant == query.tenant)
            and (not query.workload or workload_of(attempt.name) == query.workload)
            and (query.generation is None or attempt.generation == query.generation)
            and (not query.node or attempt.node == query.node)
            and (not query.outcome or query.outcome in (outcome, attempt.reason))
        ):
            yield number
