"""The questions the archive answers about the past. Owns nothing, changes nothing; called by archive.py with one Catalogue."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from fairlead.model.journal import decode_blob
from fairlead.store.archive.catalogue import Catalogue, Piece
from fairlead.store.archive.checkpoint import CheckpointFile
from fairlead.store.archive.open_segment import effects_of
from fairlead.store.archive.records import BeyondHorizon, Point, Version
from fairlead.store.contract import Batch, ObjectRow


def get(catalogue: Catalogue, key: str, point: Point) -> tuple[int, bytes] | None:
    for step in catalogue.walk(point):
        if isinstance(step, CheckpointFile):
            return step.get(key)
        found = step.segment.newest(key, step.low, step.high)
        if found is not None:
            position, _, value = found
            return None if value is None else (position, value)
    return None


def history(catalogue: Catalogue, key: str, first: Point, last: Point) -> Iterator[Version]:
    """Looks for the pieces at once, so that BeyondHorizon comes from the call and not from the first step."""
    pieces = catalogue.line(Point(first.incarnation, max(0, first.position - 1)), last)
    return _versions(pieces, key)


def _versions(pieces: list[Piece], key: str) -> Iterator[Version]:
    for piece in pieces:
        for position, time_ms, value in piece.segment.versions(key, piece.low, piece.high):
            yield Version(Point(piece.segment.incarnation, position), time_ms, value)


def batches(catalogue: Catalogue, after: Point, upto: Point) -> Iterator[Batch]:
    return _batches(catalogue.line(after, upto))


def _batches(pieces: list[Piece]) -> Iterator[Batch]:
    for piece in pieces:
        for _, batch in piece.segment.batches(piece.low, piece.high):
            yield batch


def state_at(catalogue: Catalogue, point: Point) -> Iterator[ObjectRow]:
    """Holds in memory what changed since the checkpoint, each object once; streams the checkpoint itself."""
    newest: dict[str, tuple[int, bytes | None]] = {}
    checkpoint: CheckpointFile | None = None
    for step in catalogue.walk(point):
        if isinstance(step, CheckpointFile):
            checkpoint = step
        else:
            for key, change in _changes(step).items():
                newest.setdefault(key, change)  # The walk goes back in time: what is there is newer.
    return _merged(checkpoint, newest)


def _changes(piece: Piece) -> dict[str, tuple[int, bytes | None]]:
    """The last effect on each key inside a piece."""
    found: dict[str, tuple[int, bytes | None]] = {}
    for _, batch in piece.segment.batches(piece.low, piece.high):
        for position, (key, value) in enumerate(effects_of(decode_blob(batch.blob)), batch.first):
            if piece.low <= position <= piece.high:
                found[key] = (position, value)
    return found


def _merged(checkpoint: CheckpointFile | None, newest: dict[str, tuple[int, bytes | None]]) -> Iterator[ObjectRow]:
    kept = (row for row in checkpoint.all_rows() if row[0] not in newest) if checkpoint else iter(())
    changed = ((key, position, value) for key, (position, value) in sorted(newest.items()) if value is not None)
    return heapq.merge(kept, changed)


def point_at(catalogue: Catalogue, time_ms: int) -> Point:
    """The newest point whose batch's plane time is not after `time_ms`. Right also where time went back at a restore:
    the newest incarnation that had begun by then answers."""
    for segment in reversed(catalogue.segments):
        position = segment.last_at(time_ms)
        if position is not None:
            return Point(segment.incarnation, position)
    known = [checkpoint.point for checkpoint in catalogue.checkpoints if checkpoint.time_ms <= time_ms]
    if known:
        return known[-1]
    raise BeyondHorizon(f"plane time {time_ms} ms", catalogue.horizon())
