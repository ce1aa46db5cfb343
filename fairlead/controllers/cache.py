"""What a controller knows of a plane: the objects of the kinds it follows, with indexes. Observation only: it authorises nothing.

Owned and fed by the runtime; read by reconcile functions, which never change it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Protocol, cast

from fairlead.client.plane import Change
from fairlead.model.hot import DECODERS

Name = tuple[str, str]  # tenant, name


class Item:
    """One object as it was last seen. `hot` is what is kept decoded; `object` decodes the rest when somebody asks."""

    __slots__ = ("_object", "_workload", "derived", "hot", "name", "plural", "position", "raw", "tenant")

    def __init__(self, change: Change) -> None:
        self.plural, self.tenant, self.name = change.plural, change.tenant, change.name
        self.position, self.raw, self.hot = change.position, change.raw, change.hot
        self._object: Any = None
        self._workload: Name | None = None
        self.derived: Any = None  # whatever somebody made of it, and wants to find again

    @property
    def key(self) -> Name:
        return self.tenant, self.name

    @property
    def workload(self) -> Name:
        """Of a slot's object: its workload. The objects of a slot are named WORKLOAD-INDEX."""
        found = self._workload
        if found is None:
            found = self._workload = (self.tenant, self.name.rpartition("-")[0])
        return found

    def follow(self, old: Item) -> None:
        """It has the name of the version before, and what goes with it."""
        self._workload = old._workload

    @property
    def object(self) -> Any:
        if self._object is None:
            hot = self.hot
            decoded = hot is None or not hasattr(hot, "metadata")
            self._object = DECODERS[self.plural].decode(self.raw) if decoded and self.raw is not None else hot
        return self._object


class Deletion:
    """A change nobody told: the object is gone."""

    raw: bytes | None = None
    hot: Any = None

    def __init__(self, item: Item, position: int) -> None:
        self.plural, self.tenant, self.name, self.position = item.plural, item.tenant, item.name, max(position, item.position + 1)


IndexOf = Callable[[Item], Hashable]
Table = dict[Hashable, dict[Name, Item]]
_NONE: dict[Name, Item] = {}
_NO_TABLES: dict[IndexOf, Table] = {}
Indexes = Mapping[str, Mapping[str, IndexOf]]  # plural -> name of the index -> what an item is found under; None: not at all


class Derived(Protocol):
    """Something that is kept in step with a cache, change by change."""

    def told(self, old: Item | None, new: Item | None) -> None: ...


class Objects:
    """The objects of several kinds, with every index somebody wants of them. One for all who look at the same picture."""

    def __init__(self) -> None:
        self._items: dict[str, dict[Name, Item]] = {}
        self._gone: dict[str, dict[Name, int]] = {}  # deletions since the last list, so that an older list revives nobody
        self._tables: dict[str, dict[IndexOf, Table]] = {}

    def kind(self, plural: str) -> dict[Name, Item]:
        return self._items.setdefault(plural, {})

    def index(self, plural: str, function: IndexOf) -> Table:
        """Whoever asks for the same function shares its table."""
        tables = self._tables.setdefault(plural, {})
        if function not in tables:
            table = tables[function] = {}
            for name, item in self.kind(plural).items():
                _reindex(table, function, name, None, item)
        return tables[function]

    def apply(self, change: Change) -> tuple[Item | None, Item | None]:
        """(before, after). An older version than the one at hand, replayed from before the list, changes nothing."""
        plural = change.plural
        items = self._items.get(plural)
        if items is None:
            items = self._items[plural] = {}
        name = (change.tenant, change.name)
        old = items.get(name)
        if change.position <= (old.position if old is not None else self._gone.get(plural, {}).get(name, 0)):
            return old, old
        if change.raw is None:
            new = None
            items.pop(name, None)
            self._gone.setdefault(plural, {})[name] = change.position
        else:
            new = items[name] = Item(change)
            if old is not None:
                new.follow(old)
        for function, table in self._tables.get(plural, _NO_TABLES).items():
            if function is workload_of and old is not None and new is not None:
                table[new.workload][name] = new  # a name says it, and stays: most changes of most objects
            else:
                _reindex(table, function, name, old, new)
        return old, new

    def unlisted(self, plural: str, listed: Iterable[Change], position: int) -> list[Deletion]:
        """What is here, was not written after that position, and is missing in a list taken then or later: its deletion was
        missed. Forgets the deletions it kept, all of which the list knows."""
        names = {(change.tenant, change.name) for change in listed}
        here = self.kind(plural).values()
        out = [Deletion(item, position) for item in here if item.key not in names and item.position <= position]
        kept = self._gone.get(plural, {})
        self._gone[plural] = {name: at for name, at in kept.items() if at > position}
        return out


