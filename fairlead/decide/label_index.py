"""Which selectors match these labels, and which labelled things does this selector match, without asking each one.

An index over pairs of label and value: most selectors say `key In values`, so a look-up finds the few that can match at all, and
only those are asked. Used by topology.py, where a tenant may have thousands of both.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from fairlead.decide.classes import matches
from fairlead.model.kinds.intent import LabelExpression

Labels = tuple[tuple[str, str], ...]
Match = tuple[LabelExpression, ...]
T = TypeVar("T", bound=Hashable)


def fits(match: Match, labels: Labels) -> bool:
    have = dict(labels)
    return all(matches(expression, have) for expression in match)


def _pairs(match: Match) -> Labels | None:
    """Whatever matches bears one of these; None where that cannot be said."""
    wanted = next((e for e in match if e.operator == "In"), None)
    return tuple((wanted.key, value) for value in wanted.values) if wanted is not None else None


class Selectors(Generic[T]):
    """Things that select by labels. In the order they were added."""

    __slots__ = ("_by_pair", "_items", "_others")

    def __init__(self) -> None:
        self._items: dict[T, Match] = {}
        self._by_pair: dict[tuple[str, str], dict[T, None]] = {}
        self._others: dict[T, None] = {}

    def add(self, match: Match, item: T) -> None:
        self._items[item] = match
        pairs = _pairs(match)
        if pairs is None:
            self._others[item] = None
        for pair in pairs or ():
            self._by_pair.setdefault(pair, {})[item] = None

    def matching(self, labels: Labels) -> list[T]:
        if not self._items:
            return []
        found = dict(self._others)
        for pair in labels:
            found.update(self._by_pair.get(pair, {}))
        return [item for item in found if fits(self._items[item], labels)]


class Labelled(Generic[T]):
    """Things that bear labels."""

    __slots__ = ("_by_pair", "_items")

    def __init__(self) -> None:
        self._items: dict[T, Labels] = {}
        self._by_pair: dict[tuple[str, str], dict[T, None]] = {}

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def add(self, labels: Labels, item: T) -> None:
        self._items[item] = labels
        for pair in labels:
            self._by_pair.setdefault(pair, {})[item] = None

    def discard(self, item: T) -> None:
        for pair in self._items.pop(item, ()):
            there = self._by_pair[pair]
            there.pop(item, None)
            if not there:
                del self._by_pair[pair]

    def matching(self, match: Match) -> Iterator[T]:
        pairs = _pairs(match)
        found = self._items if pairs is None else {item: None for pair in pairs for item in self._by_pair.get(pair, {})}
        return (item for item in list(found) if fits(match, self._items[item]))
