"""How single probes add up: so many in a row before a verdict changes. Pure. Called by fairlead/agent/probes.py."""

from __future__ import annotations

import msgspec

from fairlead.model.kinds.intent import Probe


class Streak(msgspec.Struct, frozen=True, gc=False):
    """`passing` None: no verdict yet."""

    passing: bool | None = None
    in_a_row: int = 0
    last: bool | None = None


def observe(streak: Streak, probe: Probe, success: bool) -> Streak:
    in_a_row = streak.in_a_row + 1 if streak.last is success else 1
    needed = probe.success_threshold if success else probe.failure_threshold
    passing = success if in_a_row >= needed else streak.passing
    return Streak(passing, in_a_row, success)
