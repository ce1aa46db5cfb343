"""What is in the directory when an archive is opened, with the marks of a crash removed. Owns nothing; called by archive.py."""

from __future__ import annotations

from pathlib import Path

from fairlead.store.archive.cache import Cache
from fairlead.store.archive.catalogue import Catalogue, Damaged, start_of
from fairlead.store.archive.checkpoint import CheckpointFile
from fairlead.store.archive.files import list_files
from fairlead.store.archive.open_segment import OpenSegment, recover_open
from fairlead.store.archive.records import ArchiveCorrupt, BeyondHorizon, Point
from fairlead.store.archive.segment import ClosedSegment, Segment

ATTEMPTS_MAX = 5  # A reader beside a writer lists again when a file it saw was closed or trimmed meanwhile.


def load(directory: Path, cache: Cache, writable: bool) -> Catalogue:
    """A damaged file is noted, not raised: history on either side of it can still be read."""
    if writable:
        for path in directory.glob("*.tmp"):
            path.unlink()
        return _load(directory, cache, writable=True)
    for _ in range(ATTEMPTS_MAX - 1):
        try:
            return _load(directory, cache, writable=False)
        except (FileNotFoundError, BeyondHorizon):
            continue
    return _load(directory, cache, writable=False)


def _load(directory: Path, cache: Cache, writable: bool) -> Catalogue:
    segments: list[Segment] = []
    checkpoints: list[CheckpointFile] = []
    damaged: list[Damaged] = []
    # Open files are listed first: one that is closed while a reader lists is then found twice, never not at all.
    opens = list_files(directory, "open")
    for point, path in list_files(directory, "segment"):
        try:
            segment = ClosedSegment(path, cache)
            if start_of(segment) != point:
                raise ArchiveCorrupt(path.name, f"its footer is that of {start_of(segment)}")
            segments.append(segment)
        except ArchiveCorrupt as error:
            damaged.append(Damaged(point, path.name, error.detail))
    for point, path in list_files(directory, "checkpoint"):
        try:
            checkpoints.append(CheckpointFile(path, cache))
        except ArchiveCorrupt as error:
            damaged.append(Damaged(point, path.name, error.detail))
    closed = {start_of(segment) for segment in segments}
    recovered = _recover(opens, closed, writable)
    segments = sorted([*segments, *recovered], key=start_of)
    return Catalogue(tuple(segments), tuple(checkpoints), tuple(sorted(damaged, key=lambda one: one.point)))


def _recover(opens: list[tuple[Point, Path]], closed: set[Point], writable: bool) -> list[OpenSegment]:
    recovered: list[OpenSegment] = []
    for point, path in opens:
        if point in closed:  # The writer died between renaming the closed one and removing this.
            if writable:
                path.unlink()
            continue
        try:
            segment = recover_open(path, writable)
        except ArchiveCorrupt:  # Not even the beginning was written, so neither was any batch.
            if writable:
                path.unlink()
            continue
        if segment.rows:
            recovered.append(segment)
        elif writable:
            segment.close()
            path.unlink()
    return recovered
