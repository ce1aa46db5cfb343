"""Owns shrinking: from a seed that fails, a smaller scenario that fails in the same way.

Drops faults first (whole kinds, then single strikes), then moves the picks of who runs next towards first come, first served. The
same failure is the same invariant. Every try is a whole run, so there is a budget. Called by campaign.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from fairlead.sim.scenario import Faults, Scenario
from fairlead.sim.world import Verdict

Run = Callable[[Scenario], Verdict]
Say = Callable[[str], None]


class Spent(Exception):
    """No more runs are left."""


class Shrinking:
    def __init__(self, scenario: Scenario, invariant: str, budget: int, run: Run, say: Say = lambda text: None) -> None:
        self.scenario = scenario
        self.invariant = invariant
        self.runs = 0
        self.verdict: Verdict | None = None  # of the smallest that still fails
        self._budget = budget
        self._run = run
        self._say = say

    def shrink(self) -> bool:
        """False: the scenario does not fail in this way any more, and is as it was."""
        if not self._fails(self.scenario, "as it is"):
            return False
        try:
            self._shorten()
            self._drop_kinds()
            self._drop_strikes()
            self._calm_picks()
        except Spent:
            self._say(f"{self._budget} runs are spent")
        return True

    def _fails(self, tried: Scenario, what: str) -> bool:
        if self.runs >= self._budget:
            raise Spent
        self.runs += 1
        verdict = self._run(tried)
        same = any(finding.invariant == self.invariant for finding in verdict.findings)
        self._say(f"run {self.runs}: {what}: {'fails still' if same else 'does not fail'}")
        if same:
            self.scenario, self.verdict = tried, verdict
        return same

    def _shorten(self) -> None:
        """Nothing after the finding matters, where it came while faults struck."""
        assert self.verdict is not None
        at_s = min(finding.at_s for finding in self.verdict.findings if finding.invariant == self.invariant)
        if at_s + 2 < self.scenario.rough_s:
            self._fails(replace(self.scenario, rough_s=math.ceil(at_s) + 1.0), "shorter")

    def _drop_kinds(self) -> None:
        for name in Faults.__struct_fields__:
            if getattr(self.scenario.faults, name):
                self._fails(replace(self.scenario, faults=replace(self.scenario.faults, **{name: 0.0})), f"without {name}")
        if self.scenario.remains:
            self._fails(replace(self.scenario, remains=""), "all of it healed")
        if self.scenario.work.operators:
            calm = replace(self.scenario.work, operators=0.0)
            self._fails(replace(self.scenario, work=calm), "without operators")

    def _drop_strikes(self) -> None:
        """Halves, then halves of halves, down to each one of them."""
        assert self.verdict is not None
        size = len(self.verdict.strikes)
        while size >= 1:
            start = 0
            while start < len(self.verdict.strikes):
                if not self._without(self.verdict.strikes[start : start + size]):
                    start += size  # else those behind have moved up
            size //= 2

    def _without(self, strikes: Sequence[str]) -> bool:
        what = strikes[0] if len(strikes) == 1 else f"{len(strikes)} strikes"
        return self._fails(replace(self.scenario, skips=(*self.scenario.skips, *strikes)), f"without {what}")

    def _calm_picks(self) -> None:
        """First none of the picks by the seed, then only the last half of those that were needed, and so on."""
        assert self.verdict is not None
        if self._fails(replace(self.scenario, seeded=(0, 0)), "first come, first served"):
            return
        begin, end = 0, self.verdict.steps
        while end - begin > 1_000:
            middle = (begin + end) // 2
            if not self._fails(replace(self.scenario, seeded=(middle, end)), f"seeded picks from step {middle}"):
                break
            begin = middle
        while end - begin > 1_000:
            middle = (begin + end) // 2
            if not self._fails(replace(self.scenario, seeded=(begin, middle)), f"seeded picks until step {middle}"):
                break
            end = middle
