"""What the pipeline passes from hand to hand: a batch that grows, one that is sealed, and the news that leadership is over."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from fairlead.authority.lanes import Call
from fairlead.authority.state import Rec
from fairlead.model.commands import Outcome
from fairlead.store.contract import Batch, CommitResult


class Deposed(Exception):
    """This process does not lead any more: all its state is history. `lost_history`: the store no longer has what it had."""

    def __init__(self, detail: str, lost_history: bool = False) -> None:
        super().__init__(detail)
        self.lost_history = lost_history


class Building:
    """A batch that is still growing."""

    __slots__ = ("answers", "commands", "entries", "first", "images", "recs", "size", "time_ms")

    def __init__(self, first: int, time_ms: int) -> None:
        self.first = first
        self.time_ms = time_ms
        self.entries: list[bytes] = []
        self.recs: list[Rec] = []
        self.images: list[tuple[str, bytes | None]] = []  # the records as the journal has them, in the same order
        self.answers: list[tuple[Call, int, Outcome]] = []
        self.size = 0
        self.commands = 0

    def answer(self) -> None:
        for call, index, outcome in self.answers:
            call.answer(index, outcome)

    def tell(self, wake_watchers: Callable[[], None]) -> None:
        """It is durable. People who wait for an answer first, then the watchers, of whom there may be thousands, then components,
        who have looked on meanwhile."""
        for call, index, outcome in self.answers:
            if call.is_of_people:
                call.answer(index, outcome)
        wake_watchers()
        for call, index, outcome in self.answers:
            if not call.is_of_people:
                call.answer(index, outcome)

    def answer_all_with(self, outcome: Outcome) -> None:
        for call, index, _ in self.answers:
            call.answer(index, outcome)


class Sealed(msgspec.Struct, frozen=True):
    """A batch as the store will get it; `batch` is None where there were only refusals and repetitions to answer.
    `first_result`: what the store said when it was tried on the spot."""

    batch: Batch | None
    building: Building
    first_sent: float = 0.0
    first_result: CommitResult | None = None
