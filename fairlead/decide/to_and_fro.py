"""Slots that two movers send to and fro between regions, noticed from the Assignments they come to. Pure: the time comes in.

Overflow moves slots that find no place; recovery brings what stands in, and takes it away again (failback). Each has rules of its
own against going back and forth, and knows nothing of the other. A slot that goes to another region has another number there, so
what is counted is how often a region of one workload gained after it had lost, or lost after it had gained. Who alone follows the
world is left alone: a region may well be lost many times in an hour. Where both have a part in it overflow is held back for this
workload; recovery never is, for somebody lacks what it orders. What people scale, or allow otherwise, is nobody's move. Owns the
memory, which a new leader begins anew. Called by oscillation.py with every Assignment that the workload controller wrote.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Literal, NamedTuple

from fairlead.decide.assigning import own_slots
from fairlead.decide.spans import size
from fairlead.model.kinds.work import AssignmentSpec, Overflow

WINDOW_MS: Final = 3_600_000  # movers take their time: a slot waits for a minute, and who gave takes nothing for ten
TURNS: Final = 4  # one is a loss and its end; three may be two of them
HOLD_FIRST_MS: Final = 600_000
HOLD_MAX_MS: Final = 3_600_000
WORKLOADS_MAX: Final = 10_000

Mover = Literal["overflow", "recovery"]


class Held(NamedTuple):
    movers: tuple[Mover, Mover]  # who moved last, and the other
    until_ms: int


class _Given(NamedTuple):
    own: int
    stand_in: int
    overflow: Overflow


class _Move(NamedTuple):
    at_ms: int
    mover: Mover
    gained: bool


class _Moves:
    __slots__ = ("given", "held_until_ms", "holds", "last", "turns")

    def __init__(self) -> None:
        self.given: dict[str, _Given] = {}  # by region
        self.last: dict[str, _Move] = {}  # by region
        self.turns: list[tuple[_Move, _Move]] = []  # what was undone, and by what
        self.holds, self.held_until_ms = 0, 0


class ToAndFro:
    def __init__(self) -> None:
        self._of: OrderedDict[str, _Moves] = OrderedDict()  # by workload uid

    def assigned(self, spec: AssignmentSpec, now_ms: int) -> Held | None:
        moves = self._of.setdefault(spec.workload_uid, _Moves())
        self._of.move_to_end(spec.workload_uid)
        if len(self._of) > WORKLOADS_MAX:
            self._of.popitem(last=False)
        now = _Given(own_slots(spec), size((spec.recovery,)) if spec.recovery is not None else 0, spec.overflow)
        before = moves.given.get(spec.region)
        moves.given[spec.region] = now
        if before is None:
            return None
        for mover, more in _moved(before, now):
            move, last = _Move(now_ms, mover, more > 0), moves.last.get(spec.region)
            moves.last[spec.region] = move
            if last is not None and last.gained != move.gained:
                moves.turns.append((last, move))
        moves.turns = [turn for turn in moves.turns if turn[0].at_ms > now_ms - WINDOW_MS]
        return _judged(moves, now_ms)


def _moved(before: _Given, now: _Given) -> list[tuple[Mover, int]]:
    """Who made how many more, or fewer, of it. Overflow writes down when it gives and takes."""
    out: list[tuple[Mover, int]] = []
    times = [(each.gave_time, each.took_time) for each in (before.overflow, now.overflow)]
    if now.own != before.own and times[0] != times[1]:
        out.append(("overflow", now.own - before.own))
    if now.stand_in != before.stand_in:
        out.append(("recovery", now.stand_in - before.stand_in))
    return out


def _judged(moves: _Moves, now_ms: int) -> Held | None:
    if len(moves.turns) < TURNS or len({move.mover for turn in moves.turns for move in turn}) < 2:
        return None
    last = moves.turns[-1][1].mover
    holds = moves.holds if now_ms <= moves.held_until_ms + WINDOW_MS else 0
    moves.holds, moves.turns = holds + 1, []
    moves.held_until_ms = now_ms + min(HOLD_MAX_MS, HOLD_FIRST_MS << min(holds, 10))
    return Held((last, "recovery" if last == "overflow" else "overflow"), moves.held_until_ms)
