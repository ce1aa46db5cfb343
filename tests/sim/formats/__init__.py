"""Stored planes, one file for each format there has been: a journal, and the objects at its end.

`python -m tests.sim.formats` writes the file of the present format; do it once when FORMAT has changed, and keep the others: what
a version wrote, the next one must read.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import msgspec

from fairlead.store.contract import Batch

HERE = Path(__file__).parent


class StoredBatch(msgspec.Struct, array_like=True):
    first: int
    last: int
    previous: bytes
    hash: bytes
    blob: bytes

    def batch(self) -> Batch:
        return Batch(self.first, self.last, self.previous, self.hash, self.blob)


class StoredPlane(msgspec.Struct):
    format: int
    region: str
    journal: list[StoredBatch]
    rows: list[tuple[str, bytes]]  # key and image of every object there is at the journal's end


def path_of(number: int) -> Path:
    return HERE / f"format-{number}.bin"


def read(path: Path) -> StoredPlane:
    return msgspec.msgpack.decode(zlib.decompress(path.read_bytes()), type=StoredPlane)


def write(plane: StoredPlane) -> Path:
    path = path_of(plane.format)
    path.write_bytes(zlib.compress(msgspec.msgpack.encode(plane), 9))
    return path
