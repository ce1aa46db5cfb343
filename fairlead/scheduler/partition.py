"""Which requests a scheduler tries when several share a plane: its part of the workloads, or all of them."""

from __future__ import annotations

import zlib

import msgspec


class Partition(msgspec.Struct, frozen=True):
    """Part `index` of `of`, by the workload's uid, so that a workload's slots stay together. With `of` 1 it is everything:
    several such schedulers compete freely, and whoever commits first wins."""

    index: int = 0
    of: int = 1

    def has(self, tenant: str, workload_uid: str) -> bool:
        return self.of == 1 or zlib.crc32(workload_uid.encode()) % self.of == self.index
