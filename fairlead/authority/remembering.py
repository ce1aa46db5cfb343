"""How far this server has seen its store, kept in a file of its own that a failover of the store does not reach (P6).

A store that loses its tail while a server of the plane runs is found out by that server's memory. One that loses it while they
are all down is found out by this: whoever leads next begins a new incarnation, and nothing that other planes or nodes have heard
is given out again with another meaning. Owns the file and the comparison. Used by the candidate and, for where the newest pledge
stands, by a plane's memory.
"""

from __future__ import annotations

import logging
import struct
import zlib
from typing import Final, NamedTuple

from fairlead.authority.follower import following
from fairlead.authority.state import Rec, State
from fairlead.decide.pledges import PLEDGING, is_pledge
from fairlead.ports import Clock, Kept
from fairlead.store.contract import Compacted, Head, Store

log = logging.getLogger(__name__)

_FIELDS: Final = struct.Struct(">QQQ32s")
_CHECK: Final = struct.Struct(">I")


class Seen(NamedTuple):
    """A batch that was durable, by its last position and the chain's hash there; and whose epoch it was."""

    incarnation: int
    epoch: int
    position: int
    hash: bytes


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
        fields, check = data[: _FIELDS.size], data[_FIELDS.size :]
        if len(data) != _FIELDS.size + _CHECK.size or _CHECK.unpack(check)[0] != zlib.crc32(fields):
            log.warning("how far this server had seen its store cannot be read: it was being written when the power went")
            return None
        return Seen(*_FIELDS.unpack(fields))

    def _read(self) -> bytes | None:
        try:
            return self._kept.read() if self._kept is not None else None
        except OSError as error:
            log.warning("how far this server had seen its store cannot be read: %s", error)
            return None

    def note(self, seen: Seen, pledged_at: int) -> None:
        """Before anybody hears of it. Synced where a pledge to another plane was made since it last was, at `pledged_at`: for the
        rest it is there for a process that ends, and what a power cut takes from it was promised to nobody. A full disk must not
        stop a plane."""
        if self._kept is None or seen == self._noted:
            return
        fields = _FIELDS.pack(*seen)
        durable = pledged_at > self._synced_at(seen)
        try:
            self._kept.write(fields + _CHECK.pack(zlib.crc32(fields)), durable=durable)
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
