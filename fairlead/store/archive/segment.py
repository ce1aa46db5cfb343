"""Closed segments: how one is made from an open one, and how it is read. Owns the format of `.segment` files.

A closed file never changes. Reading keeps nothing but a summary; frames, indexes and footers go through the cache.
Called by archive.py (closing) and, through Segment, by reader.py and verify.py.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import msgspec
import zstandard

from fairlead.store.archive.cache import Cache
from fairlead.store.archive.files import SEGMENT_MAGIC, Output, decompress, file_name, read_at, read_footer, writing
from fairlead.store.archive.keyindex import Pairs, build_index, key_hash, may_hold, offsets_of, unpack
from fairlead.store.archive.open_segment import Found, OpenSegment, effect_at
from fairlead.store.archive.records import FORMAT, RECORD, ArchiveCorrupt, Footer, Frame, Point, Section, Settings, too_new
from fairlead.store.contract import Batch

_asked_hash = lru_cache(maxsize=1024)(key_hash)  # One look-up asks many segments for the same key.


def close_segment(segment: OpenSegment, settings: Settings) -> Path:
    """Writes the closed form beside the open file, durable when this returns. The caller removes the open one."""
    path = segment.path.with_name(file_name(Point(segment.incarnation, segment.first), "segment"))
    index, filter_bytes = build_index(segment.keyed(), segment.first, settings.level, FORMAT)
    with writing(path) as output:
        output.write(SEGMENT_MAGIC)
        frames = tuple(_write_frames(segment.rows, output, settings))
        footer = Footer(
            format=FORMAT,
            incarnation=segment.incarnation,
            first=segment.first,
            last=segment.last,
            time_min=segment.time_min,
            time_max=segment.time_max,
            base=segment.base,
            previous=segment.previous,
            hash=segment.hash,
            effects=segment.effects,
            raw_bytes=segment.size,
            frames=frames,
            index=Section(output.write(index), len(index), zlib.crc32(index)),
            filter=Section(output.write(filter_bytes), len(filter_bytes), zlib.crc32(filter_bytes)),
            sha256=output.sha256(),
        )
        output.finish(footer, SEGMENT_MAGIC)
    return path


def _write_frames(rows: list[tuple[int, Batch]], output: Output, settings: Settings) -> Iterator[Frame]:
    compressor = zstandard.ZstdCompressor(level=settings.level, write_checksum=True)
    group: list[tuple[int, Batch]] = []
    size = 0
    for row in rows:
        group.append(row)
        size += RECORD.size + len(row[1].blob)
        if size >= settings.frame_bytes:
            yield _write_frame(group, output, compressor)
            group, size = [], 0
    if group:
        yield _write_frame(group, output, compressor)


def _write_frame(group: list[tuple[int, Batch]], output: Output, compressor: zstandard.ZstdCompressor) -> Frame:
    parts: list[bytes] = []
    for time_ms, batch in group:
        parts += (RECORD.pack(batch.first, batch.last, time_ms, batch.hash, len(batch.blob)), batch.blob)
    data = compressor.compress(b"".join(parts))
    times = [time_ms for time_ms, _ in group]
    first, last = group[0][1], group[-1][1]
    return Frame(output.write(data), len(data), first.first, last.last, min(times), max(times), first.previous)


class Opened(msgspec.Struct, frozen=True):
    """What of a closed segment is worth keeping at hand."""

    footer: Footer
    firsts: list[int]  # of the frames
    filter: bytes


class ClosedSegment:
    def __init__(self, path: Path, cache: Cache) -> None:
        """Raises ArchiveCorrupt if the footer does not hold."""
        self.path = path
        self._cache = cache
        footer = self._load()[0].footer
        self.incarnation, self.first, self.last = footer.incarnation, footer.first, footer.last
        self.time_min, self.time_max = footer.time_min, footer.time_max
        self.base, self.previous, self.hash = footer.base, footer.previous, footer.hash
        self.effects, self.raw_bytes = footer.effects, footer.raw_bytes
        self.size = path.stat().st_size

    def _load(self) -> tuple[Opened, int]:
        footer, tail, start = read_footer(self.path, SEGMENT_MAGIC, Footer)
        if footer.format > FORMAT:
            raise too_new(self.path.name, footer.format)
        section = footer.filter
        if section.offset >= start:
            data = tail[section.offset - start : section.offset - start + section.size]
        else:
            data = read_at(self.path, section.offset, section.size)
        if zlib.crc32(data) != section.crc:
            raise ArchiveCorrupt(self.path.name, f"the filter at byte {section.offset} fails its crc")
        opened = Opened(footer, [frame.first for frame in footer.frames], data)
        return opened, len(data) + 400 * len(footer.frames) + 1000  # 400: a Frame with its integers, as sys.getsizeof adds up

    def opened(self) -> Opened:
        return self._cache.get((self.path.name, "footer", 0), self._load)

    def pairs(self) -> Pairs:
        def load() -> tuple[Pairs, int]:
            section = self.opened().footer.index
            pairs = unpack(decompress(self.path, section.offset, section.size, "the key index"))
            return pairs, pairs.nbytes

        return self._cache.get((self.path.name, "index", 0), load)

    def frame(self, number: int) -> bytes:
        def load() -> tuple[bytes, int]:
            frame = self.opened().footer.frames[number]
            data = decompress(self.path, frame.offset, frame.size, f"frame {number}")
            return data, len(data)

        return self._cache.get((self.path.name, "frame", number), load)

    def rows(self, number: int, from_position: int = 0) -> Iterator[tuple[int, Batch]]:
        """(time_ms, batch) of one frame, those that end before `from_position` skipped without copying their blobs."""
        data, at = self.frame(number), 0
        previous = self.opened().footer.frames[number].previous
        while at < len(data):
            first, last, time_ms, hashed, length = RECORD.unpack_from(data, at)
            at += RECORD.size
            if last >= from_position:
                yield time_ms, Batch(first, last, previous, hashed, data[at : at + length])
            at += length
            previous = hashed

    # Reading, as OpenSegment does

    def newest(self, key: str, low: int, high: int) -> Found | None:
        for position in reversed(self._positions(key, low, high)):
            found = self._effect(position, key)
            if found is not None:  # else another key with the same hash
                return found
        return None

    def versions(self, key: str, low: int, high: int) -> Iterator[Found]:
        for position in self._positions(key, low, high):
            found = self._effect(position, key)
            if found is not None:
                yield found

    def _positions(self, key: str, low: int, high: int) -> list[int]:
        opened = self.opened()
        hashed = _asked_hash(key, opened.footer.format)
        if not may_hold(opened.filter, hashed):
            return []
        return [self.first + offset for offset in offsets_of(self.pairs(), hashed, low - self.first, high - self.first)]

    def _effect(self, position: int, key: str) -> Found | None:
        number = bisect_right(self.opened().firsts, position) - 1
        time_ms, batch = next(self.rows(number, position))
        return effect_at(batch, time_ms, position, key)

    def batches(self, low: int, high: int) -> Iterator[tuple[int, Batch]]:
        firsts = self.opened().firsts
        begin = max(0, bisect_right(firsts, low) - 1)
        for number in range(begin, bisect_right(firsts, high)):
            for time_ms, batch in self.rows(number, low):
                if batch.first > high:
                    return
                yield time_ms, batch

    def last_at(self, time_ms: int) -> int | None:
        if self.time_max <= time_ms or self.time_min > time_ms:  # Nearly always, without reading.
            return self.last if self.time_max <= time_ms else None
        frames = self.opened().footer.frames
        for number in reversed(range(len(frames))):
            if frames[number].time_min <= time_ms:
                return max(batch.last for at, batch in self.rows(number) if at <= time_ms)
        return None


Segment = OpenSegment | ClosedSegment
