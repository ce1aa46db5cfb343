"""Cheap nodes: what the slot's part of the node costs, against a usual price of what it asks for.

paid = hourly cost * max(need cpu / total cpu, need memory / total memory): the larger part is what it keeps others from.
rate = usual * SCORE_MAX / (usual + paid): SCORE_MAX where it costs nothing (or nobody said), half where the price is the usual
one, towards 0 as it grows. The usual price only fixes where the curve is steep; the order of nodes does not depend on it.
"""

from __future__ import annotations

from typing import Any, Final

from fairlead.decide.fit import Need, View
from fairlead.decide.scores import SCORE_MAX, PlainScore, RatedRow, Tier
from fairlead.decide.scores.room import at_least, larger, smaller

CORE_MILLIS: Final = 40  # per hour, thousandths of the currency: what clouds ask for one core, within a factor of two
GIB_MILLIS: Final = 5
COST_BITS: Final = 30  # a node that costs more than a million an hour costs a million an hour
PART_BITS: Final = 20  # precision of a part of a node; with COST_BITS and the factor below it stays within 62 bits
MICROS: Final = 1000  # of one thousandth


def rate(need: Need, row: RatedRow, view: View) -> Any:
    top = (1 << COST_BITS) - 1
    cost = smaller(row.hourly_cost_millis, top)
    by_cpu, by_memory = _part(cost, need.cpu, row.cpu_total), _part(cost, need.memory, row.memory_total)
    usual = _usual(need)
    return usual * SCORE_MAX // (usual + larger(by_cpu, by_memory))


def _part(cost: Any, ask: int, total: Any) -> Any:
    """Millionths per hour of ask / total of the node; both cut to the bits that matter, so that nothing overflows. A part larger
    than the node is all of it: the slot does not fit there, and its rate is nobody's."""
    cut = max(ask.bit_length() - PART_BITS, 0)
    small = ask >> cut
    return cost * (MICROS * small) // at_least(max(small, 1), total >> cut)


def _usual(need: Need) -> int:
    usual = need.cpu * CORE_MILLIS + (need.memory * GIB_MILLIS * MICROS >> 30)
    return min(max(usual, 1), 1 << 50)  # times SCORE_MAX it fits a cell


SCORE = PlainScore("cost", Tier.PREFERENCE, "prefers the node on which this slot's part costs least", rate)
