"""Reads everything and says what is not as it was written. Owns no file and repairs nothing; called by archive.py.

Trusts no footer: what it claims is computed again from the frames, and the chain is hashed anew from batch to batch.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import msgspec
import numpy as np
import zstandard
from msgspec.structs import replace

from fairlead.model.journal import chain_hash, decode_blob
from fairlead.store.archive.cache import Cache
from fairlead.store.archive.catalogue import Catalogue, end_of, start_of
from fairlead.store.archive.checkpoint import CheckpointFile
from fairlead.store.archive.files import content_hash, read_at
from fairlead.store.archive.keyindex import Keyed, build_index, unpack
from fairlead.store.archive.open_segment import OpenSegment, effects_of, scan_open
from fairlead.store.archive.reader import state_at
from fairlead.store.archive.records import GENESIS, ArchiveCorrupt, BeyondHorizon, Fault, NotArchived, Point
from fairlead.store.archive.segment import ClosedSegment, Segment
from fairlead.store.contract import Batch

_FRESH_BYTES = 1 << 20  # A cache of its own for each file: what was read before it was damaged must not vouch for it.


def verify(catalogue: Catalogue, deep: bool) -> list[Fault]:
    faults = [Fault(damaged.name, damaged.detail) for damaged in catalogue.damaged]
    for index, segment in enumerate(catalogue.segments):
        found = _open_faults(segment) if isinstance(segment, OpenSegment) else _closed_faults(segment.path)
        faults += _caught(segment.path, found)
        faults += _caught(segment.path, _gaps(catalogue, segment, catalogue.segments[index - 1] if index else None))
    for checkpoint in catalogue.checkpoints:
        faults += _caught(checkpoint.path, _checkpoint_faults(checkpoint.path))
        if deep:
            faults += _caught(checkpoint.path, _replay_faults(catalogue, checkpoint))
    return faults


def _caught(path: Path, found: Iterator[Fault]) -> list[Fault]:
    """A fault that stops the reading of one file must not hide those of the others."""
    faults: list[Fault] = []
    try:
        faults.extend(found)
    except ArchiveCorrupt as error:
        faults.append(Fault(error.where, error.detail))
    except (BeyondHorizon, FileNotFoundError):
        faults.append(Fault(path.name, "is gone from the directory"))
    except (msgspec.MsgspecError, OSError) as error:
        faults.append(Fault(path.name, f"cannot be read: {error}"))
    return faults


def _open_faults(segment: OpenSegment) -> Iterator[Fault]:
    """What the file has against what memory has, as far as it had come when this began."""
    if not segment.path.exists() and segment.path.with_suffix(".segment").exists():
        return  # Closed since this began.
    expected = [batch.hash for _, batch in list(segment.rows)]
    beginning, rows, good, _ = scan_open(segment.path)
    if [batch.hash for _, batch in rows[: len(expected)]] != expected:
        yield Fault(segment.path.name, f"the record at byte {good} is torn or damaged")
    yield from _chain_faults(segment.path.name, beginning.first, beginning.previous, [batch for _, batch in rows])


def _closed_faults(path: Path) -> Iterator[Fault]:
    segment = ClosedSegment(path, Cache(_FRESH_BYTES))
    name, footer = segment.path.name, segment.opened().footer
    if content_hash(segment.path, footer.filter.offset + footer.filter.size) != footer.sha256:
        yield Fault(name, "its contents do not have the sha256 that the footer names")
    keyed: list[Keyed] = []
    first, previous = footer.first, footer.previous
    for number, frame in enumerate(footer.frames):
        try:
            rows = list(segment.rows(number))
        except ArchiveCorrupt as error:
            yield Fault(name, f"{error.detail} (positions {frame.first}..{frame.last})")
            first, previous = frame.last + 1, b""  # The next frame says itself what it continues.
            continue
        batches = [batch for _, batch in rows]
        yield from _chain_faults(name, first, previous or frame.previous, batches)
        first, previous = batches[-1].last + 1, batches[-1].hash
        keyed += [(batch.first, [key for key, _ in effects_of(decode_blob(batch.blob))]) for batch in batches]
    if (first - 1, previous or footer.hash) != (footer.last, footer.hash):
        yield Fault(name, f"its batches end at {first - 1}, its footer says {footer.last} or names another chain hash")
    if sum(len(keys) for _, keys in keyed) == footer.effects:  # else frames are missing, which is said above
        yield from _index_faults(segment, keyed)


def _index_faults(segment: ClosedSegment, keyed: list[Keyed]) -> Iterator[Fault]:
    footer = segment.opened().footer
    section = footer.index
    if zlib.crc32(read_at(segment.path, section.offset, section.size)) != section.crc:
        yield Fault(segment.path.name, f"the key index at byte {section.offset} fails its crc")
        return
    expected, expected_filter = build_index(keyed, segment.first, level=1, made_as=footer.format)
    from_frames = unpack(zstandard.ZstdDecompressor().decompress(expected))
    if not np.array_equal(from_frames, segment.pairs()):
        yield Fault(segment.path.name, f"the key index at byte {section.offset} does not name the keys in the frames")
    if expected_filter != segment.opened().filter:
        yield Fault(segment.path.name, "the filter is not the one that the keys in the frames make")


def _chain_faults(name: str, first: int, previous: bytes, batches: list[Batch]) -> Iterator[Fault]:
    for batch in batches:
        if batch.first != first:
            yield Fault(name, f"a batch starts at {batch.first} where {first} is expected")
        if chain_hash(previous, batch.blob) != batch.hash:
            yield Fault(name, f"the batch {batch.first}..{batch.last} does not have the chain hash recorded for it")
        first, previous = batch.last + 1, batch.hash


def _checkpoint_faults(path: Path) -> Iterator[Fault]:
    checkpoint = CheckpointFile(path, Cache(_FRESH_BYTES))
    name, footer = checkpoint.path.name, checkpoint.opened()[0]
    end = max((frame.offset + frame.size for frame in footer.frames), default=8)
    if content_hash(checkpoint.path, end) != footer.sha256:
        yield Fault(name, "its contents do not have the sha256 that the footer names")
    rows, last = 0, ""
    for key, position, _ in checkpoint.all_rows():
        if rows and key <= last:
            yield Fault(name, f"{key} comes after {last}")
        if position > checkpoint.point.position:
            yield Fault(name, f"{key} was written at {position}, after the checkpoint")
        rows, last = rows + 1, key
    if rows != footer.rows:
        yield Fault(name, f"has {rows} rows, its footer says {footer.rows}")


def _replay_faults(catalogue: Catalogue, checkpoint: CheckpointFile) -> Iterator[Fault]:
    """The checkpoint against the one before it with the journal between applied, where both are still there."""
    older = tuple(one for one in catalogue.checkpoints if one.point < checkpoint.point)
    try:
        replayed = state_at(replace(catalogue, checkpoints=older), checkpoint.point)
    except (BeyondHorizon, NotArchived):
        return
    for kept, made in zip_longest(checkpoint.all_rows(), replayed):
        if kept != made:
            at = min(row[0] for row in (kept, made) if row is not None)
            yield Fault(checkpoint.path.name, f"{at} is not what the journal before it makes of it")
            return


def _gaps(catalogue: Catalogue, segment: Segment, before: Segment | None) -> Iterator[Fault]:
    """A segment against the one it builds on. The oldest may build on what was trimmed; a new incarnation may build on
    what was never archived."""
    if segment.base == GENESIS or before is None:
        return
    if segment.base is None:
        if before.incarnation == segment.incarnation:
            yield _gap(segment, end_of(before))
        return
    base = catalogue.find(segment.base)
    if base is None:
        yield _gap(segment, end_of(before))
        return
    found = next(base.batches(segment.base.position, segment.base.position), None)
    if found is None or found[1].last != segment.base.position or found[1].hash != segment.previous:
        yield Fault(segment.path.name, f"does not continue the chain of {base.path.name} at {segment.base}")


def _gap(segment: Segment, end: Point) -> Fault:
    return Fault(segment.path.name, f"nothing is archived between {end} and {start_of(segment)}")
