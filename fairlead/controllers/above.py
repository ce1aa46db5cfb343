"""What the mirror has seen of the global plane, for who must know in the region whether something is still ordered there.

Kept by MirrorDown with every complete list it looks at; asked by the slots' repair, in the same process. Evidence only: where the
global plane was not listed, does not know this region, or cannot be reached, there is none, and nothing follows from that.
"""

from __future__ import annotations

from typing import NamedTuple

from fairlead.controllers.cache import Cache, Name


class Listed(NamedTuple):
    """Of which incarnation of the global plane, and how often it was listed since that was first seen."""

    incarnation: int
    lists: int


class Above:
    def __init__(self, region: str) -> None:
        self._region = region
        self._seen: Cache | None = None
        self.listed = Listed(0, 0)

    def saw(self, seen: Cache, incarnation: int) -> None:
        """A complete list, and what was told since."""
        lists = self.listed.lists if incarnation == self.listed.incarnation else 0
        self._seen, self.listed = seen, Listed(incarnation, lists + 1)

    def orders(self, workload: Name) -> bool | None:
        """Whether there is an Assignment of this workload to this region; None: nobody knows."""
        if self._seen is None or self._seen.item("regions", "", self._region) is None:
            return None
        return self._seen.any("assignments", "workload", workload)
