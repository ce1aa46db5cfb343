"""Which keys a closed segment has, and at which positions: the index and the filter. Pure; called by segment.py.

A key counts by a hash, so a hit must be checked against the effect itself. 32 bits are enough for the index: among 20,000
keys of a segment one look-up in 200,000 reads a frame in vain. The filter takes the whole 64.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import chain

import numpy as np
import numpy.typing as npt
import zstandard

FILTER_BITS = 12  # for each key; with six probes one look-up in 300 reads an index in vain
FILTER_PROBES = 6

Pairs = npt.NDArray[np.uint64]  # hash << 32 | offset, ascending


def key_hash(key: str) -> int:
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "little")


def _hashes(keys: Iterable[str]) -> npt.NDArray[np.uint64]:
    """key_hash of each. Half of what closing a segment costs, so without a Python integer in between."""
    return np.frombuffer(b"".join([blake2b(key.encode(), digest_size=8).digest() for key in keys]), "<u8")


def build_index(positions: Mapping[str, Sequence[int]], first: int, level: int) -> tuple[bytes, bytes]:
    """(index, filter) of a segment that starts at `first`."""
    hashes = _hashes(positions)
    counts = np.fromiter(map(len, positions.values()), np.int64, len(positions))
    offsets = np.array([*chain.from_iterable(positions.values())], np.uint64) - np.uint64(first)
    pairs = np.sort((np.repeat(hashes >> np.uint64(32), counts) << np.uint64(32)) | offsets)
    return _pack(pairs, level), _build_filter(hashes)


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
