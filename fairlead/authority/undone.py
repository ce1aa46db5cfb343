"""Which histories a batch that was taken back has ended, and what of each still holds.

A position names another change once the batch that had it is gone. Whoever decided on one that was taken back is told so and
looks again. Kept by the pipeline, for one term of leadership.
"""

from __future__ import annotations

from fairlead.authority.lanes import Call
from fairlead.model.commands import Command
from fairlead.model.ids import split_revision

_HISTORIES_MAX = 50  # remembered


class Undone:
    def __init__(self) -> None:
        self._holds: dict[int, int] = {}  # history -> the last position of it that still holds

    def note(self, history: int, holds: int) -> None:
        self._holds = {**dict([*self._holds.items()][-_HISTORIES_MAX:]), history: holds}

    def is_ground_of(self, call: Call, command: Command) -> bool:
        """Sent before a batch was taken back, by somebody who had seen of it: the positions it names are others' now."""
        seen = command.evidence.observed_revision if command.evidence is not None else 0
        return split_revision(seen)[1] > self._holds.get(call.history, 0) if seen else False
