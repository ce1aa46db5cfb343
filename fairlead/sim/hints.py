"""Owns hints that are wrong: what schedulers and controllers rank and guess by is random, upside down or as old as the run.

How good a node is (load, packing, warmth of images, failures of late), when it was last heard, and what a region says that waits
for quota are soft: they may cost, they may authorise nothing, so that no checker may find anything while they lie. What a grant
says is used is not among them: the ledger counts it at the commit that says it. The lies end with the faults. Called by world.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from fairlead.authority.local import LocalPlane
from fairlead.controllers.demand import Demand, Part
from fairlead.decide.scores import SCORE_MAX
from fairlead.model.resources import NOTHING, Resources
from fairlead.scheduler.shapes import Shape
from fairlead.sim.loop import SimLoop

KINDS: Final = ("random", "inverted", "ancient")
_SPREAD: Final = 2654435761  # a large odd number: neighbours get rates that have nothing to do with each other
_AGE_MS: Final = 60_000
_MUCH: Final = Resources(4_000, 8 << 30)  # several times what a workload asks for
_STAYS_S: Final = 5  # what is said to wait for quota is the same for so long

Rate = Callable[..., Any]


@contextmanager
def misled(loop: SimLoop, kind: str, until_s: float) -> Iterator[None]:
    """Until that moment of true time."""
    if not kind:
        yield
        return
    assert kind in KINDS, kind
    with ExitStack() as stack:
        stack.enter_context(_swapped(Shape, "__init__", _shape(loop, kind, until_s)))
        stack.enter_context(_swapped(LocalPlane, "heard", _heard(loop, kind, until_s)))
        stack.enter_context(_swapped(Demand, "of", _wanted(loop, kind, until_s)))
        yield


@contextmanager
def _swapped(owner: Any, name: str, new: Any) -> Iterator[None]:
    kept = getattr(owner, name)
    setattr(owner, name, new)
    try:
        yield
    finally:
        setattr(owner, name, kept)


def _shape(loop: SimLoop, kind: str, until_s: float) -> Any:
    made = Shape.__init__

    def lying(self: Shape, *arguments: Any, **named: Any) -> None:
        made(self, *arguments, **named)
        if loop.now < until_s:
            self._rates = tuple((_rate(loop, kind, until_s, rate), weight) for rate, weight in self._rates)
            self.lines_up = False  # its short cut reads what it knows itself

    return lying


def _rate(loop: SimLoop, kind: str, until_s: float, true: Rate) -> Rate:
    """One source for a single node and for columns of them, as the scores themselves are."""

    def rate(need: Any, row: Any, view: Any) -> Any:
        told = true(need, row, view)
        if loop.now >= until_s:
            return told
        if kind == "inverted":
            return SCORE_MAX - told
        if kind == "ancient":
            return told * 0  # as it was when nothing ran anywhere
        return told * 0 + (row.number * _SPREAD + int(loop.now)) % (SCORE_MAX + 1)

    return rate


def _heard(loop: SimLoop, kind: str, until_s: float) -> Any:
    true, draws = LocalPlane.heard, loop.stream("hints")
    first: dict[str, int] = {}  # when each was heard first

    async def heard(self: LocalPlane, since_ms: int) -> Sequence[tuple[str, int]]:
        if loop.now >= until_s:
            return await true(self, since_ms)
        told = await true(self, 0)
        now_ms = self.plane_ms()
        if kind == "ancient":
            return [(node, first.setdefault(node, when_ms)) for node, when_ms in told if when_ms]
        if kind == "inverted":
            return [(node, max(1, 2 * now_ms - _AGE_MS - when_ms)) for node, when_ms in told if when_ms]
        return [(node, max(1, now_ms - draws.randrange(_AGE_MS))) for node, _ in told]

    return heard


def _wanted(loop: SimLoop, kind: str, until_s: float) -> Any:
    true = Demand.of

    def of(self: Demand, tenant: str) -> Part:
        told = true(self, tenant)
        if loop.now >= until_s:
            return told
        if kind == "ancient":
            return told._replace(waiting=NOTHING, unplaced=NOTHING)  # as it was when nothing ran anywhere
        if kind == "inverted":
            return told._replace(waiting=_MUCH if told.waiting == NOTHING else NOTHING, unplaced=NOTHING)
        number = (int(loop.now) // _STAYS_S + len(tenant)) * _SPREAD
        return told._replace(waiting=_MUCH.times(number % 4), unplaced=_MUCH.times(number // 4 % 4))

    return of
