"""S15 asked of a journal and of a follower: what a feed told was in order, once, as it was committed, and all of it.

Owns an index of its own of the kinds that are followed. Shares nothing with the hub that feeds but the model. Fed by the
simulator with both sides.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from fairlead.model.ids import split_revision
from fairlead.model.journal import Blob
from fairlead.observe.forgotten import Forgotten

Found = Callable[[str, str], None]


class Change(Protocol):
    """As fairlead/client/plane.py tells it."""

    plural: str
    tenant: str
    name: str
    position: int
    raw: bytes | None


class FeedChecker:
    """For one plane."""

    def __init__(self, plurals: Sequence[str], found: Found) -> None:
        self.plurals = tuple(plurals)
        self.checked = 0
        self.reached = 0  # the newest revision that this follower was told, with its incarnation; 0: none yet
        self._found = found
        self._positions: list[int] = []
        self._effects: dict[int, tuple[str, bytes | None]] = {}
        self._forgotten = Forgotten()

    def committed(self, blob: Blob, first: int) -> None:
        position = first - 1
        for entry in blob.entries:
            for key, raw in entry.effects:
                position += 1
                if key.partition("/")[0] in self.plurals:
                    self._positions.append(position)
                    self._effects[position] = (key, raw)

    def lost(self, incarnation: int, position: int) -> None:
        """Its store forgot what is behind this position: a follower that was further may be sent back once."""
        self._forgotten.add(incarnation, position)
        self.reached = 0
        self._positions = self._positions[: bisect_right(self._positions, position)]
        self._effects = {at: self._effects[at] for at in self._positions}

    def begins(self, revision: int) -> None:
        """What a server says of itself to the same follower, which goes on here, over another connection or at another one: it is
        not before where that was."""
        if self._forgotten.has(revision):
            return  # at one that has not heard of the loss
        self.checked += 1
        if revision < self.reached:
            self._found("S15", f"a follower that had come to {self.reached} was sent back to {revision}")
        self.reached = max(self.reached, revision)

    def told(self, before: int, changes: Iterable[Change], now: int) -> None:
        """A feed that had come to revision `before` told these and says that it has come to `now`, of the same incarnation."""
        if self._forgotten.has(max(before, now)):
            return
        self.reached = max(self.reached, now)
        after, upto = split_revision(before)[1], split_revision(now)[1]
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
