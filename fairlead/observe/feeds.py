"""S15 asked of a journal and of a follower: what a feed told was in order, once, as it was committed, and all of it.

Owns an index of its own of the kinds that are followed. Shares nothing with the hub that feeds but the model. Fed by the
simulator with both sides.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from fairlead.model.journal import Blob

Found = Callable[[str, str], None]


class Change(Protocol):
    """As fairlead/client/plane.py tells it."""

    plural: str
    tenant: str
    name: str
    position: int
    raw: bytes | None


class FeedChecker:
    """For one plane and one incarnation of it."""

    def __init__(self, plurals: Sequence[str], found: Found) -> None:
        self.plurals = tuple(plurals)
        self.checked = 0
        self.reached = 0  # the newest revision that this follower was told, with its incarnation; 0: none yet
        self._found = found
        self._positions: list[int] = []
        self._effects: dict[int, tuple[str, bytes | None]] = {}

    def committed(self, blob: Blob, first: int) -> None:
        position = first - 1
        for entry in blob.entries:
            for key, raw in entry.effects:
                position += 1
                if key.partition("/")[0] in self.plurals:
                    self._positions.append(position)
                    self._effects[position] = (key, raw)

    def begins(self, revision: int) -> None:
        """The same follower goes on here, over another connection or at another server: not before where it was."""
        self.checked += 1
        if revision < self.reached:
            self._found("S15", f"a follower that had come to {self.reached} was sent back to {revision}")
        self.reached = max(self.reached, revision)

    def told(self, after: int, changes: Iterable[Change], upto: int) -> None:
        """A feed that had come to `after` told these and says that it has come to `upto`."""
        if upto < after:
            self._found("S15", f"a feed went back from {after} to {upto}")
        seen: dict[str, int] = {}
        heard: set[int] = set()
        for change in changes:
            self.checked += 1
            key = f"{change.plural}/{change.tenant}/{change.name}"
            if change.position <= seen.get(change.plural, after):
                self._found("S15", f"{key} at {change.position} was told after {seen.get(change.plural, after)}")
            seen[change.plural] = change.position
            heard.add(change.position)
            if self._effects.get(change.position) != (key, change.raw):
                self._found("S15", f"{key} at {change.position} was told otherwise than it was committed")
        start, end = bisect_right(self._positions, after), bisect_right(self._positions, upto)
        missing = [position for position in self._positions[start:end] if position not in heard]
        if missing:
            self._found(
                "S15", f"a feed came from {after} to {upto} and did not tell {[self._effects[p][0] for p in missing[:3]]}"
            )
