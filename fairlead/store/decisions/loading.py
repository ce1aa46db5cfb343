"""What a directory of decisions holds when it is opened, and what of it may go. Owns file names; called by log.py."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from fairlead.store.archive import ArchiveCorrupt
from fairlead.store.archive.cache import Cache
from fairlead.store.contract import FormatTooNew
from fairlead.store.decisions.open_segment import OpenSegment, Write
from fairlead.store.decisions.segment import ClosedSegment

log = logging.getLogger(__name__)

_NAME = re.compile(r"(\d{16})\.(open|segment)(\.tmp)?")
_DAMAGED_NUMBERS = 1 << 24  # More records than a segment holds: numbers go on behind those of a file that cannot be read.


class Damaged(msgspec.Struct, frozen=True):
    path: Path
    first: int
    size: int
    detail: str

    @property
    def words(self) -> str:
        return f"{self.path.name}: {self.detail}"


class Loaded(msgspec.Struct, frozen=True):
    segments: tuple[OpenSegment | ClosedSegment, ...]  # oldest first
    damaged: tuple[Damaged, ...]
    next_number: int


def file_name(first: int, suffix: str) -> str:
    return f"{first:016d}.{suffix}"


def load(directory: Path, cache: Cache, frame_bytes: int, write: Write) -> Loaded:
    segments: dict[int, OpenSegment | ClosedSegment] = {}
    damaged: list[Damaged] = []
    names = sorted(os.listdir(directory), key=lambda name: not name.endswith(".segment"))  # before their .open twins
    for name in names:
        match = _NAME.fullmatch(name)
        if match is None:
            continue  # Names that are not ours are left alone.
        path, first = directory / name, int(match[1])
        if match[3] or (match[2] == "open" and first in segments):
            path.unlink()  # Unfinished; or closed, and the process died before it removed this one.
            continue
        try:
            if match[2] == "segment":
                segments[first] = ClosedSegment(path, cache)
            else:
                segments[first] = OpenSegment.recover(path, first, frame_bytes, write)
        except (ArchiveCorrupt, FormatTooNew, OSError) as error:
            detail = error.detail if isinstance(error, ArchiveCorrupt) else str(error)
            log.warning("decisions in %s cannot be read and are passed over: %s", name, detail)
            damaged.append(Damaged(path, first, path.stat().st_size, detail))
    ordered = tuple(segments[first] for first in sorted(segments))
    numbers = [segment.last + 1 for segment in ordered] + [one.first + _DAMAGED_NUMBERS for one in damaged]
    damaged.sort(key=lambda one: one.first)
    return Loaded(ordered, tuple(damaged), max(numbers, default=1))


def plan_trim(
    closed: Sequence[ClosedSegment], damaged: Sequence[Damaged], cutoff_ms: int, over_bytes: int
) -> list[ClosedSegment | Damaged]:
    """What is too old or too much, oldest first and without holes. A damaged file's age is unknown; it goes with the next."""
    doomed: list[ClosedSegment | Damaged] = []
    undated: list[Damaged] = []
    files: list[ClosedSegment | Damaged] = [*closed, *damaged]
    for one in sorted(files, key=lambda one: one.first):
        if over_bytes <= 0 and isinstance(one, Damaged):
            undated.append(one)
            continue
        if over_bytes <= 0 and isinstance(one, ClosedSegment) and one.time_max >= cutoff_ms:
            break
        doomed += [*undated, one]
        undated = []
        over_bytes -= one.size
    return doomed
