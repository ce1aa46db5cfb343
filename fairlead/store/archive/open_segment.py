"""The segment that is still written, and full ones that wait to be compressed: an append-only file and the same in memory.

Owns the format of `.open` files and their recovery. Never compresses. One thread appends; readers on other threads read what
is in memory, where lists only ever grow. The index by key is made when somebody asks, not by the thread that appends.
Called by archive.py and, through Segment, by reader.py.
"""

from __future__ import annotations

import os
import struct
import zlib
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from threading import Lock

import msgspec

from fairlead.model.journal import Blob, Header, chain_hash, decode_blob
from fairlead.store.archive.files import OPEN_MAGIC, file_name
from fairlead.store.archive.keyindex import Keyed
from fairlead.store.archive.records import FORMAT, RECORD, ArchiveCorrupt, Beginning, ChainBroken, Contents, Point, too_new
from fairlead.store.contract import Batch

_PREFIX = struct.Struct("<II")  # length and crc of the beginning
_CRC = struct.Struct("<I")

Found = tuple[int, int, bytes | None]  # position, time_ms, value


def effects_of(blob: Blob) -> Iterator[tuple[str, bytes | None]]:
    """In the order of their positions."""
    for entry in blob.entries:
        yield from entry.effects


class _EntryKeys(msgspec.Struct, frozen=True, gc=False, array_like=True):
    command: msgspec.Raw
    effects: tuple[tuple[str, msgspec.Raw], ...]


