"""How often a component asks for its lease while it does not get it. In virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, cast

from fairlead.client.leased import Health, Leased, Terms
from fairlead.client.plane import Feed, Plane
from fairlead.model.commands import Accepted, Command, Outcome, Refused
from fairlead.model.lifecycle import Role
from fairlead.ports import Tasks
from fairlead.sim import loop as sim
from fairlead.sim.loop import SimLoop, sleep


class Answering:
    """A plane of which nothing is asked but leases, and its clock."""

    def __init__(self, loop: SimLoop, answer: Callable[[float], Outcome]) -> None:
        self._loop = loop
        self._answer = answer
        self.asked: list[float] = []

    async def submit(self, commands: list[Command]) -> list[Outcome]:
        self.asked.append(round(self._loop.now, 6))
        return [self._answer(self._loop.now) for _ in commands]

    def monotonic(self) -> float:
        return self._loop.now

    def wall(self) -> float:
        return self._loop.now

    async def sleep(self, seconds: float) -> None:
        await sleep(seconds)


class Asking(Leased):
    def __init__(self, plane: Answering) -> None:
        terms = Terms("asking", "one", Role.REPAIR)
        super().__init__(cast(Plane, plane), plane, random.Random(1), terms, ("nodes",))

    def _restarted(self, error: BaseException) -> None:
        raise error

    def health(self) -> Health:
        return Health()

    async def _work(self, feed: Feed, tasks: Tasks) -> None:
        raise AssertionError("it is not asked to")


def _asked(answer: Callable[[float], Outcome], starts: tuple[float, ...]) -> list[list[float]]:
    async def main(loop: SimLoop) -> list[list[float]]:
        planes = [Answering(loop, answer) for _ in starts]

        async def asks(plane: Answering, at: float) -> Any:
            await sleep(at)
            assert await Asking(plane)._acquire()

        await asyncio.gather(*(asks(plane, at) for plane, at in zip(planes, starts, strict=True)))
        return [plane.asked for plane in planes]

    return sim.run(main, 1).value


def test_a_store_that_takes_nothing_is_soon_asked_by_all_at_the_same_moments_once_a_second() -> None:
    def answer(now: float) -> Outcome:
        return Refused("StoreUnavailable", "nothing was written") if now < 20.5 else Accepted(1, "leases//asking", epoch=1)

    first, second = _asked(answer, (0.0, 0.33))
    assert first[:5] == [0.0, 0.2, 0.4, 0.6, 0.8]
    assert first[5:] == [float(at) for at in range(1, 22)]
    assert second[5:] == [float(at) for at in range(2, 22)]


def test_a_lease_that_another_holds_is_asked_for_when_that_ends() -> None:
    def answer(now: float) -> Outcome:
        left_s = 7.3 - now
        return (
            Refused("LeaseHeld", "by another", retry_after_s=left_s) if left_s > 0.001 else Accepted(1, "leases//asking", epoch=1)
        )

    (asked,) = _asked(answer, (0.0,))
    assert asked == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 7.3]
