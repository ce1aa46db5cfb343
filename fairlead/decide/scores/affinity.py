"""Prefer to be near the workloads that `affinity` names and away from those `antiAffinity` names, where neither is required.

attraction = the weights of affinity met less those of anti-affinity not met, between -down and +up, the sums of the weights.
rate = (attraction + down) / (up + down) * SCORE_MAX, in two parts: rules by node (own) and by zone or region (coarse).
"""

from __future__ import annotations

from typing import Any

from fairlead.decide.fit import Need, View
from fairlead.decide.scores import SCORE_MAX, DomainScore, RatedRow, Tier
from fairlead.decide.scores.wishes import Pulls, Wishes


def own(need: Need, row: RatedRow, view: View) -> Any:
    if need.topology is None:
        return 0
    return _rate(need.wishes, need.wishes.pulls_own, need.topology.attraction(row, own=True))


def coarse(need: Need, row: RatedRow, view: View) -> Any:
    if need.topology is None:
        return 0
    return _rate(need.wishes, need.wishes.pulls_coarse, need.topology.attraction(row, own=False))


def _rate(wishes: Wishes, part: Pulls, attraction: Any) -> Any:
    return SCORE_MAX * (attraction + part.down) // (sum(wishes.pulls_own) + sum(wishes.pulls_coarse) or 1)


def _has_rules(need: Need) -> bool:
    return need.wishes is not None and bool(sum(need.wishes.pulls_own) + sum(need.wishes.pulls_coarse))


TEXT = "prefers to be near the workloads it names, and away from those it names for that"
SCORE = DomainScore("affinity", Tier.PREFERENCE, TEXT, own, coarse, _has_rules)
