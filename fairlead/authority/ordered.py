"""Names in order, for lists and paging. Adding is one append; the ordering work is done when somebody lists, in slices.

Most buckets (bindings of a tenant) are written a thousand times for each time they are listed, so the writer pays nothing.
Names that are gone stay until enough of them have gathered; whoever walks asks the bucket's members, which know.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterator

_BLOCK_MAX = 1024  # An insertion moves at most this many pointers.
_SWEEP_BLOCKS = 64  # Blocks cleared of gone names in one slice, about a millisecond.


class OrderedNames:
    __slots__ = ("_blocks", "_gone", "_size", "_sweep", "_waiting")

    def __init__(self) -> None:
        self._blocks: list[list[str]] = []
        self._waiting: list[str] = []
        self._size = 0
        self._gone = 0
        self._sweep = -1  # the next block to clear; -1: no sweep under way

    def add(self, name: str) -> None:
        self._waiting.append(name)

    def discard(self, name: str) -> None:
        self._gone += 1

    def settle(self, members: Container[str], limit: int = 2000) -> bool:
        """Puts up to `limit` waiting names in order and clears some that are gone; true when nothing is left to do."""
        batch = self._waiting[-limit:]
        del self._waiting[-limit:]
        for name in batch:
            if name in members:
                self._insert(name)
        if self._sweep < 0 and self._gone > 1000 and self._gone * 2 > self._size:
            self._sweep, self._gone = len(self._blocks), 0
        if self._sweep >= 0:
            self._sweep_some(members)
        return not self._waiting and self._sweep < 0

    def _sweep_some(self, members: Container[str]) -> None:
        """From the last block to the first, so that dropping an empty one moves no block still to come."""
        stop = max(self._sweep - _SWEEP_BLOCKS, 0)
        for index in range(self._sweep - 1, stop - 1, -1):
            block = self._blocks[index]
            kept = [name for name in block if name in members]
            self._size -= len(block) - len(kept)
            self._blocks[index : index + 1] = [kept] if kept else []
        self._sweep = stop if stop > 0 else -1

    def _block_of(self, name: str) -> int:
        """The first block whose last name is not before `name`."""
        low, high = 0, len(self._blocks)
        while low < high:
            middle = (low + high) // 2
            if self._blocks[middle][-1] < name:
                low = middle + 1
            else:
                high = middle
        return low

    def _insert(self, name: str) -> None:
        blocks = self._blocks
        if not blocks:
            blocks.append([name])
            self._size = 1
            return
        index = min(self._block_of(name), len(blocks) - 1)
        block = blocks[index]
        place = bisect_left(block, name)
        if place < len(block) and block[place] == name:
            return  # it went and came back
        block.insert(place, name)
        self._size += 1
        if len(block) > _BLOCK_MAX:
            half = len(block) // 2
            blocks[index : index + 1] = [block[:half], block[half:]]
            self._sweep += index < self._sweep  # one more to clear; beginning anew, a busy bucket's list would never end

    def after(self, name: str) -> Iterator[str]:
        """The names after `name` ("" for all), in order, some of which may be gone. Settle first; change nothing meanwhile."""
        first = self._block_of(name) if name else 0
        for index in range(first, len(self._blocks)):
            block = self._blocks[index]
            start = 0
            if index == first and name:
                start = bisect_left(block, name)
                start += start < len(block) and block[start] == name
            yield from block[start:]
