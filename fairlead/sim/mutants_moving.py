"""Owns the planted bugs of overflow: what stands between a slot that waits in one region and the same slot in two. Called by
mutants.py.
"""

from __future__ import annotations

from typing import Any, Final

from fairlead.authority.judge import objects
from fairlead.controllers import overflowing
from fairlead.controllers.overflowing import Moves
from fairlead.decide import overflow, queueing
from fairlead.decide.assigning import own_slots
from fairlead.decide.overflow import Giving
from fairlead.decide.spans import Spans, indices, spans_of
from fairlead.model.kinds.work import Assignment
from fairlead.sim.planting import Mutant, Swap


def _before_given_up() -> list[Swap]:
    """What a region is asked for is given to another one at once."""

    def left(self: Moves, assignment: Assignment) -> int:
        return own_slots(assignment.spec) - self.asks.get(assignment.spec.region, 0)

    return [(Moves, "left", left)]


def _takes_unasked() -> list[Swap]:
    """A region that was asked loses slots before it has said which."""

    def given_up(assignment: Assignment) -> Spans:
        asked = assignment.spec.give_up
        return spans_of(list(indices(assignment.spec.slots))[-asked:]) if asked else ()

    return [(overflowing, "given_up", given_up)]


def _says_early() -> list[Swap]:
    """A region says that it gave up what it is only about to withdraw, and its authority believes it."""
    right = overflow.giving

    def giving(*args: Any) -> Giving:
        gone, going = right(*args)
        return Giving(gone | going, frozenset())

    return [(queueing, "giving", giving), (objects, "refuse_given_up", lambda ctx, old, status: None)]


MUTANTS: Final[dict[str, Mutant]] = {
    "overflow-before-given-up": Mutant("another region gets what was given up", "overflow", ("S1",), _before_given_up, 3.0),
    "overflow-takes-unasked": Mutant("a region says itself what it gives up", "overflow", ("S1",), _takes_unasked, 3.0),
    "overflow-says-early": Mutant("what is given up is queued no longer", "overflow", ("S1",), _says_early, 3.0),
}
