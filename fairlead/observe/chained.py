"""S18 asked of a journal: batches follow each other without a gap, each is what its hash says, and whatever changes something
says who asked for it. What the authority writes by itself is told by what it is, and is little: the windows of sessions; and with
the first batch of a term the plane's own record, and leases that are over because nobody knows how long it was dark.

Owns where the last batch ended. Fed by JournalChecker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from fairlead.model.hot import DECODERS
from fairlead.model.ids import split_key
from fairlead.model.journal import Blob, Entry, chain_hash
from fairlead.store.contract import Batch

_WINDOWS: Final = "sessions/"
_PLANE: Final = "planes//self"

Found = Callable[[str, str], None]
Objects = dict[str, dict[tuple[str, str], Any]]


class ChainChecker:
    def __init__(self, objects: Objects, found: Found) -> None:
        self._objects = objects
        self._found = found
        self._hash: bytes | None = None
        self._last = 0  # the position of the last change; 0: none was seen yet

    def batch(self, batch: Batch, blob: Blob) -> None:
        """Before anything of it is looked at."""
        if self._hash is not None and batch.previous != self._hash:
            self._found("S18", f"batch {batch.first} does not continue the chain")
        if chain_hash(batch.previous, batch.blob) != batch.hash:
            self._found("S18", f"batch {batch.first} does not match its hash")
        if self._last and batch.first != self._last + 1:
            self._found("S18", f"batch {batch.first} follows one that ended at {self._last}")
        last = batch.first - 1 + sum(len(entry.effects) for entry in blob.entries)
        if (batch.last, batch.first) != (last, blob.header.first):
            detail = f"{batch.first} to {batch.last}, and what is in it goes from {blob.header.first} to {last}"
            self._found("S18", f"a batch is said to go from {detail}")
        self._hash, self._last = batch.hash, batch.last

    def own(self, entry: Entry) -> None:
        """Of an entry that nobody asked for, before it is applied."""
        starts = bool(entry.effects) and entry.effects[0][0] == _PLANE
        for key, raw in entry.effects:
            if not key.startswith(_WINDOWS) and not (starts and (key == _PLANE or self._lapsed(key, raw))):
                self._found("S18", f"{key} was written, and nobody is said to have asked for it")

    def _lapsed(self, key: str, raw: bytes | None) -> bool:
        """All that is new about it is when its lease ends, and what is asked next."""
        plural, tenant, name = split_key(key)
        old = self._objects[plural].get((tenant, name))
        if raw is None or old is None or plural not in ("grants", "grantterms"):
            return False
        new = DECODERS[plural].decode(raw)
        if plural == "grants":
            new = replace(new, status=replace(new.status, lease_end_time=old.status.lease_end_time))
            return bool(new == old)
        return bool((new.metadata, new.spec) == (old.metadata, old.spec) and new.status.end_time is None)
