"""A stretch of a plane's history as one file that can be carried away: what the plane was configured with, every object as it
stood at the beginning, and every batch since, byte for byte.

Owns the file's form. Reads an archive and never writes one; judges nothing. Called by `fairlead export`, `fairlead replay` and
`fairlead timeline`.

    file    "FLDEXPT1" | gzip of records; a record is length u32, little-endian, and so many bytes of msgpack
            first About, then rows [key, position, value] in order of keys, an empty array, then batches
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec

from fairlead.model.journal import decode_blob
from fairlead.store.archive import GENESIS, Archive, Point
from fairlead.store.contract import Batch, ObjectRow, StoreError

T = TypeVar("T")

MAGIC: Final = b"FLDEXPT1"
_RECORD_BYTES_MAX: Final = 256 << 20
_READ_BYTES: Final = 1 << 20  # at once, while the whole file is checked


class Plane(NamedTuple):
    """What a server of the plane is configured with, as far as verdicts depend on it; and where it keeps its history."""

    plane: str
    region: str
    node_lease_s: float
    history: str


class About(msgspec.Struct, frozen=True):
    plane: str
    region: str
    node_lease_s: float
    build: str
    incarnation: int  # where the batches begin: right after this point
    position: int
    time_ms: int  # plane time there; 0: at the very beginning
    epoch: int  # of the leader then, and since when it led
    leader_since_ms: int
    last: int  # position of the last effect
    batches: int
    state_hash: str  # of every object right after the last batch


class Exported(NamedTuple):
    about: About
    rows: Iterable[ObjectRow]  # read these before the batches
    batches: Iterable[Batch]


class BadExport(StoreError):
    """The file is none of ours, or is not whole."""


def state_hash(rows: Iterable[tuple[str, bytes]]) -> str:
    """Of objects in order of their keys."""
    digest = hashlib.sha256()
    for key, value in rows:
        for part in (key.encode(), value):
            digest.update(len(part).to_bytes(4, "little") + part)
    return digest.hexdigest()


def write_export(plane: Plane, since_ms: int, path: Path, build: str) -> About:
    """Everything since that plane time; since the beginning of what is kept where it is 0. Raises StoreError."""
    archive = Archive(Path(plane.history), writable=False)
    begin, last = begin_of(archive, since_ms), archive.last()
    time_ms, epoch, led_ms = _term(archive, begin)
    count = sum(1 for _ in archive.batches(begin, last))  # read twice: thirty days of batches are more than memory holds
    about = About(
        plane.plane, plane.region, plane.node_lease_s, build, begin.incarnation, begin.position, time_ms, epoch, led_ms,
        last.position, count, state_hash((row[0], row[2]) for row in archive.state_at(last)),
    )  # fmt: skip
    part = path.with_name(f"{path.name}.part")  # what was there before stays until all of the new one is
    try:
        with part.open("wb") as file:
            file.write(MAGIC)
            with gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0) as packed:  # no name in it
                _put_all(packed, about, archive, begin, last)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return about


def _put_all(packed: gzip.GzipFile, about: About, archive: Archive, begin: Point, last: Point) -> None:
    _put(packed, about)
    if begin != GENESIS:
        for row in archive.state_at(begin):
            _put(packed, row)
    _put(packed, ())
    for batch in archive.batches(begin, last):
        _put(packed, (batch.first, batch.last, batch.previous, batch.hash, batch.blob))


def begin_of(archive: Archive, since_ms: int) -> Point:
    """The newest point that everything since that plane time lies after, on the line that led to the present; the oldest that
    history can be read from without a hole, where that is younger, or where it is 0."""
    beginning = archive.beginning()
    if beginning is None:
        return GENESIS
    if since_ms <= beginning.time_ms:
        return beginning.point
    first = next(iter(archive.batches(beginning.point, archive.last())), None)
    if first is None or decode_blob(first.blob).header.time_ms > since_ms:
        return beginning.point
    return archive.on_the_line(archive.position_at(since_ms))


def _term(archive: Archive, begin: Point) -> tuple[int, int, int]:
    """Plane time, epoch and the beginning of that epoch at a point: verdicts ask how long the leader has led. Whoever led where
    history begins had led for nobody knows how long; what was accepted then is accepted of one who has led for ever."""
    beginning = archive.beginning()
    if beginning is None:
        return 0, 0, 0
    time_ms = epoch = led_ms = 0
    first = next(iter(archive.batches(beginning.point, archive.last())), None)
    if beginning.point.position and first is not None:
        time_ms, epoch = beginning.time_ms, decode_blob(first.blob).header.epoch
    for batch in archive.batches(beginning.point, begin) if begin != beginning.point else ():
        header = decode_blob(batch.blob).header
        time_ms = header.time_ms
        if header.epoch != epoch:
            epoch, led_ms = header.epoch, header.time_ms
    return time_ms, epoch, led_ms


def _put(file: gzip.GzipFile, value: object) -> None:
    data = msgspec.msgpack.encode(value)
    file.write(len(data).to_bytes(4, "little") + data)


def read_export(path: Path) -> Exported:
    """Raises BadExport; also while its rows and batches are read."""
    _check_whole(path)
    records = _records(path)
    about = _as(path, _next(path, records), About)
    return Exported(about, _rows(path, records), _batches(path, records, about.batches))


def _check_whole(path: Path) -> None:
    """To its end, where its checksum is: a damaged history must not look like one that is judged otherwise now."""
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise BadExport(f"{path} is no exported history")
        try:
            with gzip.GzipFile(fileobj=file, mode="rb") as packed:
                while packed.read(_READ_BYTES):
                    pass
        except (OSError, EOFError, zlib.error) as error:
            raise BadExport(f"{path} is damaged or cut off: {error}") from error


def _next(path: Path, records: Iterator[object]) -> object:
    found = next(records, None)
    if found is None:
        raise BadExport(f"{path} ends too early")
    return found


def _as(path: Path, found: object, wanted: type[T]) -> T:
    try:
        return msgspec.convert(found, wanted)
    except msgspec.ValidationError as error:
        raise BadExport(f"{path} cannot be read: {error}") from error


def _records(path: Path) -> Iterator[object]:
    try:
        with path.open("rb") as file, gzip.GzipFile(fileobj=file, mode="rb") as packed:
            file.seek(len(MAGIC))
            while head := packed.read(4):
                length = int.from_bytes(head, "little")
                data = packed.read(length) if length <= _RECORD_BYTES_MAX else b""
                if len(data) != length:
                    raise BadExport(f"{path} ends too early")
                yield msgspec.msgpack.decode(data)
    except (OSError, EOFError, zlib.error, msgspec.DecodeError) as error:
        raise BadExport(f"{path} cannot be read: {error}") from error


def _rows(path: Path, records: Iterator[object]) -> Iterator[ObjectRow]:
    while row := _next(path, records):
        yield _as(path, row, tuple[str, int, bytes])


def _batches(path: Path, records: Iterator[object], count: int) -> Iterator[Batch]:
    for _ in range(count):
        yield Batch(*_as(path, _next(path, records), tuple[int, int, bytes, bytes, bytes]))
