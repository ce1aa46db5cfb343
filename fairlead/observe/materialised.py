"""Whether what a store keeps as objects is what its journal says (S13). Whoever loads begins with the objects and reads only the
journal after them: a change that is missing there was acknowledged and is gone, and no replay of the journal shows it.

Over batches and the store's rows, with no state of the authority's. Fed by the simulator's world.
"""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.model.journal import Blob


class MaterialisedChecker:
    def __init__(self) -> None:
        self._last: dict[str, tuple[int, bytes | None]] = {}  # by key: the last change, and where it stands

    def committed(self, blob: Blob, first: int) -> None:
        position = first
        for entry in blob.entries:
            for key, raw in entry.effects:
                self._last[key] = (position, raw)
                position += 1

    def differences(self, objects: Mapping[str, tuple[int, bytes]], materialised: int) -> list[str]:
        """Of what has not changed since that position."""
        out = []
        for key, (position, raw) in self._last.items():
            row = objects.get(key)
            if position > materialised or (row[1] if row is not None else None) == raw:
                continue
            there = f"is as it was at {row[0]}" if row is not None else "is not there"
            out.append(f"{key} {there}, and was {'deleted' if raw is None else 'changed'} at {position} of {materialised}")
        return out
