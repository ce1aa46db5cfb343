"""In which order the new work of one round is placed: the large before the small, which packs better.

The queue has said who is in the round, by priority, shares, deadlines and age. Runs gather slots of one shape; placed in the
order in which each shape was first met they pack worse than slot by slot, the large first better. Only neighbours that nobody
owes anything are exchanged: what has a deadline, was tried before or is a gang keeps its turn and is passed by nobody, so that no
stream of large ones can keep a small one waiting. Called by the cycle.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import TYPE_CHECKING

from fairlead.scheduler.units import NO_DEADLINE, Amounts

if TYPE_CHECKING:
    from fairlead.scheduler.cycle import Run


def large_first(runs: list[Run], capacity: Mapping[str, int]) -> list[Run]:
    out: list[Run] = []
    for (free, _), neighbours in groupby(runs, key=lambda run: (_may_move(run), run.items[0].priority)):
        some = list(neighbours)
        if free and len(some) > 1:
            some.sort(
                key=lambda run: size_of(run.items[0].amounts, capacity), reverse=True
            )  # of equals the first come stays first
        out += some
    return out


def _may_move(run: Run) -> bool:
    if run.gang or run.failures:
        return False
    return all(item.attempts == 0 and item.deadline_ms == NO_DEADLINE for item in run.items)


def size_of(amounts: Amounts, capacity: Mapping[str, int]) -> float:
    """The parts of the plane's capacity that it takes, together. What the plane has nothing of fits nowhere, however large."""
    return sum(amount / capacity[name] for name, amount in amounts if capacity.get(name))
