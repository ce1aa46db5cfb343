"""Avoid nodes where slots failed lately: rate = SCORE_MAX / (1 + failures), so the first failure already halves it.

Failures are soft state counted by the observer; a count that is missing is 0 and costs a poor choice, no more.
"""

from __future__ import annotations

from typing import Any

from fairlead.decide.fit import Need, View
from fairlead.decide.scores import SCORE_MAX, PlainScore, RatedRow, Tier


def rate(need: Need, row: RatedRow, view: View) -> Any:
    return SCORE_MAX // (1 + row.recent_failures * (row.recent_failures > 0))


SCORE = PlainScore("stability", Tier.HINT, "prefers nodes where no slot has failed lately", rate)
