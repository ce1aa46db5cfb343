"""The nodes a scheduler takes first when several share a plane: its homes. A hint: it ranks, and closes no node to anybody.

Schedulers that rate nodes alike all want the same one next, and all but the first are refused there. With homes they meet only
where their own nodes are full. Owns one number per node; never outweighs what a workload wishes for itself or the stability of
nodes. Called by shapes.py as one more score.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from fairlead.decide.need import Need
from fairlead.scheduler.fleet import Column, OneRow
from fairlead.scheduler.partition import Partition

NAME: Final = "home"
_RATE: Final = 1000  # as any score's highest
_ABOVE: Final = frozenset({"locality", "affinity", "spread", "stability", "image"})  # what it must not outweigh


class Homes:
    def __init__(self, partition: Partition, names: list[str]) -> None:
        """`names` are the nodes by row, and grow."""
        self._partition = partition
        self._names = names
        self._cells: list[int] = []
        self._column: Column = np.zeros(0, np.int64)

    def rate(self, need: Need, row: Any, view: Any) -> Any:
        if len(self._cells) < len(self._names):
            fresh = self._names[len(self._cells) :]
            self._cells += [_RATE * self._partition.is_home(name) for name in fresh]
            self._column = np.array(self._cells, np.int64)
        return self._cells[row.number] if isinstance(row, OneRow) else self._column[row.number]


def weight_of(scores: Sequence[tuple[Any, int]]) -> int:
    """Just above all that is good for the fleet alone, of (score, weight) pairs: packing would send everybody to one node."""
    return 1 + sum(weight for score, weight in scores if score.name not in _ABOVE)
