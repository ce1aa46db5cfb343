"""Which keys a closed segment has, and at which positions: the index and the filter. Pure; called by segment.py.

A key counts by a hash, so a hit must be checked against the effect itself. 32 bits are enough: among 20,000 keys of a segment
one look-up in 200,000 reads a frame in vain. A hash has 64 here, of which the index takes the upper half and the filter both:
since format 2 they are the key's crc and the same spread, in format 1 a blake2b, which costs four times as much to make.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import chain
from typing import TypeVar
from zlib import crc32

import numpy as np
import numpy.typing as npt
import zstandard

FILTER_BITS = 12  # for each key; with six probes one look-up in 300 reads an index in vain
FILTER_PROBES = 6

CRC_SINCE = 2  # the format of segments from which on a key counts by its crc
_SPREAD = 0x9E3779B97F4A7C15  # 2^64 through the golden ratio: the upper half of a product with it depends on every bit

Pairs = npt.NDArray[np.uint64]  # hash << 32 | offset, ascending
Keyed = tuple[int, Sequence[str]]  # a position, and the keys of the effects from there on
T = TypeVar("T", np.uint32, np.uint64)


def key_hash(key: str, made_as: int) -> int:
    """In a segment of format `made_as`."""
    if made_as < CRC_SINCE:
        return int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "little")
    crc = crc32(key.encode())
    return crc << 32 | (crc * _SPREAD >> 32 & 0xFFFFFFFF)


def _hashes(keys: Iterable[str], count: int, made_as: int) -> npt.NDArray[np.uint64]:
    """key_hash of each. Most of what the index costs, so without a line of Python for each key."""
    if made_as < CRC_SINCE:
        return np.frombuffer(b"".join([blake2b(key.encode(), digest_size=8).digest() for key in keys]), "<u8")
    crcs = np.fromiter(map(crc32, map(str.encode, keys)), np.uint64, count)
    return crcs << np.uint64(32) | crcs * np.uint64(_SPREAD) >> np.uint64(32)


def build_index(rows: Sequence[Keyed], first: int, level: int, made_as: int) -> tuple[bytes, bytes]:
    """(index, filter) of a segment that starts at `first`, as format `made_as` has them."""
    counts = np.array([len(keys) for _, keys in rows], np.int64)
    total = int(counts.sum())
    hashes = _hashes(chain.from_iterable(keys for _, keys in rows), total, made_as)
    # Effects count on within their row; between two rows positions may be left out.
    skipped = np.array([position - first for position, _ in rows], np.int64) - (np.cumsum(counts) - counts)
    offsets = (np.arange(total) + np.repeat(skipped, counts)).astype(np.uint64)
    pairs = np.sort(hashes & np.uint64(0xFFFFFFFF00000000) | offsets)
    return _pack(pairs, level), _build_filter(once(hashes))


def once(values: npt.NDArray[T]) -> npt.NDArray[T]:
    """Sorted, each once. Three times as fast as np.unique, which hashes before it sorts."""
    ordered = np.sort(values)
    keep = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=keep[1:])
    return ordered[keep]


def _pack(pairs: Pairs, level: int) -> bytes:
    """Transposed bytes: the high ones are nearly all zero and vanish in compression."""
    hashes = (pairs >> np.uint64(32)).astype("<u4")
    steps = np.diff(hashes, prepend=np.zeros(1, "<u4")).astype("<u4")
    offsets = (pairs & np.uint64(0xFFFFFFFF)).astype("<u4")
    planes = [column.view(np.uint8).reshape(-1, 4).T.tobytes() for column in (steps, offsets)]
    return zstandard.ZstdCompressor(level=level, write_checksum=True).compress(b"".join(planes))


def unpack(data: bytes) -> Pairs:
    """The index as it was built, from its decompressed bytes."""
    count = len(data) // 8
    planes = np.frombuffer(data, np.uint8).reshape(2, 4, count)
    steps = np.ascontiguousarray(planes[0].T).view("<u4").reshape(count)
    offsets = np.ascontiguousarray(planes[1].T).view("<u4").reshape(count)
    return (np.cumsum(steps, dtype=np.uint64) << np.uint64(32)) | offsets.astype(np.uint64)


def offsets_of(pairs: Pairs, hashed: int, low: int, high: int) -> list[int]:
    """Offsets in low..high of effects on a key with this hash, ascending."""
    base = (hashed >> 32) << 32
    begin, end = np.searchsorted(pairs, np.array([base | low, base | (high + 1)], np.uint64))
    return [int(pair) & 0xFFFFFFFF for pair in pairs[begin:end]]


def _build_filter(hashes: npt.NDArray[np.uint64]) -> bytes:
    size = (max(1, len(hashes)) * FILTER_BITS + 7) // 8
    bits = np.zeros(size * 8, np.uint8)
    start = hashes & np.uint64(0xFFFFFFFF)
    step = (hashes >> np.uint64(32)) | np.uint64(1)
    for probe in range(FILTER_PROBES):
        bits[(start + np.uint64(probe) * step) % np.uint64(size * 8)] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def may_hold(filter_bytes: bytes, hashed: int) -> bool:
    size = len(filter_bytes) * 8
    start, step = hashed & 0xFFFFFFFF, (hashed >> 32) | 1
    for probe in range(FILTER_PROBES):
        bit = (start + probe * step) % size
        if not filter_bytes[bit >> 3] >> (bit & 7) & 1:
            return False
    return True
