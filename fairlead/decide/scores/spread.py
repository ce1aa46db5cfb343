"""Prefer domains and nodes with fewer slots of the same workload, for spread rules with `whenUnsatisfiable: ScheduleAnyway` and
for classes whose policy says so.

crowding = slots of the workload above the emptiest domain, summed over the rules of a part (own: by node; coarse: by zone or
region). A part rates GENTLE / (GENTLE + crowding) of its share: full in the emptiest domain, half at GENTLE slots above it, never
flat. SCORE_MAX is shared equally between the parts that have a rule.
"""

from __future__ import annotations

from typing import Any, Final

from fairlead.decide.fit import Need, View
from fairlead.decide.scores import SCORE_MAX, DomainScore, RatedRow, Tier

GENTLE: Final = 4  # a slot too many costs a fifth: enough to beat a better fit, not enough to hide a second one


def own(need: Need, row: RatedRow, view: View) -> Any:
    if not need.wishes.spread_own or need.topology is None:
        return 0
    return _rate(need, need.topology.crowding(row, own=True))


def coarse(need: Need, row: RatedRow, view: View) -> Any:
    if not need.wishes.spread_coarse or need.topology is None:
        return 0
    return _rate(need, need.topology.crowding(row, own=False))


def _rate(need: Need, crowding: Any) -> Any:
    both = need.wishes.spread_own and need.wishes.spread_coarse
    return (SCORE_MAX // 2 if both else SCORE_MAX) * GENTLE // (GENTLE + crowding * (crowding > 0))


def _has_rules(need: Need) -> bool:
    return need.wishes is not None and bool(need.wishes.spread_own or need.wishes.spread_coarse)


SCORE = DomainScore(
    "spread", Tier.PREFERENCE, "prefers domains and nodes with fewer slots of the same workload", own, coarse, _has_rules
)
