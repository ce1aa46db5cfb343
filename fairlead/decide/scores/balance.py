"""Least allocated: prefer the node with most left, counted by the scarcer of cpu and memory, so that load is even.

rate = min(left cpu / total cpu, left memory / total memory) * SCORE_MAX. Taking the smaller of the two is both the least
allocated and the even one: a node with half its cpu and half its memory left beats one with all its cpu and no memory.
"""

from __future__ import annotations

from typing import Any

from fairlead.decide.fit import Need, View
from fairlead.decide.scores import PlainScore, RatedRow, Tier
from fairlead.decide.scores.room import left_shares, smaller


def rate(need: Need, row: RatedRow, view: View) -> Any:
    cpu, memory = left_shares(need, row)
    return smaller(cpu, memory)


SCORE = PlainScore("balance", Tier.PREFERENCE, "prefers the node with most left of its scarcer resource", rate)
