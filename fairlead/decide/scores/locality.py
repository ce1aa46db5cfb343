"""Where the workload would rather be: `placement.preferences` (regions, zones, labels, each with a weight), and away from nodes
with a PreferNoSchedule taint. rate = the weights met / all weights * SCORE_MAX, from a table by node class (wishes.py).
"""

from __future__ import annotations

from typing import Any

from fairlead.decide.fit import Need, View
from fairlead.decide.scores import PlainScore, RatedRow, Tier


def rate(need: Need, row: RatedRow, view: View) -> Any:
    return need.wishes.classes[row.node_class]


def _tells_apart(need: Need) -> bool:
    return need.wishes is not None and bool(need.wishes.classes.tells_apart)


TEXT = "prefers the regions, zones and labels the workload names, and nodes without a soft taint"
SCORE = PlainScore("locality", Tier.PREFERENCE, TEXT, rate, applies=_tells_apart)
