"""Which generation an object is of once it is written. Pure; used by the authority's merge and by dry runs.

A Workload's generation names its Revision, and a region compares generations to tell what its slots run. A plane that was
restored, or lost the end of its history, counts on from an older one: it would give the same number to something else. So a
Workload's generations of each incarnation begin above all that those before it can have given (L4).
"""

from __future__ import annotations

from typing import Final

# A change a second takes thirty years to get there; and the last incarnation that a revision has room for (2^20) stays below
# 2^53, up to which every JSON number is exact.
PER_INCARNATION: Final = 1_000_000_000
# Of other kinds the generation names nothing; and a version is made of it that may not outrun the positions (leasing.py).
NAMING: Final = frozenset({"workloads"})


def generation_after(plural: str, before: int, *, changed: bool, incarnation: int) -> int:
    """Of an object whose spec is written and was there before."""
    if not changed:
        return before
    least = (incarnation - 1) * PER_INCARNATION if plural in NAMING else 0
    return max(before + 1, least)
