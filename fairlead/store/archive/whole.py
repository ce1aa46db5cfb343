"""A whole history read from where it begins, and what its files hold beyond that. Owns no file and changes nothing.

An archive passes over what it cannot read at its end, because a writer may be at work there. Whoever judges a history must know
how much of it that was. Called by the composition root for audits, timelines and exports, beside a running server or without one.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from fairlead.store.archive import reader
from fairlead.store.archive.cache import Cache
from fairlead.store.archive.catalogue import end_of
from fairlead.store.archive.files import list_files, read_at
from fairlead.store.archive.loading import load
from fairlead.store.archive.open_segment import scan_open
from fairlead.store.archive.records import GENESIS, RECORD, ArchiveCorrupt, ArchiveError, BeyondHorizon, NotArchived, Settings
from fairlead.store.contract import Batch, ObjectRow

CRC_BYTES: Final = 4
HEAD_BYTES: Final = CRC_BYTES + RECORD.size
BEGINNING_BYTES_MAX: Final = 128  # A beginning has up to 89: where there are more bytes than this, it was written in full.


class Whole:
    """What is there when it is made. Iterating raises at what is damaged; `readable` ends there, and `unread` says why."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._catalogue = load(directory, Cache(Settings().cache_bytes), writable=False)
        beginning = self._catalogue.beginning()
        self._begin = beginning.point if beginning is not None and beginning.point.position else GENESIS
        self._stopped: list[str] = []

    @property
    def begins(self) -> str:
        """The revision after which it begins: what is older was trimmed, or is on the other side of a hole. Empty: with the
        plane itself."""
        return str(self._begin) if self._begin != GENESIS else ""

    @property
    def reaches(self) -> str:
        """The newest revision that can be read; empty where there is none."""
        return str(self._catalogue.last()) if self._catalogue.segments else ""

    def __iter__(self) -> Iterator[Batch]:
        return reader.batches(self._catalogue, self._begin, self._catalogue.last())

    def rows(self) -> list[ObjectRow]:
        return list(reader.state_at(self._catalogue, self._begin))

    def readable(self) -> Iterator[Batch]:
        try:
            if not self._stopped:
                yield from self
        except (ArchiveCorrupt, BeyondHorizon, NotArchived) as error:
            self._stopped = [str(error)]

    def readable_rows(self) -> list[ObjectRow]:
        try:
            return self.rows()
        except (ArchiveCorrupt, BeyondHorizon, NotArchived) as error:
            self._stopped = [str(error)]
            return []

    def unread(self) -> list[str]:
        """What says that there is more than was read. A writer may be a moment behind its own checkpoint, so that a caller who
        is told of one asks again a moment later: segments are looked at anew, by each call."""
        now = load(self._directory, Cache(Settings().cache_bytes), writable=False)
        beyond = [one for one in self._catalogue.checkpoints if one.point > now.last()]
        return [
            *self._stopped,
            *self._hole(),
            *(f"{one.name}: {one.detail}" for one in self._catalogue.damaged),
            *(f"{one.path.name}: the state at {one.point} is kept, and segments end at {now.last()}" for one in beyond),
            *(f"{path.name}: {said}" for _, path in list_files(self._directory, "open") if (said := _after_the_end(path))),
        ]

    def _hole(self) -> list[str]:
        """Trimming leaves nothing before the beginning. Where something is, a server began anew, or a file is gone."""
        older = [one for one in self._catalogue.segments if end_of(one) < self._begin]
        cut_off = [one for one in older if one.incarnation == self._begin.incarnation]
        return [f"{cut_off[-1].path.name}: what led from there to {self._begin} is not archived"] if cut_off else []


def _after_the_end(path: Path) -> str:
    """More than one record that is being written: its head and a part of its blob, or a part of its head."""
    try:
        beginning, rows, good, size = scan_open(path)
        if size - good < HEAD_BYTES:
            return ""
        head = read_at(path, good, HEAD_BYTES)
    except (FileNotFoundError, BeyondHorizon):
        return ""  # Closed meanwhile.
    except ArchiveCorrupt as error:
        return f"{error.detail}, and nothing after it can be read" if _size(path) > BEGINNING_BYTES_MAX else ""
    except ArchiveError as error:
        return str(error)
    *_, length = RECORD.unpack_from(head, CRC_BYTES)
    is_head = zlib.crc32(head[CRC_BYTES:]) == int.from_bytes(head[:CRC_BYTES], "little")
    if is_head and good + HEAD_BYTES + length > size:
        return ""
    last = rows[-1][1].last if rows else beginning.first - 1
    return f"{size - good} bytes after revision {beginning.incarnation}:{last} are damaged and were not read"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
