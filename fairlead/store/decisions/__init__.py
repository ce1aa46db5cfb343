"""The decision log: what schedulers decided and why, for 30 days or 16 GiB.

Owns one directory of files. Decisions are soft evidence: appending never waits for the disk and never fails for it, nothing
is synced but closed segments, and what the disk cannot take is dropped and counted. It never judges and never makes a time
(plane time comes in the records). Opened by the composition root, which hands schedulers a DecisionSink and explainers a
DecisionSource (fairlead/client/decisions.py).

Threads: the caller's encodes and queues. One of the log's own writes, indexes, compresses and trims. Queries run on others.

Every record has a number, one more than the record before, also across restarts. Newest first means by number, so a
continuation stays valid whatever is appended or trimmed meanwhile. Files are named after the number of their first record,
16 decimal digits. Integers are little-endian.

    lock        held by the one process that writes
    N.open      the segment that is still written
    N.segment   the same, closed
    *.tmp       unfinished; removed by the next writer

    record      number u64 | time_ms i64 | attempts u32 | length u32 | DecisionRecord in msgpack

    .open       "FLDDECO1" | (crc32 u32 | record)*
                The crc covers its record. The first that does not hold ends the file: a torn tail.

    .segment    "FLDDECS1" | frame* | buckets | directory | Footer in msgpack | length u32 | crc32 u32 | "FLDDECS1"
                frame      zlib of records, about 64 KiB of them, never less than one
                buckets    which frames may hold a key: u32 words, 16 bits of the key's hash and 16 bits of frame number,
                           sorted. A key's hash has 32 bits; the first BITS of them name its bucket, the next 16 are in the word
                directory  u32: where each of the 2^BITS buckets starts (and the last ends), then the crc32 of each
                The footer names BITS and the frames (offset, size, crc32, numbers, times) and the numbers and times covered.
                So a look-up reads one bucket of about 2 KiB for each segment, and only the frames that it names.

Keys are: slot, workload, workload and generation, tenant, node, outcome or reason, id. A hash may lie; a record never does.
"""

from __future__ import annotations

from fairlead.store.decisions.log import DecisionLog
from fairlead.store.decisions.records import DecisionLogError, Horizon, Meters, Settings

__all__ = ["DecisionLog", "DecisionLogError", "Horizon", "Meters", "Settings"]
