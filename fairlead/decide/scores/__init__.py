"""Soft preferences: how good a node is for a need, among those where it fits. A score may rank; it never authorises anything.

One module per score, each with a `SCORE` that satisfies the protocol below, found by name (fairlead/decide/plugins.py). The
policy gives each a weight; the total of a node is the sum of weight * rate. Scores are integers, so that a replay on another
machine gives the same ranking.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Protocol

from fairlead.decide.fit import Need, Row, View

SCORE_MAX = 1000  # A rate lies between 0 and this, higher is better; one that cannot be bounded says so.


class Tier(Enum):
    """How much coordination a gate or score deserves: what happens when its input is stale."""

    INVARIANT = "hard invariant"  # asked again by the authority on the present state; stale input costs a refusal
    PREFERENCE = "bounded preference"  # ranks; stale input costs quality, within known bounds
    HINT = "hint"  # ranks, from soft state that may be missing altogether


class RatedRow(Row, Protocol):
    """What a score may read of one node (ints) or of all nodes (int64 columns), beside what the gates read."""

    number: Any  # the row's own number
    cpu_total: Any  # allocatable
    memory_total: Any
    hourly_cost_millis: Any
    recent_failures: Any  # soft: slots that failed here lately

    def has_image(self, image: str) -> Any:
        """1 where the image is there already."""


class Score(Protocol):
    name: str
    tier: Tier
    text: str  # one line for people: what it prefers

    def rate(self, need: Need, row: RatedRow, view: View) -> Any:
        """0..SCORE_MAX for one node (int) or every node (int64 column). Operators and table look-ups where possible, so that
        one source serves both, as for gates."""
