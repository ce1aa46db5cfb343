"""Best fit: prefer the node that has least left over afterwards, so that others stay empty for large slots.

rate = SCORE_MAX - (left cpu / total cpu + left memory / total memory) * SCORE_MAX / 2. A node that is filled exactly rates
SCORE_MAX, an empty large one near 0. A resource the node has none of leaves nothing over.
"""

from __future__ import annotations

from typing import Any

from fairlead.decide.fit import Need, View
from fairlead.decide.scores import SCORE_MAX, PlainScore, RatedRow, Tier
from fairlead.decide.scores.room import left_shares


def rate(need: Need, row: RatedRow, view: View) -> Any:
    cpu, memory = left_shares(need, row)
    return SCORE_MAX - ((cpu + memory) >> 1)


SCORE = PlainScore("packing", Tier.PREFERENCE, "prefers the node with least cpu and memory left over", rate)
