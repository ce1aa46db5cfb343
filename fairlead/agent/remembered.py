"""What an agent must not forget when it is restarted: its session, the newest leader it heard, the highest token of each slot.

Written whole and atomically, before anything is done that rests on it; a disk that takes nothing keeps that from being done, and
ends nobody. Without a path it lives in memory, as simulated nodes do.
Called by fairlead/agent/node.py.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

import msgspec

from fairlead.model.kinds.slot import Token
from fairlead.ports import Kept, KeptFile

log = logging.getLogger(__name__)

TOKENS_MAX: Final = 20_000  # of slots, the ones used last; far more than a node has in the memory of its region


class Memory(msgspec.Struct, gc=False):
    session: int = 0
    incarnation: int = 0
    epoch: int = 0
    tokens: dict[str, Token] = {}
    lease_s: float = 0.0  # how long the newest leader lets an acknowledgement count


class Remembered:
    def __init__(self, kept: Path | Kept | None = None) -> None:
        self._kept = KeptFile(kept) if isinstance(kept, Path) else kept
        self._dirty = False
        self._memory = Memory()
        written = self._kept.read() if self._kept is not None else None
        if written is not None:
            self._memory = msgspec.msgpack.decode(written, type=Memory)
        self._saved_leader, self._saved_lease_s = self.leader, self.lease_s
        self.unsaved = ""  # why the disk did not take it the last time; empty: it did

    @property
    def session(self) -> int:
        return self._memory.session

    def begin_session(self, session: int) -> None:
        assert session > self._memory.session, f"session {session} after {self._memory.session}"
        self._memory.session = session
        self._dirty = True

    @property
    def leader(self) -> tuple[int, int]:
        return self._memory.incarnation, self._memory.epoch

    @property
    def lease_s(self) -> float:
        return self._memory.lease_s

    def hear(self, incarnation: int, epoch: int, lease_s: float = 0.0) -> bool:
        """False: whoever said this was deposed before (P9). `lease_s`: how long it may be counted on; 0: it does not say."""
        if (incarnation, epoch) < self.leader:
            return False
        if lease_s and lease_s != self.lease_s:
            self._memory.lease_s = lease_s
            self._dirty = True
        if (incarnation, epoch) > self.leader:
            self._memory.incarnation, self._memory.epoch = incarnation, epoch
            self._dirty = True
        return True

    def highest(self, tenant: str, name: str) -> Token | None:
        return self._memory.tokens.get(f"{tenant}/{name}")

    def see(self, tenant: str, name: str, token: Token) -> bool:
        """False: a later life of this slot was seen here; this one is over (S9)."""
        tokens, key = self._memory.tokens, f"{tenant}/{name}"
        known = tokens.get(key)
        if known is not None and token < known:
            return False
        if known != token:
            tokens.pop(key, None)
            tokens[key] = token
            if len(tokens) > TOKENS_MAX:
                del tokens[next(iter(tokens))]
            self._dirty = True
        return True

    def save(self) -> bool:
        """True: it would survive a power cut. False: the disk is full or broken; what rests on it must wait."""
        if not self._dirty or self._kept is None:
            self.unsaved = ""
            return True
        try:
            self._kept.write(msgspec.msgpack.encode(self._memory), durable=True)
        except OSError as error:
            if not self.unsaved:
                log.warning("what this agent must remember cannot be written: %s", error)
            self.unsaved = str(error)
            return False
        self._dirty, self.unsaved = False, ""
        self._saved_leader, self._saved_lease_s = self.leader, self.lease_s
        return True

    def save_leader(self) -> bool:
        """The same for the newest leader and its lease: false while a power cut could make this agent believe an older one again,
        or count on it for longer (P9)."""
        same = self.leader == self._saved_leader and self.lease_s == self._saved_lease_s
        return same or self._kept is None or self.save()
