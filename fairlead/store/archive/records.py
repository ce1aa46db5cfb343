"""The archive's records: points, settings, footers, answers and errors. Owns no behaviour and does no I/O.

Called by every module of the package. Footers and beginnings are on disk: fields may only be added at the end, with defaults.
"""

from __future__ import annotations

import struct

import msgspec

from fairlead.store.contract import FormatTooNew, StoreError

# Raised when a file changes shape in a way that an older Fairlead would misread. 2: closed segments count keys by their crc.
FORMAT = 2

MIB = 1024 * 1024
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class Point(msgspec.Struct, frozen=True, order=True, gc=False, array_like=True):
    """A revision taken apart. Order is age: a later incarnation is later, whatever its positions say."""

    incarnation: int
    position: int

    def __str__(self) -> str:
        return f"{self.incarnation}:{self.position}"


GENESIS = Point(0, 0)  # Incarnations start at one, so this is nobody's point: the empty plane before its first batch.


class Settings(msgspec.Struct, frozen=True):
    segment_bytes: int = 8 * MIB  # raw; about 20,000 effects
    segment_ms: int = 600_000  # plane time; what a quiet plane has uncompressed at most
    frame_bytes: int = 256 * 1024  # raw; what one read has to decompress
    level: int = 1  # Of bench/archive.py's frames level 3 makes 4 % more in 1.6 times the time, level 9 6 % less in 7 times.
    cache_bytes: int = 64 * MIB
    sealed_max: int = 4  # full segments that may wait for `close_segment`; then appending closes them itself
    max_age_ms: int = 30 * DAY_MS
    max_bytes: int = 20 * 1024 * MIB


class Contents(msgspec.Struct, frozen=True, gc=False):
    """What a batch's blob says, as far as an archive needs it."""

    incarnation: int
    time_ms: int
    keys: list[str]  # of its effects, in the order of their positions


# One batch, in open and closed segments alike: first, last, time_ms, hash, length of the blob that follows.
RECORD = struct.Struct("<QQq32sI")


class Beginning(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The first thing in an open segment."""

    format: int
    incarnation: int
    first: int
    previous: bytes
    base: Point | None  # the point its first batch builds on; GENESIS for an empty plane, None where that was never archived


class Frame(msgspec.Struct, frozen=True, gc=False, array_like=True):
    offset: int
    size: int
    first: int
    last: int
    time_min: int
    time_max: int
    previous: bytes  # chain hash before its first batch


class Section(msgspec.Struct, frozen=True, gc=False, array_like=True):
    offset: int
    size: int
    crc: int


class Footer(msgspec.Struct, frozen=True, gc=False, array_like=True):
    format: int
    incarnation: int
    first: int
    last: int
    time_min: int
    time_max: int
    base: Point | None
    previous: bytes
    hash: bytes
    effects: int
    raw_bytes: int
    frames: tuple[Frame, ...]
    index: Section
    filter: Section
    sha256: bytes  # of everything before the footer


class CheckpointFrame(msgspec.Struct, frozen=True, gc=False, array_like=True):
    offset: int
    size: int
    first_key: str


class CheckpointFooter(msgspec.Struct, frozen=True, gc=False, array_like=True):
    format: int
    point: Point
    time_ms: int
    rows: int
    raw_bytes: int
    frames: tuple[CheckpointFrame, ...]
    sha256: bytes


class Version(msgspec.Struct, frozen=True, gc=False):
    """What one effect made of an object; None is a deletion."""

    point: Point
    time_ms: int
    value: bytes | None


class Horizon(msgspec.Struct, frozen=True, gc=False):
    """The oldest state that can be read. History begins with the effect after it."""

    point: Point
    time_ms: int


class Trimmed(msgspec.Struct, frozen=True):
    segments: tuple[str, ...]
    checkpoints: tuple[str, ...]
    bytes: int
    over_bytes: int  # still above the limit: nothing more can go before a newer checkpoint is written


class Fault(msgspec.Struct, frozen=True):
    where: str
    detail: str


class ArchiveError(StoreError):
    pass


class Gap(ArchiveError):
    """A batch that does not follow what is archived, with positions missing between."""


class LaterIncarnation(ArchiveError):
    """A batch of an incarnation whose beginning may lie before it: positions went back."""

    def __init__(self, incarnation: int) -> None:
        super().__init__(f"incarnation {incarnation} has begun")
        self.incarnation = incarnation


class ChainBroken(ArchiveError):
    """A batch whose hash, content or place contradicts what is archived."""


class NotArchived(ArchiveError):
    """Asked for a point the archive has not reached, or that no batch ever had."""


class BeyondHorizon(ArchiveError):
    """Asked for a point whose history is gone."""

    def __init__(self, asked: str, horizon: Horizon | None) -> None:
        reach = f"it reaches back to {horizon.point} (plane time {horizon.time_ms} ms)" if horizon else "nothing older is there"
        super().__init__(f"{asked} is beyond the archive's horizon; {reach}")
        self.horizon = horizon


class ArchiveCorrupt(ArchiveError):
    """A file that cannot be what was written. The plane itself is not affected, nor is history in other files."""

    def __init__(self, where: str, detail: str) -> None:
        super().__init__(f"{where}: {detail}. This part of the history is damaged; put the file back from a copy")
        self.where = where
        self.detail = detail


def too_new(name: str, found: int) -> FormatTooNew:
    return FormatTooNew(f"{name} has format {found}, this Fairlead reads up to {FORMAT}; start the newer version that wrote it")
