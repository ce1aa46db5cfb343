"""What may go: whole segments before a checkpoint that stays. Owns the choice and the deletion; called by archive.py.

The horizon moves from checkpoint to checkpoint only. A segment dropped without one at or after its end would leave younger
segments that no state can be read from.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from fairlead.ports import sync_directory
from fairlead.store.archive.catalogue import Catalogue, Damaged, end_of
from fairlead.store.archive.checkpoint import CheckpointFile
from fairlead.store.archive.open_segment import OpenSegment
from fairlead.store.archive.records import GENESIS, Point, Trimmed
from fairlead.store.archive.segment import Segment


class Plan(msgspec.Struct, frozen=True):
    segments: tuple[Segment, ...] = ()
    checkpoints: tuple[CheckpointFile, ...] = ()
    damaged: tuple[Damaged, ...] = ()
    over_bytes: int = 0


def plan_trim(catalogue: Catalogue, cutoff_ms: int, max_bytes: int) -> Plan:
    """Everything younger than the cutoff stays readable, unless there is too much of it."""
    best = Plan(over_bytes=max(0, catalogue.size_bytes() - max_bytes))
    for checkpoint in catalogue.checkpoints:
        if checkpoint.time_ms > cutoff_ms and not best.over_bytes:
            break
        if _keeps_the_line(catalogue, checkpoint.point):
            best = _up_to(catalogue, checkpoint.point, max_bytes)
    return best


def _keeps_the_line(catalogue: Catalogue, horizon: Point) -> bool:
    """Not if a later incarnation branched off before it: the horizon would lie on a tail that a restore lost."""
    return not any(
        segment.incarnation > horizon.incarnation and segment.base is not None and GENESIS < segment.base < horizon
        for segment in catalogue.segments
    )


def _up_to(catalogue: Catalogue, horizon: Point, max_bytes: int) -> Plan:
    segments = tuple(
        segment
        for segment in catalogue.segments
        if end_of(segment) <= horizon and not isinstance(segment, OpenSegment)  # Open ones are still being closed.
    )
    checkpoints = tuple(checkpoint for checkpoint in catalogue.checkpoints if checkpoint.point < horizon)
    # The end of a damaged file is unknown; it ends before an intact one that starts at or before the horizon.
    starts = [Point(one.incarnation, one.first) for one in catalogue.segments if Point(one.incarnation, one.first) <= horizon]
    damaged = tuple(one for one in catalogue.damaged if starts and one.point < starts[-1])
    freed = sum(one.size for one in segments) + sum(one.size for one in checkpoints)
    return Plan(segments, checkpoints, damaged, max(0, catalogue.size_bytes() - freed - max_bytes))


def without(catalogue: Catalogue, plan: Plan) -> Catalogue:
    """By identity: the catalogue may have grown since the plan was made."""
    gone = {id(one) for one in (*plan.segments, *plan.checkpoints, *plan.damaged)}
    return Catalogue(
        tuple(one for one in catalogue.segments if id(one) not in gone),
        tuple(one for one in catalogue.checkpoints if id(one) not in gone),
        tuple(one for one in catalogue.damaged if id(one) not in gone),
    )


def drop(directory: Path, plan: Plan) -> Trimmed:
    """Oldest first, so that a crash in the middle leaves an archive that was merely trimmed less."""
    for segment in plan.segments:
        segment.path.unlink(missing_ok=True)
    for one in plan.damaged:
        (directory / one.name).unlink(missing_ok=True)
    for checkpoint in plan.checkpoints:
        checkpoint.path.unlink(missing_ok=True)
    if plan.segments or plan.checkpoints or plan.damaged:
        sync_directory(directory)
    names = (*(segment.path.name for segment in plan.segments), *(one.name for one in plan.damaged))
    freed = sum(one.size for one in plan.segments) + sum(one.size for one in plan.checkpoints)
    return Trimmed(names, tuple(one.path.name for one in plan.checkpoints), freed, plan.over_bytes)
