"""How far this server has seen its store, kept in a file of its own that a failover of the store does not reach (P6).

A store that loses its tail while a server of the plane runs is found out by that server's memory. One that loses it while they
are all down is found out by this: whoever leads next begins a new incarnation, and nothing that other planes or nodes have heard
is given out again with another meaning. With it goes how long agents may count on what they were told, which a lost tail takes
from the store as well (P9). Owns the file and the comparison. Used by the candidate and, for where the newest pledge stands, by a
plane's memory.
"""

from __future__ import annotations

import logging
import struct
import zlib
from typing import Final, NamedTuple

from fairlead.authority.follower import following
from fairlead.authority.state import Rec, State
from fairlead.decide.pledges import PLEDGING, is_pledge
from fairlead.model.kinds.ledger import PlaneSpec
from fairlead.ports import Clock, Kept
from fairlead.store.contract import Compacted, Fence, Head, Store

log = logging.getLogger(__name__)

_FIELDS: Final = struct.Struct(">QQQ32s")
_CHECK: Final = struct.Struct(">I")
_LEASE: Final = struct.Struct(">d")  # with a check of its own over it all: an earlier version leaves it as it was
_SHORT: Final = _FIELDS.size + _CHECK.size
_WHOLE: Final = _SHORT + _LEASE.size + _CHECK.size


class Seen(NamedTuple):
    """A batch that was durable, by its last position and the chain's hash there; whose epoch it was; and the longest lease that
    agents may have counted on then (0: not known)."""

    incarnation: int
    epoch: int
    position: int
    hash: bytes
    lease_s: float = 0.0


class Told:
    """The longest lease that an agent may count on by what was seen here of the plane, and whose epoch it was. Agents go on
    counting on what the store has lost."""

    def __init__(self, before: Seen | None) -> None:
        self.lease_s = before.lease_s if before is not None else 0.0
        self._at = (before.incarnation, before.epoch) if before is not None else (0, 0)

    def note(self, spec: PlaneSpec | None, *, lost: bool) -> float:
        """What is in memory now. `lost`: the store no longer has all that was seen here, and who leads since may not know."""
        if spec is not None:
            at, longest_s = _epoch_of(spec), max(spec.node_lease_seconds, spec.longest_lease_seconds)
            if lost or at == self._at:
                self.lease_s = max(self.lease_s, longest_s)
            elif at > self._at:
                self.lease_s = longest_s
            self._at = max(self._at, at)
        return self.lease_s

    def begin(self, spec: PlaneSpec | None, fence: Fence, *, lost: bool) -> float:
        """For who leads under this fence, on a store that says this: what it must wait for besides; 0: nothing."""
        self.note(spec, lost=lost)
        if not lost and _epoch_of(spec) >= self._at:
            return 0.0
        self._at = (fence.incarnation, fence.epoch)  # until that is written down it is missing, however often this begins
        return self.lease_s


def _epoch_of(spec: PlaneSpec | None) -> tuple[int, int]:
    return (spec.incarnation, spec.epoch) if spec is not None else (0, 0)


class Pledged:
    """Where the newest pledge of this plane stands, durable or about to be."""

    def __init__(self, state: State) -> None:
        self.position = 0
        for plural in PLEDGING:
            state.derive(plural, self._changed)

    def _changed(self, old: Rec | None, new: Rec | None) -> None:
        if new is not None and is_pledge(new.plural, old.hot if old is not None else None, new.hot):
            self.position = max(self.position, new.position)


class Remembering:
    def __init__(self, kept: Kept | None) -> None:
        self._kept = kept
        self._noted: Seen | None = None
        self._synced: Seen | None = None  # the last one that a power cut leaves
        self._fails = False

    def last(self) -> Seen | None:
        """What an earlier life of this server saw last; None where nothing tells."""
        data = self._read()
        if data is None:
            return None
        if len(data) not in (_SHORT, _WHOLE) or not _is_whole(data[:_SHORT]):
            log.warning("how far this server had seen its store cannot be read: it was being written when the power went")
            return None
        seen = Seen(*_FIELDS.unpack_from(data))
        if len(data) == _SHORT or not _is_whole(data):  # an earlier version's, or one that wrote over ours
            return seen
        return seen._replace(lease_s=_LEASE.unpack_from(data, _SHORT)[0])

    def _read(self) -> bytes | None:
        try:
            return self._kept.read() if self._kept is not None else None
        except OSError as error:
            log.warning("how far this server had seen its store cannot be read: %s", error)
            return None

    def note(self, seen: Seen, pledged_at: int) -> None:
        """Before anybody hears of it. Synced where a pledge to another plane was made since it last was, at `pledged_at`, or
        agents are told another lease: for the rest it is there for a process that ends, and what a power cut takes from it was
        promised to nobody. A full disk must not stop a plane."""
        if self._kept is None or seen == self._noted:
            return
        told = self._synced is None or self._synced.lease_s != seen.lease_s
        durable = told or pledged_at > self._synced_at(seen)
        try:
            self._kept.write(_checked(_checked(_FIELDS.pack(*seen[:-1])) + _LEASE.pack(seen.lease_s)), durable=durable)
            self._noted, self._fails = seen, False
            self._synced = seen if durable else self._synced
        except OSError as error:
            if not self._fails:
                log.warning("how far this server has seen its store cannot be written: %s", error)
            self._fails = True

    def _synced_at(self, seen: Seen) -> int:
        """Nowhere, where the history has gone back since, or is another one."""
        synced = self._synced
        if synced is None or synced.incarnation != seen.incarnation or synced.position > seen.position:
            return -1
        return synced.position


def _checked(data: bytes) -> bytes:
    return data + _CHECK.pack(zlib.crc32(data))


def _is_whole(data: bytes) -> bool:
    return data == _checked(data[: -_CHECK.size])


async def lost_since(seen: Seen, head: Head, store: Store, clock: Clock) -> str:
    """How the store shows that it no longer has what was seen; empty: it has, or what is older than its journal cannot tell."""
    at = f"position {seen.position} of incarnation {seen.incarnation}"
    if head.incarnation != seen.incarnation:
        return f"{at} was seen, the store is in incarnation {head.incarnation}" if head.incarnation < seen.incarnation else ""
    if head.position < seen.position:
        return f"{at} was seen, the store ends at {head.position}"
    if head.position == seen.position:
        return f"{at} was another one" if head.hash != seen.hash else ""
    batches = await following(store, clock, seen.position, head)
    if isinstance(batches, Compacted):
        return ""
    follows = batches[0].first == seen.position + 1 and batches[0].previous == seen.hash
    return "" if follows else f"{at} was another one: what follows continues another history"
