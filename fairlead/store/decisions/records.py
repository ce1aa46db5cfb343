"""The decision log's records: rows, settings, footers, meters. Owns no behaviour and does no I/O.

Called by every module of the package. Footers are on disk: fields may only be added at the end, with defaults.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import msgspec

from fairlead.model.decision import DecisionRecord
from fairlead.store.contract import StoreError

FORMAT = 1  # Raised when a file changes shape in a way that an older Fairlead would misread.
OPEN_MAGIC = b"FLDDECO1"
SEGMENT_MAGIC = b"FLDDECS1"

MIB = 1024 * 1024
DAY_MS = 24 * 3_600_000

HEAD = struct.Struct("<QqII")  # number, time_ms, attempts, length of the body that follows


class DecisionLogError(StoreError):
    """The log cannot be opened. Says what to do about it."""


class Row(NamedTuple):
    """One record as it is kept, in memory and in files alike."""

    number: int
    time_ms: int
    attempts: int
    body: bytes


class Queued(NamedTuple):
    row: Row
    record: DecisionRecord | None  # what the row holds, for its keys; None: it is decoded when they are wanted


class Settings(msgspec.Struct, frozen=True):
    segment_bytes: int = 16 * MIB  # raw, about 200,000 attempts; what memory holds of the open and of the last closed one
    segment_ms: int = 3_600_000  # plane time; what a quiet plane has uncompressed at most
    frame_bytes: int = 64 * 1024  # raw; what one hit has to decompress. Larger frames are no smaller on disk.
    level: int = 1  # zlib. Level 6 makes 10 % less of shared records in 2.5 times the time.
    cache_bytes: int = 64 * MIB  # decompressed frames, directories and footers
    queue_bytes: int = 16 * MIB  # unwritten; beyond it the oldest are dropped
    flush_s: float = 0.5  # 0: no thread, the owner flushes
    max_age_ms: int = 30 * DAY_MS
    max_bytes: int = 16 * 1024 * MIB  # 30 days at 100 binds a second, where slots come one by one (bench observe)
    scan_frames_max: int = 2_000  # frames one page may look into; about a second


class Meters(msgspec.Struct):
    decisions_total: int = 0  # attempts appended since the start
    decisions_dropped_total: int = 0  # of those, the ones that never reached the disk
    decision_write_errors_total: int = 0  # times the disk refused
    decision_log_bytes: int = 0  # of all files now


class FrameEntry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    offset: int
    size: int
    crc: int
    first: int
    last: int
    time_min: int
    time_max: int


class Footer(msgspec.Struct, frozen=True, gc=False, array_like=True):
    format: int
    first: int
    last: int
    time_min: int
    time_max: int
    records: int
    attempts: int
    raw_bytes: int
    frames: tuple[FrameEntry, ...]
    bits: int
    buckets_offset: int
    directory_offset: int
    directory_size: int
    directory_crc: int


class Horizon(msgspec.Struct, frozen=True, gc=False):
    oldest_ms: int | None  # None: nothing is kept
    newest_ms: int | None
    attempts: int
    bytes: int
    damaged: tuple[str, ...]  # files that cannot be read
