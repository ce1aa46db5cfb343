"""Closed segments: how one is made from frames, and how it is read. Owns the format of `.segment` files.

A closed file never changes; every byte that an answer depends on is covered by a crc. Called by log.py and, as a Part, by
reader.py. Raises ArchiveCorrupt for what is not as it was written, BeyondHorizon for a file trimmed meanwhile.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from fairlead.store.archive import ArchiveCorrupt
from fairlead.store.archive.cache import Cache
from fairlead.store.archive.files import Output, read_at, read_footer, writing
from fairlead.store.contract import FormatTooNew
from fairlead.store.decisions.keys import Hashes, Words, bucket_of, build_index, frames_in
from fairlead.store.decisions.records import FORMAT, HEAD, SEGMENT_MAGIC, Footer, FrameEntry, Row


class Wanted(msgspec.Struct, frozen=True):
    """What of a query can be told from outside a frame."""

    hashes: list[int]
    since_ms: int
    until_ms: int
    before: int  # numbers below this


def write_segment(path: Path, frames: Sequence[tuple[Sequence[Row], Hashes]], level: int) -> None:
    """Whole and durable when this returns. A quarter second of CPU for 16 MiB, half of it without the GIL."""
    bits, words, starts = build_index([hashes for _, hashes in frames])
    data, view = words.tobytes(), memoryview(words.tobytes())
    crcs = [zlib.crc32(view[4 * begin : 4 * end]) for begin, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)]
    directory = starts.astype("<u4").tobytes() + np.array(crcs, "<u4").tobytes()
    with writing(path) as output:
        output.write(SEGMENT_MAGIC)
        entries = tuple(_write_frame(rows, output, level) for rows, _ in frames)
        footer = Footer(
            format=FORMAT,
            first=entries[0].first,
            last=entries[-1].last,
            time_min=min(entry.time_min for entry in entries),
            time_max=max(entry.time_max for entry in entries),
            records=sum(len(rows) for rows, _ in frames),
            attempts=sum(row.attempts for rows, _ in frames for row in rows),
            raw_bytes=sum(HEAD.size + len(row.body) for rows, _ in frames for row in rows),
            frames=entries,
            bits=bits,
            buckets_offset=output.write(data),
            directory_offset=output.write(directory),
            directory_size=len(directory),
            directory_crc=zlib.crc32(directory),
        )
        output.finish(footer, SEGMENT_MAGIC)


def _write_frame(rows: Sequence[Row], output: Output, level: int) -> FrameEntry:
    parts: list[bytes] = []
    for row in rows:
        parts += (HEAD.pack(row.number, row.time_ms, row.attempts, len(row.body)), row.body)
    data = zlib.compress(b"".join(parts), level)
    times = [row.time_ms for row in rows]
    offset = output.write(data)
    return FrameEntry(offset, len(data), zlib.crc32(data), rows[0].number, rows[-1].number, min(times), max(times))


class _Opened(msgspec.Struct, frozen=True):
    """What of a closed segment is worth keeping at hand."""

    footer: Footer
    starts: Words
    crcs: Words


class ClosedSegment:
    def __init__(self, path: Path, cache: Cache) -> None:
        """Raises ArchiveCorrupt if footer or directory do not hold."""
        self.path = path
        self._cache = cache
        footer = self._opened().footer
        self.first, self.last = footer.first, footer.last
        self.time_min, self.time_max = footer.time_min, footer.time_max
        self.attempts = footer.attempts
        self.size = path.stat().st_size

    def _opened(self) -> _Opened:
        return self._cache.get((self.path.name, "footer", 0), self._load)

    def _load(self) -> tuple[_Opened, int]:
        footer, tail, start = read_footer(self.path, SEGMENT_MAGIC, Footer)
        if footer.format > FORMAT:
            raise FormatTooNew(f"{self.path.name} has format {footer.format}, this Fairlead reads up to {FORMAT}")
        offset, size = footer.directory_offset, footer.directory_size
        held = offset >= start
        data = tail[offset - start : offset - start + size] if held else read_at(self.path, offset, size)
        if zlib.crc32(data) != footer.directory_crc:
            raise ArchiveCorrupt(self.path.name, f"the directory at byte {offset} fails its crc")
        numbers = np.frombuffer(data, "<u4")
        edge = (1 << footer.bits) + 1
        return _Opened(footer, numbers[:edge], numbers[edge:]), size + 200 * len(footer.frames)

    # Reading, as OpenSegment does

    def candidates(self, wanted: Wanted) -> list[int]:
        """Numbers of frames that may match, newest first."""
        opened = self._opened()
        numbers: set[int] | None = None
        for hashed in wanted.hashes:
            found = frames_in(self._bucket(opened, bucket_of(hashed, opened.footer.bits)), hashed, opened.footer.bits)
            numbers = set(found) if numbers is None else numbers & set(found)
            if not numbers:
                return []
        frames = opened.footer.frames
        chosen = range(len(frames)) if numbers is None else sorted(numbers)
        return [number for number in reversed(chosen) if _overlaps(frames[number], wanted)]

    def _bucket(self, opened: _Opened, number: int) -> Words:
        begin, end = int(opened.starts[number]), int(opened.starts[number + 1])
        if begin == end:
            return np.zeros(0, np.uint32)
        offset = opened.footer.buckets_offset + 4 * begin
        data = read_at(self.path, offset, 4 * (end - begin))
        if zlib.crc32(data) != opened.crcs[number]:
            raise ArchiveCorrupt(self.path.name, f"the bucket at byte {offset} fails its crc")
        return np.frombuffer(data, "<u4")

    def rows(self, number: int) -> list[Row]:
        return self._cache.get((self.path.name, "frame", number), lambda: self._load_rows(number))

    def _load_rows(self, number: int) -> tuple[list[Row], int]:
        entry = self._opened().footer.frames[number]
        packed = read_at(self.path, entry.offset, entry.size)
        if zlib.crc32(packed) != entry.crc:
            raise ArchiveCorrupt(self.path.name, f"the frame at byte {entry.offset} fails its crc")
        data = zlib.decompress(packed)
        rows, at = [], 0
        while at < len(data):
            number, time_ms, attempts, length = HEAD.unpack_from(data, at)
            at += HEAD.size
            rows.append(Row(number, time_ms, attempts, data[at : at + length]))
            at += length
        return rows, len(data)


def _overlaps(frame: FrameEntry, wanted: Wanted) -> bool:
    return frame.time_max >= wanted.since_ms and frame.time_min < wanted.until_ms and frame.first < wanted.before
