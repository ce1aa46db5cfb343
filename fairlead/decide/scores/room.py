"""What a node has left once the need is placed, as a share of the node: what packing, balance and fragmentation rate.

Owns the arithmetic they share: whole numbers, nothing divided by zero, nothing that leaves 64 bits. No score of its own.
Used by the scores beside it.
"""

from __future__ import annotations

from typing import Any

from fairlead.decide.fit import Need
from fairlead.decide.scores import SCORE_MAX, RatedRow
from fairlead.model.quantity import AMOUNT_MAX

assert AMOUNT_MAX * SCORE_MAX < 1 << 63, "the largest amount times a score fits a column's cell"

Pair = tuple[Any, Any]  # of cpu and memory


def left(need: Need, row: RatedRow) -> Pair:
    """CPU and memory that remain, 0 where it does not fit. Borrowers use what is held, so they leave what is not lent."""
    if need.borrows:
        cpu, memory = row.cpu_unlent - need.cpu, row.memory_unlent - need.memory
    else:
        cpu, memory = row.cpu_free - need.cpu, row.memory_free - need.memory
    return cpu * (cpu > 0), memory * (memory > 0)


def share(amount: Any, total: Any) -> Any:
    """SCORE_MAX * amount / total, 0 of a node that has none."""
    return amount * SCORE_MAX // (total + (total == 0))


def left_shares(need: Need, row: RatedRow) -> Pair:
    cpu, memory = left(need, row)
    return share(cpu, row.cpu_total), share(memory, row.memory_total)
