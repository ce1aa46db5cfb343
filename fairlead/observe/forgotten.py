"""What stores forgot, for checkers of what somebody was told: whoever was told of a place that is gone is owed nothing there.

Owns the places from which on each loss took history, and the incarnation that it was lost in: what is told of a later one is of
what was written since. Asked by answers.py, feeds.py and promised.py.
"""

from __future__ import annotations

from fairlead.model.ids import split_revision


class Forgotten:
    """Of one plane."""

    def __init__(self) -> None:
        self._losses: list[tuple[int, int]] = []

    def add(self, incarnation: int, position: int) -> None:
        """In this incarnation everything behind this position was lost."""
        self._losses.append((incarnation, position))

    def has(self, revision: int) -> bool:
        """Whether what was told to be there may be gone."""
        incarnation, position = split_revision(revision)
        return any(incarnation <= lost_in and position > kept for lost_in, kept in self._losses)
