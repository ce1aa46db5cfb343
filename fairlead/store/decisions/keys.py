"""Which keys a frame of records has, and where a closed segment's frames with a key are found. Pure; no I/O.

A key counts by a hash of 32 bits, so a hit must be checked against the record itself. Called by open_segment.py, segment.py
and reader.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from zlib import crc32

import msgspec
import numpy as np
import numpy.typing as npt

from fairlead.client.decisions import DecisionQuery, workload_of
from fairlead.model import codec
from fairlead.model.decision import DecisionRecord
from fairlead.store.archive.keyindex import once

Hashes = npt.NDArray[np.uint32]  # ascending, each once
Words = npt.NDArray[np.uint32]

BUCKET_WORDS = 512  # A look-up in a bucket finds a strange key's 16 bits once in 128 times, and then reads a frame in vain.
BITS_MAX = 16
FRAMES_MAX = 1 << 16

_decode = codec.decoder(DecisionRecord).decode

_TENANT, _SLOT, _WORKLOAD, _GENERATION, _NODE, _OUTCOME, _ID = (crc32(bytes([kind])) for kind in range(7))


def decode_record(body: bytes) -> DecisionRecord | None:
    """None: a record of another version, whose bytes are as they were written. Decisions are soft: it is passed over."""
    try:
        return _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def hashes_of(records: Iterable[DecisionRecord]) -> Hashes:
    """Every key of every attempt. About half a microsecond an attempt, on the log's own thread."""
    found: list[int] = []
    generations: set[tuple[str, str, int]] = set()
    nodes: set[str] = set()
    outcomes: set[str] = set()
    for record in records:
        found.append(crc32(record.id.encode(), _ID))
        attempts = record.decided.attempts
        seeds = {tenant: crc32(tenant.encode(), _SLOT) for tenant in {attempt.tenant for attempt in attempts}}
        found += [crc32(attempt.name.encode(), seeds[attempt.tenant]) for attempt in attempts]
        generations.update([(attempt.tenant, workload_of(attempt.name), attempt.generation) for attempt in attempts])
        nodes.update([attempt.node for attempt in attempts])
        outcomes.update([attempt.reason for attempt in attempts])
        outcomes.update([result.outcome for result in record.results])
    found += map(_node_hash, nodes)
    found += [crc32(outcome.encode(), _OUTCOME) for outcome in outcomes]
    for tenant, workload, generation in generations:
        found.append(crc32(tenant.encode(), _TENANT))
        found.append(_in_tenant(_WORKLOAD, tenant, workload))
        found.append(_in_tenant(_GENERATION, tenant, f"{workload}@{generation}"))
    return once(np.array(found, np.uint32))


@lru_cache(maxsize=1 << 16)  # the same nodes again and again
def _node_hash(node: str) -> int:
    return crc32(node.encode(), _NODE)


def _in_tenant(kind: int, tenant: str, name: str) -> int:
    return crc32(name.encode(), crc32(tenant.encode(), kind))


def asked_hashes(query: DecisionQuery) -> list[int]:
    """The keys a frame must have, rarest kind first, so that most segments are done with after one bucket."""
    asked = []
    if query.id:
        asked.append(crc32(query.id.encode(), _ID))
    if query.slot:
        asked.append(_in_tenant(_SLOT, query.tenant, query.slot))
    workload = query.workload or workload_of(query.slot)
    if query.generation is not None:
        asked.append(_in_tenant(_GENERATION, query.tenant, f"{workload}@{query.generation}"))
    elif query.workload:
        asked.append(_in_tenant(_WORKLOAD, query.tenant, workload))
    if query.node:
        asked.append(_node_hash(query.node))
    if query.outcome:
        asked.append(crc32(query.outcome.encode(), _OUTCOME))
    if query.tenant and not (query.slot or query.workload):
        asked.append(crc32(query.tenant.encode(), _TENANT))
    return asked


def holds(hashes: Hashes, asked: Sequence[int]) -> bool:
    """Whether a frame may have all of these keys."""
    for one in asked:
        at = int(hashes.searchsorted(np.uint32(one)))
        if at == len(hashes) or hashes[at] != one:
            return False
    return True


def build_index(frames: Sequence[Hashes]) -> tuple[int, Words, npt.NDArray[np.int64]]:
    """(bits, words of all buckets, where each bucket starts and the last ends)."""
    assert len(frames) <= FRAMES_MAX, f"{len(frames)} frames in one segment"
    counts = [len(frame) for frame in frames]
    bits = min(BITS_MAX, max(0, (sum(counts) // BUCKET_WORDS).bit_length()))
    numbers = np.repeat(np.arange(len(frames), dtype=np.uint64), counts)
    hashes = np.concatenate(frames).astype(np.uint64) if frames else np.zeros(0, np.uint64)
    pairs = once((hashes >> np.uint64(16 - bits) << np.uint64(16)) | numbers)
    starts = np.searchsorted(pairs, np.arange((1 << bits) + 1, dtype=np.uint64) << np.uint64(32))
    return bits, (pairs & np.uint64(0xFFFFFFFF)).astype("<u4"), starts.astype(np.int64)


def bucket_of(hashed: int, bits: int) -> int:
    return hashed >> (32 - bits)


def frames_in(bucket: Words, hashed: int, bits: int) -> list[int]:
    """The frames that may have the key, ascending."""
    low = (hashed >> (16 - bits) & 0xFFFF) << 16
    begin = np.searchsorted(bucket, np.uint32(low), "left")
    end = np.searchsorted(bucket, np.uint32(low | 0xFFFF), "right")
    return [int(word) & 0xFFFF for word in bucket[begin:end]]
