"""Whether components fight over an object: one that is written again and again within a second, because two of them do not agree
what it should be, or one does not see what it wrote itself. Nothing unsafe follows; the plane's load does (L4 asks the same, but
only when everything is at rest).

Over batches, with no state of the authority's. Fed by the simulator's world.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from fairlead.model.journal import Blob, decode_command

WRITES_MAX: Final = 30  # of one object in a second of plane time: a rollout that is in a hurry makes a third of that
# Written with every batch or every renewal, which is what they are for.
_OFTEN: Final = ("sessions/", "receipts/", "leases/", "grantterms/")


class FightChecker:
    def __init__(self, found: Callable[[str], None]) -> None:
        self._found = found
        self._second = 0
        self._blobs: list[Blob] = []  # of this second
        self._written: Counter[str] = Counter()

    def committed(self, blob: Blob) -> None:
        second = blob.header.time_ms // 1000
        if second != self._second:
            self._second = second
            self._blobs.clear()
            self._written.clear()
        self._blobs.append(blob)
        for entry in blob.entries:
            for key, _ in entry.effects:
                self._written[key] += 1
                if self._written[key] == WRITES_MAX and not key.startswith(_OFTEN):
                    self._found(f"{key} was written {WRITES_MAX} times within a second: {self._writers(key)}")

    def _writers(self, key: str) -> str:
        writers: Counter[str] = Counter()
        for blob in self._blobs:
            for entry in blob.entries:
                if any(written == key for written, _ in entry.effects):
                    command = decode_command(entry.command, records=False)
                    writers[command.caller.role.value if command is not None else "authority"] += 1
        return ", ".join(f"{role} {times}" for role, times in writers.most_common(3))
