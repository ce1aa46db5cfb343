"""The plane's whole state in memory: one record per object, the chain of its recent versions, and the ring they hang on.

Owns get, list and read views at a revision; knows nothing of commands. `apply` is the only way in: live, when loading, when
tailing and (backwards) when a batch is undone, so that what is derived from objects can never disagree with them.
Called by the authority's judge, pipeline and reader.

Two heads (P3): `position` is the speculative head, `durable` what the store has confirmed. The newest record of an object may
be speculative; its older versions hang on `previous` for as long as the ring remembers them, so a read at the durable head,
or at any revision since `horizon`, walks a few links and copies nothing.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec

from fairlead.authority.ordered import OrderedNames
from fairlead.model.hot import DECODERS as DECODERS
from fairlead.model.ids import Key, key
from fairlead.store.contract import ObjectRow

ADDED, MODIFIED, DELETED = 0, 1, 2

# Internal tables: stored and loaded like objects, never served as such.
RECEIPTS = "receipts"
SESSIONS = "sessions"
CLOCK = "clock"  # the plane time of the last materialised batch; among the store's objects only
INTERNAL = frozenset({RECEIPTS, SESSIONS, CLOCK})


class Rec(msgspec.Struct, gc=False, eq=False):
    """One version of one object. `raw` None marks a deletion. `hot` is what judging needs without decoding. One that is not in
    the state yet has no position: `State.place` gives it one, and what it follows."""

    plural: str
    tenant: str
    name: str
    position: int
    raw: bytes | None
    hot: Any = None
    previous: Rec | None = None
    change: int = 0

    @property
    def key(self) -> Key:
        return key(self.plural, self.tenant, self.name)

    def decode(self) -> Any:
        if self.raw is None:
            return None
        return DECODERS[self.plural].decode(self.raw)


class Bucket:
    """The objects of one kind and tenant. `members` also holds deletions until the ring forgets them."""

    __slots__ = ("derived", "live", "members", "names", "plural", "tenant")

    def __init__(self, plural: str, tenant: str, derived: list[Derived]) -> None:
        self.plural = plural
        self.tenant = tenant
        self.members: dict[str, Rec] = {}
        self.names = OrderedNames()
        self.live = 0
        self.derived = derived  # its kind's own list


# Told of every change as (old, new), either of which may be None; called backwards when a batch is undone.
Derived = Callable[[Rec | None, Rec | None], None]
HotOf = Callable[[str, bytes], Any]


class State:
    def __init__(self, hot_of: HotOf, ring_size: int = 200_000) -> None:
        self._buckets: dict[tuple[str, str], Bucket] = {}
        self._tenants: dict[str, dict[str, Bucket]] = {}
        self._ring: deque[Rec] = deque()
        self._ring_size = ring_size
        self._derived: dict[str, list[Derived]] = {}
        self._hot_of = hot_of
        self.position = 0
        self.durable = 0
        self.horizon = 0  # the oldest position a view can still be taken at
        self._held: list[int] = []  # changes after the first of these positions are not forgotten

    def derive(self, plural: str, told: Derived) -> None:
        self._derived.setdefault(plural, []).append(told)

    def bucket(self, plural: str, tenant: str) -> Bucket:
        found = self._buckets.get((plural, tenant))
        if found is None:
            found = self._buckets[plural, tenant] = Bucket(plural, tenant, self._derived.setdefault(plural, []))
            self._tenants.setdefault(plural, {})[tenant] = found
        return found

    def known(self, plural: str, tenant: str) -> Bucket | None:
        """For readers: whoever asks for what is not there leaves nothing behind."""
        return self._buckets.get((plural, tenant))

    def plurals(self) -> list[str]:
        """Every table that holds anything, internal ones too."""
        return sorted(self._tenants)

    def tenants_of(self, plural: str) -> list[str]:
        return sorted(self._tenants.get(plural, ()))

    # --- reading the speculative head: for judging only -------------------------------------------------------------

    def get(self, plural: str, tenant: str, name: str) -> Rec | None:
        bucket = self._buckets.get((plural, tenant))
        rec = bucket.members.get(name) if bucket is not None else None
        return rec if rec is not None and rec.raw is not None else None

    def hot(self, plural: str, tenant: str, name: str) -> Any:
        bucket = self._buckets.get((plural, tenant))
        rec = bucket.members.get(name) if bucket is not None else None
        return rec.hot if rec is not None else None  # a deletion has none

    def count(self, plural: str, tenant: str | None = None) -> int:
        buckets = self._tenants.get(plural, {})
        if tenant is not None:
            return buckets[tenant].live if tenant in buckets else 0
        return sum(bucket.live for bucket in buckets.values())

    def live(self, plural: str, tenant: str | None = None) -> Iterator[Rec]:
        """All present records, in no particular order. For loading, checks and small kinds: it scans."""
        buckets = self._tenants.get(plural, {})
        for bucket in list(buckets.values()) if tenant is None else [buckets[tenant]] if tenant in buckets else []:
            yield from (rec for rec in list(bucket.members.values()) if rec.raw is not None)

    # --- the only way in -------------------------------------------------------------------------------------------

    def apply(self, plural: str, tenant: str, name: str, raw: bytes | None, hot: Any = None) -> Rec:
        """The next effect, as a journal has it. `hot` is decoded from `raw` where it is not given."""
        if raw is not None and hot is None:
            hot = self._hot_of(plural, raw)
        rec = Rec(plural, tenant, name, 0, raw, hot)
        self.place(rec)
        return rec

    def place(self, rec: Rec) -> None:
        """The next effect, as a judge made it. Its `hot` is with it."""
        bucket = self._buckets.get((rec.plural, rec.tenant)) or self.bucket(rec.plural, rec.tenant)
        members, name = bucket.members, rec.name
        rec.position = self.position = self.position + 1
        rec.previous = old = members.get(name)
        members[name] = rec
        before = old if old is not None and old.raw is not None else None
        after: Rec | None = rec
        if rec.raw is None:
            after = None
            rec.change = DELETED
            if before is not None:
                bucket.live -= 1
        elif before is not None:
            rec.change = MODIFIED
        else:
            rec.change = ADDED
            bucket.live += 1
            if old is None:
                bucket.names.add(name)
        for told in bucket.derived:
            told(before, after)
        self._ring.append(rec)

    def _forget(self, rec: Rec) -> None:
        """The ring forgets this change: what was there before it is gone for good."""
        rec.previous = None
        self.horizon = rec.position
        if rec.raw is None:
            bucket = self._buckets[rec.plural, rec.tenant]
            if bucket.members.get(rec.name) is rec:
                del bucket.members[rec.name]
                bucket.names.discard(rec.name)

    def undecided(self, plural: str) -> list[Rec]:
        """The effects on this kind that no store has taken yet; they may be undone."""
        return [rec for rec in islice(reversed(self._ring), self.position - self.durable) if rec.plural == plural]

    def undo_to(self, position: int) -> None:
        """Takes back every effect after `position`, newest first. Never past the durable head."""
        assert position >= self.durable, f"cannot undo to {position}: {self.durable} is durable"
        ring = self._ring
        while self.position > position:
            rec = ring.pop()
            old = rec.previous
            bucket = self._buckets[rec.plural, rec.tenant]
            if old is None:
                del bucket.members[rec.name]
                bucket.names.discard(rec.name)
            else:
                bucket.members[rec.name] = old
            present = old is not None and old.raw is not None
            bucket.live += int(present) - int(rec.raw is not None)
            for told in self._derived.get(rec.plural, ()):
                told(rec if rec.raw is not None else None, old if present else None)
            self.position -= 1

    def load(self, rows: Iterable[ObjectRow], at_most: int) -> None:
        """Takes objects of a checkpoint: as they stand, with no history. `at_most` is the checkpoint's position; what was written
        ahead of it counts as of then, because the journal repeats it. One loop for millions of rows, hence one function."""
        buckets, derived, hot_of = self._buckets, self._derived, self._hot_of
        for object_key, position, raw in rows:
            plural, tenant, name = object_key.split("/", 2)
            bucket = buckets.get((plural, tenant)) or self.bucket(plural, tenant)
            # The bucket's own strings: a row's are copies, and two copies a row are a tenth of a plane's memory.
            rec = Rec(bucket.plural, bucket.tenant, name, min(position, at_most), raw, hot_of(plural, raw), None, ADDED)
            bucket.members[name] = rec
            bucket.live += 1
            bucket.names.add(name)
            for told in derived.get(plural, ()):
                told(None, rec)

    def loaded(self, position: int) -> None:
        """The checkpoint is complete: everything in it is at most this old."""
        self.position = self.durable = self.horizon = position

    def confirm(self, position: int) -> None:
        assert self.durable <= position <= self.position
        self.durable = position
        ring, forgets_upto = self._ring, min([position, *self._held])
        while len(ring) > self._ring_size and ring[0].position <= forgets_upto:
            self._forget(ring.popleft())

    def hold(self, after: int) -> None:
        """From now on every change after that position is remembered, however many there are, until `let_go` of the same: whoever
        begins to lead brings the store's objects up to date from them, and whoever reads everything at one revision is not
        overtaken."""
        assert self.horizon <= after, f"what came after {after} is forgotten up to {self.horizon}"
        self._held.append(after)

    def let_go(self, after: int) -> None:
        self._held.remove(after)

    def changes_since(self, position: int) -> list[Rec]:
        """The changes after `position`, oldest first. The caller has checked the horizon."""
        assert self.horizon <= position, f"what came after {position} is forgotten up to {self.horizon}"
        out: list[Rec] = []
        for rec in reversed(self._ring):
            if rec.position <= position:
                break
            out.append(rec)
        out.reverse()
        return out


def by_kind(recs: Iterable[Rec]) -> Mapping[str, list[Rec]]:
    """Changes sorted by kind, each in order: who follows a kind is told of a batch at once, not of one change after the other."""
    out: defaultdict[str, list[Rec]] = defaultdict(list)
    for rec in recs:
        out[rec.plural].append(rec)
    return out


def at(rec: Rec | None, position: int) -> Rec | None:
    """The version of an object that stood at `position`; None where it did not exist."""
    while rec is not None and rec.position > position:
        rec = rec.previous
    return rec if rec is not None and rec.raw is not None else None
