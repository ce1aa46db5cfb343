"""Avoid nodes where slots failed lately: rate = SCORE_MAX / 2 ** failures, so each failure halves it.

Failures are soft state counted by the observer; a count that is missing is 0 and costs a poor choice, no more.
"""

from __future__ import annotations

from typing import Any

from fairlead.decide.fit import Need, View
from fairlead.decide.scores import SCORE_MAX, PlainScore, RatedRow, Tier
from fairlead.decide.scores.room import at_least


def rate(need: Need, row: RatedRow, view: View) -> Any:
    return SCORE_MAX >> at_least(0, row.recent_failures)


SCORE = PlainScore("stability", Tier.HINT, "prefers nodes where no slot has failed lately", rate)
