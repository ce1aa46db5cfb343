"""Names, atomic writes and checked reads of the archive's files. Owns no state; called by the other modules of the package."""

from __future__ import annotations

import hashlib
import os
import re
import struct
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
import zstandard

from fairlead.ports import sync_directory
from fairlead.store.archive.records import ArchiveCorrupt, ArchiveError, BeyondHorizon, Point

OPEN_MAGIC = b"FLDOPEN1"
SEGMENT_MAGIC = b"FLDSEGM1"
CHECKPOINT_MAGIC = b"FLDCHKP1"

TRAILER = struct.Struct("<II8s")  # length and crc of the footer, magic
TAIL_BYTES = 64 * 1024  # Holds footer and filter of nearly every segment, so opening one is a single read.

_NAME = re.compile(r"(\d{7})-(\d{14})\.(open|segment|checkpoint)")

R = TypeVar("R")


def file_name(point: Point, suffix: str) -> str:
    return f"{point.incarnation:07d}-{point.position:014d}.{suffix}"


def list_files(directory: Path, suffix: str) -> list[tuple[Point, Path]]:
    """The files of one kind, oldest first. Names that are not ours are left alone."""
    found = []
    for name in os.listdir(directory):
        match = _NAME.fullmatch(name)
        if match and match[3] == suffix:
            found.append((Point(int(match[1]), int(match[2])), directory / name))
    return sorted(found)


def read_at(path: Path, offset: int, size: int) -> bytes:
    """Opens for each read: a trimmed or replaced file can then never be mistaken for another through a reused descriptor."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        raise BeyondHorizon(f"{path.name}, trimmed while it was read,", None) from None
    try:
        data = os.pread(descriptor, size, offset)
    finally:
        os.close(descriptor)
    if len(data) != size:
        raise ArchiveCorrupt(path.name, f"ends at byte {offset + len(data)}, expected at least {offset + size}")
    return data


def read_footer(path: Path, magic: bytes, wanted: type[R]) -> tuple[R, bytes, int]:
    """The checked footer, the file's last bytes as read, and the offset at which those start."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise BeyondHorizon(f"{path.name}, trimmed while it was read,", None) from None
    start = max(0, size - TAIL_BYTES)
    tail = read_at(path, start, size - start)
    if len(tail) < TRAILER.size:
        raise ArchiveCorrupt(path.name, f"has {size} bytes, too few for a trailer")
    length, crc, found = TRAILER.unpack_from(tail, len(tail) - TRAILER.size)
    if found != magic:
        raise ArchiveCorrupt(path.name, f"the trailer at byte {size - TRAILER.size} ends in {found!r}, not in {magic!r}")
    if length > size - TRAILER.size:
        raise ArchiveCorrupt(path.name, f"the trailer at byte {size - TRAILER.size} names a footer of {length} bytes")
    if length > len(tail) - TRAILER.size:
        start = size - TRAILER.size - length
        tail = read_at(path, start, size - start)
    body = tail[len(tail) - TRAILER.size - length : len(tail) - TRAILER.size]
    if zlib.crc32(body) != crc:
        raise ArchiveCorrupt(path.name, f"the footer at byte {size - TRAILER.size - length} fails its crc")
    try:
        return msgspec.msgpack.decode(body, type=wanted), tail, start
    except msgspec.MsgspecError as error:
        raise ArchiveCorrupt(path.name, f"the footer cannot be read: {error}") from error


def decompress(path: Path, offset: int, size: int, what: str) -> bytes:
    data = read_at(path, offset, size)
    try:
        # A decompressor must not be shared between threads; making one costs about a microsecond.
        return zstandard.ZstdDecompressor().decompress(data)
    except zstandard.ZstdError as error:
        raise ArchiveCorrupt(path.name, f"{what} at byte {offset} does not decompress: {error}") from error


def content_hash(path: Path, length: int) -> bytes:
    """sha256 of the first `length` bytes, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        left = length
        while left > 0 and (piece := file.read(min(left, 1 << 20))):
            digest.update(piece)
            left -= len(piece)
    return digest.digest()


class Output:
    """Counts and hashes what goes into a file that is being made."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.offset = 0

    def write(self, data: bytes) -> int:
        """The offset at which it begins."""
        begin = self.offset
        self._digest.update(data)
        self.offset += len(data)
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]
        return begin

    def sha256(self) -> bytes:
        return self._digest.digest()

    def finish(self, footer: msgspec.Struct, magic: bytes) -> None:
        body = msgspec.msgpack.encode(footer)
        self.write(body + TRAILER.pack(len(body), zlib.crc32(body), magic))


@contextmanager
def writing(path: Path) -> Iterator[Output]:
    """A file that appears under its name whole and durable, or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640)
    try:
        try:
            yield Output(descriptor)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


class DirectoryLock:
    """One writer for each directory; the kernel lets go of it when the process dies."""

    def __init__(self, directory: Path) -> None:
        self._descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o640)
        if sys.platform != "win32":
            import fcntl

            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(self._descriptor)
                raise ArchiveError(
                    f"{directory} is written by another process; give each server an archive directory of its own"
                ) from error

    def release(self) -> None:
        os.close(self._descriptor)