class _BlobKeys(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A blob as far as an index needs it: copying values is a good part of what decoding costs."""

    header: Header
    entries: tuple[_EntryKeys, ...]


_decode_keys = msgspec.msgpack.Decoder(_BlobKeys).decode


def contents_of(batch: Batch) -> Contents:
    """Raises ChainBroken where the blob is of another batch than the one that it came in."""
    try:
        decoded = _decode_keys(batch.blob)
    except msgspec.MsgspecError as error:
        raise ChainBroken(f"the batch at {batch.first} cannot be read: {error}") from error
    keys = [effect[0] for entry in decoded.entries for effect in entry.effects]
    if decoded.header.first != batch.first or len(keys) > batch.last - batch.first + 1 or batch.last < batch.first:
        raise ChainBroken(
            f"the batch {batch.first}..{batch.last} holds {len(keys)} effects and says it starts at {decoded.header.first}"
        )
    return Contents(decoded.header.incarnation, decoded.header.time_ms, keys)


def effect_at(batch: Batch, time_ms: int, position: int, key: str) -> Found | None:
    """The effect at a position, if it is one on this key."""
    for at, (name, value) in enumerate(effects_of(decode_blob(batch.blob)), batch.first):
        if at == position:
            return (position, time_ms, value) if name == key else None
    return None


class OpenSegment:
    def __init__(self, path: Path, beginning: Beginning) -> None:
        self.path = path
        self.incarnation = beginning.incarnation
        self.first = beginning.first
        self.last = beginning.first - 1
        self.base = beginning.base
        self.previous = beginning.previous
        self.hash = beginning.previous
        self.time_min = self.time_max = 0
        self.effects = 0
        self.rows: list[tuple[int, Batch]] = []  # time_ms and batch
        self._keys: list[list[str]] = []  # of each row's effects
        self._positions: dict[str, list[int]] = defaultdict(list)
        self._indexed = 0  # rows that are in _positions
        self._indexing = Lock()
        self._firsts: list[int] = []
        self.size = 0  # of the file
        self.is_new = False  # its name in the directory may not be durable yet
        self._descriptor = -1
        self._synced_size = 0

    @classmethod
    def create(cls, directory: Path, beginning: Beginning) -> OpenSegment:
        """An empty file; `begin` comes next."""
        segment = cls(directory / file_name(Point(beginning.incarnation, beginning.first), "open"), beginning)
        segment._descriptor = os.open(segment.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640)
        segment.is_new = True
        return segment

    def begin(self, beginning: Beginning) -> None:
        body = msgspec.msgpack.encode(beginning)
        self._write(OPEN_MAGIC + _PREFIX.pack(len(body), zlib.crc32(body)) + body)

    @property
    def raw_bytes(self) -> int:
        return self.size

    def append(self, batch: Batch, contents: Contents) -> None:
        """The file first: what a reader sees must be what a restart finds, as far as no power is lost."""
        head = RECORD.pack(batch.first, batch.last, contents.time_ms, batch.hash, len(batch.blob))
        self._write(_CRC.pack(zlib.crc32(head)) + head, batch.blob)
        self._remember(batch, contents.time_ms, contents.keys)

    def _remember(self, batch: Batch, time_ms: int, keys: list[str]) -> None:
        self.effects += len(keys)
        self._keys.append(keys)
        self.time_min = min(self.time_min, time_ms) if self.rows else time_ms
        self.time_max = max(self.time_max, time_ms) if self.rows else time_ms
        self._firsts.append(batch.first)
        self.rows.append((time_ms, batch))
        self.hash = batch.hash
        self.last = batch.last  # Last: readers ask for nothing beyond it.

    def _write(self, *parts: bytes) -> None:
        wanted = sum(map(len, parts))
        try:
            written = os.writev(self._descriptor, parts)
            if written < wanted:
                rest = memoryview(b"".join(parts))[written:]
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            # A full disk may take half a record. Cut it off, or the next append would hide behind a torn one.
            os.ftruncate(self._descriptor, self.size)
            os.lseek(self._descriptor, self.size, os.SEEK_SET)
            raise
        self.size += wanted

    def sync(self) -> None:
        if self._synced_size < self.size:
            size = self.size
            os.fsync(self._descriptor)
            self._synced_size = size

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    # Reading

    def keyed(self) -> list[Keyed]:
        """The first position of each row and the keys from there on. Of a segment that is not written any more."""
        return list(zip(self._firsts, self._keys, strict=True))

    def positions(self) -> dict[str, list[int]]:
        """Where each key has effects, as far as the segment had come when this was called."""
        with self._indexing:
            for number in range(self._indexed, len(self.rows)):
                for position, key in enumerate(self._keys[number], self._firsts[number]):
                    self._positions[key].append(position)
                self._indexed = number + 1
        return self._positions

    def newest(self, key: str, low: int, high: int) -> Found | None:
        positions = self.positions().get(key, [])
        index = bisect_right(positions, high) - 1
        if index < 0 or positions[index] < low:
            return None
        return self._effect(positions[index], key)

    def versions(self, key: str, low: int, high: int) -> Iterator[Found]:
        positions = self.positions().get(key, [])
        for position in positions[bisect_left(positions, low) : bisect_right(positions, high)]:
            found = self._effect(position, key)
            assert found is not None, f"{key} is indexed at {position} and not there"
            yield found

    def _effect(self, position: int, key: str) -> Found | None:
        time_ms, batch = self.rows[bisect_right(self._firsts, position) - 1]
        return effect_at(batch, time_ms, position, key)

    def batches(self, low: int, high: int) -> Iterator[tuple[int, Batch]]:
        """(time_ms, batch) for those that have a position in low..high."""
        begin = max(0, bisect_right(self._firsts, low) - 1)
        for time_ms, batch in self.rows[begin : bisect_right(self._firsts, high)]:
            if batch.last >= low:
                yield time_ms, batch

    def last_at(self, time_ms: int) -> int | None:
        return next((batch.last for at, batch in reversed(self.rows) if at <= time_ms), None)


def scan_open(path: Path) -> tuple[Beginning, list[tuple[int, Batch]], int, int]:
    """(beginning, batches with their times, bytes that hold, bytes in the file). Raises where not even a beginning holds."""
    data = path.read_bytes()
    start = len(OPEN_MAGIC) + _PREFIX.size
    if len(data) < start or not data.startswith(OPEN_MAGIC):
        raise ArchiveCorrupt(path.name, "its beginning is torn")
    length, crc = _PREFIX.unpack_from(data, len(OPEN_MAGIC))
    body = data[start : start + length]
    if not body or len(body) != length or zlib.crc32(body) != crc:  # The crc of nothing is zero, as in a file of zeros.
        raise ArchiveCorrupt(path.name, "its beginning is torn")
    beginning = msgspec.msgpack.decode(body, type=Beginning)
    if beginning.format > FORMAT:
        raise too_new(path.name, beginning.format)
    rows: list[tuple[int, Batch]] = []
    good, previous = start + length, beginning.previous
    while good + _CRC.size + RECORD.size <= len(data):
        at = good + _CRC.size
        first, last, time_ms, hashed, length = RECORD.unpack_from(data, at)
        end = at + RECORD.size + length
        if end > len(data) or zlib.crc32(memoryview(data)[at : at + RECORD.size]) != _CRC.unpack_from(data, good)[0]:
            break
        blob = data[at + RECORD.size : end]
        if chain_hash(previous, blob) != hashed:
            break
        rows.append((time_ms, Batch(first, last, previous, hashed, blob)))
        good, previous = end, hashed
    return beginning, rows, good, len(data)


def recover_open(path: Path, writable: bool) -> OpenSegment:
    """The segment as the last writer left it. A torn tail is cut off (for a reader: only passed over)."""
    beginning, rows, good, size = scan_open(path)
    segment = OpenSegment(path, beginning)
    for time_ms, batch in rows:
        segment._remember(batch, time_ms, contents_of(batch).keys)
    segment.size = good
    if writable:
        segment._descriptor = os.open(path, os.O_WRONLY)
        if good < size:
            os.ftruncate(segment._descriptor, good)
        os.lseek(segment._descriptor, 0, os.SEEK_END)
    return segment
