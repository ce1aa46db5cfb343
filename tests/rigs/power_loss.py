"""A disk that loses power, fills up or fails, put under the real SqliteStore as an apsw VFS.

Owns what is durable: everything written goes to a real file, so that SQLite works as always, and beside it the rig
keeps the image each file would have after a power cut, which only xSync brings up to date. `cut` and the failures raise
inside SQLite's own calls. It decides by a seed, never by chance. Called by tests/store/test_power_loss.py and the soak
runs."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import apsw
import msgspec

SECTOR_BYTES = 512  # The unit a disk writes or does not write; a torn write tears between two of these.


class Write(msgspec.Struct, frozen=True):
    offset: int
    data: bytes


class Truncate(msgspec.Struct, frozen=True):
    size: int


class _Image:
    """One file: what a power cut leaves for certain, and what came after the last sync, in order."""

    def __init__(self, durable: bytes) -> None:
        self.durable = bytearray(durable)
        self.pending: list[Write | Truncate] = []

    def sync(self) -> None:
        for operation in self.pending:
            _apply(self.durable, operation)
        self.pending.clear()

    def survivor(self, rng: random.Random) -> bytes:
        """Nothing of what is pending, or a prefix whose last write is torn, or any sectors in any combination."""
        image = bytearray(self.durable)
        fate = rng.choice(["nothing", "prefix", "sectors"])
        if fate == "prefix" and self.pending:
            kept = rng.randrange(len(self.pending) + 1)
            for operation in self.pending[:kept]:
                _apply(image, operation)
            for piece in _sectors(self.pending[kept:][:1])[: rng.randrange(8)]:
                _apply(image, piece)
        elif fate == "sectors":
            for piece in _sectors(self.pending):
                if rng.random() < 0.5:
                    _apply(image, piece)
        return bytes(image)


class FaultyDisk(apsw.VFS):
    """Register one per run; hand `name` to SqliteStore(vfs=...). Counts its operations in `operations`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.operations = 0
        self.cut_at: int | None = None  # power goes when this many writes and syncs were asked for
        self.powered = True
        self.full = False
        self.failing_syncs = 0  # that many of the next syncs of a log fail, after its frames were written
        self._images: dict[str, _Image] = {}
        self._lock = threading.Lock()  # the store's threads share the disk
        super().__init__(name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        with self._lock:
            if path is not None and path not in self._images:
                self._images[path] = _Image(Path(path).read_bytes() if os.path.exists(path) else b"")
        return _File(self, path, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        with self._lock:
            self._images.pop(filename, None)

    def survivors(self, directory: Path, seed: int) -> None:
        """Writes what a power cut now (or the one that happened) leaves into an empty directory."""
        rng = random.Random(seed)
        with self._lock:
            for path, image in sorted(self._images.items()):
                (directory / Path(path).name).write_bytes(image.survivor(rng))

    def note(self, path: str | None, operation: Write | Truncate | None) -> None:
        """Every change passes here first; None is a sync. Raises what SQLite is to be told."""
        with self._lock:
            image = self._images.get(path) if path is not None else None
            if not self.powered:
                raise apsw.IOError("no power")
            self.operations += 1
            if isinstance(operation, Write) and self.full:
                raise apsw.FullError("no space left on the rig's disk")
            if image is not None and operation is not None:
                image.pending.append(operation)
            if self.operations == self.cut_at:
                self.powered = False
                raise apsw.IOError("the power went")
            if operation is None and self.failing_syncs and path is not None and path.endswith("-wal"):
                self.failing_syncs -= 1
                raise apsw.IOError("the rig's disk did not sync")
            if image is not None and operation is None:
                image.sync()


class _File(apsw.VFSFile):
    def __init__(self, disk: FaultyDisk, path: str | None, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._disk = disk
        self._path = path

    def xRead(self, amount: int, offset: int) -> bytes:
        if not self._disk.powered:
            raise apsw.IOError("no power")
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._disk.note(self._path, Write(offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:
        self._disk.note(self._path, Truncate(newsize))
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:
        # Not passed on: the rig's own image is what counts as durable, and real fsyncs would only slow it down.
        self._disk.note(self._path, None)


def _apply(image: bytearray, operation: Write | Truncate) -> None:
    end = operation.size if isinstance(operation, Truncate) else operation.offset + len(operation.data)
    if len(image) < end:
        image.extend(bytes(end - len(image)))
    if isinstance(operation, Truncate):
        del image[operation.size :]
    else:
        image[operation.offset : end] = operation.data


def _sectors(operations: list[Write | Truncate]) -> list[Write | Truncate]:
    pieces: list[Write | Truncate] = []
    for operation in operations:
        if isinstance(operation, Truncate):
            pieces.append(operation)
            continue
        start, end = operation.offset, operation.offset + len(operation.data)
        while start < end:
            edge = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
            data = operation.data[start - operation.offset : edge - operation.offset]
            pieces.append(Write(start, data))
            start = edge
    return pieces
