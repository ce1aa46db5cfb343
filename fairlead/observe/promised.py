"""S13 asked of what components were told: a command that was accepted at a revision is the command that the journal has there.

Owns what was told and an index of the journal by where each entry ends. Shares nothing with the authority but the model. Fed by
whoever stands between an authority and its callers: the simulator does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import msgspec

from fairlead.model import codec
from fairlead.model.commands import Accepted, Command, Outcome
from fairlead.model.ids import split_revision
from fairlead.model.journal import Blob, decode_outline
from fairlead.observe.forgotten import Forgotten

Found = Callable[[str, str], None]


class PromiseChecker:
    """For one plane."""

    def __init__(self, found: Found) -> None:
        self._found = found
        self.checked = 0
        self._ends: dict[int, bytes] = {}  # the last position of an entry -> its command
        self._told: list[tuple[int, bytes, str]] = []
        self._forgotten = Forgotten()

    def committed(self, blob: Blob, first: int) -> None:
        position = first - 1
        for entry in blob.entries:
            position += len(entry.effects)
            command = decode_outline(entry.command)
            if command is not None and command.id is None:
                self._ends[position] = _digest(command.body)

    def told(self, command: Command, outcome: Outcome) -> None:
        """Of commands without an id: a slot's own state is their receipt, and no receipt of theirs moves a position."""
        dry = getattr(command.body, "dry_run", False)
        if isinstance(outcome, Accepted) and not outcome.replayed and command.id is None and not dry:
            if self._forgotten.has(outcome.revision):
                return  # by one that has not heard of the loss
            what = f"{type(command.body).__name__} of {command.caller.actor}"
            self._told.append((split_revision(outcome.revision)[1], _digest(codec.encode(command.body)), what))

    def lost(self, incarnation: int, position: int) -> None:
        """Its store forgot what is behind this position. Until now it was there: what was told by now is asked of that."""
        self.finish()
        self._forgotten.add(incarnation, position)
        self._ends = {end: digest for end, digest in self._ends.items() if end <= position}

    def finish(self) -> None:
        for position, digest, what in self._told:
            self.checked += 1
            if self._ends.get(position) != digest:
                self._found("S13", f"a {what} was acknowledged at {position}, and the journal has something else there")
        self._told.clear()


def _digest(body: bytes | msgspec.Raw) -> bytes:
    return hashlib.blake2b(body, digest_size=16).digest()
