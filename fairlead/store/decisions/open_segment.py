"""The segment that is still written: an append-only file, and the same rows in memory.

Owns the format of `.open` files and their recovery. Never compresses, never syncs. One thread writes; readers on other
threads read what is in memory, where lists only ever grow. Called by log.py and, as a Part, by reader.py.
"""

from __future__ import annotations

import logging
import os
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

from fairlead.model.decision import DecisionRecord
from fairlead.store.archive import ArchiveCorrupt
from fairlead.store.decisions.keys import Hashes, decode_record, hashes_of, holds
from fairlead.store.decisions.records import HEAD, OPEN_MAGIC, Queued, Row
from fairlead.store.decisions.segment import ClosedSegment, Wanted

log = logging.getLogger(__name__)

_CRC = struct.Struct("<I")

Write = Callable[[int, memoryview], int]


class Frame:
    """Rows that will be compressed together."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.raw_bytes = 0
        self.hashes: Hashes | None = None  # None: not indexed yet, to be looked through
        self._records: list[DecisionRecord | None] = []  # what the rows hold, until they are indexed

    def add(self, queued: Queued) -> None:
        self.rows.append(queued.row)
        self._records.append(queued.record)
        self.raw_bytes += HEAD.size + len(queued.row.body)

    def index(self) -> Hashes:
        if self.hashes is None:
            made = zip(self.rows, self._records, strict=True)
            found = (record or decode_record(row.body) for row, record in made)
            self.hashes = hashes_of(record for record in found if record is not None)
            self._records = []
        return self.hashes


class OpenSegment:
    def __init__(self, path: Path, first: int, frame_bytes: int, write: Write) -> None:
        self.path = path
        self.first = first
        self.last = first - 1
        self.time_min = self.time_max = 0
        self.attempts = 0
        self.size = 0  # of the file
        self.frames: list[Frame] = [Frame()]
        self.closed: ClosedSegment | None = None  # its twin on disk, once there is one
        self._frame_bytes = frame_bytes
        self._write_file = write
        self._descriptor = -1

    def create(self) -> None:
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640)
        try:
            self._write(OPEN_MAGIC)
        except OSError:
            self.close()
            self.path.unlink(missing_ok=True)
            raise

    def write(self, rows: Sequence[Queued]) -> None:
        """To the file only: `remember` shows them to readers."""
        parts: list[bytes] = []
        for row, _ in rows:
            head = HEAD.pack(row.number, row.time_ms, row.attempts, len(row.body))
            parts += (_CRC.pack(zlib.crc32(row.body, zlib.crc32(head))), head, row.body)
        self._write(b"".join(parts))

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._write_file(self._descriptor, rest) :]
        except OSError:
            # A full disk may take half a record. Cut it off, or what follows would hide behind a torn one.
            os.ftruncate(self._descriptor, self.size)
            os.lseek(self._descriptor, self.size, os.SEEK_SET)
            raise
        self.size += len(data)

    def remember(self, rows: Sequence[Queued]) -> None:
        for queued in rows:
            row = queued.row
            frame = self.frames[-1]
            if frame.raw_bytes >= self._frame_bytes:
                frame = Frame()
                self.frames.append(frame)
            self.time_min = row.time_ms if self.empty else min(self.time_min, row.time_ms)
            self.time_max = row.time_ms if self.empty else max(self.time_max, row.time_ms)
            frame.add(queued)
            self.attempts += row.attempts
            self.last = row.number

    @property
    def empty(self) -> bool:
        return self.last < self.first

    def index_full_frames(self) -> None:
        for frame in reversed(self.frames[:-1]):
            if frame.hashes is not None:
                return
            frame.index()

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    # Reading, as ClosedSegment does

    def candidates(self, wanted: Wanted) -> list[int]:
        """Numbers of frames that may match, newest first."""
        found = []
        for number, frame in enumerate(list(self.frames)):
            hashes = frame.hashes
            below = bool(frame.rows) and frame.rows[0].number < wanted.before
            if below and (hashes is None or holds(hashes, wanted.hashes)):
                found.append(number)
        return found[::-1]

    def rows(self, number: int) -> list[Row]:
        return list(self.frames[number].rows)

    # Recovery

    @classmethod
    def recover(cls, path: Path, first: int, frame_bytes: int, write: Write) -> OpenSegment:
        """The segment as the last writer left it, its torn tail cut off. Raises ArchiveCorrupt where it never was one."""
        data = path.read_bytes()
        if not data.startswith(OPEN_MAGIC) and not OPEN_MAGIC.startswith(data):
            raise ArchiveCorrupt(path.name, f"starts with {data[:8]!r}, not with {OPEN_MAGIC!r}")
        segment = cls(path, first, frame_bytes, write)
        segment.size = good = segment._scan(data)
        if good == 0:  # The process died while it was made.
            segment.create()
            return segment
        segment._descriptor = os.open(path, os.O_WRONLY)
        if good < len(data):
            log.warning("%s: cut off a torn tail of %d bytes at byte %d", path.name, len(data) - good, good)
            os.ftruncate(segment._descriptor, good)
        os.lseek(segment._descriptor, good, os.SEEK_SET)
        return segment

    def _scan(self, data: bytes) -> int:
        """Remembers the rows that hold and says how many bytes do."""
        good = len(OPEN_MAGIC)
        if len(data) < good:
            return 0
        view = memoryview(data)
        while good + _CRC.size + HEAD.size <= len(data):
            at = good + _CRC.size
            number, time_ms, attempts, length = HEAD.unpack_from(data, at)
            end = at + HEAD.size + length
            if end > len(data) or zlib.crc32(view[at:end]) != _CRC.unpack_from(data, good)[0] or number <= self.last:
                break
            self.remember([Queued(Row(number, time_ms, attempts, data[at + HEAD.size : end]), None)])
            good = end
        return good
