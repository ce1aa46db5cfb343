"""One file that holds a whole store at one head, written beside a running leader and restored into an empty store (P6).

Owns the file's format. Reads through the store's contract only, so a backup of one engine restores into any other. Never restores
into a store that holds anything. Called by `fairlead store backup`, `restore` and `verify`.

    "FLDBKUP1" | length u32 | crc32 u32 | BackupHeader in msgpack | zeros up to byte 4096
    frame*       length u32 | crc32 u32 | zstd of a msgpack array of [key, position, value]
    trailer      0 u32 | sha256 of everything before it | "FLDBKEND"                          (integers are little-endian)
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
import zstandard

from fairlead.model.anchor import unsigned_anchor
from fairlead.ports import sync_directory
from fairlead.store.contract import FORMAT, FormatTooNew, Head, ObjectRow, Store, StoreError
from fairlead.store.snapshot import CLOCK_KEY, Snapshot, take_snapshot

MAGIC = b"FLDBKUP1"
END = b"FLDBKEND"
HEADER_BYTES = 4096  # The counts are known last and stand first, so their place is kept free.
PREFIX = struct.Struct("<II")  # length, crc32
FRAME_ROWS = 2000
FRAME_BYTES_MAX = 1 << 30  # Nothing we write comes near; a flipped length must not ask for all memory.
LEVEL = 3

Progress = Callable[[int], None]  # told how many rows are done


class BackupHeader(msgspec.Struct, frozen=True):
    format: int
    plane: str
    incarnation: int
    epoch: int
    position: int
    hash: bytes
    time_ms: int  # plane time at that position
    created_ms: int  # the wall clock of whoever made it; for display only
    rows: int
    tables: dict[str, int]  # objects of each table, receipts and sessions included


class BackupDamaged(StoreError):
    """The file is not what was written. `where` names the place."""

    def __init__(self, path: Path, where: str, detail: str) -> None:
        super().__init__(f"{path}: {where}: {detail}. Nothing was changed; use another backup")
        self.where = where
        self.detail = detail


class Restored(msgspec.Struct, frozen=True):
    header: BackupHeader
    head: Head


# --- writing ----------------------------------------------------------------------------------------------------------


async def write_backup(store: Store, path: Path, created_ms: int, told: Progress = lambda rows: None) -> BackupHeader:
    """A consistent copy of the store at its present head. The file appears whole and durable under its name, or not at all."""
    snapshot = await take_snapshot(store)
    plane = ""
    with _Output(path) as output:
        async for rows in snapshot.chunks():
            for key, _, raw in rows:
                if key == "planes//self":
                    plane = _plane_name(raw)
            output.frames(rows)
            told(output.rows)
        header = header_of(snapshot, plane, created_ms, output.rows)
        output.finish(header)
    return header


def header_of(snapshot: Snapshot, plane: str, created_ms: int, rows: int) -> BackupHeader:
    head = snapshot.head
    return BackupHeader(
        format=head.format,
        plane=plane,
        incarnation=head.incarnation,
        epoch=head.epoch,
        position=head.position,
        hash=head.hash,
        time_ms=snapshot.time_ms,
        created_ms=created_ms,
        rows=rows,
        tables=dict(sorted(snapshot.tables.items())),
    )


def _plane_name(raw: bytes) -> str:
    """Which plane says it is; only for people, so a record that cannot be read costs the name and not the backup."""
    try:
        spec = msgspec.msgpack.decode(raw)["spec"]
        return str(spec.get("region") or spec.get("plane", ""))
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
        return ""


class _Output:
    """Writes under a name of its own, which becomes the wanted one when all of it is on the disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
        self._compressor = zstandard.ZstdCompressor(level=LEVEL)
        self.rows = 0

    def __enter__(self) -> Self:
        # Readable by its owner only: it holds everything the plane holds.
        descriptor = os.open(self._temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self._file = os.fdopen(descriptor, "w+b")
        self._file.write(b"\0" * HEADER_BYTES)
        return self

    def frames(self, rows: list[ObjectRow]) -> None:
        for start in range(0, len(rows), FRAME_ROWS):
            packed = self._compressor.compress(msgspec.msgpack.encode(rows[start : start + FRAME_ROWS]))
            self._file.write(PREFIX.pack(len(packed), zlib.crc32(packed)))
            self._file.write(packed)
        self.rows += len(rows)

    def finish(self, header: BackupHeader) -> None:
        packed = msgspec.msgpack.encode(header)
        start = MAGIC + PREFIX.pack(len(packed), zlib.crc32(packed)) + packed
        if len(start) > HEADER_BYTES:
            raise StoreError(f"the store names {len(header.tables)} tables, which cannot be; see `fairlead store verify`")
        self._file.seek(0)
        self._file.write(start)
        self._file.seek(0)
        digest = hashlib.file_digest(self._file, "sha256").digest()
        self._file.seek(0, os.SEEK_END)
        self._file.write(b"\0\0\0\0" + digest + END)
        self._file.flush()
        os.fsync(self._file.fileno())
        os.replace(self._temporary, self._path)
        sync_directory(self._path.parent)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()
        self._temporary.unlink(missing_ok=True)


# --- reading ----------------------------------------------------------------------------------------------------------


class BackupFile:
    """A backup opened for reading. `check` reads all of it; `rows` checks each frame again, for the file may change meanwhile."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror}") from error
        try:
            self.header = self._read_header()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()

    def _read_header(self) -> BackupHeader:
        start = self._file.read(HEADER_BYTES)
        if start[: len(MAGIC)] != MAGIC:
            raise BackupDamaged(self.path, "byte 0", "this is no Fairlead backup")
        if len(start) < HEADER_BYTES:
            raise BackupDamaged(self.path, f"byte {len(start)}", "the file ends inside its header")
        length, crc = PREFIX.unpack_from(start, len(MAGIC))
        packed = start[len(MAGIC) + PREFIX.size :][:length]
        if len(packed) != length or zlib.crc32(packed) != crc:
            raise BackupDamaged(self.path, f"byte {len(MAGIC)}", "the header does not match its checksum")
        found = msgspec.msgpack.decode(packed)["format"]
        if found > FORMAT:
            raise FormatTooNew(f"{self.path} has format {found}, this Fairlead reads up to {FORMAT}: upgrade Fairlead first")
        return msgspec.msgpack.decode(packed, type=BackupHeader)

    def check(self, each: Callable[[ObjectRow], None] = lambda row: None) -> None:
        """Reads the whole file: every frame, the counts, the sha256. Raises BackupDamaged at the first that does not hold."""
        rows, tables, newest = 0, dict[str, int](), 0
        for chunk in self.rows():
            rows += len(chunk)
            for row in chunk:
                table = row[0].partition("/")[0]
                if row[0] != CLOCK_KEY:
                    tables[table] = tables.get(table, 0) + 1
                newest = max(newest, row[1])
                each(row)
        end = self._file.tell()
        if rows != self.header.rows or tables != self.header.tables:
            raise BackupDamaged(self.path, f"byte {end}", f"it holds {rows} rows, its header says {self.header.rows}")
        if newest > self.header.position:
            raise BackupDamaged(self.path, "rows", f"one was written at {newest}, after the backup's {self.header.position}")
        self._check_trailer(end)

    def _check_trailer(self, end: int) -> None:
        trailer = self._file.read()
        if len(trailer) < 32 + len(END):
            raise BackupDamaged(self.path, f"byte {end + len(trailer)}", "the file ends inside its trailer")
        if trailer[32:] != END:
            raise BackupDamaged(self.path, f"byte {end + 32}", "the trailer is not one")
        self._file.seek(0)
        digest, left = hashlib.sha256(), end - 4
        while left and (piece := self._file.read(min(left, 1 << 20))):
            digest.update(piece)
            left -= len(piece)
        if digest.digest() != trailer[:32]:
            raise BackupDamaged(self.path, f"bytes 0..{end - 4}", "they do not have the sha256 that the trailer names")

    def rows(self) -> Iterator[list[ObjectRow]]:
        """From the first row on, however often it is asked for. Leaves the file at its trailer."""
        self._file.seek(HEADER_BYTES)
        decompressor = zstandard.ZstdDecompressor()
        while True:
            at = self._file.tell()
            length = int.from_bytes(self._exactly(4, at), "little")
            if not length:
                return
            crc = int.from_bytes(self._exactly(4, at), "little")
            if length > FRAME_BYTES_MAX:
                raise BackupDamaged(self.path, f"frame at byte {at}", f"its length cannot be {length}")
            packed = self._exactly(length, at)
            if zlib.crc32(packed) != crc:
                raise BackupDamaged(self.path, f"frame at byte {at}", "it does not match its checksum")
            try:
                yield msgspec.msgpack.decode(decompressor.decompress(packed), type=list[ObjectRow])
            except (zstandard.ZstdError, msgspec.DecodeError) as error:
                raise BackupDamaged(self.path, f"frame at byte {at}", f"it cannot be read: {error}") from error

    def _exactly(self, size: int, at: int) -> bytes:
        data = self._file.read(size)
        if len(data) != size:
            raise BackupDamaged(self.path, f"frame at byte {at}", "the file ends inside it")
        return data


# --- restoring --------------------------------------------------------------------------------------------------------


async def restore_backup(
    backup: BackupFile, store: Store, incarnation_at_least: int = 0, told: Progress = lambda rows: None
) -> Restored:
    """Fills an empty store from a file that was checked wholly before. A new incarnation begins: whatever was handed out after
    the backup was made is in a history that no longer exists, and must never be mistaken for this one (P6)."""
    backup.check()
    head = restored_head(backup.header, incarnation_at_least)
    await store.seed(head, _told(backup, told))
    return Restored(backup.header, head)


def restored_head(header: BackupHeader, incarnation_at_least: int) -> Head:
    return Head(
        format=FORMAT,
        incarnation=max(header.incarnation, incarnation_at_least) + 1,
        epoch=header.epoch + 1,
        holder="",
        renewals=0,
        position=header.position,
        hash=header.hash,
        materialised=header.position,
        truncated=header.position,
        anchor=unsigned_anchor(header.position, header.hash, header.time_ms),
    )


async def _told(backup: BackupFile, told: Progress) -> AsyncIterator[list[ObjectRow]]:
    done = 0
    for rows in backup.rows():
        yield rows
        done += len(rows)
        told(done)
