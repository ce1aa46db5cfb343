"""Warm images: prefer a node that has fetched the image already. rate = SCORE_MAX where it has, else 0.

What agents say of their images is soft state, so this is a hint: a node that dropped the image costs a download, no more.
"""

from __future__ import annotations

from typing import Any

from fairlead.decide.fit import Need, View
from fairlead.decide.scores import SCORE_MAX, PlainScore, RatedRow, Tier


def rate(need: Need, row: RatedRow, view: View) -> Any:
    return row.has_image(need.wishes.image) * SCORE_MAX


def _names_one(need: Need) -> bool:
    return need.wishes is not None and need.wishes.image != ""


SCORE = PlainScore("image", Tier.HINT, "prefers a node that has the image already", rate, applies=_names_one)
