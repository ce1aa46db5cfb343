"""Soft preferences: how good a node is for a need, among those where it fits. A score may rank; it never authorises anything.

One module per score, each with a `SCORE` that satisfies the protocol below, found by name (fairlead/decide/plugins.py). The
policy gives each a weight; the total of a node is the sum of weight * rate. Scores are integers, so that a replay on another
machine gives the same ranking. Called by the scheduler's cycle, once for all nodes per shape and once per node that changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, Protocol

import msgspec

from fairlead.decide.fit import Need, Row, View
from fairlead.decide.tiers import Tier as Tier

SCORE_MAX = 1000  # A rate lies between 0 and this, higher is better; one that cannot be bounded says so.
TOTAL_MAX: Final = 1 << 40  # of weights times rates: far below int64, so that a sum of columns never wraps

Scope = Literal["node", "domain"]


class RatedRow(Row, Protocol):
    """What a score may read of one node (ints) or of all nodes (int64 columns), beside what the gates read."""

    number: Any  # the row's own number
    cpu_total: Any  # allocatable
    memory_total: Any
    cpu_scale: Any  # of cpu_total and memory_total, as fairlead/decide/scores/room.py defines it
    memory_scale: Any
    hourly_cost_millis: Any
    recent_failures: Any  # soft: slots that failed here lately

    def has_image(self, image: str) -> Any:
        """1 where the image is there already."""


class Score(Protocol):
    """It may also have `applies(need) -> bool`: False where it would rate all nodes alike, so that the cycle leaves it out;
    `rate_max: int`, where its rates go beyond SCORE_MAX; and, where its scope is "domain", `own` and `coarse` as DomainScore."""

    @property
    def name(self) -> str: ...

    @property
    def tier(self) -> Tier: ...

    @property
    def text(self) -> str:
        """One line for people: what it prefers."""

    @property
    def scope(self) -> Scope:
        """What makes a node's rate change: a change of the node itself, or of any node in its domain."""

    def rate(self, need: Need, row: RatedRow, view: View) -> Any:
        """0..SCORE_MAX for one node (int) or every node (int64 column). Operators and table look-ups where possible, so that
        one source serves both, as for gates."""


def always(need: Need) -> bool:
    return True


class PlainScore(msgspec.Struct, frozen=True):
    """A score made of a function: all the built-in ones that keep no state."""

    name: str
    tier: Tier
    text: str
    rate: Callable[[Need, RatedRow, View], Any]
    scope: Scope = "node"
    applies: Callable[[Need], bool] = always


class DomainScore(msgspec.Struct, frozen=True):
    """A score about neighbours, in two parts that add up to its rate: what is on the node itself, and what is in its coarse
    domains (zone, region). `coarse` reads nothing of a row but its node class, so that a ranking asks it once per domain, and
    changes no total of single nodes when a slot is placed elsewhere in the domain."""

    name: str
    tier: Tier
    text: str
    own: Callable[[Need, RatedRow, View], Any]
    coarse: Callable[[Need, RatedRow, View], Any]
    applies: Callable[[Need], bool] = always
    scope: Scope = "domain"

    def rate(self, need: Need, row: RatedRow, view: View) -> Any:
        return self.own(need, row, view) + self.coarse(need, row, view)


def applies(score: Score, need: Need) -> bool:
    """Whether the score tells nodes apart for this need."""
    asked: Callable[[Need], bool] | None = getattr(score, "applies", None)
    return asked is None or asked(need)


def rate_max(score: Score) -> int:
    return int(getattr(score, "rate_max", SCORE_MAX))