class Cache:
    """One controller's look at objects: the kinds it follows, the indexes it named, and what it derives from them. What it does
    not follow is not there, even if others that share the objects follow it."""

    def __init__(self, indexes: Indexes, objects: Objects | None = None, follows: Iterable[str] | None = None) -> None:
        self._objects = objects = objects or Objects()
        self._items = {plural: objects.kind(plural) for plural in follows} if follows is not None else objects._items
        self._indexes = {
            (plural, name): objects.index(plural, function)
            for plural, by_name in indexes.items()
            for name, function in by_name.items()
        }
        self.derived: Derived | None = None

    def apply(self, change: Change) -> tuple[Item | None, Item | None]:
        """Of a cache that shares its objects with nobody."""
        old, new = self._objects.apply(change)
        if old is not new:
            self.told(old, new)
        return old, new

    def told(self, old: Item | None, new: Item | None) -> None:
        """An object it follows has changed."""
        if self.derived is not None:
            self.derived.told(old, new)

    def item(self, plural: str, tenant: str, name: str) -> Item | None:
        items = self._items.get(plural)
        return items.get((tenant, name)) if items is not None else None

    def get(self, plural: str, tenant: str, name: str) -> Any:
        """The object itself, decoded where need be; None where there is none."""
        items = self._items.get(plural)
        found = items.get((tenant, name)) if items is not None else None
        return found.object if found is not None else None

    def all(self, plural: str) -> Iterable[Item]:
        return self._items.get(plural, {}).values()

    def count(self, plural: str) -> int:
        return len(self._items.get(plural, {}))

    def by(self, plural: str, index: str, value: Hashable) -> list[Item]:
        return list(self._indexes[plural, index].get(value, _NONE).values())

    def each(self, plural: str, index: str, value: Hashable) -> Iterable[Item]:
        """The same, for one pass right now."""
        return self._indexes[plural, index].get(value, _NONE).values()

    def any(self, plural: str, index: str, value: Hashable) -> bool:
        """Whether anything is found there."""
        return value in self._indexes[plural, index]

    def values(self, plural: str, index: str) -> list[Hashable]:
        """What items are found under."""
        return list(self._indexes[plural, index])

    def tally(self, plural: str, index: str) -> dict[Hashable, int]:
        """The same, with how many each."""
        return {value: len(found) for value, found in self._indexes[plural, index].items()}

    def names(self, plural: str, index: str) -> list[Name]:
        """The same, where that is an object each."""
        return cast(list[Name], self.values(plural, index))


def _reindex(table: Table, function: IndexOf, name: Name, old: Item | None, new: Item | None) -> None:
    before = function(old) if old is not None else None
    after = function(new) if new is not None else None
    if before is not None and before != after:
        found = table.get(before)
        if found is not None and found.pop(name, None) is not None and not found:
            del table[before]
    if after is not None and new is not None:
        found = table.get(after)
        if found is None:
            table[after] = {name: new}
        else:
            found[name] = new


def workload_of(item: Item) -> Name:
    return item.workload


def workload_in_spec(item: Item) -> Name:
    return item.tenant, item.hot.spec.workload


def node_of(item: Item) -> str:
    return str(item.hot.node)


def same_but_for_status(old: Item, new: Item) -> bool:
    before, after = old.hot.metadata, new.hot.metadata
    return bool(
        (before.uid, before.generation, before.deletion_time) == (after.uid, after.generation, after.deletion_time)
        and (before.labels, before.annotations) == (after.labels, after.annotations)
        and old.hot.spec == new.hot.spec
    )
