"""Which part of a stream of output is wanted, and when each line of it was written. Pure. Called by logs.py.

Times come from the marks that an instance's shim keeps beside its output, one a second at most (fairlead/agent/drivers/shim.py).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final, NamedTuple

from fairlead.api.failures import Failure, bad_request

MARK_BYTES: Final = 32
MARKS_BYTES: Final = 8192 * MARK_BYTES
MARK_MS: Final = 1000  # lines of this time after a mark have no mark of their own
TAIL_BYTES: Final = 256 * 1024  # looked through for the last lines
STREAMS: Final = ("stdout", "stderr")
ALL: Final = "all"  # of both, what was written first comes first, as exactly as marks tell
_MARK: Final = re.compile(rb"([0-9]{15}) ([0-9]{13}) ([SW])\n")
_FLAGS: Final = {"": False, "0": False, "false": False, "1": True, "true": True}


class Mark(NamedTuple):
    offset: int
    ms: int
    starts: bool  # a run began here


Marks = list[Mark]


class Span(NamedTuple):
    first: int | None  # None: at the end of what is there
    end: int | None  # None: as far as there is something


class Wanted(NamedTuple):
    slot: int | None = None
    tail: int | None = None
    limit: int | None = None
    since_s: int | None = None
    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    stream: str = ALL

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Wanted:
        """Raises 400 with the parameter's name."""
        stream = given.get("stream", ALL)
        if stream not in (ALL, *STREAMS):
            raise bad_request(f"stream: expected all, stdout or stderr, got {stream[:40]!r}")
        since = _number(given, "sinceSeconds")
        if since == 0:
            raise bad_request("sinceSeconds: expected at least 1")
        limit = _number(given, "limitBytes")
        if limit == 0:
            raise bad_request("limitBytes: expected at least 1")
        wanted = cls(
            _number(given, "slot"), _number(given, "tailLines"), limit, since,
            _flag(given, "follow"), _flag(given, "previous"), _flag(given, "timestamps"), stream,
        )  # fmt: skip
        if wanted.previous and wanted.follow:
            raise bad_request("follow: a run that is over writes nothing more; leave it out, or previous")
        return wanted

    @property
    def streams(self) -> tuple[str, ...]:
        return STREAMS if self.stream == ALL else (self.stream,)

    @property
    def needs_times(self) -> bool:
        return self.stream == ALL or self.previous or self.timestamps or self.since_s is not None


def _number(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 12:
        raise bad_request(f"{name}: expected a whole number, got {text[:40]!r}")
    return int(text)


def _flag(given: Mapping[str, str], name: str) -> bool:
    text = given.get(name, "")
    if text not in _FLAGS:
        raise bad_request(f"{name}: expected true or false, got {text[:40]!r}")
    return _FLAGS[text]


def marks_of(data: bytes) -> Marks:
    """Whole records only: the last one may be on its way to the disk, and one before it may have stopped halfway."""
    return [Mark(int(offset), int(ms), what == b"S") for offset, ms, what in _MARK.findall(data)]


def span_of(wanted: Wanted, marks: Marks, now_ms: int) -> Span:
    first, end = 0, None
    if wanted.previous:
        runs = [mark.offset for mark in marks if mark.starts]
        if len(runs) < 2:
            raise Failure(404, "previous: it has not been restarted here, so there is no run before this one")
        first, end = runs[-2], runs[-1]
    if wanted.since_s is not None:
        cutoff = now_ms - wanted.since_s * 1000 - MARK_MS
        young = next((mark.offset for mark in marks if mark.ms > cutoff), None)
        if young is None and marks:
            return Span(None, end)
        first = max(first, young or 0)
    return Span(first, end)


def lines_of(data: bytes) -> list[bytes]:
    """With their ends; only a line feed ends one."""
    *whole, rest = data.split(b"\n")
    return [line + b"\n" for line in whole] + ([rest] if rest else [])


def tail_from(offset: int, data: bytes, lines: int) -> int:
    """Where the last so many lines of `data` begin."""
    found = lines_of(data)
    return offset + sum(len(line) for line in found[: max(0, len(found) - lines)])


def pieces_of(offset: int, data: bytes, marks: Marks) -> list[tuple[int, bytes]]:
    """Cut where a mark says another time, between lines only: (milliseconds, bytes)."""
    cuts = [mark.offset - offset for mark in marks if offset < mark.offset < offset + len(data)]
    cuts = [0, *(cut for cut in cuts if data[cut - 1 : cut] == b"\n"), len(data)]
    offsets = [mark.offset for mark in marks]
    out = []
    for first, end in pairwise(cuts):
        found = bisect_right(offsets, offset + first) - 1
        out.append((marks[max(0, found)].ms if marks else 0, data[first:end]))
    return [piece for piece in out if piece[1]]


class Lines:
    """Puts the time before every line; a line may come in several pieces."""

    def __init__(self, offset: int) -> None:
        self._at_start = True
        self._offset = offset

    def stamped(self, offset: int, data: bytes, marks: Marks) -> bytes:
        if offset != self._offset:
            self._at_start = True  # something in between is gone
        offsets = [mark.offset for mark in marks]
        out = []
        for line in lines_of(data):
            if self._at_start:
                found = bisect_right(offsets, offset) - 1
                out.append(_time(marks[max(0, found)].ms) if marks else b"")
            out.append(line)
            offset += len(line)
            self._at_start = line.endswith(b"\n")
        self._offset = offset
        return b"".join(out)


def _time(ms: int) -> bytes:
    return datetime.fromtimestamp(ms / 1000, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z ").encode()
