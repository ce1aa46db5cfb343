"""What a node has left once the need is placed, as a share of the node: what packing, balance and fragmentation rate.

Owns the arithmetic they share: whole numbers, nothing divided by zero, nothing that leaves 64 bits. No score of its own.
Used by the scores beside it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from fairlead.decide.fit import Need
from fairlead.decide.scores import SCORE_MAX, RatedRow
from fairlead.model.quantity import AMOUNT_MAX

assert AMOUNT_MAX * SCORE_MAX < 1 << 63, "the largest amount times a score fits a column's cell"

Pair = tuple[Any, Any]  # of cpu and memory


def at_least(low: int, amount: Any) -> Any:
    if type(amount) is int:
        return amount if amount > low else low
    return np.maximum(amount, low)


def smaller(one: Any, other: Any) -> Any:
    if type(one) is int:
        return one if one < other else other
    return np.minimum(one, other)


def larger(one: Any, other: Any) -> Any:
    if type(one) is int:
        return one if one > other else other
    return np.maximum(one, other)


def left(need: Need, row: RatedRow) -> Pair:
    """CPU and memory that remain, 0 where it does not fit. Borrowers use what is held, so they leave what is not lent."""
    if need.borrows:
        return at_least(0, row.cpu_unlent - need.cpu), at_least(0, row.memory_unlent - need.memory)
    return at_least(0, row.cpu_free - need.cpu), at_least(0, row.memory_free - need.memory)


SCALE_BITS: Final = 52  # SCORE_MAX of these is below 2^62, so no share of a whole leaves 64 bits


def scale_of(total: int) -> int:
    """What an amount of a node is multiplied with to become a share of it; kept beside the node's size, because dividing a column
    costs four times as much as multiplying it. 0 of a node that has none."""
    return (SCORE_MAX << SCALE_BITS) // total if total > 0 else 0


def share(amount: Any, total: Any, scale: Any) -> Any:
    """SCORE_MAX * amount / total, rounded down by up to one more; `amount` beyond the total counts as all of it."""
    return (smaller(amount, total) * scale) >> SCALE_BITS


def left_shares(need: Need, row: RatedRow) -> Pair:
    cpu, memory = left(need, row)
    return share(cpu, row.cpu_total, row.cpu_scale), share(memory, row.memory_total, row.memory_scale)
