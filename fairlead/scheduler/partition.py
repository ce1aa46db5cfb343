"""Which requests a scheduler tries when several share a plane: its part of the workloads, all of them, or its part at once and
the others' when they have been left lying.

Owns how work is divided and how long each part's own scheduler has before others step in; orders nothing and tries nothing.
Called by the observer for every request; the queue keeps the head starts.
"""

from __future__ import annotations

import zlib
from typing import Final

import msgspec

MOMENT_MS: Final = 100  # a few rounds of a scheduler: time enough to hear of a lost race
TRIED_FIRST: Final = 32
TRIED_MAX: Final = 4_096


class HeadStart(msgspec.Struct, gc=False, eq=False):
    """One part of the work as a scheduler sees it that has another part: it stays away until nobody has settled any of it for
    `wait_ms`. Shared by all requests of the part."""

    wait_ms: int
    alive_ms: int = 0  # when one of its requests was last settled by somebody else
    next_ms: int = 0  # when more of it may be tried
    left: int = 0  # until then
    more: int = TRIED_FIRST  # and how many then

    def over_ms(self, since_ms: int) -> int:
        """When work that waits since then may be tried."""
        return max(since_ms, self.alive_ms) + self.wait_ms

    def seen(self, now_ms: int) -> None:
        """Somebody else is at work on it."""
        self.alive_ms, self.left, self.more = now_ms, 0, TRIED_FIRST

    def admits(self, now_ms: int) -> bool:
        """Whether one more may be tried now: a few at first, and each moment that nobody is seen twice as many. Who was only
        slow, or paused, loses a few races and not the whole part."""
        if now_ms >= self.next_ms:
            self.next_ms, self.left, self.more = now_ms + MOMENT_MS, self.more, min(2 * self.more, TRIED_MAX)
        self.left -= 1
        return self.left >= 0


NEVER: Final = HeadStart(0)  # of work that is left to others for good


class Partition(msgspec.Struct, frozen=True):
    """Part `index` of `of`, by the workload's uid, so that a workload's slots stay together; a gang goes by its own name, because
    its members may be of several workloads. With `of` 1 it is everything: several such schedulers compete freely, and whoever
    commits first wins. With `steal_after_ms` a part whose scheduler does nothing for that long is picked up by the next one, by
    the one after that if the next does nothing either, and so on: nearly as few conflicts as strict parts, and no part is lost
    with its scheduler."""

    index: int = 0
    of: int = 1
    steal_after_ms: int = 0  # 0: never

    def part_of(self, tenant: str, workload_uid: str, gang: str = "") -> int:
        key = f"{tenant}/{gang}" if gang else workload_uid
        return zlib.crc32(key.encode()) % self.of

    def has(self, tenant: str, workload_uid: str, gang: str = "") -> bool:
        return self.of == 1 or self.part_of(tenant, workload_uid, gang) == self.index

    def is_home(self, node: str) -> bool:
        """Whether this scheduler takes that node before others. Nodes are divided as work is, softly (homes.py)."""
        return zlib.crc32(node.encode()) % self.of == self.index

    def distance(self, part: int) -> int:
        """How many schedulers are asked before this one: 0 for its own part."""
        return (self.index - part) % self.of


class Parts:
    """The parts of one plane's work as one scheduler sees them."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._all = partition.of == 1
        self._starts: list[HeadStart | None] = [self._start(part) for part in range(partition.of)]

    def _start(self, part: int) -> HeadStart | None:
        distance, after_ms = self._partition.distance(part), self._partition.steal_after_ms
        if distance == 0:
            return None
        return HeadStart(after_ms * distance) if after_ms else NEVER

    def head_start(self, tenant: str, workload_uid: str, gang: str = "") -> HeadStart | None:
        """None: it is this scheduler's own; NEVER: it is not to be tried here."""
        return None if self._all else self._starts[self._partition.part_of(tenant, workload_uid, gang)]
