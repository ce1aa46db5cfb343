"""Usable remainders: prefer the node whose leftover can be used up by more slots of the same shape.

more = min(left cpu // need cpu, left memory // need memory); what those would not use is waste:
rate = SCORE_MAX - (wasted cpu / total cpu + wasted memory / total memory) * SCORE_MAX / 2. A resource the need does not ask for
is left out of `more` and is never waste. The need's own shape is the only yardstick here; `fill` knows the mix.
"""

from __future__ import annotations

from typing import Any

from fairlead.decide.fit import Need, View
from fairlead.decide.scores import SCORE_MAX, PlainScore, RatedRow, Tier
from fairlead.decide.scores.room import left, share, smaller


def rate(need: Need, row: RatedRow, view: View) -> Any:
    cpu, memory = left(need, row)
    if not (need.cpu and need.memory):  # of one resource: what its own shape leaves of it
        cpu_waste, memory_waste = cpu % (need.cpu or 1), memory % (need.memory or 1)
        return _rate(row, cpu_waste, memory_waste)
    more = smaller(cpu // need.cpu, memory // need.memory)
    cpu_waste, memory_waste = cpu - more * need.cpu, memory - more * need.memory
    return _rate(row, cpu_waste, memory_waste)


def _rate(row: RatedRow, cpu_waste: Any, memory_waste: Any) -> Any:
    cpu = share(cpu_waste, row.cpu_total, row.cpu_scale)
    return SCORE_MAX - ((cpu + share(memory_waste, row.memory_total, row.memory_scale)) >> 1)


def _asks_anything(need: Need) -> bool:
    return bool(need.cpu or need.memory)


TEXT = "prefers the node whose leftover further slots of this shape would use up"
SCORE = PlainScore("fragmentation", Tier.PREFERENCE, TEXT, rate, applies=_asks_anything)
