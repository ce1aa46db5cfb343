"""The extension points between a choice and its commit: reserve, permit, bind, post-bind, and unreserve on every other way.

Asks those of the policy that chose each placement, in their order. What waits for a permit keeps its place in the picture and
what it reserved, until its deadline. A policy without extensions costs one truth test a run. Called by the scheduler around a
cycle.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fairlead.decide.extensions import NO_EXTENSIONS, Allow, Deny, Extensions, Wait
from fairlead.decide.need import View
from fairlead.model.commands import Bind, BindGang, Outcome, Reserve
from fairlead.scheduler.cycle import Cycle, Failure, Placement, Run
from fairlead.scheduler.units import known_reason


class Waiting(msgspec.Struct, gc=False):
    """Placements of one run, decided together, that wait for a permit."""

    run: Run
    until_ms: int
    reason: str


class Points:
    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._waiting: list[Waiting] = []

    def admit(self, runs: list[Run], view: View) -> list[Run]:
        """Reserves and asks for permits; what is stopped becomes a failure. Answers with the runs that may go now."""
        going = []
        for run in runs:
            points = _points_of(run)
            if points is not None and run.placements:
                self._reserve(run, points)
                if not self._permitted(run, points, view, first=True):
                    continue
            going.append(run)
        return going

    def permitted_now(self, view: View) -> list[Run]:
        """Of the runs that wait, those whose waiting is over, one way or the other."""
        waiting, self._waiting = self._waiting, []
        over = []
        for one in waiting:
            points = _points_of(one.run)
            assert points is not None
            if view.now_ms >= one.until_ms:
                self._stop(one.run, points, list(one.run.placements), one.reason, "no permit came in time")
                over.append(one.run)
            elif self._permitted(one.run, points, view, first=False):
                over.append(one.run)
        return over

    @property
    def waits_until_ms(self) -> int | None:
        return min((one.until_ms for one in self._waiting), default=None)

    def commands_for(self, run: Run) -> Sequence[Bind | BindGang | Reserve] | None:
        """What an extension would send for this run; None: the built-in way."""
        points = _points_of(run)
        if points is None:
            return None
        for point in points.binds:
            made = point.bind(run.placements)
            if made is not None:
                return made
        return None

    def settled(self, run: Run, outcomes: dict[int, Outcome], lost: list[Placement]) -> None:
        """The authority has answered; `lost` are those that were not bound."""
        points = _points_of(run)
        if points is None:
            return
        if lost:
            for point in points.reserves:
                point.unreserve(lost)
        told = [placement for placement in run.placements if id(placement) in outcomes]
        for post in points.post_binds:
            post.post_bind(told, [outcomes[id(placement)] for placement in told])

    # --- steps -----------------------------------------------------------------------------------------------------------

    def _reserve(self, run: Run, points: Extensions) -> None:
        for point in points.reserves:
            answers = point.reserve(run.placements)
            stopped = [(placement, stop) for placement, stop in zip(run.placements, answers, strict=True) if stop is not None]
            if run.gang and stopped:  # all or none
                self._stop(run, points, list(run.placements), stopped[0][1].reason, stopped[0][1].detail)
                return
            for placement, stop in stopped:
                self._stop(run, points, [placement], stop.reason, stop.detail)

    def _permitted(self, run: Run, points: Extensions, view: View, *, first: bool) -> bool:
        """True: the run may go, with what is left of it. It waits as a whole for the one that waits longest."""
        until_ms, reason = 0, ""
        for point in points.permits:
            verdicts = point.permit(run.placements, view)
            for placement, verdict in list(zip(run.placements, verdicts, strict=True)):
                match verdict:
                    case Allow():
                        continue
                    case Wait():
                        until_ms, reason = max(until_ms, verdict.until_ms), verdict.reason
                    case Deny():
                        everybody = list(run.placements) if run.gang else [placement]
                        self._stop(run, points, everybody, verdict.reason, verdict.detail)
                        if run.gang:
                            return True
        if until_ms > view.now_ms:
            self._waiting.append(Waiting(run, until_ms, reason))
            return False
        return True

    def _stop(self, run: Run, points: Extensions, placements: list[Placement], reason: str, detail: str) -> None:
        for point in points.reserves:
            point.unreserve(placements)
        for placement in placements:
            self._cycle.take_back(placement)
            run.placements.remove(placement)
            run.failures.append(Failure(placement.item, *known_reason(reason, detail), {"extension": 1}, placement.shape))


def _points_of(run: Run) -> Extensions | None:
    """The extensions of the policy that decided the run; None where it has none."""
    shape = run.shape if run.shape is not None else run.placements[0].shape if run.placements else None
    if shape is None or shape.policy.extensions is NO_EXTENSIONS:
        return None
    return shape.policy.extensions
