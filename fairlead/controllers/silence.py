"""The two conditions of whatever is heard or falls silent: Ready, and whether the silence says more about who listens than about
who is silent. Used by the node and the region controller, which decide; here it is only written down."""

from __future__ import annotations

from typing import NamedTuple

from fairlead.controllers.gathering import is_true
from fairlead.decide.slots import instant
from fairlead.model.meta import Condition, set_condition


class Heard(NamedTuple):
    well: bool
    lost: bool  # neither: silent, and nobody knows
    suspect: bool  # many are silent together
    why: str


def conditions_of(
    before: tuple[Condition, ...], heard: Heard, suspect_type: str, *, changed: bool, generation: int, now_ms: int
) -> tuple[Condition, ...]:
    """`changed`: its health is another than before. Equal to `before` where nothing is."""
    after = before
    if changed:
        ready = Condition(
            type="Ready",
            status="True" if heard.well else "False" if heard.lost else "Unknown",
            reason="Heard" if heard.well else "Lost" if heard.lost else "Silent",
            message=heard.why,
            observed_generation=generation,
            last_transition_time=instant(now_ms),
        )
        after = set_condition(after, ready)
    if heard.suspect != is_true(after, suspect_type):
        suspect = Condition(
            type=suspect_type,
            status="True" if heard.suspect else "False",
            reason="ManySilent" if heard.suspect else "Explained",
            message=heard.why,
            last_transition_time=instant(now_ms),
        )
        after = set_condition(after, suspect)
    return after
