"""The history beside the engine (P8): a plane's journal for 30 days or 20 GiB, so that any object can be read as it was at an
earlier revision or time and a whole plane's state can be rebuilt.

Owns one directory of files. It never judges, never makes an id or a time (plane time comes in the blobs, P5), and keeps no
thread and no loop: every function here blocks on files and is meant to be called on an executor's thread. Called by the
leader with batches that are durable, by a standby with what it tails (each into a directory of its own), and by whoever
serves `--at`, `why`, replay and audit. Only the composition root opens one; others are handed it.

Threads: one thread at a time appends; another may close segments, write checkpoints or trim; any number may read.
The engine's journal must not be truncated beyond `Archive.synced()`: what a power cut takes from the archive is fed again.

A `Point` is (incarnation, position), because positions go back when a restore starts a new incarnation (P6). Each segment says
on which point its first batch builds (`base`), so reading at a point walks one line of history, also across a restore, and
never mixes in the tail which that restore lost.

Files. Integers are little-endian; POINT is INCARNATION-POSITION, 7 and 14 decimal digits, so names sort by age.

    lock                 held by the one process that writes
    POINT.open           a segment that is still written, or waits to be compressed; POINT is its first position
    POINT.segment        the same, closed
    POINT.checkpoint     every object at exactly that point
    *.tmp                unfinished; removed by the next writer

    record      first u64 | last u64 | time_ms i64 | hash 32 | length u32 | blob       (one batch)

    .open       "FLDOPEN1" | length u32 | crc32 u32 | Beginning in msgpack | (crc32 u32 | record)*
                The crc covers its record without the blob, the chain hash in the record covers the blob (checking it costs
                nothing more when appending, a crc would). The first that does not hold ends the file: a torn tail.

    .segment    "FLDSEGM1" | frame* | index | filter | Footer in msgpack | length u32 | crc32 u32 | "FLDSEGM1"
                frame    zstd with checksum: records, about 256 KiB of them, never less than one
                index    zstd of two columns, bytes transposed: u32 hashes of keys (sorted, as differences) and u32 offsets of
                         positions from the segment's first, one pair for each effect. A key's hash is its crc32; in files of
                         format 1 the upper half of a blake2b, and those are read as they are
                filter   Bloom filter over the keys, 12 bits and 6 probes each: a segment without the key costs one small read
                The footer names frames (offset, size, positions, times, chain hash before it), index and filter (offset,
                size, crc32), the points and times covered, base, chain hashes before and after, and the sha256 of all before it.

    .checkpoint "FLDCHKP1" | frame* | CheckpointFooter in msgpack | length u32 | crc32 u32 | "FLDCHKP1"
                frame    zstd with checksum of a msgpack array of [key, position, value], keys ascending over the whole file
                The footer names each frame's first key, so that a look-up reads one frame.
"""

from __future__ import annotations

from fairlead.store.archive.archive import Archive
from fairlead.store.archive.checkpoint import checkpoint_due
from fairlead.store.archive.records import (
    GENESIS,
    ArchiveCorrupt,
    ArchiveError,
    BeyondHorizon,
    ChainBroken,
    Contents,
    Fault,
    Gap,
    Horizon,
    LaterIncarnation,
    NotArchived,
    Point,
    Settings,
    Trimmed,
    Version,
)

__all__ = [
    "GENESIS",
    "Archive",
    "ArchiveCorrupt",
    "ArchiveError",
    "BeyondHorizon",
    "ChainBroken",
    "Contents",
    "Fault",
    "Gap",
    "Horizon",
    "LaterIncarnation",
    "NotArchived",
    "Point",
    "Settings",
    "Trimmed",
    "Version",
    "checkpoint_due",
]
