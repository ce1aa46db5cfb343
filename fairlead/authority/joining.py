"""How long a batch that the store could have at once stays open for what the components of this process make of it.

They are told when it is judged (early.py) and answer within a few turns of the loop: a new workload with its assignment, a copied
assignment with its requests and their bindings. What comes so soon goes with it in one commit instead of the next, which spares
a write to the disk and everything that follows from one: answers, watches, frames to other planes. Counted in turns, so that
nobody waits for a timer, and bounded in time, because a busy loop's turns are long. A batch that binds is not kept: an agent
waits for it, and what is said about it can come later, so components are told of it once the store has it or is at it. Owned by
the pipeline; decides nothing about what is judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fairlead.authority.early import Early
from fairlead.authority.state import Rec
from fairlead.model.lifecycle import SlotState
from fairlead.ports import Clock

TURNS: Final = 3  # to the shared picture, from there to a controller, and its command back to the judge
OPEN_S: Final = 0.003  # at most, all turns together: about what one commit takes, which is what is spared


class Joining:
    def __init__(self, early: Early, clock: Clock) -> None:
        self._early = early
        self._clock = clock
        self._judged: list[Rec] = []  # and not told yet
        self._turns = 0  # that are left
        self._until = 0.0

    def judged(self, effects: Sequence[Rec]) -> None:
        self._judged += effects

    def begin(self) -> None:
        """Tells what was judged first of what may become a batch."""
        self._turns, self._until = 0, self._clock.monotonic() + OPEN_S
        self.go_on()

    def go_on(self) -> None:
        """The same of what joined it."""
        if any(map(_is_bound, self._judged)):
            self._turns = 0
        elif self.tell_rest():
            self._turns = TURNS

    def tell_rest(self) -> bool:
        """What was judged and not told yet. Says whether there is anybody whom it concerns."""
        recs, self._judged = self._judged, []
        return bool(recs) and self._early.tell(recs)

    def waits(self) -> bool:
        """Whether to give the loop one more turn before the batch is closed."""
        self._turns -= 1
        return self._turns >= 0 and self._clock.monotonic() < self._until


def _is_bound(rec: Rec) -> bool:
    return rec.plural == "bindings" and rec.hot is not None and rec.hot.state is SlotState.BOUND
