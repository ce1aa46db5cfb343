"""What a directory holds at one moment, and the line of history that leads to a point. Owns no file.

A Catalogue never changes; the archive swaps in a new one. A reader that took one keeps a consistent view, except that files
trimmed meanwhile are gone (BeyondHorizon). Called by archive.py, reader.py, verify.py and trim.py.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import msgspec

from fairlead.store.archive.checkpoint import CheckpointFile
from fairlead.store.archive.records import GENESIS, ArchiveCorrupt, BeyondHorizon, Horizon, NotArchived, Point
from fairlead.store.archive.segment import Segment


class Damaged(msgspec.Struct, frozen=True):
    """A file whose footer or beginning does not hold. Its name still says where it belongs."""

    point: Point
    name: str
    detail: str


class Piece(msgspec.Struct, frozen=True):
    """The positions low..high of one segment."""

    segment: Segment
    low: int
    high: int


class Catalogue(msgspec.Struct, frozen=True):
    segments: tuple[Segment, ...] = ()  # by (incarnation, first); the last one is the one being written
    checkpoints: tuple[CheckpointFile, ...] = ()  # by point
    damaged: tuple[Damaged, ...] = ()

    def last(self) -> Point:
        """The newest archived point; GENESIS if there is none."""
        return end_of(self.segments[-1]) if self.segments else GENESIS

    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments) + sum(checkpoint.size for checkpoint in self.checkpoints)

    def horizon(self) -> Horizon | None:
        starts = [Horizon(checkpoint.point, checkpoint.time_ms) for checkpoint in self.checkpoints[:1]]
        empty = next((segment for segment in self.segments if segment.base == GENESIS), None)
        if empty is not None:
            starts.append(Horizon(Point(empty.incarnation, empty.first - 1), empty.time_min))
        return min(starts, key=lambda start: start.point, default=None)

    def beginning(self) -> Horizon | None:
        """The oldest point after which everything that led to the last one is there, without a hole; None while there is none.
        What is older was trimmed, was never archived, or is damaged."""
        pieces: list[Piece] = []
        cursor = self.last()
        while cursor != GENESIS and not self._is_empty(cursor):
            segment = self.find(cursor)
            if segment is not None:
                pieces.append(Piece(segment, segment.first, cursor.position))
            if segment is None or segment.base is None:
                kept = [one for one in self.checkpoints if any(_begins(one.point, piece) for piece in pieces)]
                return Horizon(kept[0].point, kept[0].time_ms) if kept else None
            cursor = segment.base
        return Horizon(_before(pieces[-1].segment), pieces[-1].segment.time_min) if pieces else None

    def on_the_line(self, point: Point) -> Point:
        """The newest point, not after this one, that the last one builds on: a restore leaves a tail that nothing builds on."""
        cursor = self.last()
        while cursor > point:
            segment = self.find_or_say_why(cursor)
            if segment.incarnation == point.incarnation and point >= _before(segment):
                return point
            cursor = self._before(segment, point)
        return cursor

    def checkpoint_before(self, point: Point) -> CheckpointFile | None:
        """The newest at or before the point, of the same incarnation."""
        index = bisect_right(self.checkpoints, point, key=lambda checkpoint: checkpoint.point) - 1
        if index < 0 or self.checkpoints[index].point.incarnation != point.incarnation:
            return None
        return self.checkpoints[index]

    def find(self, point: Point) -> Segment | None:
        """The segment with that position."""
        index = bisect_right(self.segments, point, key=start_of) - 1
        if index < 0:
            return None
        segment = self.segments[index]
        return segment if segment.incarnation == point.incarnation and point.position <= segment.last else None

    def find_or_say_why(self, point: Point) -> Segment:
        segment = self.find(point)
        if segment is not None:
            return segment
        before = [damaged for damaged in self.damaged if damaged.point <= point]
        if before and before[-1].point.incarnation == point.incarnation:
            raise ArchiveCorrupt(before[-1].name, before[-1].detail)
        ends = [segment.last for segment in self.segments if segment.incarnation == point.incarnation]
        if (ends and point.position > ends[-1]) or point > self.last():
            raise NotArchived(f"{point} is not in the archive, which reaches {self.last()}")
        raise self._unreadable(point)

    def walk(self, point: Point) -> Iterator[Piece | CheckpointFile]:
        """What makes up the state at a point, newest first: pieces back to the nearest checkpoint, then that checkpoint.
        A walk that ends without one came to the empty plane."""
        cursor = point
        while cursor != GENESIS and not self._is_empty(cursor):
            checkpoint = self.checkpoint_before(cursor)
            if checkpoint is not None and checkpoint.point == cursor:
                yield checkpoint
                return
            segment = self.find_or_say_why(cursor)
            covered = checkpoint is not None and checkpoint.point.position >= segment.first - 1
            low = checkpoint.point.position + 1 if checkpoint is not None and covered else segment.first
            yield Piece(segment, low, cursor.position)
            if checkpoint is not None and covered:
                yield checkpoint
                return
            cursor = self._before(segment, point)

    def line(self, after: Point, upto: Point) -> list[Piece]:
        """The pieces that lead from `after` (without it) to `upto`, oldest first, whatever checkpoints there are."""
        pieces: list[Piece] = []
        cursor = upto
        while cursor > after and cursor != GENESIS and not self._is_empty(cursor):
            segment = self.find_or_say_why(cursor)
            low = segment.first
            if after.incarnation == segment.incarnation:
                low = max(low, after.position + 1)
            pieces.append(Piece(segment, low, cursor.position))
            if after >= _before(segment):
                break
            cursor = self._before(segment, after)
        return pieces[::-1]

    def _before(self, segment: Segment, asked: Point) -> Point:
        if segment.base is None:
            raise self._unreadable(asked)
        assert segment.base < start_of(segment), f"{segment.path.name} builds on {segment.base}, which is not before it"
        return segment.base

    def _unreadable(self, asked: Point) -> BeyondHorizon | NotArchived:
        horizon = self.horizon()
        if horizon is None or asked < horizon.point:
            return BeyondHorizon(str(asked), horizon)
        return NotArchived(f"what led to {asked} was never archived; states can be read from the next checkpoint on")

    def _is_empty(self, point: Point) -> bool:
        """The state before the first effect of a plane that is archived from its start."""
        return point.position == 0 and any(
            segment.base == GENESIS for segment in self.segments if segment.incarnation == point.incarnation
        )


def start_of(segment: Segment) -> Point:
    return Point(segment.incarnation, segment.first)


def _before(segment: Segment) -> Point:
    """In the segment's own incarnation; what it builds on may lie in another."""
    return Point(segment.incarnation, segment.first - 1)


def _begins(point: Point, piece: Piece) -> bool:
    return point.incarnation == piece.segment.incarnation and piece.low - 1 <= point.position <= piece.high


def end_of(segment: Segment) -> Point:
    return Point(segment.incarnation, segment.last)
