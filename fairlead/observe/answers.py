"""S13 and S14 asked of a journal and of what clients were told: what was acknowledged is there once, what was refused is not
there, and what was sent after an answer comes after it.

Owns what clients sent and heard, and an index of the journal of its own. Shares nothing with the authority but the model. Fed by
the simulator, by rigs, and by whoever kept both a history and its clients' log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Final

import msgspec

from fairlead.model.commands import IdempotencyKey
from fairlead.model.journal import Blob, decode_outline

ATTEMPT: Final = "+"  # before what tells attempts of one request apart, where a client does that: it is one request all the same

Found = Callable[[str, str], None]


class Sent(msgspec.Struct):
    """One request under one id, from its first sending to what it came to."""

    id: str
    horizon: int  # the newest position that anybody had been told of when it was first sent
    object_key: str = ""
    position: int = 0  # where it was said to be
    told: str = ""  # "accepted", "refused"; empty: nobody knows
    changes: bool = False  # it made something for sure; else it may have found everything as it wanted it


class AnswerChecker:
    """For one plane and one incarnation of it."""

    def __init__(self, found: Found) -> None:
        self._found = found
        self.checked = 0
        self._effects: dict[int, str] = {}
        self._by_id: dict[str, list[int]] = defaultdict(list)
        self._sent: list[Sent] = []
        self._newest = 0

    def committed(self, blob: Blob, first: int) -> None:
        position = first - 1
        for entry in blob.entries:
            command = decode_outline(entry.command)
            if command is not None and isinstance(command.id, IdempotencyKey):
                self._by_id[command.id.key.partition(ATTEMPT)[0]].append(position + 1)
            for object_key, _ in entry.effects:
                position += 1
                self._effects[position] = object_key

    def send(self, id: str) -> Sent:
        made = Sent(id, self._newest)
        self._sent.append(made)
        return made

    def accepted(self, sent: Sent, object_key: str, position: int, *, changes: bool) -> None:
        sent.told, sent.object_key, sent.position, sent.changes = "accepted", object_key, position, changes
        self._newest = max(self._newest, position)
        self.checked += 1

    def refused(self, sent: Sent) -> None:
        sent.told = "refused"
        self.checked += 1

    def forget(self, sent: Sent) -> None:
        """What it was told no longer binds anybody: a copy of it went to one who had not told it."""
        sent.told = ""

    def finish(self) -> None:
        for sent in self._sent:
            there = self._by_id.get(sent.id, [])
            if sent.told == "accepted" and self._effects.get(sent.position) != sent.object_key:
                self._found("S13", f"{sent.id} was acknowledged at {sent.position}; there is {self._effects.get(sent.position)}")
            if sent.told == "accepted" and there and there[0] <= sent.horizon:
                self._found("S14", f"{sent.id} is at {there[0]}, and {sent.horizon} was acknowledged before it was sent")
            if sent.told == "accepted" and (len(there) > 1 or (not there and sent.changes)):
                self._found("S13", f"{sent.id} was acknowledged and is in the journal {len(there)} times: {there}")
            if sent.told == "refused" and there:
                self._found("S13", f"{sent.id} was refused and is in the journal at {there}")
